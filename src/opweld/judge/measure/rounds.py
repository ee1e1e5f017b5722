"""Interleaved blocks of several sides, timed from outside by the process that judges.

This half of the block protocol (the other is `blocks.py`) draws the inputs of each block when it
is due, keeps a clock of its own around it, and looks at the outputs of calls that nobody could
know beforehand.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from opweld.judge.load import is_out_of_memory
from opweld.judge.measure.blocks import Order, Timed
from opweld.judge.measure.clock import quantile
from opweld.judge.measure.significance import LEAST_PAIRS

# A block this long is timed from outside to less than one percent: an answer takes some 0.1 ms. On
# two cores a process that was idle loses up to 4 ms at the start of a block, until the scheduler
# moves the second of its threads from the processor of the first.
BLOCK_MS = 60.0
MIN_ROUNDS, MAX_ROUNDS = LEAST_PAIRS, 50
# What the least rounds may take of the time budget: making inputs, say, takes time, too.
MAX_EXCESS = 3.0
_NUM_WARM_UPS, _LONG_MS = 3, 500.0
_NUM_ANSWERS, _GROWTH = 5, 8
_MAX_TOUCHED = 32
# On a busy machine some calls take far longer than most: the mean is no guide to the others.
_BURST_RATIO = 4.0
_TICKS_S = 0.05
# An empty block of a side in another process may take this much longer than one of this process.
EMPTY_RATIO = 1.1
# Blocks become longer, up to so many times, until empty ones vary by no more than this share.
EMPTY_SPREAD, _LONGER, _NUM_LENGTHS = 0.02, 4, 2

Now = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its calls by the clock inside; by the clock outside it, and the same block
    without its calls. All in ms."""

    inside: tuple[float, ...]
    outside: float
    empty: float

    def call_ms(self, most_empty_ms: float = math.inf) -> float:
        """What a call takes by the clock outside: the block less the empty one, as far as that may
        count.
        """
        return (self.outside - min(self.empty, most_empty_ms)) / max(len(self.inside), 1)


@dataclass(frozen=True, slots=True)
class Touch:
    """Ms to get one element of each leaf of a call: the first, second and third time.

    The mean over several calls of one block, so that work of all of them counts wherever it is
    done: at the first look at one of them, say.
    """

    first: float
    second: float
    third: float


@dataclass(slots=True)
class Record:
    """What was found out about one side.

    `answer_ms` is what an answer takes, `first_s` a call of the warm-up with all that is around it.
    """

    num_calls: int
    answer_ms: float = 0.0
    first_s: float = 0.0
    block_ms: float = BLOCK_MS
    blocks: list[Block] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)

    def times(self) -> list[float]:
        """Of each call by the clock inside."""
        return [ms for block in self.blocks for ms in block.inside]

    def call_ms(self, reference: Record | None = None) -> list[float]:
        """Of each block, what a call takes by the clock outside.

        With the `reference`, a side of this process, an empty block counts no further than one of
        that side, an `EMPTY_RATIO` longer, and one answer: to make it slow gains nothing.
        """
        if reference is None:
            return [block.call_ms() for block in self.blocks]
        empty = _median([b.empty / max(len(b.inside), 1) for b in reference.blocks])
        allowed = EMPTY_RATIO * empty
        return [b.call_ms(allowed * len(b.inside) + self.answer_ms) for b in self.blocks]

    def empty_spread(self) -> float:
        """By how much of what their calls take the middle half of the empty blocks differ."""
        empty = sorted(block.empty for block in self.blocks)
        took = _median([block.outside - block.empty for block in self.blocks]) if empty else 0.0
        return (quantile(empty, 0.75) - quantile(empty, 0.25)) / took if took > 0 else 0.0


