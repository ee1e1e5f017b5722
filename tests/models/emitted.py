"""A model of the table down the whole line: compiled, written, imported, and adopted."""

from __future__ import annotations

import copy
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tests.models.cases import BATCH, Case
from torch import nn

from opweld.compiled import Compiled, PlanRow
from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options


@dataclass(frozen=True)
class Emitted:
    """The original, the module that the emitted file made of it, and the account of it."""

    original: nn.Module
    new: nn.Module
    compiled: Compiled

    @property
    def _welded(self) -> list[PlanRow]:
        return [row for row in self.compiled.main_rows if row.kind == "pointwise"]

    @property
    def num_ops(self) -> int:
        """Operations in the kernels of a call without autocast."""
        return sum(len(row.ops) for row in self._welded)

    @property
    def num_kernels(self) -> int:
        return len(self._welded)


def emit_case(case: Case, folder: Path, target: str = "cpu") -> Emitted:
    torch.manual_seed(1)
    return emit_module(case.model().eval(), case.call(BATCH), folder, target)


def emit_module(module: nn.Module, call: Any, folder: Path, target: str = "cpu") -> Emitted:
    """Builds the kernels of `module`; its copy is what the emitted class takes over."""
    args, kwargs = call
    cls = type(module)
    original = Original(f"{cls.__name__}.py", cls.__module__, cls.__qualname__, None)
    compiled = compile_module(module, args, kwargs, original, Options(target=target))
    file = import_text(compiled.text, folder / f"{cls.__name__.lower()}_{target}.py")
    return Emitted(module, file.ModelNew.adopt(copy.deepcopy(module)), compiled)


def import_text(text: str, path: Path) -> ModuleType:
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
