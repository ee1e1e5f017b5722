"""No emitted file is longer than its row of the table allows; only lines: times are figures."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from benchmarks.emitted_lines import parts_of
from benchmarks.networks import ROOT, ROWS, Row, loaded

from opweld.driver import compile_module
from opweld.options import Options

TARGET = "sm_90a"
RESULTS = ROOT / "benchmarks" / "results" / f"text-and-time-{TARGET}-cpu-2-cores.json"
# Whole networks take longer than ten seconds to emit.
SLOW = {row.name for row in ROWS if row.seconds is not None and row.seconds >= 30}
# Rows whose files are still too long; a name goes once its test passes.
NOT_REACHED = {
    "tanh-GELU",
    "Linear + tail, float32",
    "layer norm",
    "softmax",
    "cross entropy",
    "batch norm + ReLU, training",
    "attention with a mask",
    "ViT-B, 12 blocks",
    "GPT, 12 blocks",
}


@cache
def recorded() -> dict[str, dict[str, Any]]:
    cases = json.loads(RESULTS.read_text("utf-8"))["cases"]
    return {case["name"]: case for case in cases}


def today(row: Row) -> str:
    """What the last record says of the row's text."""
    case = recorded().get(row.name)
    if case is None:
        return "no record"
    if "lines" not in case:
        return f"the file was not emitted: it {case['problems']['emit']}"
    return f"{case['lines']['whole']} lines in the last record"


def limited(row: Row) -> Any:
    slow = [pytest.mark.slow] if row.name in SLOW else []
    missed = pytest.mark.xfail(
        strict=True, raises=AssertionError, reason=f"at most {row.lines} wanted, {today(row)}"
    )
    marks = [*slow, *([missed] if row.name in NOT_REACHED else [])]
    return pytest.param(row, marks=marks, id=row.name)


@pytest.mark.parametrize("row", map(limited, ROWS))
def test_the_text_is_no_longer_than_its_row_allows(row: Row) -> None:
    made = loaded(row)
    options = Options(target=TARGET, check=False)
    text = compile_module(made.module, made.inputs, {}, made.original, options).text
    assert row.lines is not None
    assert len(text.splitlines()) <= row.lines, parts_of(text)


def test_what_is_not_reached_names_rows() -> None:
    assert {row.name for row in ROWS} >= NOT_REACHED


def test_every_row_is_recorded() -> None:
    assert list(recorded()) == [row.name for row in ROWS]
