"""Pairs of an original and its emitted file, built once for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.behaviour.emitted import Pair, make_pair
from tests.behaviour.models import SOURCES
from tests.behaviour.stepping import trained_pair


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the kernels of all these tests are built, afresh."""
    folder = tmp_path_factory.mktemp("extensions")
    old = os.environ.get("TORCH_EXTENSIONS_DIR")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
    yield folder
    del os.environ["TORCH_EXTENSIONS_DIR"]
    if old is not None:
        os.environ["TORCH_EXTENSIONS_DIR"] = old


@pytest.fixture(scope="session")
def pairs(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("files")
    return {name: make_pair(name, folder) for name in SOURCES}


@pytest.fixture(scope="session", params=tuple(SOURCES))
def pair(request: pytest.FixtureRequest, pairs: dict[str, Pair]) -> Pair:
    return pairs[request.param]


@pytest.fixture(scope="session")
def trained(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """With kernels for gradients, and under autocast."""
    return trained_pair(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def gelu(pairs: dict[str, Pair]) -> Pair:
    return pairs["gelu"]


@pytest.fixture(scope="session")
def linear(pairs: dict[str, Pair]) -> Pair:
    return pairs["linear"]


@pytest.fixture(scope="session")
def branches(pairs: dict[str, Pair]) -> Pair:
    return pairs["branches"]
