from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from . import captures
from .emitted import Case, emitted_text

CASES = {
    "gelu": (captures.GELU, captures.gelu, 1),
    "linear": (captures.LINEAR, captures.linear, 1),
    "branches": (captures.BRANCHES, captures.branches, 1),
}


def make_case(name: str, target: str = "cpu") -> Case:
    source, capture, num_kernels = CASES[name]
    return Case(name, source, emitted_text(name, source, capture(), target), num_kernels)


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Kernels are built afresh, once for all tests."""
    folder = tmp_path_factory.mktemp("extensions")
    old = os.environ.get("TORCH_EXTENSIONS_DIR")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
    yield folder
    if old is None:
        del os.environ["TORCH_EXTENSIONS_DIR"]
    else:
        os.environ["TORCH_EXTENSIONS_DIR"] = old


class Pair:
    """The original and the emitted module of a case, with models of the same parameters."""

    def __init__(self, case: Case, original: ModuleType, emitted: ModuleType) -> None:
        self.case, self.original, self.emitted = case, original, emitted

    def models(self, seed: int = 0) -> tuple[Any, Any]:
        made = []
        for cls in (self.original.Model, self.emitted.ModelNew):
            torch.manual_seed(seed)
            made.append(cls(*self.original.get_init_inputs()).eval())
        return made[0], made[1]

    def inputs(self, batch: int | None = None, seed: int = 1) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        made = self.original.get_inputs()
        if batch is None:
            return made
        return [torch.randn(batch, *x.shape[1:]) for x in made]


@pytest.fixture(scope="session", params=tuple(CASES))
def pair(
    request: pytest.FixtureRequest, build_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Pair:
    case = make_case(request.param)
    return Pair(case, *case.load(tmp_path_factory.mktemp(case.name)))


@pytest.fixture(scope="session")
def linear(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case = make_case("linear")
    return Pair(case, *case.load(tmp_path_factory.mktemp("linear"), "_own"))


@pytest.fixture(scope="session")
def gelu(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case = make_case("gelu")
    return Pair(case, *case.load(tmp_path_factory.mktemp("gelu"), "_own"))


@pytest.fixture(scope="session")
def branches(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case = make_case("branches")
    return Pair(case, *case.load(tmp_path_factory.mktemp("branches"), "_own"))
