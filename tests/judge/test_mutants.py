"""Mutants of an emitted file, one of each language part, are built, judged and caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.mutants import MODELS, ONE_THREAD, Sound, outcome
from benchmarks.mutation.built import SAME_CODE
from benchmarks.mutation.choice import Mutant, mutants_of

from opweld.judge import Server

pytestmark = pytest.mark.slow
# In an order that is drawn.
LAYOUTS = (
    *("transposed storage", "strided storage", "padded rows", "expanded storage"),
    "one strided input",
)
# Of each part of the file: a rule, and the checks of which one finds what it does.
CAUGHT = {
    "kernels": ("operands exchanged", ("own inputs",)),
    "host": ("stride of another axis", LAYOUTS),
    "forward": ("a result's gradient left out", ("gradients",)),
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutants")


@pytest.fixture(scope="module")
def sound(work: Path) -> Sound:
    return Sound(MODELS / "pointwise.py", work)


@pytest.fixture(scope="module")
def server(work: Path) -> Iterator[Server]:
    with Server(ONE_THREAD, writable=(work,)) as warm:
        yield warm


def mutant_of(sound: Sound, part: str, rule: str) -> Mutant:
    found = mutants_of("pointwise", sound.text)
    return next(m for m in found if (m.part, m.rule) == (part, rule))


@pytest.mark.parametrize("part", CAUGHT)
def test_a_mutant_is_caught(part: str, sound: Sound, server: Server) -> None:
    rule, checks = CAUGHT[part]
    found = outcome(mutant_of(sound, part, rule), {"pointwise": sound}, server)
    assert (found["outcome"], found["caught_in"]) == ("caught", "call"), found
    assert found["by"] in checks, found


def test_the_file_itself_passes_and_a_branch_that_never_runs_is_the_same_code(
    sound: Sound, server: Server
) -> None:
    assert sound.require_passed(server)["grade"] in ("A", "B")
    dead = next(
        mutant
        for mutant in mutants_of("pointwise", sound.text)
        if mutant.rule == "zero for one" and "::exp(-x)" in mutant.difference(sound.text)[0]
    )
    assert outcome(dead, {"pointwise": sound}, server) == {"outcome": SAME_CODE}