class Draws:
    """Orders whose inputs never come twice, as long as there are any left.

    `num_calls` and `num_rolls` are the size of the pool and the number of different offsets. The
    numbers come from the system's entropy, so they follow from no seed.
    """

    def __init__(self, num_calls: int, num_rolls: int) -> None:
        self._size = num_calls * num_rolls
        self._num_rolls = num_rolls
        self._used: set[int] = set()
        self._random = secrets.SystemRandom()

    def order(self, count: int) -> list[tuple[int, int]]:
        return [divmod(self._fresh(), self._num_rolls) for _ in range(count)]

    def one_of(self, count: int) -> int:
        """One of the calls 0 to `count` - 1, as often the last as any other.

        Work that goes on behind the answer is least far in the last one.
        """
        return count - 1 if self._random.random() < 0.5 else self._random.randrange(count)

    def among(self, choices: Sequence[int]) -> int:
        return self._random.choice(choices)

    def shuffled(self, names: Iterable[str]) -> list[str]:
        """The names in an order that is drawn: what the moment does to one, it does to any."""
        among = list(names)
        return self._random.sample(among, len(among))

    def some_of(self, count: int, wanted: int) -> set[int]:
        return set(self._random.sample(range(count), min(count, wanted)))

    def _fresh(self) -> int:
        if 2 * len(self._used) > self._size:
            self._used.clear()
        while True:
            drawn = self._random.randrange(self._size)
            if drawn not in self._used or self._size == 1:
                self._used.add(drawn)
                return drawn


Audit = Callable[[tuple[int, int], Any], None]


