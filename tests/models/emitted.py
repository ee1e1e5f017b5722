"""A model of the table down the whole line: compiled, written, imported, and adopted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.behaviour.emitted import load_file
from tests.models.cases import BATCH, Case
from torch import nn
from torch.utils import _pytree as pytree

from opweld.compiled import Compiled, PlanRow
from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.judge.sparse import deep_copy
from opweld.options import Options


@dataclass(frozen=True)
class Emitted:
    """The original, the module that the emitted file made of it, and the account of it."""

    original: nn.Module
    new: nn.Module
    compiled: Compiled
    device: torch.device

    @property
    def _fused(self) -> list[PlanRow]:
        return [row for row in self.compiled.main_rows if row in self.compiled.fused]

    @property
    def num_ops(self) -> int:
        """Operations in the kernels of a call without autocast."""
        return sum(len(row.ops) for row in self._fused)

    @property
    def num_kernels(self) -> int:
        return len(self._fused)

    @property
    def num_products(self) -> int:
        """Kernels of products and convolutions: the library's calls on another target."""
        kinds = ("contraction", "attention", "convolution")
        return sum(row.kind in kinds for row in self._fused)


def emit_case(case: Case, folder: Path, target: str = "cpu", **asked: Any) -> Emitted:
    module = model_of(case, target)
    return emit_module(module, case.call(BATCH), folder, target, **asked)


def model_of(case: Case, target: str) -> nn.Module:
    torch.manual_seed(1)
    return on_target(case.model().eval(), target)


def on_target(value: Any, target: str) -> Any:
    """A module or arguments where the kernels of `target` run."""
    if isinstance(value, nn.Module):
        return value.to(target)
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(target), value)


def emit_module(
    module: nn.Module, call: Any, folder: Path, target: str = "cpu", **asked: Any
) -> Emitted:
    """Compiles and imports; a copy of `module` is what the emitted class takes over. `asked` are
    options.
    """
    module = on_target(module, target)
    return imported(module, compiled(module, call, target, **asked), folder, target)


def compiled(module: nn.Module, call: Any, target: str, **asked: Any) -> Compiled:
    args, kwargs = on_target(call, target)
    cls = type(module)
    original = Original(f"{cls.__name__}.py", cls.__module__, cls.__qualname__, None)
    return compile_module(module, args, kwargs, original, Options(target=target, **asked))


def imported(module: nn.Module, account: Compiled, folder: Path, target: str) -> Emitted:
    """Builds the kernels, unless they are built already."""
    name = type(module).__name__.lower()
    file = load_file(folder / f"{name}_{target}.py", account.text)
    new = file.ModelNew.adopt(deep_copy(module))
    return Emitted(module, new, account, torch.device(target))
