"""What torch.compile calls for each graph that Dynamo finds in a model.

Graph breaks, guards and compiling anew are Dynamo's work. A graph is compiled at its first call, on
the arguments of that call, by what `opweld.optimize` is made of, and compared with the graph once.
What cannot be captured, is wrong, or has nothing to fuse runs as PyTorch has it. Gradients go
through the kernels' own autograd functions, as in any emitted file, or with the option `training`
through kernels.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from opweld.api import Result, optimize
from opweld.dynamo.first_call import first_difference, generators_restored
from opweld.dynamo.graph_class import GraphClass, NoClass, class_of
from opweld.errors import UserError, clipped
from opweld.interface.logs import LOG
from opweld.interface.why import HELD, HOST_BOUND, why
from opweld.options import AUTOCASTS
from opweld.pipeline import not_verified

FIRST, FULL, OFF = VERIFY = ("first", "full", "off")
# Graphs whose sizes change are compiled for so many of them; other calls run as PyTorch has them.
MOST_SIZES = 8
_MOST_KEPT = 1000
# Sets of parameters and sizes that a graph remembers: a buffer may be another tensor each time.
_MOST_RUNS = 64
_COMPARED = "Compared with eager and float64 at the first call of its graph, and not judged, torch"

# Runs a call, given all arguments of the graph.
_Run = Callable[[Sequence[Any]], Any]


class OpweldWarning(UserWarning):
    """A graph runs as PyTorch has it."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The `options` of torch.compile.

    Attributes:
        verify: "first" compares each graph with eager and float64 on the arguments of its first
            call, "full" has the judge verify it, in other processes, and "off" believes it.
        save: folder that gets the emitted file of each graph.
        training: whether gradients have kernels, too; without, a graph of convolutions that is
            asked for gradients runs as PyTorch has it.
    """

    verify: str = FIRST
    save: str | None = None
    training: bool = False


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """What became of one graph, for the sizes of one call.

    Attributes:
        place: the user's line where the graph begins.
        kernels: names of its kernels.
        text: the emitted file; "" where none was made.
        reason: why the graph runs as PyTorch has it; "" where its kernels run.
    """

    place: str
    kernels: tuple[str, ...]
    text: str
    reason: str


_COMPILED: deque[CompiledGraph] = deque(maxlen=_MOST_KEPT)


def graphs() -> tuple[CompiledGraph, ...]:
    """The graphs that `torch.compile(backend="opweld")` compiled in this process, oldest first."""
    return tuple(_COMPILED)


def opweld(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend: a callable in the place of a graph. Nothing is compiled until it is called.

    Raises:
        UserError: an option or a value of it does not exist.
    """
    choices = _choices(mode, options)
    try:
        graph_class = class_of(graph_module, example_inputs)
    except NoClass as reason:
        _keep(CompiledGraph("", (), "", str(reason)))
        return graph_module.forward
    return _Graph(graph_module, graph_class, choices)


def _choices(mode: str | None, options: Mapping[str, Any] | None) -> Choices:
    if mode not in (None, "default"):
        raise UserError(f"the backend opweld has no mode {mode}", next_step="leave it out")
    given, known = dict(options or {}), [each.name for each in fields(Choices)]
    for name in given:
        if name not in known:
            raise UserError(
                f"the backend opweld has no option {name}", next_step=f"use {' or '.join(known)}"
            )
    choices = Choices(**given)
    if choices.verify not in VERIFY:
        raise UserError(
            f"verify is {choices.verify!r}", next_step=f"use one of {', '.join(VERIFY)}"
        )
    if not isinstance(choices.training, bool):
        raise UserError(f"training is {choices.training!r}", next_step="use True or False")
    if choices.save is not None:
        _make_folder(choices.save)
    return choices


def _make_folder(path: Any) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (TypeError, OSError) as error:
        raise UserError(f"save is {path!r}: {error}", next_step="name a folder") from error


