"""The Python interface: `opweld.optimize(module, example_inputs)` for any `nn.Module` object.

It goes the way of the command line: the emitted file is what is judged, and what runs.
"""

from __future__ import annotations

import hashlib
import html
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from torch import nn
from torch.utils import _pytree as pytree

from opweld import account, driver
from opweld.account import Account
from opweld.compiled import Compiled, PlanRow
from opweld.delivery import check_output, check_result, partial_result, publish, write_whole
from opweld.errors import UserError
from opweld.interface import logs
from opweld.interface.embed import embedded_source, is_importable
from opweld.interface.held import Held
from opweld.interface.progress import Progress
from opweld.interface.reasons import log_reasons
from opweld.interface.why import why
from opweld.ir.original import Original
from opweld.judge import check as judge_pair
from opweld.judge import report, started
from opweld.judge.values import Event, Judgement, KernelTiming, Settings, Timing, Verdict
from opweld.model_file import import_file
from opweld.options import Options, from_environment, listed
from opweld.pipeline import Delivery, Follower, settings_of
from opweld.pipeline import optimize as run_line
from opweld.process.builder import build_in_child
from opweld.report import frame, page


@dataclass(frozen=True, slots=True)
class Result:
    """What `optimize` found and made.

    Attributes:
        module: a ModelNew that shares the parameters, buffers and submodules of the module that it
            was made from. It is a subclass of that module's class.
        text: the file that it was imported from, which stands alone.
        delivery: how it came about: the plan, the judgement, what went back to PyTorch and why.
    """

    module: nn.Module
    text: str
    delivery: Delivery

    @property
    def verdict(self) -> Verdict | None:
        """Each check of the judge, and the grade; None where the judge was left out."""
        return self.delivery.judgement.verdict if self.delivery.judgement else None

    @property
    def timing(self) -> Timing | None:
        """Milliseconds a call, of eager, torch.compile and ModelNew, and speed-ups (above 1 is
        faster); None where the judge was left out or could not measure.
        """
        return self.delivery.judgement.timing if self.delivery.judgement else None

    @property
    def plan(self) -> tuple[PlanRow, ...]:
        """One row a group, in running order: its name, kind, ops, and the reason for it."""
        return self.delivery.compiled.main_rows

    @property
    def kernels(self) -> tuple[KernelTiming, ...]:
        """Milliseconds, bytes and registers of each kernel, where they were measured (on CUDA)."""
        return self.delivery.kernels

    def save(self, path: str | Path) -> Path:
        """Writes the emitted file, which needs torch and a compiler, and nothing of opweld.

        A name without an ending is a package: a folder with the same texts in files of their own.

        Raises:
            OutputNotWritable: the place cannot be written, or is a folder with other things in it.
        """
        out = Path(path)
        check_result(out)
        with partial_result(out, self.text) as partial:
            publish(partial, out)
        return out

    def why(self, *args: Any, **kwargs: Any) -> str:
        """Whether a call of `module` with these arguments runs the kernels, and if not, why.

        It is about the state of now: the module's mode, autocast, whether gradients are asked for.
        Nothing is run, but where only submodules have kernels: a copy, which shows how they are
        called. Without arguments, where the forward takes some: the plan's reasons, a line
        a group.

        Raises:
            TypeError: the arguments are none for its forward.
        """
        if args or kwargs or not _takes_arguments(self.module):
            return why(self.module, self.text, args, kwargs)
        return "\n".join(f"{row.label}: {row.reason}" for row in self.plan)

    def __repr__(self) -> str:
        """A paragraph: the verdict, what was fused and what was not, what to do with it."""
        fused = len({row.name for row in self.plan if row.is_kernel})
        left = sum(row.kind == "library" for row in self.plan)
        made = f"{_count(fused, 'kernel')}, {_count(left, 'call')} left to PyTorch"
        notes = " ".join(f"{note[:1].upper()}{note[1:]}." for note in self.delivery.notes)
        use = "`.module` is the model, `.text` its file, `.save(path)` writes it, `.plan` says why."
        return " ".join(filter(None, (f"opweld: {self.summary()}; {made}.", notes, use)))

    def summary(self) -> str:
        """One line: equivalent or not verified, and how much faster."""
        judgement = self.delivery.judgement
        return report.verdict_line(judgement) if judgement else "not verified"

    def report(self, path: str | Path) -> Path:
        """Writes the report: one page for a browser, which needs no network.

        Raises:
            OutputNotWritable: the place cannot be written.
        """
        out = Path(path)
        check_output(out)
        write_whole(out, page(self._account()))
        return out

    def _repr_html_(self) -> str:
        return f"<p><b>opweld</b>: {html.escape(self.summary())}</p>{frame(self._account())}"

    def _account(self) -> Account:
        """Named by the class: the files that were judged are gone."""
        name = type(self.module).__mro__[1].__name__
        return replace(
            account.of_delivery(self.delivery), model=name, model_new=f"{name} of opweld"
        )


