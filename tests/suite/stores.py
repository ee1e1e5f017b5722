"""Suites of trivial units for tests, and what their stores hold."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.suite.operations import NUM_UNITS

ROOT = Path(__file__).parents[2]
# Of one unit: enough for a process to start on a busy machine, and what each that hangs takes.
LIMIT_S = 5.0


def numbered(folder: Path, number: int = NUM_UNITS) -> Path:
    """A file of units that are called 0, 1, 2, ..."""
    (folder / "model.py").write_text("x = 1\n")
    spec = folder / "units.jsonl"
    rows = ({"name": str(n), "model": "model.py"} for n in range(number))
    spec.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return spec


def command(spec: Path, store: Path, do: str, *more: str) -> list[str]:
    """The command line of a suite of an operation of `operations.py`."""
    words = ["--do", f"tests.suite.operations:{do}", "--store", store, "--no-measure"]
    limits = ["--jobs", 2, "--time-limit", LIMIT_S, "--sandbox", "off"]
    return [sys.executable, "-m", "opweld", *map(str, ["suite", spec, *words, *limits, *more])]


def results(store: Path) -> list[dict[str, Any]]:
    """All rows, read as anybody may while the driver writes."""
    db = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30)
    try:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute("SELECT * FROM results ORDER BY id")]
    except sqlite3.OperationalError as error:
        if "no such table" in str(error) or "unable to open" in str(error):
            return []
        raise
    finally:
        db.close()


def num_results(store: Path) -> int:
    return len(results(store)) if store.exists() else 0


def verdicts(store: Path) -> Counter[tuple[str, str]]:
    return Counter((row["verdict"], row["cause"]) for row in results(store))
