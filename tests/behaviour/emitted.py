"""Emitted files under test: written to a folder, imported once, with their calls counted."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.emit import emit
from opweld.ir.contract import Capture
from opweld.ir.original import Original, Part
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.host import host
from opweld.target import TARGETS


@dataclass(frozen=True)
class Case:
    """One model: its source, its emitted text, and what a test must know of it.

    `num_kernels` is the number of kernels that one call runs; `has_weights`, `has_dropout` and
    `autocast` say which tests apply.
    """

    name: str
    source: str
    text: str
    num_kernels: int
    has_weights: bool = True
    has_dropout: bool = False

    def load(self, folder: Path, suffix: str = "") -> tuple[ModuleType, ModuleType]:
        """The original and the emitted file as modules."""
        original = load_file(folder / f"{self.name}{suffix}.py", self.source)
        emitted = load_file(folder / f"{self.name}_new{suffix}.py", self.text)
        return original, emitted


def load_file(path: Path, text: str) -> ModuleType:
    """Writes and imports a file; the module can be found again by name, as pickle wants."""
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def emitted_text(name: str, source: str, capture: Capture, target: str = "cpu") -> str:
    """The line from a capture to the text, without simplifying."""
    parts = []
    for variant in capture.variants:
        plan = make_plan(variant.graph, TARGETS[target])
        if variant.autocast is not None:
            named = (replace(g, name=f"{g.name}_{variant.autocast}") for g in plan.groups)
            plan = replace(plan, groups=tuple(named))
        parts.append(Part(variant, plan, lower(plan)))
    kernels = tuple(kernel for part in parts for kernel in part.kernels)
    rendered = render(name, kernels, TARGETS[target].language)
    return emit(
        Original(f"{name}.py", "opweld_model", "Model", source, ("Model", "get_inputs", "get_init_inputs")),
        tuple(parts),
        capture.same_under_autocast,
        rendered,
        host(tuple(parts), TARGETS[target].language),
        f"ModelNew for {name}.py.",
    )


class CountCalls(TorchDispatchMode):
    """Counts the operators that PyTorch runs, ours apart from all others."""

    def __init__(self) -> None:
        super().__init__()
        self.ours: list[str] = []
        self.others: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(func)
        (self.ours if name.startswith("opweld_") else self.others).append(name)
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