def optimize(
    module: nn.Module,
    example_inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    target: str = "auto",
    precision: str = "match",
    mode: str = "own",
    autocast: str | Sequence[str] = (),
    dtype: str | Sequence[str] = (),
    dynamic_shapes: Mapping[str, Any] | None = None,
    seed: int | None = None,
    check: bool = True,
    weight_cache: bool = True,
    training: bool = False,
    memory_budget: float = 1.0,
    algebra: str = "exact",
    baselines: str | Sequence[str] | None = None,
    thorough: bool = False,
    stop_at_first: bool = True,
    time_limit_s: float | None = None,
    sandbox: str | None = None,
    pass_env: str | Sequence[str] = (),
    verbose: bool = False,
) -> Result:
    """Fuses the operators of `module` for calls like `module(*example_inputs, **kwargs)`.

    Args:
        module: any module; it is left as it is, and the result shares its parameters.
        example_inputs: a tensor, or a list or tuple of the forward's positional arguments.
        mode: "eval", "training", "both" or the module's "own"; elsewhere the original runs.
        autocast, dtype, training: kernels for these, too, and for gradients in training.
        dynamic_shapes: the axes whose sizes vary beside the batch, as torch.export takes them:
            {"x": {1: "length"}} or {"x": (None, "length")}; any value but None will do.
        target: "auto" is the device that the module and the inputs are on.
        check: pickle the module for child processes, which verify and time the result.
        weight_cache: keep forms of weights that products read faster from call to call.
        algebra: "exact", "finite" (assume finite inputs) or "off": how the mathematics may change.
        baselines: what it is timed beside, of "eager", "compile", "graph" and "autotune".
        memory_budget, seed, thorough, stop_at_first, time_limit_s, sandbox, pass_env: as options.
        verbose: show the progress on stderr.

    Raises:
        UserError: the module cannot be captured, pickled or compiled, or an option does not exist.
        JudgeFailed: what was made is not equivalent; its `judgement` says why.
    """
    args, named = _call_of(module, example_inputs, kwargs)
    plain = {"precision": precision, "mode": mode, "seed": seed, "check": check, "algebra": algebra}
    options = from_environment(
        None,
        target=_target(target, module, (args, named)),
        autocast=listed(autocast),
        dtype=listed(dtype),
        dynamic=_dynamic(dynamic_shapes or {}),
        **plain,
        **_kept(weight_cache, training, memory_budget),
        baselines=None if baselines is None else ",".join(listed(baselines) or ()),
        **_limits(time_limit_s, sandbox, pass_env, thorough, stop_at_first),
    )
    return _optimized(module, args, named, options, verbose)


def _kept(weight_cache: bool, training: bool, memory_budget: float) -> dict[str, Any]:
    """What calls leave for later ones, and for gradients."""
    return {"weight_cache": weight_cache, "training": training, "memory_budget": memory_budget}


def _limits(
    time_limit_s: float | None,
    sandbox: str | None,
    pass_env: str | Sequence[str],
    thorough: bool,
    stop_at_first: bool,
) -> dict[str, Any]:
    """How long and how far the judge goes, and what confines the processes that it runs."""
    judged = {"thorough": thorough, "stop_at_first": stop_at_first}
    confined = {"sandbox": sandbox, "pass_env": listed(pass_env)}
    return {"time_limit_s": time_limit_s, **judged, **confined}


def _dynamic(shapes: Mapping[str, Any]) -> tuple[str, ...]:
    """The axes of `dynamic_shapes` as the option names them."""
    found = []
    for name, axes in shapes.items():
        pairs = axes.items() if isinstance(axes, Mapping) else enumerate(axes or ())
        wanted = [str(axis) for axis, size in pairs if size is not None]
        found += [f"{name}:{','.join(wanted)}"] if wanted else []
    return tuple(found)


