"""Units that crash, hang and kill their worker, a driver that is killed: each has one result."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.suite.clusters import needs_ray
from tests.suite.operations import CRASHES, FAILS, HANGS, KILLS, NUM_UNITS
from tests.suite.stores import ROOT, command, num_results, numbered, results, verdicts

from opweld.suite.store import reading

_PATIENCE_S = 120
engines = pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=needs_ray)])

EXPECTED = Counter(
    {
        ("passed", ""): NUM_UNITS - sum(map(len, (CRASHES, HANGS, KILLS, FAILS))),
        ("failed", "a five"): len(FAILS),
        ("crashed", "crashed"): len(CRASHES),
        ("timed out", "timed out"): len(HANGS),
        ("lost", "worker lost"): len(KILLS),
    }
)


def kill_at(argv: list[str], store: Path, number: int) -> None:
    """Start a driver, and kill it when the store has so many results; it is read meanwhile."""
    driver = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + _PATIENCE_S
    while num_results(store) < number:
        assert driver.poll() is None, "it ended before it was killed"
        assert time.monotonic() < until
        time.sleep(0.02)
    driver.kill()
    driver.wait()


@engines
def test_every_unit_has_one_result_whatever_units_do_and_the_driver_killed_twice(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spec, store = numbered(tmp_path), tmp_path / "suite.sqlite"
    where = ["--address", request.getfixturevalue("ray_address")] if engine == "ray" else []
    argv = command(spec, store, "harmful", "--engine", engine, *where)
    kill_at(argv, store, 8)
    before = results(store)
    kill_at(argv, store, 20)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S)
    assert done.returncode == 1, done.stderr
    found = results(store)
    assert sorted(int(row["name"]) for row in found) == list(range(NUM_UNITS))
    assert verdicts(store) == EXPECTED
    assert found[: len(before)] == before, "what has ended is not done again"
    assert {row["run"] for row in found} == {1, 2, 3}
    assert f"{NUM_UNITS} of {NUM_UNITS} done" in done.stderr and "from before" in done.stderr
    with reading(store) as db:
        faults = db.execute("SELECT unit, fault FROM faults").fetchall()
    lost = {row["unit"]: row["attempts"] for row in found if row["verdict"] == "lost"}
    assert set(lost.values()) == {3} and {row["unit"] for row in faults} == set(lost)
    argv = command(spec, store, "harmful")
    again = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S)
    assert again.returncode == 1, "some did not pass, in earlier runs"
    assert results(store) == found


def test_a_fault_of_the_machine_is_tried_again_and_the_answer_counts(tmp_path: Path) -> None:
    spec, store = numbered(tmp_path, 1), tmp_path / "suite.sqlite"
    argv = command(spec, store, "kills_once")
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S)
    assert done.returncode == 0, done.stderr
    (row,) = results(store)
    assert (row["verdict"], row["attempts"]) == ("passed", 2)


@engines
def test_nothing_is_left_of_a_driver_that_was_killed(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spec, store = numbered(tmp_path, 4), tmp_path / "suite.sqlite"
    where = ["--address", request.getfixturevalue("ray_address")] if engine == "ray" else []
    argv = [*command(spec, store, "hang", "--engine", engine, *where), "--time-limit", "500"]
    driver = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(running(spec)) >= 2)
    driver.kill()
    driver.wait()
    wait_for(lambda: not running(spec))


def test_what_a_unit_leaves_behind_ends_with_the_suite(tmp_path: Path) -> None:
    spec, store = numbered(tmp_path, 2), tmp_path / "suite.sqlite"
    argv = command(spec, store, "leaves_a_process")
    subprocess.run(argv, cwd=ROOT, capture_output=True, check=True, timeout=_PATIENCE_S)
    left = (tmp_path / "model.py.left").read_text().split()
    assert len(left) == 2
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


def test_an_interrupt_ends_everything_and_loses_nothing(tmp_path: Path) -> None:
    spec, store = numbered(tmp_path, 4), tmp_path / "suite.sqlite"
    argv = [*command(spec, store, "hang"), "--time-limit", "500"]
    driver = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(running(spec)) >= 2)
    driver.terminate()
    _, said = driver.communicate(timeout=_PATIENCE_S)
    assert driver.returncode == 130
    assert "interrupted; what has ended is in the store" in said
    assert not running(spec) and not results(store)
    assert [each.name for each in tmp_path.glob("*.work")] == []


def running(spec: Path) -> list[int]:
    """Processes of the operation that are asked about a unit of this suite."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            if b"opweld.suite.worker.operation" not in line:
                continue
            request = Path(line.split(b"\0")[-3].decode())
            asked = request.read_text("utf-8")
        except (OSError, IndexError):
            continue
        if str(spec.parent) in asked:
            found.append(int(entry.name))
    return found


def wait_for(there: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not there():
        assert time.monotonic() < until
        time.sleep(0.05)
