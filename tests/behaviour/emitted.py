"""Emitted files under test: written to a folder, imported, with their calls counted."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tests.behaviour.models import SOURCES
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.driver import compile_file
from opweld.options import Options

# How many kernels one call runs.
NUM_KERNELS = {"gelu": 1, "linear": 1, "branches": 1}


# Kernels in both modes and under every autocast: a file for all calls that tests make.
EVERY_STATE: dict[str, Any] = {"mode": "both", "autocast": ("bfloat16", "float16")}


@dataclass(frozen=True)
class Pair:
    """An original and its emitted file as modules."""

    name: str
    source: str
    text: str
    num_kernels: int
    original: ModuleType
    emitted: ModuleType

    def models(self, seed: int = 0) -> tuple[Any, Any]:
        """The original and the new model, with the same parameters."""
        return self._model(self.original.Model, seed), self._model(self.emitted.ModelNew, seed)

    def _model(self, cls: Any, seed: int) -> Any:
        torch.manual_seed(seed)
        return cls(*self.original.get_init_inputs()).eval()

    def inputs(self, batch: int | None = None, seed: int = 1) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        made = self.original.get_inputs()
        if batch is None:
            return made
        return [torch.randn(batch, *x.shape[1:]) for x in made]


def make_pair(name: str, folder: Path, target: str = "cpu") -> Pair:
    source, text = SOURCES[name], emitted_text(name, target)
    original = load_file(folder / f"{name}.py", source)
    emitted = load_file(folder / f"{name}_new.py", text)
    return Pair(name, source, text, NUM_KERNELS[name], original, emitted)


def load_file(path: Path, text: str, always_kernels: bool = True) -> ModuleType:
    """Writes and imports a file; the module can be found again by name, as pickle wants.

    With `always_kernels` they run on small tensors that require gradients, too.
    """
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    if always_kernels:
        run_kernels_always(module)
    return module


def run_kernels_always(module: ModuleType) -> None:
    """No call is host-bound to an emitted file."""
    if hasattr(module, "_host_bound"):
        module.ModelNew._opweld.host_bound = lambda *_: False


@functools.cache
def emitted_text(name: str, target: str = "cpu") -> str:
    """What the compiler makes of a model file."""
    return text_made_of(SOURCES[name], target, name)


def text_made_of(source: str, target: str, name: str = "model") -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.py")
        path.write_text(source, "utf-8")
        torch.manual_seed(0)
        return compile_file(path, Options(target=target, check=False, **EVERY_STATE)).text


def texts_in(text: str) -> dict[str, str]:
    """The texts that an emitted file, or a part of one, gives names to: kernels, host code."""
    return {
        ast.unparse(each.targets[0]): each.value.value
        for each in ast.parse(text).body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)
    }


class CountCalls(TorchDispatchMode):
    """Notes the operators that PyTorch runs, ours apart from all others."""

    def __init__(self) -> None:
        super().__init__()
        self.ours: list[tuple[Any, tuple[Any, ...]]] = []
        self.others: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if str(func).startswith("opweld_"):
            self.ours.append((func, args))
        else:
            self.others.append(str(func))
        return func(*args, **(kwargs or {}))


def kernels_in(call: Callable[[], Any]) -> int:
    """How many of our operators a call runs."""
    with CountCalls() as count:
        call()
    return len(count.ours)


def profiled_kernels(call: Callable[[], Any]) -> int:
    """The same by the profiler, which sees inside compiled functions too."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return sum(event.name.startswith("opweld_") for event in profile.events())


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors in a returned structure, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [leaf for item in items for leaf in leaves(item)]
