"""Honest samples pass, and what a cheat's samples look like does not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.judge.fake_sides import FakeClock, FakeSide

from opweld.judge.measure.consistency import (
    baseline_undisturbed,
    data_sheet,
    deferred_work,
    time_from_outside,
    unless_unsteady,
)
from opweld.judge.measure.rounds import Block, Draws, Record, Rounds, Touch
from opweld.judge.values import Samples, Timing


def record(
    call_ms: float,
    num_calls: int = 20,
    hidden_ms: float = 0.0,
    jitter: Callable[[], float] = lambda: 0.0,
    empty_ms: float = 0.1,
    num_blocks: int = 11,
) -> Record:
    """Blocks whose answers come up to `jitter()` ms late."""
    blocks = [
        Block(
            inside=(call_ms - hidden_ms,) * num_calls,
            outside=num_calls * (call_ms + empty_ms) + jitter(),
            empty=num_calls * empty_ms + jitter(),
        )
        for _ in range(num_blocks)
    ]
    return Record(num_calls, answer_ms=0.1, blocks=blocks)


def test_what_happens_outside_of_the_inner_clock_shows() -> None:
    honest = record(1.0)
    assert time_from_outside(honest, honest).passed
    check = time_from_outside(record(1.0, hidden_ms=0.5), honest)
    assert not check.passed and check.detail.startswith("0.5 ms a call inside, 1 ms outside")
    assert not time_from_outside(record(1.0, hidden_ms=1.0), honest).passed
    assert not time_from_outside(record(0.05, 400, hidden_ms=0.04), record(0.05, 400)).passed
    assert time_from_outside(record(1.0, hidden_ms=0.1), honest).passed


def test_answers_that_come_late_are_no_hidden_work() -> None:
    draw = random.Random(7)
    for call_ms, num_calls in ((0.02, 1000), (1.0, 20), (300.0, 1)):
        for _ in range(200):
            new = record(call_ms, num_calls, jitter=lambda: draw.expovariate(1 / 0.05))
            assert time_from_outside(new, record(call_ms, num_calls)).passed


def test_a_slow_empty_block_hides_nothing() -> None:
    """The candidate takes long over empty blocks, so that hidden work is subtracted with them."""
    honest = record(1.0)
    blocks = [Block((0.1,) * 20, 22.0, 20.0) for _ in range(11)]
    slow = Record(20, answer_ms=0.1, blocks=blocks)
    assert slow.call_ms(honest)[0] == pytest.approx((22.0 - (1.1 * 2.0 + 0.1)) / 20)
    assert not time_from_outside(slow, honest).passed


def test_work_that_waits_for_the_first_look_shows() -> None:
    honest = [Touch(0.12, 0.1, 0.11)] * 9
    assert deferred_work(honest, call_ms=1.0).passed
    check = deferred_work([Touch(1.1, 0.1, 0.1)] * 9, call_ms=0.01)
    assert not check.passed and "1 ms longer" in check.detail
    noisy = [Touch(2.0 + n, 1.0 + n % 3, 1.0) for n in range(3)] * 3
    assert deferred_work(noisy, call_ms=0.01).passed, "the spread of other looks explains it"
    assert deferred_work([Touch(9.0, 0.1, 0.1), *honest], call_ms=1.0).passed, "one late answer"
    assert deferred_work([], call_ms=1.0).skipped


def test_a_baseline_that_slows_down_beside_the_candidate_shows() -> None:
    quiet, slow = [1.0, 1.1, 1.2] * 10, [2.0, 2.1, 2.2] * 10
    assert baseline_undisturbed(quiet, quiet).passed
    check = baseline_undisturbed(quiet, slow)
    assert not check.passed and check.detail.startswith("eager 1.1 ms before ModelNew, 2.1 ms")
    assert not baseline_undisturbed(quiet, slow, after=quiet).passed
    assert baseline_undisturbed(quiet, slow, after=slow).passed, "the machine became slower"
    assert baseline_undisturbed(quiet, [*quiet, *slow]).passed, "some runs only"
    busy = baseline_undisturbed(quiet, quiet, busy_share=0.9, unseen=False)
    assert not busy.passed and "0.9 processors" in busy.detail
    idle = baseline_undisturbed(quiet, slow, busy_share=0.1, unseen=False)
    assert idle.passed and "stood still" in idle.detail
    assert baseline_undisturbed([], slow).skipped


def test_nothing_is_faster_than_the_data_sheet() -> None:
    check, least = data_sheet(1.0, 4.2e9, 4000.0, 0.0, None)
    assert check.passed and least == pytest.approx(1.0)
    check, _ = data_sheet(0.9, 4.2e9, 4000.0, 0.0, None)
    assert not check.passed and "4200 MB at no more than 4000 GB/s" in check.detail
    check, least = data_sheet(0.9, 1.0, 4000.0, 1e12, 500.0)
    assert not check.passed and least == pytest.approx(2.0) and "1000 GFLOP" in check.detail
    check, least = data_sheet(0.9, 1e9, None, 1e12, None)
    assert check.passed and check.skipped and least is None


def judged(new: FakeSide, eager: FakeSide) -> dict[str, bool]:
    sides = {"eager": eager, "opweld": new}
    rounds = Rounds(sides, Draws(4, 10**6), 100, "opweld", now=new.clock)
    rounds.run(budget_s=1.0)
    one, other = rounds.records["opweld"], rounds.records["eager"]
    checks = (time_from_outside(one, other), deferred_work(one.touches, one.times()[0]))
    return {check.name: check.passed for check in checks}


def test_sides_that_cheat_are_caught_by_what_they_do() -> None:
    clock = FakeClock()
    eager = FakeSide(clock, 1.0, surroundings_ms=0.05)
    honest = FakeSide(clock, 0.5, surroundings_ms=0.05, answer_ms=0.3)
    assert judged(honest, eager) == {"time from outside": True, "deferred work": True}
    liar = FakeSide(clock, 1.0, hidden_ms=0.9, surroundings_ms=0.05)
    assert not judged(liar, eager)["time from outside"]
    lazy = FakeSide(clock, 0.01, surroundings_ms=0.05, deferred_ms=1.0)
    assert not judged(lazy, eager)["deferred work"]
    hoarder = FakeSide(clock, 0.01, surroundings_ms=0.05, deferred_ms=1.0, at_once=True)
    assert not judged(hoarder, eager)["deferred work"]
    clever = FakeSide(clock, 1.0, hidden_ms=0.9, surroundings_ms=0.05, empty_ms=0.95)
    assert not judged(clever, eager)["time from outside"]


def test_clocks_are_not_held_against_each_other_on_a_machine_that_is_too_busy() -> None:
    """Whole blocks of eager are slower, by both clocks."""
    hiding, steady = record(1.0, hidden_ms=1.0), record(1.0)
    slow = [b for k in (1.0, 2.0, 4.0) for b in record(k, num_blocks=4).blocks]
    busy = replace(steady, blocks=slow)
    assert not time_from_outside(hiding, steady).passed
    check = time_from_outside(hiding, busy)
    assert check.skipped and "too busy" in check.detail


def test_a_time_counts_for_nothing_on_a_machine_that_is_too_busy() -> None:
    """Others fill the empty blocks, and next to nothing is left of ModelNew's: no speed is claimed,
    and nothing is held against it.
    """
    steady, varying = Samples(1.0, 0.9, 1.1, 9), Samples(1e-6, 1e-6, 0.5, 9)
    figures = {"limit_ms": 1.0, "limit_reason": "", "protocol": "", "copy_gbps": 1.0}
    rest = {"compile_ms": None, "product_tflops": None, "device": "cuda"}
    quiet, busy = (Timing(steady, opweld_ms=o, **figures, **rest) for o in (steady, varying))  # type: ignore[arg-type]
    check, _ = data_sheet(1e-6, 4.2e9, 4000.0, 0.0, None)
    assert unless_unsteady(check, quiet, varying) == check and not check.passed
    assert unless_unsteady(check, busy, steady) == check, "it is ModelNew alone that varies"
    skipped = unless_unsteady(check, busy, varying)
    assert skipped.skipped and skipped.passed and "too busy" in skipped.detail
    right, _ = data_sheet(1.0, 4.2e9, 4000.0, 0.0, None)
    assert unless_unsteady(right, busy, varying) == right