class _Graph:
    """A graph and what was made of it: of each call's sizes, and of each set of parameters."""

    def __init__(self, original: fx.GraphModule, made: GraphClass, choices: Choices) -> None:
        self._original = original
        self._class = made
        self._choices = choices
        self._state, self._inputs = tuple(made.state), made.inputs
        self._runs: dict[tuple[Any, ...], _Run] = {}
        self._results: list[Result] = []

    def __call__(self, *args: Any) -> Any:
        key = self._key(args)
        run = self._runs.get(key)
        if run is None:
            run = self._made(args)
            if len(self._runs) >= _MOST_RUNS:
                del self._runs[next(iter(self._runs))]
            self._runs[key] = run
        return run(args)

    def _key(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Which parameters, and which numbers and sizes where Dynamo leaves them open."""
        state = tuple(id(args[n]) for n in self._state)
        given = (args[n] for n in self._inputs)
        if not self._class.sizes:
            return state, *(each for each in given if not isinstance(each, torch.Tensor))
        return state, *(e.shape if isinstance(e, torch.Tensor) else e for e in given)

    def _made(self, args: Sequence[Any]) -> _Run:
        """A file that has kernels for the call, or a new one of those that there may be."""
        call, module = [args[n] for n in self._inputs], self._class.module(args)
        for result in self._results:
            adopted = type(result.module).adopt(module)  # type: ignore[attr-defined]
            if _misfit(adopted, result.text, call) is None:
                return self._calls(adopted)
        if len(self._results) >= MOST_SIZES:
            return self._as_it_is("", f"{MOST_SIZES} other sizes of its inputs have kernels")
        with generators_restored():
            return self._compiled(module, call)

    def _compiled(self, module: nn.Module, call: list[Any]) -> _Run:
        full = self._choices.verify == FULL
        try:
            autocast, training = _autocast(call), self._choices.training
            result = optimize(module, call, check=full, autocast=autocast, training=training)
        except Exception as error:  # whatever it is, the model runs without its kernels
            return self._as_it_is("", str(error) or type(error).__name__, warn=True)
        kernels = tuple(row.name for row in result.plan if row.is_kernel)
        if not kernels:
            return self._as_it_is(result.text, _left(result))
        if misfit := _misfit(result.module, result.text, call):
            return self._as_it_is(result.text, misfit, warn=True)
        if self._choices.verify == FIRST:
            if clause := _difference(module, result.module, call):
                return self._as_it_is(result.text, clause, warn=True)
            compared = f"{_COMPARED} {torch.__version__}."
            result = replace(result, text=result.text.replace(not_verified(), compared))
        self._results.append(result)
        self._save(result)
        names = tuple(dict.fromkeys(kernels))
        _keep(CompiledGraph(self._class.place, names, result.text, ""))
        return self._calls(result.module)

    def _calls(self, module: nn.Module) -> _Run:
        inputs = self._inputs
        return lambda args: module(*[args[n] for n in inputs])

    def _as_it_is(self, text: str, reason: str, warn: bool = False) -> _Run:
        place, original = self._class.place, self._original
        _keep(CompiledGraph(place, (), text, reason))
        if warn:
            sentence = f"opweld: the graph at {place} runs as PyTorch has it: {clipped(reason)}"
            warnings.warn(sentence, OpweldWarning, stacklevel=2)
        return lambda args: original.forward(*args)

    def _save(self, result: Result) -> None:
        if self._choices.save:
            folder = Path(self._choices.save)
            name = type(result.module).__mro__[1].__module__.removeprefix("opweld_")
            result.save(folder / f"{name}_{len(self._results)}.py")


def _keep(compiled: CompiledGraph) -> None:
    _COMPILED.append(compiled)
    made = f"{len(compiled.kernels)} kernels" if compiled.kernels else compiled.reason
    LOG.info("the graph at %s: %s", compiled.place or "no line", made)


def _difference(original: nn.Module, new: nn.Module, call: Sequence[Any]) -> str | None:
    """What is wrong with the kernels; a comparison that fails is no proof that they are right."""
    try:
        clause = first_difference(original, new, call)
    except Exception as error:
        return f"its kernels could not be compared: {error}"
    return f"its kernels are wrong: {clause}" if clause else None


def _misfit(module: nn.Module, text: str, call: Sequence[Any]) -> str | None:
    """Why the original runs such calls, which is not that they are small."""
    said = why(module, text, tuple(call), {})
    return None if said == HELD or HOST_BOUND in said else said


def _left(result: Result) -> str:
    """Why nothing of it is fused: the plan's first reason."""
    return next((row.reason for row in result.plan if row.reason), "there is nothing to fuse")


def _autocast(call: Sequence[Any]) -> tuple[str, ...]:
    """The dtype that products are cast to around the call, where there is one."""
    kinds = dict.fromkeys(t.device.type for t in call if isinstance(t, torch.Tensor))
    active = [str(torch.get_autocast_dtype(k)) for k in kinds if torch.is_autocast_enabled(k)]
    names = [name.removeprefix("torch.") for name in active]
    return tuple(name for name in names if name in AUTOCASTS)
