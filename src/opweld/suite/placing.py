"""What runs where, and what runs again: queues of tasks, slots, and the faults of both."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from opweld.suite.values import BUILD, GPU_FAULTS, MEASURE, Outcome, Slot, Task, Unit

# A unit that three times in a row came to nothing is not tried a fourth time.
MAX_ATTEMPTS = 3
# Faults one after the other, of whatever units, that set a GPU aside where there is another one.
MAX_FAULTS = 3


@dataclass(slots=True)
class Waiting:
    """A task that waits for a slot; it is not put where it has failed, if there is another."""

    task: Task
    failed_on: set[str] = field(default_factory=set)


class Placing:
    """The slots of an engine, which of them are free, and what waits for them."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = {slot.id: slot for slot in slots}
        self._busy: dict[str, str] = {}
        self._faults: dict[str, int] = {}
        self.aside: dict[str, str] = {}
        self._waiting: dict[str, deque[Waiting]] = {BUILD: deque(), MEASURE: deque()}

    @property
    def builds(self) -> bool:
        """Whether there is a slot that builds."""
        return any(BUILD in slot.phases for slot in self._living())

    def room(self, phase: str) -> int:
        """How many more tasks of a phase are wanted, so that no slot is idle for want of one."""
        slots = sum(phase in slot.phases for slot in self._living())
        waiting = len(self._waiting[phase])
        running = sum(phase in self._slots[slot].phases for slot in self._busy)
        return 2 * slots - waiting - running

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    @property
    def num_busy(self) -> int:
        return len(self._busy)

    @property
    def is_idle(self) -> bool:
        return not self._busy and not any(self._waiting.values())

    def add(self, task: Task, failed_on: set[str] | None = None, first: bool = False) -> None:
        queue = self._waiting[task.phase]
        waiting = Waiting(task, failed_on or set())
        queue.appendleft(waiting) if first else queue.append(waiting)

    def fits_any(self, unit: Unit) -> bool:
        """Whether there is, or would be if it were free, a slot that could measure the unit."""
        return bool(self.measuring_for(unit))

    def ready(self) -> Iterator[tuple[Waiting, Slot]]:
        """Tasks with the free slots that they are to run on; these are busy from now on."""
        for slot in self._living():
            if slot.id in self._busy:
                continue
            for phase in slot.phases:
                if found := self._take(phase, slot):
                    self._busy[slot.id] = found.task.id
                    yield found, slot
                    break

    def unplaceable(self) -> Iterator[Waiting]:
        """Tasks that no slot can take any more; they wait no longer."""
        living = list(self._living())
        for queue in self._waiting.values():
            for waiting in list(queue):
                if not any(_takes(slot, waiting.task) for slot in living):
                    queue.remove(waiting)
                    yield waiting

    def ended(self, outcome: Outcome) -> str:
        """The slot is free again, or set aside; why, if it is."""
        self._busy.pop(outcome.slot, None)
        slot = self._slots[outcome.slot]
        self._faults[slot.id] = self._faults.get(slot.id, 0) + 1 if outcome.fault else 0
        why = outcome.bad_gpu or (outcome.detail if outcome.fault in GPU_FAULTS else "")
        others = [each for each in self._living() if each.id != slot.id and MEASURE in each.phases]
        if not why and slot.gpu and self._faults[slot.id] >= MAX_FAULTS and others:
            why = f"{MAX_FAULTS} faults one after the other, the last: {outcome.detail}"
        if why and slot.gpu and slot.id not in self.aside:
            self.aside[slot.id] = why
            return why
        return ""

    def slot(self, name: str) -> Slot:
        return self._slots[name]

    @property
    def measuring(self) -> list[Slot]:
        return [slot for slot in self._living() if MEASURE in slot.phases]

    def measuring_for(self, unit: Unit) -> list[Slot]:
        return [slot for slot in self.measuring if fits(unit, slot)]

    def _living(self) -> Iterator[Slot]:
        return (slot for slot in self._slots.values() if slot.id not in self.aside)

    def _take(self, phase: str, slot: Slot) -> Waiting | None:
        queue = self._waiting[phase]
        for waiting in queue:
            if not _takes(slot, waiting.task):
                continue
            if slot.id in waiting.failed_on and self._others(waiting, slot):
                continue
            queue.remove(waiting)
            return waiting
        return None

    def _others(self, waiting: Waiting, slot: Slot) -> bool:
        """Whether another slot could take it, on which it has not failed."""
        return any(
            _takes(other, waiting.task) and other.id not in waiting.failed_on
            for other in self._living()
            if other.id != slot.id
        )


def _takes(slot: Slot, task: Task) -> bool:
    """Whether the task could run there. What is built asks for no GPU."""
    return task.phase in slot.phases and (task.phase == BUILD or fits(task.unit, slot))


def fits(unit: Unit, slot: Slot) -> bool:
    """Whether the slot has the GPU, and the memory, that the unit asks for."""
    if slot.any_gpu:
        return True
    if slot.gpu is None:
        return not unit.gpu and not unit.gpu_memory_gb
    return (
        unit.gpu.lower() in slot.gpu.name.lower()
        and unit.gpu_memory_gb * 1e9 <= slot.gpu.memory_bytes
    )
