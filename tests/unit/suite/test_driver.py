"""The driver, with an engine that answers at once: one row for each unit, whatever happens."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.suite.fakes import BUILD, H100, H200, WORK, FakeEngine, faulty, passed, slot

from opweld.suite.driver import NoDevices, Progress, drive
from opweld.suite.spec import Spec
from opweld.suite.store import Store, reading, rows
from opweld.suite.values import Answer, Outcome, Slot, Task, Unit, Work

COLUMNS = ("name", "verdict", "cause", "reason", "attempts", "run", "gpu")
CPUS = (slot("a"), slot("b"))


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text("x = 1\n")
    return str(path)


def units(model: str, number: int) -> Iterator[Unit]:
    return (Unit(str(n), model) for n in range(number))


def done(
    tmp_path: Path, engine: FakeEngine, found: Iterator[Unit], work: Work = WORK
) -> tuple[Progress, list[str]]:
    said: list[str] = []
    with Store(tmp_path / "store") as store:
        progress = drive(Spec(found), work, engine, store, say=said.append)
    assert engine.closed
    assert not (tmp_path / "store.work").exists()
    return progress, said


def stored(tmp_path: Path) -> list[dict[str, object]]:
    with reading(tmp_path / "store") as db:
        return list(rows(db, COLUMNS))


def test_each_unit_has_a_row_and_a_second_run_does_nothing(tmp_path: Path, model: str) -> None:
    progress, _ = done(tmp_path, FakeEngine(CPUS), units(model, 5))
    assert progress.all_passed and progress.ended == 5
    engine = FakeEngine(CPUS)
    again, _ = done(tmp_path, engine, units(model, 7))
    assert (again.ended, again.kept, again.all_passed) == (2, 5, True)
    assert [row["name"] for row in stored(tmp_path)] == list("0123456")
    assert [name for name, _, _ in engine.given] == ["5", "6"]


def test_the_same_unit_twice_is_one(tmp_path: Path, model: str) -> None:
    twice = itertools.chain(units(model, 3), units(model, 3))
    progress, _ = done(tmp_path, FakeEngine([slot("a")]), twice)
    assert (progress.ended, progress.repeated) == (3, 3)
    assert len(stored(tmp_path)) == 3


def test_a_changed_file_is_another_unit(tmp_path: Path, model: str) -> None:
    done(tmp_path, FakeEngine(CPUS), units(model, 1))
    Path(model).write_text("x = 2\n")
    progress, _ = done(tmp_path, FakeEngine(CPUS), units(model, 1))
    assert (progress.ended, progress.kept) == (1, 0)


def test_a_failure_of_an_earlier_run_counts(tmp_path: Path, model: str) -> None:
    def failed(task: Task, where: Slot) -> Outcome:
        return replace(passed(task, where), answer=Answer("failed", "own inputs", "wrong"))

    assert not done(tmp_path, FakeEngine(CPUS, failed), units(model, 1))[0].all_passed
    progress, _ = done(tmp_path, FakeEngine(CPUS), units(model, 2))
    assert (progress.ended, progress.kept, progress.all_passed) == (1, 1, False)


def test_a_file_that_is_not_there_is_refused_and_the_rest_goes_on(
    tmp_path: Path, model: str
) -> None:
    found = iter([Unit("none", str(tmp_path / "no.py")), Unit("one", model)])
    progress, _ = done(tmp_path, FakeEngine(CPUS), found)
    assert progress.verdicts == {"refused": 1, "passed": 1}
    assert "no such file" in str(stored(tmp_path)[0]["reason"])


def test_a_function_of_ones_own_may_return_anything(tmp_path: Path, model: str) -> None:
    given = {"timing": 3, "verdict": "x", "environment": [], "device": {"a": 1}, "seed": 2**70}

    def own(task: Task, where: Slot) -> Outcome:
        return replace(passed(task, where), answer=Answer("passed", account=given))

    progress, _ = done(tmp_path, FakeEngine(CPUS, own), units(model, 1))
    assert progress.all_passed
    with reading(tmp_path / "store") as db:
        (row,) = rows(db, ("account", "device", "seed", "eager_ms"))
    assert json.loads(str(row.pop("account"))) == given
    assert row == {"device": "cpu", "seed": None, "eager_ms": None}


def test_a_fault_of_the_machine_runs_again_elsewhere(tmp_path: Path, model: str) -> None:
    def once(task: Task, where: Slot) -> Outcome:
        fails = task.unit.name == "0" and where.id == "a"
        return faulty(task, where, "worker lost") if fails else passed(task, where)

    engine = FakeEngine(CPUS, once)
    progress, _ = done(tmp_path, engine, units(model, 1))
    assert progress.all_passed and progress.faults == {"worker lost": 1}
    assert [where for _, _, where in engine.given] == ["a", "b"]
    assert stored(tmp_path)[0]["attempts"] == 2


def test_three_faults_are_a_result(tmp_path: Path, model: str) -> None:
    def kills(task: Task, where: Slot) -> Outcome:
        fails = task.unit.name == "1"
        return faulty(task, where, "worker lost") if fails else passed(task, where)

    progress, _ = done(tmp_path, FakeEngine(CPUS, kills), units(model, 4))
    assert progress.verdicts == {"passed": 3, "lost": 1}
    (row,) = [row for row in stored(tmp_path) if row["verdict"] == "lost"]
    assert (row["name"], row["cause"], row["attempts"]) == ("1", "worker lost", 3)


def test_a_machine_on_which_nothing_works_ends_the_suite(tmp_path: Path, model: str) -> None:
    def broken(task: Task, where: Slot) -> Outcome:
        return faulty(task, where, "worker lost")

    with pytest.raises(NoDevices, match="nothing works here: .* worker lost"):
        done(tmp_path, FakeEngine(CPUS, broken), units(model, 100))
    assert len(stored(tmp_path)) < 10


def test_a_gpu_that_fails_is_set_aside_and_its_unit_done_elsewhere(
    tmp_path: Path, model: str
) -> None:
    def lost(task: Task, where: Slot) -> Outcome:
        bad = where.id == "first"
        return faulty(task, where, "GPU lost", "Xid 79") if bad else passed(task, where)

    engine = FakeEngine([slot("first", H200), slot("second", H100)], lost)
    progress, said = done(tmp_path, engine, units(model, 6))
    assert progress.all_passed and engine.aside == ["first"]
    assert said == ["first is set aside: Xid 79"]
    assert [where for _, _, where in engine.given].count("first") == 1
    assert {row["gpu"] for row in stored(tmp_path)} == {H100.uuid}


def test_an_answer_of_a_gpu_that_then_failed_counts_and_the_gpu_goes(
    tmp_path: Path, model: str
) -> None:
    def then_bad(task: Task, where: Slot) -> Outcome:
        return replace(passed(task, where), bad_gpu="memory kept" if where.id == "first" else "")

    engine = FakeEngine([slot("first", H200), slot("second", H100)], then_bad)
    progress, _ = done(tmp_path, engine, units(model, 4))
    assert progress.all_passed and engine.aside == ["first"]
    assert len(stored(tmp_path)) == 4


def test_without_a_gpu_the_suite_ends_and_says_why(tmp_path: Path, model: str) -> None:
    def lost(task: Task, where: Slot) -> Outcome:
        return faulty(task, where, "GPU lost", "gone")

    with pytest.raises(NoDevices, match="no device is left: first: gone"):
        done(tmp_path, FakeEngine([slot("first", H200)], lost), units(model, 3))
    assert stored(tmp_path) == [], "what no device could do is for another time"


def test_a_unit_for_a_gpu_that_is_not_here_is_refused(tmp_path: Path, model: str) -> None:
    found = iter([Unit("big", model, gpu="B200"), Unit("small", model)])
    progress, _ = done(tmp_path, FakeEngine([slot("first", H200)]), found)
    assert progress.causes == {("refused", "no such device"): 1}


def test_units_are_built_by_processors_and_then_measured(tmp_path: Path, model: str) -> None:
    laid_out: list[str] = []

    def build(task: Task, where: Slot) -> Outcome:
        folder = Path(task.artefacts)
        if task.phase == BUILD:
            assert task.built_for == H200
            folder.mkdir(parents=True)
            (folder / "kernel.so").write_text(task.unit.name)
        else:
            laid_out.append((folder / "kernel.so").read_text())
            (folder / "kernel.so").write_text("spoilt by the candidate")
        fails = task.phase != BUILD and task.unit.name == "1" and laid_out.count("1") == 1
        return faulty(task, where, "worker lost") if fails else passed(task, where)

    slots = [slot("gpu", H200), slot("build", None, (BUILD,))]
    engine = FakeEngine(slots, build)
    work = replace(WORK, builds_ahead=True)
    progress, _ = done(tmp_path, engine, units(model, 3), work)
    assert progress.all_passed
    assert sorted(laid_out) == ["0", "1", "1", "2"], "each attempt has what was published"
    phases = {(phase, where) for _, phase, where in engine.given}
    assert phases == {(BUILD, "build"), ("measure", "gpu")}


def test_what_could_not_be_built_ahead_is_measured_all_the_same(tmp_path: Path, model: str) -> None:
    def refused(task: Task, where: Slot) -> Outcome:
        if task.phase == BUILD:
            Path(task.artefacts).mkdir(parents=True)
            return replace(passed(task, where), answer=Answer("refused", "x", "y"))
        assert task.artefacts == ""
        return passed(task, where)

    slots = [slot("gpu", H200), slot("build", None, (BUILD,))]
    work = replace(WORK, builds_ahead=True)
    assert done(tmp_path, FakeEngine(slots, refused), units(model, 2), work)[0].all_passed


def test_the_driver_takes_units_as_there_is_room_and_keeps_none(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opweld.suite.driver.digests_of", lambda unit: {"model": unit.name})
    monkeypatch.setattr(Store, "add_result", unsynchronised(Store.add_result))
    taken = 0
    kept: list[tracemalloc.Snapshot] = []

    def counted() -> Iterator[Unit]:
        nonlocal taken
        for n in range(6000):
            if n in (1000, 5999):
                kept.append(tracemalloc.take_snapshot())
            assert n - progress.ended <= 8, "no more than the slots have room for"
            taken += 1
            yield Unit(str(n), model)

    progress = Progress(None)

    def follow(now: Progress) -> None:
        nonlocal progress
        progress = now

    engine = FakeEngine(CPUS)
    tracemalloc.start()
    try:
        with Store(tmp_path / "store") as store:
            drive(Spec(counted()), WORK, engine, store, follow=follow)
    finally:
        tracemalloc.stop()
    assert taken == 6000 and progress.ended == 6000
    grown = kept[1].compare_to(kept[0], "filename")  # the largest first
    more = sum(each.size_diff for each in grown)
    assert more < 200_000, f"5000 units more take no memory: {[str(each) for each in grown[:5]]}"


def unsynchronised(add: object) -> object:
    """Without a flush for each row, which would be most of the time of a test."""
    assert callable(add)

    def added(store: Store, **row: object) -> int:
        store._db.execute("PRAGMA synchronous = OFF")
        return int(add(store, **row))

    return added
