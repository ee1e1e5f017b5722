"""Models that must be welded: at least so many operations, and the answers of the original."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models.cases import BATCH, CASES, Case
from tests.models.comparing import (
    assert_close,
    assert_graded,
    assert_same_form,
    assert_same_gradients,
    run,
)
from tests.models.emitted import Emitted, emit_case


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
    emitted = emit_case(case, tmp_path)
    assert emitted.num_ops >= case.ops
    assert 0 < emitted.num_kernels <= case.kernels
    check_call(case, emitted)
    check_batches(case, emitted)
    if case.gradients:
        torch.manual_seed(2)
        assert_same_gradients(emitted.new, emitted.original, *case.call(BATCH), case.coarse)


def check_call(case: Case, emitted: Emitted) -> None:
    """The captured batch size: every kernel runs, the form is eager's, the numbers are graded."""
    torch.manual_seed(2)
    args, kwargs = case.call(BATCH)
    with torch.no_grad():
        ours = run(emitted.new, args, kwargs)
        theirs = run(emitted.original, args, kwargs)
        assert kernels_in(lambda: run(emitted.new, args, kwargs)) == emitted.num_kernels
        assert_same_form(emitted.new(*args, **kwargs), emitted.original(*args, **kwargs))
        if case.draws:
            assert_close(ours, theirs)
        else:
            assert_graded(ours, theirs, emitted.original, args, kwargs)


def check_batches(case: Case, emitted: Emitted) -> None:
    """Other batch sizes: the same kernels run, none and one among them."""
    for batch in case.batches:
        torch.manual_seed(3 + batch)
        args, kwargs = case.call(batch)
        with torch.no_grad():
            ours = run(emitted.new, args, kwargs)
            theirs = run(emitted.original, args, kwargs)
            assert_same_form(ours, theirs)
            assert_close(ours, theirs, case.coarse)
            ran = kernels_in(lambda: run(emitted.new, args, kwargs))  # noqa: B023
        assert ran == emitted.num_kernels, f"at batch {batch}"
