"""Where tasks run: one interface, one implementation a file.

An engine offers slots, runs one task at a time on each, and brings back an outcome for every task
that it was given, a fault of the machine where there is nothing better. It decides nothing: what
runs where, and what runs again, is the driver's (`placing.py`). All calls come from one thread.
"""

from __future__ import annotations

from typing import Protocol

from opweld.suite.values import Outcome, Slot, Task

__all__ = ["Engine"]


class Engine(Protocol):
    """A machine, or several.

    `finished` waits up to `wait_s` seconds for an outcome, and returns all that there are. A task
    that is cancelled comes back as well, soon, with the fault `interrupted`. A slot that is set
    aside gets no more tasks, and an engine with a scheduler of its own keeps off the `node`, too.
    `close` ends everything that still runs.
    """

    name: str

    def slots(self) -> tuple[Slot, ...]: ...

    def submit(self, task: Task, slot: Slot) -> None: ...

    def finished(self, wait_s: float) -> list[Outcome]: ...

    def cancel(self, task: str) -> None: ...

    def set_aside(self, slot: Slot, node: str) -> None: ...

    def close(self) -> None: ...
