"""The store: append-only, one row for each unit, one driver, and readers meanwhile."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from opweld.errors import OutputNotWritable, UserError
from opweld.suite import store as stores
from opweld.suite.store import Store, counts, reading, rows

RUN: dict[str, Any] = {
    "spec": "pairs",
    "do": "check",
    "asked": {"a": 1},
    "engine": "local",
    "host": "here",
    "versions": {"opweld": "1"},
    "total": 3,
}


def result(unit: str, **more: Any) -> dict[str, Any]:
    texts = ("name", "model", "new", "cause", "reason", "node", "gpu", "device", "log", "started")
    return {
        **dict.fromkeys(texts, unit),
        "unit": unit,
        "run": 1,
        "do": "check",
        "digests": {"model": "d"},
        "verdict": "passed",
        "state": {},
        "versions": {},
        "account": {"x": "nan"},
        "seconds": 1.0,
        "build_seconds": 0.0,
        "attempts": 1,
        **more,
    }


def filled(path: Path, *found: dict[str, Any]) -> None:
    with Store(path) as store:
        store.add_run(**RUN)
        for each in found:
            store.add_result(**each)


def test_what_is_added_is_read(tmp_path: Path) -> None:
    path = tmp_path / "made" / "s.sqlite"
    filled(path, result("u", ratio=0.5, cause=""), result("v", verdict="failed", cause="own"))
    with reading(path) as db:
        found = list(rows(db, ("unit", "ratio", "eager_ms", "digests")))
        assert counts(db) == {("passed", ""): 1, ("failed", "own"): 1}
    digests = json.loads(found[0].pop("digests"))
    assert found[0] == {"unit": "u", "ratio": 0.5, "eager_ms": None}
    assert digests == {"model": "d"}
    with Store(path) as store:
        known = store.result_of("v")
        assert known is not None and (known.run, known.verdict) == (1, "failed")
        assert store.result_of("w") is None


def test_a_unit_has_one_row(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.add_run(**RUN)
        store.add_result(**result("u"))
        with pytest.raises(sqlite3.IntegrityError):
            store.add_result(**result("u", verdict="failed"))
    with reading(tmp_path / "s") as db:
        assert counts(db) == {("passed", "u"): 1}


def test_any_text_is_kept(tmp_path: Path) -> None:
    """A candidate may raise what UTF-8 cannot have, and so may a file be called."""
    filled(
        tmp_path / "s", result("u", name="caf\udce9.py", reason="\ud83d at é", state={"\udc80": 1})
    )
    with reading(tmp_path / "s") as db:
        (row,) = rows(db, ("name", "reason", "state"))
    assert (row["name"], row["reason"]) == (r"caf\udce9.py", r"\ud83d at é")
    assert json.loads(row["state"]) == {"\udc80": 1}


def test_a_disk_that_is_full_is_one_sentence(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.add_run(**RUN)
        store._db.execute("PRAGMA max_page_count = 1")  # no more than there are
        with pytest.raises(OutputNotWritable, match="cannot be written any more: .* is full; see"):
            store.add_result(**result("u", log="x" * 100_000))


@pytest.mark.parametrize("table", stores.TABLES)
@pytest.mark.parametrize("change", ["UPDATE {} SET id = 9", "DELETE FROM {}"])
def test_nothing_can_be_changed(tmp_path: Path, table: str, change: str) -> None:
    with Store(tmp_path / "s") as store:
        store.add_run(**RUN)
        store.add_result(**result("u"))
        store.add_device(run=1, node="n", gpu="", name="cpu", calibration={})
        fault = {"fault": "worker lost", "detail": "d", "node": "n", "gpu": "", "log": ""}
        store.add_fault(run=1, unit="u", **fault)
    db = sqlite3.connect(tmp_path / "s")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(change.format(table))
    assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
    db.close()


def test_it_is_read_while_it_is_written_and_by_nobody_else_written(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Store(path) as store:
        store.add_run(**RUN)
        for n in range(3):
            store.add_result(**result(str(n)))
            with reading(path) as db:
                assert sum(counts(db).values()) == n + 1
                with pytest.raises(sqlite3.OperationalError, match="readonly"):
                    db.execute("INSERT INTO faults VALUES (1, 1, '', '', '', '', '', '', '')")
        with pytest.raises(UserError, match="another suite is writing to it"):
            Store(path)
    Store(path).close()


def test_a_row_is_there_when_its_writer_is_not_closed(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.add_run(**RUN)
    store.add_result(**result("u"))
    for name in ("s", "s-wal"):  # as they are on the disk at this moment
        (tmp_path / f"copy{name[1:]}").write_bytes((tmp_path / name).read_bytes())
    store.close()
    with reading(tmp_path / "copy") as db:
        assert sum(counts(db).values()) == 1


def test_what_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("no database, and longer than a hundred bytes, which a header has" * 9)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE results (mine)")
    db.close()
    before = text.read_bytes(), other.read_bytes()
    for path in (text, other):
        with pytest.raises(UserError, match="is no store|something else"):
            Store(path)
        with pytest.raises(UserError, match="is no store|something else"), reading(path):
            pass
    assert (text.read_bytes(), other.read_bytes()) == before
    with pytest.raises(UserError, match="no such file"), reading(tmp_path / "none"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(OutputNotWritable):
        Store(tmp_path / "file" / "s")
