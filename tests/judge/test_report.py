"""What is printed, and what the JSON holds."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import dataclass, replace

import pytest
from rich.console import Console
from tests.judge.judgements import ENVIRONMENT, TIMING

from opweld.judge.report import render, verdict_line
from opweld.judge.values import (
    Check,
    Errors,
    Judgement,
    KernelTiming,
    Settings,
    Verdict,
    from_plain,
    to_plain,
)

OWN = Check(
    "own inputs",
    True,
    "grade B",
    grade="B",
    output="output",
    dtype="float32",
    error_vs_f64=Errors(1.5e-8, 2.5e-7),
    eager_error_vs_f64=Errors(1.25e-8, 2.25e-7),
    scale=0.5,
    max_ulp=12.5,
    ulp_p50=0.5,
    ulp_p99=4.0,
)
BATCH = Check("batch of 0", True, "bit-equal to eager", grade="A")
SKIPPED = Check("training mode", True, "the original draws random numbers", skipped=True)
JUDGEMENT = Judgement(
    Verdict(True, "B", (OWN, BATCH, SKIPPED), "equivalent"),
    replace(TIMING, notes=("a note",)),
    (KernelTiming("k1_tanh", 0.15, 512_000_000, 80.0, 1),),
    ENVIRONMENT,
    seed=3,
    kernel_calls={"k1_tanh": 1},
)


@dataclass(frozen=True)
class Row:
    name: str
    kind: str
    ops: tuple[str, ...]
    reason: str


PLAN = (
    Row("k1_tanh", "pointwise", ("tanh", "mul"), "all pointwise"),
    Row("sort", "library", ("sort",), "no kernel for sort"),
)


def printed(judgement: Judgement, terminal: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=160, color_system=None)
    render(judgement, console, PLAN)
    return stream.getvalue()


def test_plain_lines_hold_every_figure() -> None:
    text = printed(JUDGEMENT, terminal=False)
    assert "  k1_tanh: kind pointwise, fused tanh mul, calls 1, MB 512, ms 0.15" in text
    assert "  sort: ops sort, reason no kernel for sort" in text
    assert "  eager: median ms 1.2, p10 1.1, p90 1.3, vs eager 1.00x, % of limit 10" in text
    assert "  ModelNew: median ms 0.15, p10 0.14, p90 0.16, vs eager 8.00x, % of limit 80" in text
    assert "eager rms 1.25e-08, ModelNew rms 1.50e-08, eager max 2.25e-07" in text
    assert "skipped: training mode: the original draws random numbers" in text
    assert "limit: memory: 512 MB at the copy's 4240 GB/s" in text
    sure = "0.12 to 0.13 with 98 % confidence, p = 1, 50 pairs"
    assert f"in pairs: 0.125 times eager's time ({sure}): not slower\n" in text
    assert "note: a note" in text
    last = text.strip().splitlines()[-1]
    speeds = "8.00x the speed of eager, 2.00x that of torch.compile"
    assert last == f"EQUIVALENT, grade B: faster, {speeds}"


@pytest.mark.parametrize(
    ("low", "high", "slower", "said"),
    [
        (0.9, 0.99, False, "grade B: faster, 8.00x"),
        (1.1, 1.2, True, "grade B: slower, 8.00x"),
        (0.9, 1.1, False, "grade B: neither faster nor slower for sure, 8.00x"),
        (1.001, 1.015, False, "grade B: neither faster nor slower for sure, 8.00x"),
        (0.0, math.inf, False, "grade B: 8.00x"),
    ],
)
def test_faster_and_slower_are_said_where_the_interval_tells(
    low: float, high: float, slower: bool, said: str
) -> None:
    assert JUDGEMENT.timing and JUDGEMENT.timing.vs_eager
    found = replace(JUDGEMENT.timing.vs_eager, low=low, high=high, slower=slower)
    judgement = replace(JUDGEMENT, timing=replace(JUDGEMENT.timing, vs_eager=found))
    assert said in verdict_line(judgement)


def test_tables_hold_the_same_figures() -> None:
    text = printed(JUDGEMENT, terminal=True)
    for figure in ("k1_tanh", "8.00x", "1.50e-08", "bit-equal", "no kernel for sort", "12.5"):
        assert figure in text


def test_a_failure_is_shown_with_its_place() -> None:
    bad = replace(OWN, passed=False, grade="F", detail="output: wrong", first_bad_index=(3, 4))
    verdict = Verdict(False, "F", (bad,), "own inputs: output: wrong")
    failed = Judgement(verdict, None, (), ENVIRONMENT, 3)
    text = printed(failed, terminal=False)
    assert "  own inputs: what is wrong output: wrong, first at [3, 4]" in text
    assert verdict_line(failed) == "NOT EQUIVALENT: own inputs: output: wrong"


def test_no_speed_is_claimed_from_times_that_vary() -> None:
    timing = JUDGEMENT.timing
    assert timing and timing.eager_ms
    shaky = replace(timing, eager_ms=replace(timing.eager_ms, p90=60 * timing.eager_ms.p10))
    line = verdict_line(replace(JUDGEMENT, timing=shaky))
    assert line.startswith("EQUIVALENT, grade B: no speed is claimed, times vary 60-fold")


def test_markup_in_a_message_is_text() -> None:
    verdict = Verdict(False, "F", (), "new.py raised KeyError: [/bold]")
    assert "[/bold]" in printed(Judgement(verdict, None, (), None, 0), terminal=True)


def test_json_has_the_contract_and_survives_the_way_there_and_back() -> None:
    data = json.loads(json.dumps(JUDGEMENT.to_json(), allow_nan=False))
    assert data["verdict"]["passed"] is True
    assert data["verdict"]["checks"][0]["error_vs_f64"] == {"rms": 1.5e-8, "max": 2.5e-7}
    assert data["verdict"]["checks"][0]["max_ulp"] == 12.5
    assert data["timing"]["opweld_ms"]["median"] == 0.15 and data["timing"]["limit_ms"] == 0.12
    kernel = data["kernels"][0]
    assert set(kernel) >= {"name", "kind", "ops", "bytes", "flops", "ms", "limit_percent"}
    assert set(kernel) >= {"registers", "spills"}
    assert from_plain(Judgement, data) == JUDGEMENT


def test_figures_that_are_not_finite_survive_json() -> None:
    check = replace(OWN, error_vs_f64=Errors(math.inf, math.inf), max_ulp=math.inf)
    data = json.loads(json.dumps(to_plain(check), allow_nan=False))
    assert data["max_ulp"] == "inf"
    assert from_plain(Check, data) == check


def test_settings_survive_json() -> None:
    settings = Settings(device="cpu", seed=None, baselines=("eager",), num_runs=5, batch=3)
    assert from_plain(Settings, json.loads(json.dumps(to_plain(settings)))) == settings


def test_tables_fit_80_columns_with_whole_figures() -> None:
    own = replace(OWN, name="gradients from other layouts", max_ulp=595200.0, ulp_p99=9.141)
    verdict = Verdict(True, "B", (own, BATCH), "equivalent")
    stream = io.StringIO()
    render(replace(JUDGEMENT, verdict=verdict), Console(file=stream, force_terminal=True, width=80))
    text = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert all(len(line) <= 80 for line in text.splitlines())
    told = ("1.25e-08", "1.50e-08", "2.25e-07", "2.50e-07", "5.952e+05", "9.141", "gradients")
    assert all(re.search(rf"(?<!\S){re.escape(each)}(?!\S)", text) for each in told)
