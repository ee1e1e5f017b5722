"""How far a suite is, from its store alone, also while it runs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from filelock import FileLock, Timeout

from opweld.suite.store import counts, reading

_CALIBRATION = "SELECT node, name, gpu, calibration FROM devices ORDER BY id"


def lines(store: Path) -> list[str]:
    """What there is to say, a line each.

    Raises:
        UserError: it is no store.
    """
    with reading(store) as db:
        found = counts(db)
        run = db.execute("SELECT * FROM runs ORDER BY id DESC LIMIT 1").fetchone()
        if run is None:
            return ["nothing has run yet"]
        total = "" if run["total"] is None else f" of {run['total']}"
        state = "runs" if is_written(store) else "stands still"
        told = [f"{run['do']} of {run['spec']}: {sum(found.values())}{total} ended, {state}"]
        for (verdict, cause), num in sorted(found.items(), key=lambda item: -item[1]):
            told.append(f"{num:8} {verdict}" + (f": {cause}" if cause else ""))
        told += [f"{num:8} attempts ended by: {fault}" for fault, num in _faults(db)]
        return told + _rate(db)


def is_written(store: Path) -> bool:
    """Whether a driver has it open now."""
    place = Path(f"{store}.lock")
    if not place.exists():
        return False
    try:
        with FileLock(place, timeout=0):
            return False
    except (Timeout, OSError):
        return True


def _faults(db: sqlite3.Connection) -> list[tuple[str, int]]:
    asked = "SELECT fault, count(*) FROM faults GROUP BY fault ORDER BY 2 DESC"
    return [(str(fault), int(num)) for fault, num in db.execute(asked)]


def _rate(db: sqlite3.Connection) -> list[str]:
    """Of the last run."""
    asked = """
        SELECT count(*), 1440 * (julianday(max(ended)) - julianday(max(runs.started)))
        FROM results JOIN runs ON runs.id = run WHERE run = (SELECT max(id) FROM runs)
    """
    num, minutes = db.execute(asked).fetchone()
    if not num or not minutes or minutes <= 0:
        return []
    return [f"{num / minutes:.3g} a minute in the last run"]
