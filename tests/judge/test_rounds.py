"""Interleaved blocks on a made-up clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.judge.fake_sides import FakeClock, FakeSide

from opweld.judge.measure.blocks import Order
from opweld.judge.measure.rounds import (
    BLOCK_MS,
    MAX_ROUNDS,
    MIN_ROUNDS,
    Block,
    Draws,
    Rounds,
    time_block,
    touch,
)
from opweld.judge.process.protocol import Raised


def test_no_input_comes_twice_while_there_are_others() -> None:
    draws = Draws(4, 100)
    drawn = [entry for _ in range(20) for entry in draws.order(10)]
    assert len(set(drawn)) == 200
    assert {position for position, _ in drawn} == {0, 1, 2, 3}
    assert all(0 <= offset < 100 for _, offset in drawn)
    assert Draws(1, 1).order(3) == [(0, 0)] * 3


def test_a_block_is_timed_with_and_without_its_calls() -> None:
    clock = FakeClock()
    side = FakeSide(clock, call_ms=2.0, hidden_ms=0.5, surroundings_ms=0.25)
    block = time_block(side, [(0, 0)] * 4, now=clock)
    assert block.inside == (1.5,) * 4
    assert block.empty == pytest.approx(0.1 + 4 * 0.25)
    assert block.outside == pytest.approx(0.1 + 4 * 2.25)


def test_a_touch_looks_three_times() -> None:
    clock = FakeClock()
    side = FakeSide(clock, 1.0, deferred_ms=7.0)
    side.arm([(0, 0)] * 4)
    seen = touch(side, [0, 3], now=clock)
    assert (seen.first, seen.second, seen.third) == pytest.approx((7.1, 0.1, 0.1))
    assert side.looked_at == {0, 3}


def rounds_of(new: FakeSide, eager: FakeSide, max_calls: int = 1000, **more: Any) -> Rounds:
    sides = {"eager": eager, "opweld": new}
    rounds = Rounds(sides, Draws(4, 10**6), max_calls, "opweld", now=new.clock)
    rounds.run(**{"budget_s": 2.0, **more})
    return rounds


def test_a_block_is_long_enough_for_the_outer_clock_and_fits_into_memory() -> None:
    clock = FakeClock()
    rounds = rounds_of(FakeSide(clock, 0.5), FakeSide(clock, 90.0))
    assert rounds.records["opweld"].num_calls == BLOCK_MS / 0.5
    assert rounds.records["eager"].num_calls == 1
    assert rounds_of(FakeSide(clock, 0.5), FakeSide(clock, 1.0), 7).records["opweld"].num_calls == 7


def test_a_clock_inside_that_stands_still_makes_no_endless_block() -> None:
    clock = FakeClock()
    rounds = rounds_of(FakeSide(clock, 10.0, hidden_ms=10.0), FakeSide(clock, 10.0))
    assert rounds.records["opweld"].num_calls <= BLOCK_MS / 10


def test_work_that_is_put_off_makes_no_endless_block() -> None:
    clock = FakeClock()
    rounds = rounds_of(FakeSide(clock, 0.01, deferred_ms=10.0), FakeSide(clock, 10.0))
    assert rounds.records["opweld"].num_calls <= 8 * (BLOCK_MS / 10 + 1)


def test_blocks_that_a_first_call_made_short_become_longer() -> None:
    clock = FakeClock()
    new = FakeSide(clock, 0.5)
    run, slow = new.block, [10.0] * 4

    def block(calls: bool) -> list[float]:
        clock.ms += slow.pop() if calls and slow else 0.0
        return run(calls)

    new.block = block  # type: ignore[method-assign]
    rounds = rounds_of(new, FakeSide(clock, 0.5))
    assert rounds.records["opweld"].num_calls > 5 * BLOCK_MS / 10.5


def test_a_block_of_several_calls_stands_behind_one_that_does_not_count() -> None:
    """A process that stood still is slow at first."""
    clock = FakeClock()
    new = FakeSide(clock, 6.0)
    run, first = new.block, [True]

    def block(calls: bool) -> list[float]:
        clock.ms += 50.0 if calls and first[0] else 0.0
        first[0] = first[0] and not calls
        return run(calls)

    def resume() -> None:
        first[0] = True

    new.block, new.resume = block, resume  # type: ignore[method-assign]
    rounds = rounds_of(new, FakeSide(clock, 6.0))
    assert all(ms == pytest.approx(6.0) for ms in rounds.call_ms("opweld"))


def test_the_number_of_rounds_follows_the_budget() -> None:
    clock = FakeClock()
    assert len(rounds_of(FakeSide(clock, 1.0), FakeSide(clock, 1.0)).records["eager"].blocks) > 20
    slow = rounds_of(FakeSide(clock, 4000.0), FakeSide(clock, 4000.0))
    assert len(slow.records["opweld"].blocks) == MIN_ROUNDS
    short = rounds_of(FakeSide(clock, 4000.0), FakeSide(clock, 4000.0), limit_s=17.0)
    assert len(short.records["opweld"].blocks) == 2
    fast = rounds_of(FakeSide(clock, 1e-4), FakeSide(clock, 1e-4), budget_s=1e6)
    assert len(fast.records["opweld"].blocks) == MAX_ROUNDS
    asked = rounds_of(FakeSide(clock, 90.0), FakeSide(clock, 90.0), num_runs=3)
    assert len(asked.records["opweld"].times()) == 3


def test_blocks_get_shorter_where_what_surrounds_the_calls_takes_too_long() -> None:
    clock = FakeClock()
    new, eager = FakeSide(clock, 0.1, surroundings_ms=50.0), FakeSide(clock, 0.1)
    records = rounds_of(new, eager, budget_s=1.0).records
    assert 1 <= records["opweld"].num_calls < 200 * 6 / 5 / 10 < BLOCK_MS / 0.1
    assert len(records["opweld"].blocks) >= MIN_ROUNDS


def test_calls_as_long_as_blocks_need_no_trial() -> None:
    clock = FakeClock()
    new, eager = FakeSide(clock, 90.0), FakeSide(clock, 900.0)
    rounds = Rounds({"eager": eager, "opweld": new}, Draws(4, 10**6), 9, "opweld", now=clock)
    new.calls.clear()
    rounds.run(2.0, num_runs=3)
    assert new.calls.count("block True") == 3


def test_sides_take_turns_and_the_candidate_stands_still_for_the_others() -> None:
    clock = FakeClock()
    new, eager = FakeSide(clock, 90.0), FakeSide(clock, 90.0)
    before = len(new.calls)
    rounds_of(new, eager, num_runs=4)
    log = new.calls[before:]
    assert log.count("pause") == log.count("resume") == 1 + 4
    stopped = False
    for step in log:
        assert not (stopped and step.startswith("block"))
        stopped = {"pause": True, "resume": False}.get(step, stopped)


def test_a_round_is_on_one_processor_for_all_sides() -> None:
    clock = FakeClock()
    sides = {"eager": FakeSide(clock, 90.0), "opweld": FakeSide(clock, 90.0)}
    drawn = Draws(4, 10**6)
    rounds = Rounds(sides, drawn, 9, "opweld", now=clock, processors={2, 5, 7})
    rounds.run(0.1, num_runs=40)
    logs = [[each for each in side.calls if "pin" in each] for side in sides.values()]
    assert logs[0] == logs[1] and logs[0][1::2] == ["pin None"] * 40
    assert set(logs[0][::2]) == {"pin 2", "pin 5", "pin 7"}, "one is missed in 10^7 runs"
    for side in sides.values():
        pinned = False
        for step in side.calls[side.calls.index(logs[0][0]) :]:
            assert pinned or not step.startswith("block")
            pinned = step != "pin None" if step.startswith("pin") else pinned


def test_a_side_that_fails_is_unpinned() -> None:
    class Failing(FakeSide):
        def arm(self, order: Order) -> None:
            if "pin 3" in self.calls:
                raise ValueError
            super().arm(order)

    clock = FakeClock()
    sides = {"opweld": Failing(clock, 90.0)}
    rounds = Rounds(sides, Draws(4, 10**6), 9, "opweld", now=clock, processors=[3])
    with pytest.raises(ValueError):
        rounds.run(0.1)
    assert sides["opweld"].calls[-1] == "pin None"


def test_the_order_of_each_round_is_drawn() -> None:
    """No side has the first moment more often than chance gives it: 200 rounds, six orders."""
    draws, sides = Draws(1, 1), ("eager", "compile", "opweld")
    drawn = [tuple(draws.shuffled(sides)) for _ in range(200)]
    assert len(set(drawn)) == 6
    first = sum(order.index("opweld") < order.index("eager") for order in drawn)
    assert 60 < first < 140, "5.6 standard deviations"


def test_rounds_take_the_order_that_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for back in (False, True):
        order = list(reversed(("eager", "opweld"))) if back else ["eager", "opweld"]
        monkeypatch.setattr(Draws, "shuffled", lambda self, names, order=order: order)
        log: list[str] = []
        clock = FakeClock()
        new, eager = FakeSide(clock, 90.0, calls=log), FakeSide(clock, 90.0)
        rounds = Rounds({"eager": eager, "opweld": new}, Draws(4, 10**6), 9, "opweld", now=clock)
        log.clear()
        rounds.run(2.0, num_runs=1)
        blocks = [step for step in log if step in ("pause", "block True")]
        once = ["block True", "pause"] if back else ["pause", "block True"]
        assert blocks == once


def test_blocks_of_one_round_are_a_pair() -> None:
    clock = FakeClock()
    rounds = rounds_of(FakeSide(clock, 90.0), FakeSide(clock, 20.0), num_runs=4)
    assert [pytest.approx(pair) for pair in rounds.pairs("opweld", "eager")] == [(90.0, 20.0)] * 4
    assert Block((1.0, 1.0), 4.5, 0.5).call_ms() == 2.0


def test_a_clock_inside_that_is_wrong_changes_no_figure() -> None:
    clock = FakeClock()
    rounds = rounds_of(FakeSide(clock, 2.0, hidden_ms=0.4), FakeSide(clock, 2.0))
    for name in ("opweld", "eager"):
        assert all(ms == pytest.approx(2.0) for ms in rounds.call_ms(name))


def test_answers_that_are_slow_on_purpose_are_not_taken_off() -> None:
    """An empty block counts as far as one of the other side and an answer of another process."""
    clock = FakeClock()

    def answer() -> None:
        clock.ms += 0.1

    eager = FakeSide(clock, 1.0, answer_ms=0.0)
    sides = {"eager": eager, "opweld": FakeSide(clock, 1.0, answer_ms=10.0)}
    for asked, taken_off in ((answer, 0.1), (None, 10.0)):
        rounds = Rounds(sides, Draws(4, 10**6), 100, "opweld", clock, asked)
        rounds.run(1.0, num_runs=40)
        block = rounds.records["opweld"].blocks[0]
        expected = (block.outside - taken_off) / len(block.inside)
        assert rounds.call_ms("opweld")[0] == pytest.approx(expected)


def test_blocks_become_longer_where_empty_ones_vary() -> None:
    @dataclass
    class Unsteady(FakeSide):
        turn: int = 0

        def block(self, run: bool) -> list[float]:
            self.turn += not run
            self.clock.ms += 0.0 if run else self.turn % 4
            return super().block(run)

    clock = FakeClock()
    rounds = rounds_of(Unsteady(clock, 1.0), FakeSide(clock, 1.0))
    assert rounds.records["opweld"].num_calls > BLOCK_MS
    assert rounds.records["eager"].num_calls == BLOCK_MS
    assert (
        rounds_of(Unsteady(clock, 1.0), FakeSide(clock, 1.0), 20).records["opweld"].num_calls == 20
    )


def test_a_call_that_is_drawn_afterwards_is_handed_to_the_audit() -> None:
    clock = FakeClock()
    new, audited = FakeSide(clock, 6.0), []

    def audit(entry: tuple[int, int], run: Any) -> None:
        number = int(run.leaves[0][0, 0])
        audited.append((number, entry == new.orders[-1][number]))

    rounds_of(new, FakeSide(clock, 6.0), num_runs=400, audit=audit, num_audits=30)
    assert len(audited) == 30 and all(matches for _, matches in audited)
    numbers = [number for number, _ in audited]
    assert len(set(numbers)) > 3 and numbers.count(9) > 5, "the last one is drawn often"


def test_the_last_round_is_always_looked_at() -> None:
    """Who works until the judging seems to be over is idle there."""
    clock = FakeClock()
    new, orders = FakeSide(clock, 2.0), []
    rounds_of(
        new,
        FakeSide(clock, 2.0),
        num_runs=200,
        audit=lambda entry, run: orders.append(len(new.orders)),
        num_audits=2,
    )
    assert len(orders) == 2 and orders[-1] == len(new.orders)


def test_a_block_that_memory_does_not_do_for_is_made_shorter() -> None:
    clock = FakeClock()
    new, eager = FakeSide(clock, 6.0), FakeSide(clock, 6.0)
    run = new.block

    def block(calls: bool) -> list[float]:
        if len(new.orders[-1]) > 3:
            raise Raised("no memory", no_memory=True)
        return run(calls)

    new.block = block  # type: ignore[method-assign]
    records = rounds_of(new, eager, num_runs=6).records
    assert (records["opweld"].num_calls, records["eager"].num_calls) == (2, 10)
    assert all(len(b.inside) == 2 for b in records["opweld"].blocks)


def test_other_failures_end_the_rounds() -> None:
    clock = FakeClock()
    new = FakeSide(clock, 2.0)

    def block(calls: bool) -> list[float]:
        raise Raised("a line of its own")

    new.block = block  # type: ignore[method-assign]
    with pytest.raises(Raised, match="a line of its own"):
        rounds_of(new, FakeSide(clock, 2.0))


def test_processor_time_beside_the_baseline_is_counted() -> None:
    clock = FakeClock()
    new, eager = FakeSide(clock, 90.0), FakeSide(clock, 90.0)
    run = eager.block

    def block(calls: bool) -> list[float]:
        new.processor_s += 0.045 if calls else 0.0
        return run(calls)

    assert rounds_of(new, eager, num_runs=4).busy_share() == 0.0
    eager.block = block  # type: ignore[method-assign]
    # a block of 90 ms, the empty one, and 5 ms to make its inputs; 50 ms are ticks
    share = rounds_of(new, eager, num_runs=4).busy_share()
    assert share == pytest.approx((4 * 45 - 50) / (4 * 95.2))
