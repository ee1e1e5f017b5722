"""Large results: some rows beside float64, all others beside eager, and all where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from tests.judge.pairs import OWN, SAME, judge_pair, named

from opweld.judge import session
from opweld.judge.levels import DEFAULT
from opweld.judge.load import Call
from opweld.judge.numerics import reference
from opweld.judge.numerics.compare import are_close
from opweld.judge.numerics.sample import Sample
from opweld.judge.verify.run import run

ROWS = 64
MODEL = f"""
class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x

def get_inputs():
    return [torch.randn({ROWS}, 33)]

def get_init_inputs():
    return []
"""
BLOCKS = [slice(start, start + 4) for start in range(0, 40, 4)]


def needed(far: Sequence[int] = (), max_elems: int = 300, seed: int = 0) -> list[int]:
    asked: list[slice] = []

    def are_close(rows: slice) -> bool:
        asked.append(rows)
        return rows.start not in far

    found = list(Sample(max_elems, Random(seed), are_close).needed(BLOCKS, num_elems=1000))
    assert found == [rows for rows in BLOCKS if rows in found], "in order, each once"
    assert len(asked) == 7, "those that are drawn are not asked for"
    return [rows.start for rows in found]


def test_the_first_block_is_taken_and_others_are_drawn() -> None:
    drawn = [needed(seed=seed) for seed in range(40)]
    assert all(len(starts) == 3 and starts[0] == 0 for starts in drawn)
    assert {start for starts in drawn for start in starts} == set(range(0, 40, 4))


def test_what_is_not_close_is_taken_too() -> None:
    assert set(needed(far=range(0, 40, 4))) == set(range(0, 40, 4))


def test_two_blocks_at_least_and_no_more_than_there_are() -> None:
    few = Sample(0, Random(0), lambda rows: True)
    assert len(list(few.needed(BLOCKS, 1000))) == 2
    assert list(few.needed(BLOCKS[:1], 1000)) == BLOCKS[:1]
    assert list(few.needed([], 0)) == []


def test_each_result_has_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong in a few rows of every call is not left out every time; a seed repeats it."""
    monkeypatch.setitem(reference.WHOLE_ELEMS, "cpu", 4 * 16)
    model, call = torch.nn.ReLU(), Call((torch.randn(40, 8),), {})
    eager = run(model, call, 1)

    def left_out() -> list[list[slice]]:
        of_one = reference.Reference(model, torch.device("cpu"), 1, max_elems=100)
        calls: list[list[slice]] = [[] for _ in range(6)]
        for found in calls:
            list(of_one.blocks(call, eager, lambda rows, found=found: not found.append(rows)))
        return calls

    first = left_out()
    assert all(len(found) == 8 for found in first) and any(f != first[0] for f in first)
    assert left_out() == first


INF, NAN = torch.inf, torch.nan


@pytest.mark.parametrize(
    ("left", "right", "close"),
    [
        ([1.0, NAN, INF, -INF], [1.0, NAN, INF, -INF], True),
        ([1.0 + 1e-6], [1.0], True),
        ([1.00001 + 1e-5], [1.0], False),
        ([NAN], [1.0], False),
        ([1.0], [NAN], False),
        ([INF], [-INF], False),
        ([INF], [3e38], False),
        ([3e38], [INF], False),
        ([], [], True),
    ],
)
def test_what_is_close(left: list[float], right: list[float], close: bool) -> None:
    assert are_close(torch.tensor(left), torch.tensor(right)) == close
    both = (torch.tensor(side, dtype=torch.complex64) for side in (left, right))
    assert are_close(*both) == close


def test_integers_are_equal_and_halves_have_the_tolerance_of_float32() -> None:
    assert are_close(torch.tensor([3, 4]), torch.tensor([3, 4]))
    assert not are_close(torch.tensor([3, 5]), torch.tensor([3, 4]))
    one = torch.ones(1, dtype=torch.bfloat16)
    assert are_close(one, one) and not are_close(one.nextafter(2 * one), one)
    ten = torch.tensor([10.0], dtype=torch.float64)
    assert not are_close(ten + 1e-5, ten)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four rows, three of which float64 takes."""
    per_row = 2 * 33
    monkeypatch.setitem(reference.WHOLE_ELEMS, "cpu", 4 * per_row)
    level = replace(DEFAULT, max_float64=12 * per_row)
    monkeypatch.setattr(session, "level_of", lambda thorough: DEFAULT if thorough else level)


def rewritten(line: str) -> str:
    return f"""
    class ModelNew(Base):
        def forward(self, x):
            y = x * torch.tanh(x)
            {line}
            return y
    """


@pytest.mark.usefixtures("small_blocks")
def test_the_other_rows_are_counted(tmp_path: Path) -> None:
    own = named(judge_pair(tmp_path, MODEL, SAME), OWN)
    assert own.passed and own.grade == "A"
    assert f"{ROWS - 12} rows by assert_close's tolerance beside eager alone" in own.detail
    whole = named(judge_pair(tmp_path, MODEL, SAME, thorough=True), OWN)
    assert whole.passed and "assert_close" not in whole.detail


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("row", [0, 21, 40, ROWS - 1])
def test_a_wrong_row_is_found_wherever_it_lies(tmp_path: Path, row: int) -> None:
    own = named(judge_pair(tmp_path, MODEL, rewritten(f"y[{row}, 7] += 1e-3")), OWN)
    assert not own.passed and own.first_bad_index == (row, 7)


@pytest.mark.usefixtures("small_blocks")
def test_a_lower_precision_of_some_rows_is_found(tmp_path: Path) -> None:
    own = named(judge_pair(tmp_path, MODEL, rewritten("y[50:] = y[50:].half().float()")), OWN)
    assert not own.passed and own.grade == "F"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("row", [21, ROWS - 1])
def test_a_wrong_integer_is_found_where_it_lies(tmp_path: Path, row: int) -> None:
    model = MODEL.replace("torch.tanh(x) * x", "(torch.tanh(x) * x, (x > 0.3).long())")
    new = f"""
    class ModelNew(Base):
        def forward(self, x):
            y, above = super().forward(x)
            above[{row}, 7] += 1
            return y, above
    """
    own = named(judge_pair(tmp_path, model, new), OWN)
    assert not own.passed and own.first_bad_index == (row, 7)
