"""What runs where, and what runs again."""

from __future__ import annotations

import pytest
from tests.unit.suite.fakes import BUILD, H100, H200, faulty, passed, slot, task

from opweld.suite.placing import MAX_FAULTS, Placing, fits
from opweld.suite.values import Slot, Unit


@pytest.mark.parametrize(
    ("asked", "fitting"),
    [
        (Unit("u", "m"), ["cpu", "h200", "h100", "any"]),
        (Unit("u", "m", gpu="h200"), ["h200", "any"]),
        (Unit("u", "m", gpu="H100"), ["h100", "any"]),
        (Unit("u", "m", gpu_memory_gb=100), ["h200", "any"]),
        (Unit("u", "m", gpu="H100", gpu_memory_gb=100), ["any"]),
    ],
)
def test_a_unit_runs_where_its_gpu_and_memory_are(asked: Unit, fitting: list[str]) -> None:
    slots = (slot("cpu"), slot("h200", H200), slot("h100", H100), Slot("any", "n", any_gpu=True))
    assert [each.id for each in slots if fits(asked, each)] == fitting


def test_a_task_waits_for_its_own_gpu_and_others_pass_it() -> None:
    placing = Placing([slot("h200", H200), slot("h100", H100)])
    for name, gpu in (("a", "h200"), ("b", "h200"), ("c", "h100")):
        placing.add(task(name, Unit(name, "m", gpu=gpu)))
    assert [(w.task.id, s.id) for w, s in placing.ready()] == [("a", "h200"), ("c", "h100")]
    assert list(placing.ready()) == [], "both are busy"
    placing.ended(passed(task("a"), slot("h200", H200)))
    assert [(w.task.id, s.id) for w, s in placing.ready()] == [("b", "h200")]


def test_builds_and_measurements_have_slots_of_their_own() -> None:
    placing = Placing([slot("gpu", H200), slot("build", None, (BUILD,))])
    placing.add(task("b", phase=BUILD))
    placing.add(task("m"))
    assert placing.builds
    assert {(w.task.id, s.id) for w, s in placing.ready()} == {("b", "build"), ("m", "gpu")}


def test_what_failed_somewhere_runs_elsewhere_if_there_is_another_place() -> None:
    placing = Placing([slot("first", H200), slot("second", H200)])
    placing.add(task("a"), {"first"})
    assert [(w.task.id, s.id) for w, s in placing.ready()] == [("a", "second")]
    alone = Placing([slot("first", H200)])
    alone.add(task("a"), {"first"})
    assert [(w.task.id, s.id) for w, s in alone.ready()] == [("a", "first")]


def test_a_gpu_that_failed_gets_nothing_more() -> None:
    placing = Placing([slot("first", H200), slot("second", H100)])
    placing.add(task("a"))
    ((_, where),) = placing.ready()
    assert placing.ended(faulty(task("a"), where, "GPU lost", "it fell off")) == "it fell off"
    assert placing.aside == {"first": "it fell off"}
    placing.add(task("b"))
    assert [(w.task.id, s.id) for w, s in placing.ready()] == [("b", "second")]
    placing.add(task("c", Unit("c", "m", gpu="H200")))
    assert [waiting.task.id for waiting in placing.unplaceable()] == ["c"]
    assert not placing.fits_any(Unit("d", "m", gpu="H200"))


def test_faults_one_after_the_other_set_a_gpu_aside_but_not_the_last_one() -> None:
    first, second = slot("first", H200), slot("second", H200)
    placing = Placing([first, second])
    said = [placing.ended(faulty(task("a"), first, "worker lost")) for _ in range(MAX_FAULTS)]
    assert said[:-1] == [""] * (MAX_FAULTS - 1) and "one after the other" in said[-1]
    for _ in range(2 * MAX_FAULTS):
        assert placing.ended(faulty(task("a"), second, "worker lost")) == ""
    assert [each.id for each in placing.measuring] == ["second"]


def test_an_answer_between_faults_clears_them() -> None:
    first = slot("first", H200)
    placing = Placing([first, slot("second", H200)])
    for _ in range(MAX_FAULTS):
        assert placing.ended(faulty(task("a"), first, "worker lost")) == ""
        assert placing.ended(passed(task("a"), first)) == ""


def test_as_much_is_wanted_as_keeps_the_slots_busy() -> None:
    placing = Placing([slot("a"), slot("b")])
    assert placing.room("measure") == 4
    for name in "xyz":
        placing.add(task(name))
    assert placing.room("measure") == 1
    assert len(list(placing.ready())) == 2
    assert placing.room("measure") == 1, "two run, one waits"
    assert not placing.is_idle
