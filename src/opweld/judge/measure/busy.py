"""Whether other work keeps the processors of this machine busy while something is timed on it."""

from __future__ import annotations

import os
import time
from pathlib import Path

_SECONDS = 0.2
# Below this the scheduler finds others a place; above it they meet the process that is timed.
_BUSY_SHARE = 0.25
_STAT = Path("/proc/stat")


def busy_note(seconds: float = _SECONDS) -> tuple[str, ...]:
    """The sentence for a busy machine, or nothing; this process waits for `seconds` meanwhile."""
    before = processor_times()
    time.sleep(seconds)
    share = busy_share(before, processor_times())
    if share <= _BUSY_SHARE:
        return ()
    return (f"the machine is busy: others use {share:.0%} of its processors, and times vary",)


def processor_times(text: str | None = None) -> tuple[int, int]:
    """Ticks in which the processors that this process may use worked, and all their ticks."""
    lines = (_STAT.read_text("ascii") if text is None else text).splitlines()
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    worked = total = 0
    for name, *ticks in map(str.split, lines):
        if name in own:
            user, nice, system, idle, waiting, *rest = map(int, ticks[:8])
            worked += user + nice + system + sum(rest)
            total += user + nice + system + sum(rest) + idle + waiting
    return worked, total


def busy_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Of the time between two readings, the share in which the processors worked."""
    worked, total = (b - a for a, b in zip(before, after, strict=True))
    return worked / total if total > 0 else 0.0