class Rounds:
    """Blocks of several sides in rounds; the order inside each round is drawn.

    `max_calls` bounds a block by the memory that its inputs and outputs take. Outputs are looked at
    of the side named `audited` alone, which must not learn which. All other sides are timed while
    it is paused. `answer` asks another process like the audited side's for an answer; without it
    that side itself says how long one takes. With `processors` all sides of a round call from the
    same one of them, which is drawn: where calls wait for their host, what else the hardware does
    makes one process half as fast as another.
    """

    def __init__(
        self,
        sides: Mapping[str, Timed],
        draws: Draws,
        max_calls: int,
        audited: str | None = None,
        now: Now = perf_counter,
        answer: Callable[[], None] | None = None,
        processors: Collection[int] = (),
    ) -> None:
        self._processors = sorted(processors)
        self._max_calls = max_calls
        self._answer = answer
        self._sides = sides
        self._draws = draws
        self._audited = audited
        self._now = now
        self._busy_s = self._alone_s = 0.0
        self.records = {name: self._warm_up(name, max_calls) for name in sides}

    def run(
        self,
        budget_s: float,
        limit_s: float = math.inf,
        num_runs: int | None = None,
        audit: Audit | None = None,
        num_audits: int = 0,
        least: int = MIN_ROUNDS,
    ) -> None:
        """New blocks for the records: as many rounds as fit into `budget_s` for each side.

        At least `least` where `limit_s` allows; with `num_runs` as many as that number of calls
        takes. `audit(entry, run)` is given the
        outputs of one call, and what its inputs were drawn as, in `num_audits` of the rounds: in
        the last and in others, for who works until it seems to be over is idle in the last.
        """
        for _ in range(_NUM_LENGTHS):
            self._run(budget_s, limit_s, num_runs, audit, num_audits, least)
            if num_runs or not self._lengthen():
                return

    def _run(
        self,
        budget_s: float,
        limit_s: float,
        num_runs: int | None,
        audit: Audit | None,
        num_audits: int,
        least: int,
    ) -> None:
        round_s = self._planned()
        round_s *= self._shorten(MAX_EXCESS * budget_s * len(self._sides) / (MIN_ROUNDS * round_s))
        count = self._num_rounds(round_s, budget_s, limit_s, num_runs, least)
        chosen = {count - 1, *self._draws.some_of(count - 1, num_audits - 1)} if audit else set()
        for turn in range(count):
            self._keep(self._round(audit if turn in chosen else None))

    def _planned(self) -> float:
        """Seconds of a round, whose blocks have the lengths that a trial gave them.

        There is none where single calls are as long as blocks are meant to be.
        """
        records = self.records.values()
        if all(record.num_calls == 1 for record in records):
            self.clear()
            return sum(record.first_s for record in records)
        started = self._now()
        trial = self._round(None)
        self.clear()
        return self._resize(trial) * (self._now() - started)

    def clear(self) -> None:
        """Forget the blocks so far."""
        for record in self.records.values():
            record.blocks.clear()
            record.touches.clear()
        self._busy_s = self._alone_s = 0.0

    def pairs(self, one: str, other: str) -> list[tuple[float, float]]:
        """A call of either side's block in each round, by the clock outside."""
        return list(zip(self.call_ms(one), self.call_ms(other), strict=True))

    def call_ms(self, name: str) -> list[float]:
        """Of each block of a side, what a call takes by the clock outside."""
        others = [record for other, record in self.records.items() if other != name]
        trusted = others[0] if name == self._audited and others else None
        return self.records[name].call_ms(trusted)

    def busy_share(self) -> float:
        """Processors that the audited side kept busy while the other sides were timed.

        Less some ticks, in which the kernel counts.
        """
        return max(0.0, self._busy_s - _TICKS_S) / self._alone_s if self._alone_s else 0.0

    def _lengthen(self) -> bool:
        """Longer blocks where empty ones vary too much for theirs; whether there are any."""
        longer = False
        for record in self.records.values():
            ratio = min(record.empty_spread() / EMPTY_SPREAD, _LONGER)
            count = min(math.ceil(record.num_calls * ratio), self._max_calls)
            if ratio > 1 and count > record.num_calls:
                record.block_ms *= ratio
                record.num_calls, longer = count, True
        return longer

    def _shorten(self, ratio: float) -> float:
        """Fewer calls a block where even the least rounds would take far too long; how many."""
        before = sum(record.num_calls for record in self.records.values())
        for record in self.records.values():
            record.num_calls = max(1, math.floor(record.num_calls * min(ratio, 1.0)))
        return sum(record.num_calls for record in self.records.values()) / before

    def _resize(self, trial: dict[str, Block]) -> float:
        """Blocks as long as they are meant to be, by the trial; returns their length over its own.

        Longer ones, too: the first call, by which they were planned, takes longer than the others.
        """
        spent = left = 0.0
        for name, block in trial.items():
            record = self.records[name]
            mean_ms = (block.outside - block.empty) / record.num_calls
            each_ms = max(quantile(sorted(block.inside), 0.5), mean_ms / _BURST_RATIO, 1e-6)
            shorter = min(record.num_calls, math.ceil(record.block_ms / each_ms))
            # longer by the clock outside alone, and not by much: who lies, or puts work off, would
            # make blocks endless
            longer = math.floor(record.block_ms / max(mean_ms, 1e-6))
            fitting = max(shorter, min(longer, _GROWTH * record.num_calls, self._max_calls))
            spent += block.outside + block.empty
            left += (block.outside + block.empty) * fitting / record.num_calls
            record.num_calls = fitting
        return left / spent if spent else 1.0

    def _num_rounds(
        self, round_s: float, budget_s: float, limit_s: float, num_runs: int | None, least: int
    ) -> int:
        if num_runs:
            return math.ceil(num_runs / min(r.num_calls for r in self.records.values()))
        fitting = budget_s * len(self._sides) / max(round_s, 1e-6)
        return int(max(1, min(max(fitting, least), MAX_ROUNDS, limit_s / max(round_s, 1e-6))))

    def _round(self, audit: Audit | None) -> dict[str, Block]:
        with self._on_one_processor():
            return {name: self._block(name, audit) for name in self._draws.shuffled(self._sides)}

    @contextlib.contextmanager
    def _on_one_processor(self) -> Iterator[None]:
        if not self._processors:
            yield
            return
        self._pin(self._draws.among(self._processors))
        try:
            yield
        finally:
            self._pin(None)

    def _pin(self, processor: int | None) -> None:
        for side in self._sides.values():
            side.pin(processor)

    def _keep(self, blocks: dict[str, Block]) -> None:
        for name, block in blocks.items():
            self.records[name].blocks.append(block)

    def _block(self, name: str, audit: Audit | None) -> Block:
        """A shorter one where memory does not do for all of its inputs and outputs."""
        while True:
            try:
                return self._whole_block(name, audit)
            except Exception as error:
                record, side = self.records[name], self._sides[name]
                no_memory = getattr(error, "no_memory", False) or is_out_of_memory(error)
                if not no_memory or record.num_calls == 1:
                    raise
                side.release()
                record.num_calls //= 2

    def _whole_block(self, name: str, audit: Audit | None) -> Block:
        side, order = self._sides[name], self._draws.order(self.records[name].num_calls)
        with self._alone(name):
            if len(order) > 1:  # a process that stood still is slow at first
                side.arm(self._draws.order(1))
                side.block(True)
            block = time_block(side, order, self._now)
            if name == self._audited:
                self._look(side, order, audit)
            side.release()
        return block

    def _look(self, side: Timed, order: Order, audit: Audit | None) -> None:
        assert self._audited is not None
        numbers = sorted({*self._draws.some_of(len(order), _MAX_TOUCHED), len(order) - 1})
        self.records[self._audited].touches.append(touch(side, numbers, self._now))
        if audit is not None:
            number = self._draws.one_of(len(order))
            audit(order[number], side.result(number))

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """The audited side stands still while another one is timed."""
        if self._audited in (None, name):
            yield
            return
        other = self._sides[self._audited]
        other.pause()
        busy_s, start = other.busy_s(), self._now()
        try:
            yield
        finally:
            self._busy_s += other.busy_s() - busy_s
            self._alone_s += self._now() - start
            other.resume()

    def _warm_up(self, name: str, max_calls: int) -> Record:
        side = self._sides[name]
        with self._alone(name):
            elapsed, first_s = self._first_call(side)
            for _ in range(_NUM_WARM_UPS):
                if elapsed < _LONG_MS:
                    elapsed, first_s = self._first_call(side)
            side.arm([])
            asked = self._answer if name == self._audited and self._answer else None
            ask = asked or (lambda: side.block(False))
            answers = [self._timed(ask) for _ in range(_NUM_ANSWERS)]
        count = max(1, min(math.ceil(BLOCK_MS / max(elapsed, 1e-6)), max_calls))
        return Record(count, sorted(answers)[_NUM_ANSWERS // 2], first_s)

    def _first_call(self, side: Timed) -> tuple[float, float]:
        """The longest by both clocks and the first look, in ms: a lie would make blocks too long.

        And the seconds that all of it took, the making of the inputs too.
        """
        started = self._now()
        side.arm(self._draws.order(1))
        empty = self._timed(lambda: side.block(False))
        inside: list[float] = []
        outside = self._timed(lambda: inside.extend(side.block(True)))
        first, second = (self._timed(lambda: _touch_once(side, 0)) for _ in range(2))
        side.release()
        return max(inside[0], outside - empty, first - second), self._now() - started

    def _timed(self, action: Callable[[], Any]) -> float:
        start = self._now()
        action()
        return (self._now() - start) * 1e3


def time_block(side: Timed, order: Order, now: Now = perf_counter) -> Block:
    """One block with its calls and, just before, without them."""
    side.arm(order)
    start = now()
    side.block(False)
    middle = now()
    inside = side.block(True)
    return Block(tuple(inside), (now() - middle) * 1e3, (middle - start) * 1e3)


def touch(side: Timed, numbers: list[int], now: Now = perf_counter) -> Touch:
    """Looks at the outputs of these calls, at all of them before any comes again."""
    means: list[float] = []
    for _ in range(3):
        start = now()
        for number in numbers:
            _touch_once(side, number)
        means.append((now() - start) * 1e3 / len(numbers))
    return Touch(*means)


def _touch_once(side: Timed, number: int) -> None:
    for leaf in side.result(number).leaves:
        shape = getattr(leaf, "shape", None)
        if shape is not None and all(shape):
            leaf[tuple(size // 2 for size in shape)]


def _median(values: list[float]) -> float:
    return quantile(sorted(values), 0.5)
