"""Sides timed against each other, samples, and the kernels that a call runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.judge.fake_sides import FakeClock, FakeSide
from torch import nn

from opweld.judge.load import Call
from opweld.judge.measure import kernels, limits, roofline
from opweld.judge.measure import speed as measure
from opweld.judge.measure.baselines import TookTooLong, deadline
from opweld.judge.measure.blocks import LocalTimed
from opweld.judge.measure.clock import (
    MAX_RUNS,
    MIN_RUNS,
    WallClock,
    _num_rounds,
    summarise,
    time_interleaved,
)
from opweld.judge.measure.rounds import Draws, Rounds
from opweld.judge.values import Check, Samples, Settings
from opweld.judge.verify.run import Run

CPU = torch.device("cpu")


@pytest.fixture
def rounds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No further rounds where a check looks wrong, as on a busy machine."""
    monkeypatch.setattr(measure, "_NUM_TRIES", 1)


def test_samples_are_quantiles() -> None:
    samples = summarise([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (samples.median, samples.n) == (3.0, 5)
    assert (samples.p10, samples.p90) == (pytest.approx(1.4), pytest.approx(4.6))


def test_rounds_call_each_once_in_rotating_order() -> None:
    called: list[str] = []
    actions = {name: lambda name=name: called.append(name) for name in "abc"}
    samples = time_interleaved(actions, CPU, budget_s=1.0, num_runs=4)
    assert {name: s.n for name, s in samples.items()} == {"a": 4, "b": 4, "c": 4}
    assert "".join(called[-12:]) == "abcbcacababc"


def test_the_number_of_rounds_follows_the_budget() -> None:
    assert _num_rounds(100.0, budget_s=2.0) == 20
    assert _num_rounds(1e6, budget_s=2.0) == MIN_RUNS
    assert _num_rounds(0.0, budget_s=2.0) == MAX_RUNS
    assert _num_rounds(1e6, budget_s=2.0, limit_s=2500.0) == 2
    assert _num_rounds(1e6, budget_s=2.0, limit_s=1.0) == 1


def contest(
    model: nn.Module, candidate: nn.Module, size: int = 4, judge: Any = None, **more: Any
) -> measure.Contest:
    settings = Settings(device="cpu", **{"num_runs": 3, "baselines": ("eager",), **more})
    pool = measure.make_pool(model, lambda draw: Call((torch.arange(size) + float(draw),), {}), CPU)
    side = LocalTimed(candidate, WallClock())
    alone = measure.Alone(pool)
    return measure.Contest(model, side, alone, CPU, settings, lambda who, what: None, judge)


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COPY_ELEMS", {"cpu": 2**10})


def test_a_baseline_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: nn.Module) -> nn.Module:
        raise RuntimeError("no backend")

    monkeypatch.setattr(torch, "compile", refuse)
    model = nn.ReLU()
    timing = measure.time_sides(contest(model, model, baselines=("eager", "compile"))).timing
    assert timing.compile_ms is None and timing.eager_ms is not None
    assert timing.notes[0] == "torch.compile failed: RuntimeError: no backend"
    assert timing.speedup_vs_compile is None and timing.product_tflops is None
    assert timing.limit_ms == pytest.approx(32 / timing.copy_gbps / 1e6)
    assert timing.graph_ms is None and timing.autotune_ms is None and timing.data_sheet_ms is None


@pytest.mark.usefixtures("rounds_once")
def test_compiled_forms_are_timed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def compiled(model: nn.Module, mode: str = "default") -> nn.Module:
        modes.append(mode)
        return model

    monkeypatch.setattr(torch, "compile", compiled)
    asked = contest(nn.ReLU(), nn.ReLU(), baselines=("autotune", "compile", "graph"))
    timing = measure.time_sides(asked).timing
    assert modes == ["default", "max-autotune"]
    assert timing.compile_ms and timing.compile_ms.n == 3
    assert timing.autotune_ms and timing.autotune_ms.n == 3
    assert timing.vs_eager is None
    assert timing.eager_ms is None, "not asked for, though it is what the candidate is held against"


def test_a_step_that_takes_too_long_is_interrupted() -> None:
    with pytest.raises(TookTooLong, match="not done within 0 s"), deadline(0.05):
        time.sleep(5)
    with deadline(5.0):
        time.sleep(0.001)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


class EqualsRelu:
    def __init__(self) -> None:
        self.equal: list[bool] = []

    def add(self, make: Callable[[], Call], run: Run) -> None:
        (x,) = make().tensors()
        self.equal.append(torch.equal(run.leaves[0], torch.relu(x)))

    def check(self) -> Check:
        return Check("timed results", all(self.equal), f"{self.equal.count(False)} are wrong")


@pytest.mark.usefixtures("rounds_once")
def test_a_small_model_goes_through_all_checks() -> None:
    asked = contest(nn.ReLU(), nn.ReLU(), 100, EqualsRelu())
    alone = measure.time_alone(asked.original, asked.pool, CPU, asked.settings)
    measured = measure.time_sides(replace(asked, alone=measure.Alone(asked.pool, alone)))
    assert [c.name for c in measured.checks] == [
        "time from outside",
        "deferred work",
        "baseline undisturbed",
        "timed results",
        "the data sheet",
    ]
    assert {c.name: c.passed for c in measured.checks}["timed results"]
    assert measured.timing.opweld_ms.n == 3 and measured.timing.inside_ms
    beside = measured.timing.vs_eager
    assert beside and 1 <= beside.pairs <= 3 and not beside.slower, "too few to tell"
    assert measured.timing.notes == () or "faster than the limit" in measured.timing.notes[0]


class MadeUpRounds:
    """Rounds whose pairs all have one ratio, or the next one each time that they run."""

    def __init__(self, *ratios: float) -> None:
        self.ratios = list(ratios)
        self.limits_s: list[float] = []

    def run(self, budget_s: float, limit_s: float, num_runs: int | None) -> None:
        self.limits_s.append(limit_s)

    def pairs(self, one: str, other: str) -> list[tuple[float, float]]:
        assert (one, other) == ("opweld", "eager")
        return [(self.ratios.pop(0), 1.0)] * 20


@pytest.mark.parametrize(
    ("first", "more", "slower", "sets"),
    [
        (1.0, (), False, 1),
        (0.5, (), False, 1),
        (0.9, (1.0,), False, 2),
        (0.9, (0.8, 0.9), False, 3),
        (1.3, (1.0,), False, 2),
        (1.3, (1.2, 0.9), False, 3),
        (1.3, (1.2, 1.1), True, 3),
    ],
)
def test_slower_or_a_little_faster_is_measured_again_before_it_counts(
    first: float, more: tuple[float, ...], slower: bool, sets: int
) -> None:
    """And no further once a set says otherwise."""
    again = MadeUpRounds(*more)
    asked = contest(nn.ReLU(), nn.ReLU())
    found = measure._against_eager(asked, MadeUpRounds(first), lambda: again, 120.0)  # type: ignore[arg-type]
    assert found and (found.slower, found.sets) == (slower, sets)
    assert again.ratios == [] and again.limits_s == [120.0 / 12] * (sets - 1)


class KeptByValue(nn.Module):
    """Knows the sorted values of its input again, and returns what it returned then."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[float, ...], torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = tuple(sorted(x.tolist()))
        if key not in self.kept:
            self.kept[key] = torch.relu(x)
        return self.kept[key]


def test_results_kept_by_value_are_wrong_for_rolled_inputs() -> None:
    model, x = nn.ReLU(), torch.arange(-500.0, 500.0)
    pool = measure.make_pool(model, lambda draw: Call((x + draw,), {}), CPU)
    asked = replace(
        contest(model, KeptByValue(), judge=EqualsRelu(), num_runs=30), alone=measure.Alone(pool)
    )
    (results,) = [c for c in measure.time_sides(asked).checks if c.name == "timed results"]
    assert not results.passed and "are wrong" in results.detail


class Ordered(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x[0] > x[1]:
            raise ValueError("not in order")
        return x + 1


def test_inputs_that_must_not_be_rolled_are_not() -> None:
    pool = measure.make_pool(Ordered(), lambda draw: Call((torch.arange(3.0) + draw,), {}), CPU)
    assert pool.num_rolls == 1 and len(pool.calls) == 16
    assert pool.note and "not in order" in pool.note
    assert pool.call((2, 0)).tensors()[0].tolist() == [3.0, 4.0, 5.0]
    rolled_pool = measure.make_pool(nn.ReLU(), lambda draw: Call((torch.ones(3),), {}), CPU)
    assert rolled_pool.num_rolls == 3 and len(rolled_pool.calls) == 4


def test_a_pool_stays_within_its_share_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_POOL_BYTES", 25)
    pool = measure.make_pool(nn.ReLU(), lambda draw: Call((torch.ones(3),), {}), CPU)
    assert len(pool.calls) == 2
    monkeypatch.setattr(measure, "available_bytes", lambda device: 4 * 24 * 7)
    settings = Settings(device="cpu")
    assert measure._max_calls(pool, CPU, settings) == 7


class Disturbing:
    """A made-up candidate beside which eager takes twice as long."""

    def __init__(self, clock: FakeClock) -> None:
        self.eager = FakeSide(clock, 2.0)
        self.new = FakeSide(clock, 1.0)

    def rounds(self) -> Rounds:
        sides = {"eager": self.eager, "opweld": self.new}
        rounds = Rounds(sides, Draws(1, 1000), 100, "opweld", self.eager.clock)
        rounds.run(1.0)
        return rounds


def test_a_disturbed_baseline_is_timed_again_without_the_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[bool] = []
    asked = replace(
        contest(nn.ReLU(), nn.ReLU()),
        alone=measure.Alone(contest(nn.ReLU(), nn.ReLU()).pool, (1.0, 1.0, 1.0)),
        device=torch.device("cuda"),
        end_candidate=lambda: ended.append(True),
    )
    rounds = Disturbing(FakeClock()).rounds()
    found = measure._checks(asked, rounds)
    assert [c.passed for c in found] == [True, True, False]
    for after, passed in ((1.0, False), (2.0, True)):
        monkeypatch.setattr(measure, "time_alone", lambda *_, after=after: (after,) * 3)
        check = measure._baseline_after(asked, rounds, found)
        assert check and check.passed is passed
    assert ended == [True, True]
    assert measure._baseline_after(asked, rounds, found[:2]) is None


@pytest.fixture(scope="module")
def doubling():  # type: ignore[no-untyped-def]
    library = torch.library.Library("opweld_judge_test", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x + x, "CompositeExplicitAutograd")
    yield torch.ops.opweld_judge_test.double
    library._destroy()


def test_kernels_are_counted_and_timed_on_their_own_arguments(doubling) -> None:  # type: ignore[no-untyped-def]
    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return doubling(doubling(x)) + doubling(x[:1])

    launches = kernels.record(Doubling(), Call((torch.ones(10, 4),), {}))
    assert kernels.count(launches) == {"double": 3}
    assert [launch.calls for launch in launches] == [2, 1], "one row for each shape"
    assert launches[0].touched_bytes() == 2 * 160
    row = kernels.time_launch(launches[0], CPU, copy_gbps=10.0, num_runs=3)
    assert (row.name, row.calls, row.bytes) == ("double", 2, 320)
    assert row.ms and row.limit_percent == pytest.approx(100 * 320 / 10.0 / 1e6 / row.ms)
    assert kernels.untimed(launches[1]).ms is None


def _double_in_place(x: torch.Tensor) -> None:
    x.add_(x)


def test_what_is_written_in_place_is_read_and_written() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            doubling_library.double_into(x.clone())
            return x

    library = torch.library.Library("opweld_judge_test_into", "DEF")
    library.define("double_into(Tensor(a!) x) -> ()")
    library.impl("double_into", _double_in_place, "CompositeExplicitAutograd")
    doubling_library = torch.ops.opweld_judge_test_into
    (launch,) = kernels.record(InPlace(), Call((torch.ones(4),), {}))
    assert launch.touched_bytes() == 2 * 16
    library._destroy()


def test_a_model_without_kernels_has_no_rows() -> None:
    assert kernels.record(nn.ReLU(), Call((torch.ones(3),), {})) == ()


def test_a_time_below_the_limit_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that does nothing beats any honest bound."""
    slow = Samples(1e6, 1e6, 1e6, 1)
    monkeypatch.setattr(limits, "copy_samples", lambda device: (slow, 1000))
    monkeypatch.setattr(roofline, "cpu_cache_bytes", lambda: 16)
    measured = measure.time_sides(contest(nn.ReLU(), nn.Identity(), 100))
    assert measured.timing.limit_ms == pytest.approx(800e3)
    assert measured.timing.notes[0].startswith("ModelNew is faster than the limit")
    sheet = measured.checks[-1]
    assert sheet.name == "the data sheet" and not sheet.passed
    # the bytes beyond twice the caches, at twice the fastest copy
    assert measured.timing.data_sheet_ms == pytest.approx((800 - 32) * 1e6 / 1000 / 2 / 1.05)


def test_only_who_calls_a_gpu_is_held_to_one_processor() -> None:
    assert measure._processors(torch.device("cpu")) == set()
    assert measure._processors(torch.device("cuda")) == os.sched_getaffinity(0)
