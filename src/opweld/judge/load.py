"""Both files as a pair of modules, each built by its own constructor from the same seed.

What is wrong with the model file is the user's to mend (`ModelFileError`, exit code 2); what is
wrong with the other file is a verdict (`CandidateError`, exit code 1) unless it is no module with a
`ModelNew` at all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import random
import secrets
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from opweld.errors import ModelFileError, ModelOutOfMemory, Where
from opweld.judge.build.errors import explain, text_of
from opweld.judge.tree import map_tensors, tensors
from opweld.judge.verify.modes import OWN, put_in_mode
from opweld.model_file import (
    folder_of,
    init_arguments,
    no_list,
    require_class,
    require_instance,
    require_names,
    spec_of,
    with_function,
)

ORIGINAL, NEW = "the original", "ModelNew"


class CandidateError(Exception):
    """ModelNew cannot be built or called.

    The first line of the message is one sentence for the verdict; lines for a person may follow.
    """


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one forward."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> list[torch.Tensor]:
        return tensors([self.args, self.kwargs])

    def map(self, change: Callable[[torch.Tensor], Any]) -> Call:
        return Call(map_tensors(self.args, change), map_tensors(self.kwargs, change))


@dataclass(frozen=True, slots=True)
class Pair:
    """The two models on one device, and where they came from.

    `new` is a `Side` in this process or a `RemoteSide` for one in another.
    """

    original: nn.Module
    new: Any
    module: ModuleType
    model_path: Path
    new_path: Path
    device: torch.device
    batch: int | None
    mode: str = OWN


def seed_all(seed: int) -> None:
    """The same random numbers from here on: Python's, torch's on every device, NumPy's."""
    random.seed(seed)
    if torch.version.cuda and not torch.cuda.is_initialized():
        torch.manual_seed(seed)  # a GPU that is used later begins with it, too
    else:  # without the stack trace that it formats for each kind of device that is not there
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


# Modules that stand in the place of files, by the class that is asked for.
_given: dict[str, ModuleType] = {}


@contextlib.contextmanager
def given_modules(model: ModuleType, new: ModuleType) -> Iterator[None]:
    """Inside, these stand in the place of the files with `Model` and `ModelNew`."""
    _given.update({"Model": model, "ModelNew": new})
    try:
        yield
    finally:
        _given.clear()


def import_model_file(path: Path, function: str = "", name: str = "") -> ModuleType:
    """The model file as a module that has `Model`, `get_inputs` and `get_init_inputs`; where a
    `function` of it is named, `Model` calls that.

    Without a `name` for the module it is drawn, as those of other files are.
    """
    module = guard_original(path, "importing it", lambda: _import(path, "Model", name))
    if function:
        with_function(path, module, "Model", function, nn.Module)
    require_names(path, module)
    require_class(path, module.Model, nn.Module)
    return module


def import_new_file(path: Path, function: str = "") -> ModuleType:
    """The other file as a module that has `ModelNew`; importing it may build its kernels. Where a
    `function` of it is named, `ModelNew` calls that.
    """
    module = guard_new(path, "importing it", lambda: _import(path, "ModelNew"))
    if function:
        with_function(path, module, "ModelNew", function, nn.Module)
    if not inspect.isclass(getattr(module, "ModelNew", None)):
        raise ModelFileError(
            "it defines no class ModelNew",
            where=Where(str(path)),
            next_step="define ModelNew with Model's constructor and forward",
        )
    return module


def build_original(
    module: ModuleType, path: Path, seed: int, device: torch.device, mode: str = OWN
) -> nn.Module:
    """`Model(*get_init_inputs())` on `device`, in the mode that it is made in or another."""

    def build() -> nn.Module:
        args, kwargs = _init_arguments(module, path, seed)
        seed_all(seed)
        model = require_instance(path, module.Model(*args, **kwargs), nn.Module)
        return put_in_mode(model.to(device), mode)

    return guard_original(path, "Model(*get_init_inputs())", build)


def build_new(
    module: ModuleType,
    new_module: ModuleType,
    path: Path,
    seed: int,
    device: torch.device,
    mode: str = OWN,
) -> nn.Module:
    """`ModelNew` from the same arguments and seed, in the same mode, on `device`."""

    def build() -> nn.Module:
        args, kwargs = _init_arguments(module, path, seed)
        seed_all(seed)
        return new_module.ModelNew(*args, **kwargs)

    model = guard_new(path, "ModelNew(*get_init_inputs())", build)
    if not isinstance(model, nn.Module):
        raise CandidateError(f"{path}: ModelNew is no torch.nn.Module")
    return guard_new(path, "moving ModelNew", lambda: put_in_mode(model.to(device), mode))


