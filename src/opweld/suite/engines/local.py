"""This machine: a thread for each slot, whose supervisor keeps a process that does the work."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence

from opweld.suite.engines.slots import slots_here
from opweld.suite.values import WORKER_LOST, Outcome, Slot, Task
from opweld.suite.worker.supervisor import Supervisor

_END_S = 30.0


class LocalEngine:
    """All GPUs of this machine, or its processors; `slots` where they are known better."""

    name = "local"

    def __init__(
        self,
        slots: Sequence[Slot] | None = None,
        supervisor_of: Callable[[Slot], Supervisor] = Supervisor,
    ) -> None:
        self._slots = tuple(slots_here() if slots is None else slots)
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._places = {slot.id: _Place(supervisor_of(slot), self._done) for slot in self._slots}

    def slots(self) -> tuple[Slot, ...]:
        return self._slots

    def submit(self, task: Task, slot: Slot) -> None:
        self._places[slot.id].tasks.put(task)

    def finished(self, wait_s: float) -> list[Outcome]:
        found: list[Outcome] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._done.get(timeout=wait_s))
            while True:
                found.append(self._done.get_nowait())
        return found

    def cancel(self, task: str) -> None:
        for place in self._places.values():
            place.supervisor.cancel(task)

    def set_aside(self, slot: Slot, node: str) -> None:
        """Its process ends when it has nothing to do any more."""

    def close(self) -> None:
        for place in self._places.values():
            place.close()
        for place in self._places.values():
            place.thread.join(_END_S)


class _Place:
    """A slot's thread, and the tasks for it."""

    def __init__(self, supervisor: Supervisor, done: queue.SimpleQueue[Outcome]) -> None:
        self.supervisor, self._done = supervisor, done
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while task := self.tasks.get():
            try:
                self._done.put(self.supervisor.run(task))
            except Exception as error:  # the slot goes on, and the driver counts
                detail = f"{type(error).__name__}: {error}"
                slot = self.supervisor.slot.id
                self._done.put(Outcome(task.id, slot, fault=WORKER_LOST, detail=detail))
        self.supervisor.end()

    def close(self) -> None:
        self.supervisor.close()
        self.tasks.put(None)
