"""Models that must be fused: at least so many operations, and the answers of the original."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.cases import CASES, Case
from tests.models.checks import check_model
from tests.models.emitted import emit_case


@pytest.fixture(scope="module", autouse=True)
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels are built afresh: a cached one would hide a source that no longer compiles."""
    with pytest.MonkeyPatch.context() as patch:
        if "OPWELD_TEST_EXTENSIONS" not in os.environ:
            patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("extensions")))
        yield


def _parameters() -> list[object]:
    slow = pytest.mark.slow
    return [pytest.param(c, id=c.name, marks=slow if c.slow else ()) for c in CASES]


@pytest.mark.parametrize("case", _parameters())
def test_model(case: Case, tmp_path: Path) -> None:
    check_model(case, emit_case(case, tmp_path))