def make_inputs(
    module: ModuleType, path: Path, seed: int, device: torch.device, batch: int | None
) -> Call:
    """The model's own inputs from `seed`, on `device`, cut to `batch` rows where asked."""

    def make() -> Call:
        seed_all(seed)
        made = module.get_inputs()
        if isinstance(made, dict):
            call = Call((), made)
        elif isinstance(made, (list, tuple)):
            call = Call(tuple(made), {})
        else:
            raise no_list(path, "get_inputs()", made)
        if batch is not None:
            call = _cut(call, batch)
        return call.map(lambda t: t.detach().to(device))

    call = guard_original(path, "get_inputs()", make)
    if not call.tensors():
        raise ModelFileError(
            "get_inputs() returns no tensor",
            where=Where(str(path)),
            next_step="return a list with at least one torch.Tensor",
        )
    return call


def guard_original(path: Path, doing: str, action: Callable[[], Any]) -> Any:
    """Whatever the model file raises, as an error that names its line."""
    try:
        return action()
    except ModelFileError:
        raise
    except SyntaxError as error:
        where = Where(error.filename or str(path), error.lineno, error.text)
        raise ModelFileError(f"syntax error: {error.msg}", where=where) from error
    except BaseException as error:
        where = Where(str(path), line_in(path, error))
        if is_out_of_memory(error):
            raise ModelOutOfMemory(
                f"out of memory in {doing}", where=where, next_step="try a smaller --batch"
            ) from error
        raise ModelFileError(
            f"{doing} raised {brief(error)}", where=where, next_step="mend the model file"
        ) from error


def guard_new(path: Path, doing: str, action: Callable[[], Any]) -> Any:
    """Whatever the candidate raises, as one sentence."""
    try:
        return action()
    except SyntaxError as error:
        raise ModelFileError(
            f"syntax error: {error.msg}", where=Where(error.filename or str(path), error.lineno)
        ) from error
    except BaseException as error:
        raise CandidateError(raised(path, error, f"{doing} raised")) from error


def raised(path: Path, error: BaseException, doing: str) -> str:
    """What went wrong in `path`, as one sentence; lines for a person follow a failed build."""
    return explain(error, path) or f"{place(path, error)}: {doing} {brief(error)}"


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA's and the host's ways of running out."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = text_of(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "out of memory" in text
    )


def is_device_lost(error: BaseException) -> bool:
    """A CUDA error that poisons the context (running out of memory does not)."""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return isinstance(error, RuntimeError) and "CUDA error" in text_of(error)


def brief(error: BaseException, limit: int = 300) -> str:
    """`TypeError: message` on one line; of a long message the first line that names an error."""
    text = text_of(error)
    if len(text) > limit:
        telling = [line for line in text.splitlines()[1:] if "error:" in line.lower()]
        text = telling[0] if telling else text
    text = " ".join(text.split())
    text = text if len(text) <= limit else text[:limit] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place(path: Path, error: BaseException) -> str:
    """`file:line` of the innermost frame in `path`, or the file alone."""
    line = line_in(path, error)
    return f"{path}:{line}" if line else str(path)


def line_in(path: Path, error: BaseException) -> int | None:
    """The line of `path` that was executing when `error` was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path.absolute())]
    return lines[-1] if lines else None


def _drawn_name() -> str:
    """A name for a module, in which it cannot see who imports it."""
    return f"module_{secrets.token_hex(4)}"


def _import(path: Path, wanted: str, name: str = "") -> ModuleType:
    """The file that has the class `wanted`, or the module that was given for it."""
    if wanted in _given:
        return _given[wanted]
    name = name or _drawn_name()
    spec = spec_of(path, name)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} has no .py ending")
    module = importlib.util.module_from_spec(spec)
    # dataclasses and pickle look their class's module up by name
    sys.modules[name] = module
    neighbours = str(folder_of(path))
    sys.path.insert(0, neighbours)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(neighbours)
    return module


def _init_arguments(module: ModuleType, path: Path, seed: int) -> tuple[list[Any], dict[str, Any]]:
    seed_all(seed)
    return init_arguments(path, module.get_init_inputs())


def leading_size(call: Call) -> int | None:
    """The leading dimension of the first tensor that has one."""
    return next((t.shape[0] for t in call.tensors() if t.dim()), None)


def _cut(call: Call, batch: int) -> Call:
    size = leading_size(call)
    return call.map(lambda t: t[:batch] if t.dim() and t.shape[0] == size else t)