def _call_of(
    module: Any, example_inputs: Any, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(module, nn.Module):
        raise UserError(f"optimize takes a torch.nn.Module, not a {type(module).__name__}")
    several = isinstance(example_inputs, (list, tuple))
    return tuple(example_inputs) if several else (example_inputs,), dict(kwargs or {})


def _optimized(
    module: nn.Module,
    args: tuple[Any, ...],
    named: dict[str, Any],
    options: Options,
    verbose: bool,
) -> Result:
    logs.show(options)
    with tempfile.TemporaryDirectory(prefix="opweld-") as folder:
        job = _Job(module, args, named, Path(folder))
        delivery = job.run(options, verbose)
        text = delivery.out.read_text("utf-8")
        adopted = job.adopted(delivery.out)
    log_reasons(adopted, text, torch.compiler.is_compiling)
    return Result(adopted, text, delivery)


def _takes_arguments(module: nn.Module) -> bool:
    given = inspect.signature(module.forward).parameters.values()
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return any(each.default is each.empty and each.kind not in variadic for each in given)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _target(target: str, module: nn.Module, call: Any) -> str:
    if target != "auto":
        return target
    tensors = (*module.parameters(), *module.buffers(), *_tensors(call))
    return "cuda" if any(tensor.is_cuda for tensor in tensors) else "cpu"


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))


class _Job:
    """One module on its way through the line."""

    def __init__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], folder: Path
    ) -> None:
        self._module, self._args, self._kwargs, self._folder = module, args, kwargs, folder
        self._held = _held(module, folder)

    def run(self, options: Options, verbose: bool) -> Delivery:
        original, adopted = self._folder / "original.py", self._folder / "adopted.py"
        if options.check:
            original, adopted = self._held.write(self._module, self._call())
        else:
            original.write_text("", "utf-8")

        def compile_file(path: Path, chosen: Options, on_stage: Callable[[str], None]) -> Compiled:
            about = original_of(self._module, self._held)
            return driver.compile_module(
                self._module, self._args, self._kwargs, about, chosen, on_stage
            )

        def judge(
            model: Path, new: Path, settings: Settings, on_progress: Callable[[Event], None]
        ) -> Judgement:
            self._held.write_adopted(new)
            return judge_pair(model, adopted, settings, on_progress, server)

        steps = (compile_file, build_in_child, judge)
        out = self._folder / f"{type(self._module).__name__}_new.py"
        with started(settings_of(options) if options.check else None) as server:
            if not verbose:
                return run_line(original, out, options, _Logged(), *steps)
            with Progress(Console(stderr=True)) as progress:
                return run_line(original, out, options, progress, *steps)

    def adopted(self, emitted: Path) -> nn.Module:
        """The caller's own module as the emitted file's ModelNew, imported in this process."""
        if self._held.source is not None:
            _stand_in(self._held, self._module)
        text = emitted.read_bytes()
        new = import_file(emitted, f"opweld_emitted_{hashlib.sha256(text).hexdigest()[:12]}")
        adopted: nn.Module = new.ModelNew.adopt(self._module)
        return adopted

    def _call(self) -> list[Any] | dict[str, Any]:
        """The example call as the judge reads it: a list, or all by name where there are names."""
        if not self._kwargs:
            return list(self._args)
        signature = inspect.signature(self._module.forward)
        return dict(signature.bind(*self._args, **self._kwargs).arguments)


class _Logged(Follower):
    """Tells the logger of the package."""

    def step(self, stage: str, message: str = "") -> None:
        logs.LOG.info("%s%s", stage, f": {message}" if message else "")

    def say(self, sentence: str) -> None:
        logs.LOG.info("%s", sentence)


def _held(module: nn.Module, folder: Path) -> Held:
    classes = list(dict.fromkeys(type(each) for each in module.modules()))
    homeless = [cls for cls in classes if not is_importable(cls)]
    source = embedded_source(homeless) if type(module) in homeless else None
    homes = tuple(dict.fromkeys(cls.__module__ for cls in homeless))
    return Held(str(folder), source, homes, tuple(sys.path))


def original_of(module: nn.Module, held: Held) -> Original:
    """Where the emitted file finds the class of `module`."""
    cls = type(module)
    return Original(f"{cls.__name__}.py", cls.__module__, cls.__qualname__, held.source)


def _stand_in(held: Held, module: nn.Module) -> None:
    """Lets the emitted file take this process's own classes for those of its embedded source.

    It looks for them under a name made from that source before it executes it (`_apart` in the
    emitted file), so `type(module)` is the class that its ModelNew extends.
    """
    assert held.source is not None
    name = "_opweld_original_" + hashlib.sha256(held.source.encode()).hexdigest()[:12]
    stand_in = ModuleType(name)
    for cls in dict.fromkeys(type(each) for each in module.modules()):
        if cls.__module__ in held.homes:
            vars(stand_in).update(_names_around(cls))
    stand_in.__name__ = name
    sys.modules[name] = stand_in


def _names_around(cls: type) -> dict[str, Any]:
    """Those of the module that a class is from, which may have been executed and not registered."""
    if (home := sys.modules.get(cls.__module__)) is not None:
        return vars(home)
    forward: Any = inspect.unwrap(cls.forward)  # type: ignore[attr-defined]
    return forward.__globals__
