"""Positions on axes, and figures as a reader wants them: pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MOST_TICKS = 9


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class LogScale:
    """Powers of ten from 10^`low` to 10^`high`, on positions from `start` to `end`."""

    low: int
    high: int
    start: float = 0.0
    end: float = 100.0

    @staticmethod
    def around(values: Iterable[float], start: float = 0.0, end: float = 100.0) -> LogScale:
        """Whole decades that hold all values above 0; of none, one decade."""
        logs = [math.log10(value) for value in values if 0 < value < math.inf]
        low, high = (math.floor(min(logs)), math.ceil(max(logs))) if logs else (0, 1)
        return LogScale(low, max(high, low + 1), start, end)

    def at(self, value: float) -> float:
        """The position of a value above 0; what is beyond an end is at that end."""
        if not value > 0:
            return self.start
        share = (min(math.log10(value), self.high) - self.low) / (self.high - self.low)
        return round(self.start + max(0.0, share) * (self.end - self.start), 2)

    def ticks(self) -> tuple[Tick, ...]:
        step = -(-(self.high - self.low + 1) // MOST_TICKS)
        powers = range(self.low, self.high + 1, step)
        return tuple(Tick(self.at(10.0**power), power_of_ten(power)) for power in powers)


def power_of_ten(power: int) -> str:
    if -2 <= power <= 3:
        return f"{10.0**power:g}"
    return f"10{str(power).translate(_SUPERSCRIPTS)}"


def figure(value: float | None, unit: str = "") -> str:
    """Four digits, or a dash where there is no figure."""
    if value is None:
        return "–"
    text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def error(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"


def ratio(value: float) -> str:
    return f"{value:.2f}×"
