"""An engine that answers at once, in this process, and GPUs that are not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from opweld.suite.values import BUILD, MEASURE, Answer, Gpu, Outcome, Slot, Task, Unit, Work

GB = 10**9
H200 = Gpu("GPU-1", "NVIDIA H200", 141 * GB, 0)
H100 = Gpu("GPU-2", "NVIDIA H100 80GB HBM3", 80 * GB, 1)
WORK = Work("tests:none", {"settings": {}}, 60.0, exclusive=False)


def slot(name: str, gpu: Gpu | None = None, phases: tuple[str, ...] = (MEASURE,)) -> Slot:
    return Slot(name, "here", phases, gpu)


def task(name: str, unit: Unit | None = None, phase: str = MEASURE) -> Task:
    return Task(name, name, phase, unit or Unit(name, "model.py"), WORK, {})


class FakeEngine:
    """`answer` says how a task ends on a slot."""

    name = "fake"

    def __init__(
        self,
        slots: Sequence[Slot],
        answer: Callable[[Task, Slot], Outcome] | None = None,
    ) -> None:
        self._slots, self._answer = tuple(slots), answer or passed
        self._done: list[Outcome] = []
        self.given: list[tuple[str, str, str]] = []
        self.aside: list[str] = []
        self.most_at_once, self.closed = 0, False

    def slots(self) -> tuple[Slot, ...]:
        return self._slots

    def submit(self, task: Task, slot: Slot) -> None:
        self.given.append((task.unit.name, task.phase, slot.id))
        del self.given[:-1000]
        self._done.append(self._answer(task, slot))
        self.most_at_once = max(self.most_at_once, len(self._done))

    def finished(self, wait_s: float) -> list[Outcome]:
        done, self._done = self._done, []
        return done

    def cancel(self, task: str) -> None:
        self._done = [replace(d, fault="interrupted") if d.task == task else d for d in self._done]

    def set_aside(self, slot: Slot, node: str) -> None:
        self.aside.append(slot.id)

    def close(self) -> None:
        self.closed = True


def passed(task: Task, slot: Slot) -> Outcome:
    answer = Answer("passed", "", "as it is")
    return Outcome(task.id, slot.id, answer, node="here", gpu=slot.gpu, started="then")


def faulty(task: Task, slot: Slot, fault: str, bad_gpu: str = "") -> Outcome:
    detail = f"{slot.id} failed"
    return Outcome(
        task.id, slot.id, fault=fault, detail=detail, bad_gpu=bad_gpu, node="here", gpu=slot.gpu
    )


__all__ = ["BUILD", "GB", "H100", "H200", "WORK", "FakeEngine", "faulty", "passed", "slot", "task"]
