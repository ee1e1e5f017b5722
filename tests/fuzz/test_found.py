"""Models that fuzzing found, made small: each failed once, for the reason that its text gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.campaign import Judging
from tests.fuzz.outcome import Outcome

# Models of which no graph can be made: ModelNew is the original.
KEPT = ("undeclared_view_in_place", "reshaped_then_in_place", "reshaped_input_in_place")
FOUND = sorted((Path(__file__).parent / "found").glob("*.py"))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """All of them, in one child and one build."""
    sources = {path.stem: path.read_text("utf-8") for path in FOUND}
    judging = Judging(tmp_path_factory.mktemp("found"), seeds=(11,), autocast_every=0)
    return judging.outcomes(sources)


@pytest.mark.parametrize("name", [path.stem for path in FOUND])
def test_passes_with_its_kernels(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert outcome.kind == "passed", outcome.detail
    assert (outcome.kernels == 0) == (name in KEPT)
