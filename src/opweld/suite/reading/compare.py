"""Two stores of the same units: what became wrong, right, slower or faster from one to the other.

Times of two stores may be of different GPUs, days and clocks, so that none of them is compared
with another: what is compared is ModelNew's time over eager's, both of one process on one device.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opweld.suite.store import Row, reading
from opweld.suite.values import PASSED

# Beyond the intervals of both sides, so much must have changed; without intervals, so much.
LEAST_CHANGE, LEAST_WITHOUT = 1.03, 1.15
WRONG, RIGHT, SLOWER, FASTER = "became wrong", "became right", "became slower", "became faster"
_LAST = """
    SELECT name, do, verdict, cause, reason, device, ratio, ratio_low, ratio_high
    FROM results AS r WHERE id = (SELECT max(id) FROM results WHERE name = r.name AND do = r.do)
    ORDER BY name, do
"""


@dataclass(frozen=True, slots=True)
class Change:
    """Of one unit: what it became, and the figures or verdicts that say so."""

    kind: str
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All changes, and how many units are in both stores, in the first alone, in the second."""

    changes: tuple[Change, ...]
    common: int
    gone: int
    new: int

    @property
    def is_worse(self) -> bool:
        return any(change.kind in (WRONG, SLOWER) for change in self.changes)


def compare(before: Path, after: Path) -> Comparison:
    """What changed, by the names of units; of a name with several results the last one counts.

    Raises:
        UserError: one of them is no store.
    """
    changes: list[Change] = []
    common = gone = new = 0
    with reading(before) as first, reading(after) as second:
        for old, now in _joined(_last(first), _last(second)):
            if old is None:
                new += 1
            elif now is None:
                gone += 1
            else:
                common += 1
                changes += _changes(old, now)
    return Comparison(tuple(changes), common, gone, new)


def lines(found: Comparison) -> list[str]:
    """What there is to say, the worst first."""
    told = []
    for kind in (WRONG, SLOWER, RIGHT, FASTER):
        of_kind = [change for change in found.changes if change.kind == kind]
        told += [f"{kind}: {change.name}: {change.detail}" for change in of_kind]
    counts = ", ".join(
        f"{sum(change.kind == kind for change in found.changes)} {kind}"
        for kind in (WRONG, SLOWER, RIGHT, FASTER)
    )
    told.append(f"{found.common} units in both: {counts}")
    if found.gone or found.new:
        told.append(f"{found.gone} only in the first, {found.new} only in the second")
    return told


def _last(db: sqlite3.Connection) -> Iterator[Row]:
    return (dict(row) for row in db.execute(_LAST))


def _joined(old: Iterator[Row], new: Iterator[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Both in the order of their names, side by side."""
    left, right = next(old, None), next(new, None)
    while left or right:
        first = _key(left) if left else None
        second = _key(right) if right else None
        if first == second:
            yield left, right
            left, right = next(old, None), next(new, None)
        elif second is None or (first is not None and first < second):
            yield left, None
            left = next(old, None)
        else:
            yield None, right
            right = next(new, None)


def _key(row: Row) -> tuple[bytes, bytes]:
    """As SQLite orders them, by their bytes."""
    return row["name"].encode(), row["do"].encode()


def _changes(old: Row, new: Row) -> Iterator[Change]:
    was, is_now = old["verdict"] == PASSED, new["verdict"] == PASSED
    if was and not is_now:
        yield Change(WRONG, new["name"], f"{new['verdict']}: {new['reason']}")
    elif is_now and not was:
        yield Change(RIGHT, new["name"], f"was {old['verdict']}: {old['reason']}")
    elif was and old["ratio"] and new["ratio"]:
        yield from _paces(old, new)


def _paces(old: Row, new: Row) -> Iterator[Change]:
    change = new["ratio"] / old["ratio"]
    on = old["device"] if old["device"] == new["device"] else f"{old['device']}, {new['device']}"
    detail = f"{old['ratio']:.4g} to {new['ratio']:.4g} times eager's time (on {on})"
    if _clearly_above(new, old, change):
        yield Change(SLOWER, new["name"], detail)
    elif _clearly_above(old, new, 1 / change):
        yield Change(FASTER, new["name"], detail)


def _clearly_above(high: Row, low: Row, change: float) -> bool:
    """Whether one ratio is above the other, beyond the intervals of both."""
    if not (high["ratio_low"] and low["ratio_high"]):
        return change > LEAST_WITHOUT
    return change > LEAST_CHANGE and high["ratio_low"] > low["ratio_high"]
