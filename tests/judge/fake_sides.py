"""Sides that take made-up times on a made-up clock, honest and not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from opweld.judge.load import Call
from opweld.judge.measure.blocks import Order
from opweld.judge.verify.run import Run


@dataclass
class FakeClock:
    ms: float = 0.0

    def __call__(self) -> float:
        return self.ms / 1e3


@dataclass
class FakeSide:
    """A call takes `call_ms`, of which `hidden_ms` is not in the time that is reported.

    `surroundings_ms` is what a call of an empty block takes, `answer_ms` what any answer takes,
    `deferred_ms` what the first look at each output takes more than the second; with `at_once`
    the first look of all takes that for every call of the block.
    """

    clock: FakeClock
    call_ms: float
    hidden_ms: float = 0.0
    surroundings_ms: float = 0.0
    empty_ms: float | None = None
    answer_ms: float = 0.1
    deferred_ms: float = 0.0
    at_once: bool = False
    calls: list[str] = field(default_factory=list)
    orders: list[list[tuple[int, int]]] = field(default_factory=list)
    looked_at: set[int] = field(default_factory=set)
    processor_s: float = 0.0

    def prepare(self, calls: Sequence[Call], step: bool = False) -> None:
        self.calls.append("prepare")

    def arm(self, order: Order) -> None:
        self.orders.append(list(order))
        self.looked_at.clear()
        self.clock.ms += 5.0

    def block(self, run: bool) -> list[float]:
        count = len(self.orders[-1])
        self.calls.append(f"block {run}")
        self.clock.ms += self.answer_ms
        if not run:
            empty = self.surroundings_ms if self.empty_ms is None else self.empty_ms
            self.clock.ms += count * empty
            return [0.0] * count
        self.clock.ms += count * (self.call_ms + self.surroundings_ms)
        return [self.call_ms - self.hidden_ms] * count

    def result(self, number: int) -> Run:
        self.clock.ms += self.answer_ms
        if self.at_once and not self.looked_at:
            self.clock.ms += self.deferred_ms * len(self.orders[-1])
        elif not self.at_once and number not in self.looked_at:
            self.clock.ms += self.deferred_ms
        self.looked_at.add(number)
        return Run(("output",), [torch.full((2, 2), float(number))], [("", "leaf")])

    def release(self) -> None:
        self.calls.append("release")

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def pin(self, processor: int | None) -> None:
        self.calls.append(f"pin {processor}")

    def busy_s(self) -> float:
        return self.processor_s
