"""The store of a suite: SQLite, append-only, one row for each unit that has ended.

The driver alone writes, one process at a time; others may read meanwhile (write-ahead log). A row
is on the disk when `add` returns, so that whatever ends the driver, no result is lost, and the
unique key lets none be there twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from opweld.errors import OutputNotWritable, UserError, Where

VERSION = 1
_NO_CHANGE = """
CREATE TRIGGER IF NOT EXISTS {table}_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'the store is append-only'); END;
"""
TABLES = ("runs", "devices", "results", "faults")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, spec TEXT NOT NULL, do TEXT NOT NULL,
    asked TEXT NOT NULL, engine TEXT NOT NULL, host TEXT NOT NULL, versions TEXT NOT NULL,
    total INTEGER
);
CREATE TABLE IF NOT EXISTS devices (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, seen TEXT NOT NULL,
    node TEXT NOT NULL, gpu TEXT NOT NULL, name TEXT NOT NULL, calibration TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS results (
    id INTEGER PRIMARY KEY, unit TEXT NOT NULL UNIQUE, run INTEGER NOT NULL REFERENCES runs,
    name TEXT NOT NULL, do TEXT NOT NULL, model TEXT NOT NULL, new TEXT NOT NULL,
    digests TEXT NOT NULL, seed INTEGER, verdict TEXT NOT NULL, cause TEXT NOT NULL,
    reason TEXT NOT NULL, grade TEXT, node TEXT NOT NULL, gpu TEXT NOT NULL, device TEXT NOT NULL,
    calibration INTEGER REFERENCES devices, state TEXT NOT NULL, versions TEXT NOT NULL,
    eager_ms REAL, compile_ms REAL, opweld_ms REAL, limit_ms REAL,
    ratio REAL, ratio_low REAL, ratio_high REAL,
    started TEXT NOT NULL, seconds REAL NOT NULL, build_seconds REAL NOT NULL,
    attempts INTEGER NOT NULL, ended TEXT NOT NULL, account TEXT NOT NULL, log TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS results_name ON results (name);
CREATE TABLE IF NOT EXISTS faults (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, unit TEXT NOT NULL,
    at TEXT NOT NULL, fault TEXT NOT NULL, detail TEXT NOT NULL, node TEXT NOT NULL,
    gpu TEXT NOT NULL, log TEXT NOT NULL
);
""" + "".join(
    _NO_CHANGE.format(table=table, verb=verb) for table in TABLES for verb in ("UPDATE", "DELETE")
)
_BUSY_S = 60.0
_LOCK_S = 0.5
_RETRY_S = 0.05

Row = dict[str, Any]


def now() -> str:
    """The time as the store writes it: UTC, ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017


@dataclass(frozen=True, slots=True)
class Found:
    """The run in which a unit ended, and how."""

    run: int
    verdict: str


class Store:
    """The driver's side. It holds the lock of the store until it is closed.

    Raises:
        UserError: another driver writes to it, or the file is no store.
        OutputNotWritable: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(f"{path}.lock", timeout=_LOCK_S)
            self._lock.acquire()
        except Timeout:
            raise UserError(
                "another suite is writing to it",
                where=Where(str(path)),
                next_step="wait for it, or name another file with --store",
            ) from None
        except OSError as error:
            raise OutputNotWritable(
                f"cannot be written: {error.strerror}",
                where=Where(str(path)),
                next_step="name another place with --store",
            ) from error
        try:
            self._open(path)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, path: Path) -> None:
        with _is_a_store(path):
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            _refuse_version(path, version, new=_is_empty(self._db))
            self._db.execute("PRAGMA journal_mode = WAL")
            # a result survives the loss of power, for the price of a flush
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *how: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        self._lock.release()

    def result_of(self, unit: str) -> Found | None:
        """What the store says of a unit; None where it has not ended."""
        asked = "SELECT run, verdict FROM results WHERE unit = ?"
        found = self._db.execute(asked, (unit,)).fetchone()
        return found and Found(int(found[0]), str(found[1]))

    def add_run(self, **row: Any) -> int:
        return self._insert("runs", {"started": now(), **row})

    def add_device(self, **row: Any) -> int:
        return self._insert("devices", {"seen": now(), **row})

    def add_result(self, **row: Any) -> int:
        """One row, which is on the disk when this returns; an error where the unit has one."""
        return self._insert("results", {"ended": now(), **row})

    def add_fault(self, **row: Any) -> int:
        return self._insert("faults", {"at": now(), **row})

    def _insert(self, table: str, row: Row) -> int:
        values = {name: _cell(value) for name, value in row.items() if value is not None}
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        try:
            number = self._db.execute(statement, tuple(values.values())).lastrowid
        except sqlite3.OperationalError as error:  # the disk is full, or gone
            raise OutputNotWritable(
                f"cannot be written any more: {error}",
                where=Where(str(self.path)),
                next_step="see to its disk, and run the same command again for the rest",
            ) from error
        assert number is not None
        return number


def _is_empty(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0


def _refuse_version(path: Path, version: int, new: bool = False) -> None:
    if version != VERSION and not new:
        what = f"is a store of version {version}" if version else "is a database of something else"
        raise UserError(what, where=Where(str(path)), next_step="name another file with --store")


@contextlib.contextmanager
def _is_a_store(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise UserError(
            f"is no store of a suite: {error}",
            where=Where(str(path)),
            next_step="name the file that --store named",
        ) from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, also while a driver writes.

    Raises:
        UserError: there is no such file, or it is no store.
    """
    if not path.is_file():
        raise UserError(
            "no such file", where=Where(str(path)), next_step="name the store of a suite"
        )
    with _is_a_store(path):
        db = _connected(path)
        try:
            db.row_factory = sqlite3.Row
            _refuse_version(path, db.execute("PRAGMA user_version").fetchone()[0])
            yield db
        finally:
            db.close()


def _connected(path: Path) -> sqlite3.Connection:
    """Reading a log needs a file of shared memory beside it, where it is not there yet."""
    readable = os.access(path.parent, os.W_OK)
    mode = "ro" if readable else "ro&immutable=1"
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            db = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_S
            )
            db.execute("SELECT 1 FROM sqlite_master").fetchone()
            return db
        except sqlite3.OperationalError:  # its driver was killed, and the log is being restored
            if time.monotonic() > until:
                raise
            time.sleep(_RETRY_S)


def rows(db: sqlite3.Connection, columns: Sequence[str]) -> Iterator[Row]:
    """Results in the order in which they ended, as many at a time as are asked for; what is nested
    in them is JSON.
    """
    asked = f"SELECT {', '.join(columns)} FROM results ORDER BY id"
    return (dict(row) for row in db.execute(asked))


def columns_of(db: sqlite3.Connection) -> tuple[str, ...]:
    """The names of the columns of the results."""
    return tuple(str(row["name"]) for row in db.execute("PRAGMA table_info(results)"))


def counts(db: sqlite3.Connection) -> Mapping[tuple[str, str], int]:
    """How many units ended with each verdict and cause."""
    asked = "SELECT verdict, cause, count(*) FROM results GROUP BY verdict, cause"
    return {(str(verdict), str(cause)): int(num) for verdict, cause, num in db.execute(asked)}


def _cell(value: Any) -> Any:
    """What SQLite takes: JSON in the place of a dictionary, and of text what UTF-8 can have. Names
    of files and the messages of candidates may be more than that.
    """
    if isinstance(value, dict):
        return json.dumps(value)
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
