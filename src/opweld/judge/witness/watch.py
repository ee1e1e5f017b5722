"""A second process like the candidate's, which is never told of the candidate's file.

Nothing of the candidate can have reached it. It says what importing parts of torch changes by
itself, and how long an answer takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opweld.judge.process.connection import CandidateEnded, Connection
from opweld.judge.process.environment import settings_changed
from opweld.judge.process.memory import ProcessMemory
from opweld.judge.process.protocol import Files
from opweld.judge.process.remote_blocks import Ask
from opweld.judge.process.wire import Header, Wire
from opweld.judge.witness.objects import Recorded
from opweld.judge.witness.process_state import (
    State,
    changes,
    kernel_state,
    without_signals_of_llvm,
)

# What is imported here when the candidate has it: libraries whose import changes others.
_LIBRARIES = ("torch", "triton", "numpy", "sympy", "mpmath", "setuptools", "_distutils_hack")


class WitnessEnded(Exception):
    """The process that nothing of the candidate can have reached is gone."""


class Witness:
    """Asks such a process."""

    def __init__(self, connection: Connection, recorded: Recorded | None) -> None:
        self._connection = connection
        self._wire = Wire(connection.send_all, connection.receive_all)
        self.recorded = recorded
        self._memory: ProcessMemory | None = None
        self._state: State | None = None

    @property
    def pid(self) -> int:
        return self._connection.pid

    def answer(self) -> None:
        """One question and its answer, which say nothing."""
        self._ask({"ask": "nothing"})

    def differences(self, modules: Sequence[str], files: Files) -> list[str]:
        """What is another object when the libraries among these modules, and the model file, have
        been imported, and the original built.
        """
        said = self._import(modules, files)
        if self.recorded is None:
            return said
        self._memory = self._memory or ProcessMemory(self.pid)
        return [*said, *self.recorded.differences(self._memory)]

    def state_changes(self, modules: Sequence[str], files: Files) -> list[str]:
        """What of Python and the system they change."""
        if self._state is None:
            self._state = self._process_state()
        self._import(modules, files)
        return changes(self._state, self._process_state())

    def close(self, wait: bool = True) -> None:
        self._connection.close(wait)

    def _import(self, modules: Sequence[str], files: Files) -> list[str]:
        known = [name for name in modules if name.partition(".")[0] in _LIBRARIES]
        model = {"model_path": files.model_path, "function": files.reference, "seed": files.seed}
        answer = self._ask({"ask": "import_modules", "modules": known, **model})
        return [str(name) for name in answer["names"]]

    def _process_state(self) -> State:
        return dict(self._ask({"ask": "process_state"})["state"])

    def _ask(self, header: Header) -> Header:
        try:
            self._wire.send({**header, "dropped": []})
            return self._wire.receive()[0]
        except CandidateEnded as error:
            # whatever it is, it is not ModelNew's doing, and no verdict on it
            raise WitnessEnded(f"the second process has ended ({header['ask']})") from error


class Watch:
    """What the candidate's process was before its file was imported, and what became of it.

    What was is kept here, in the referee.
    """

    def __init__(self, ask: Ask, pid: int, witness: Witness | None) -> None:
        self._ask = ask
        self._pid = pid
        self._witness = witness
        self._memory: ProcessMemory | None = None
        self._settings: dict[str, str] = {}
        self._state: State = {}
        self._later: list[State] = []
        self._kernel: State = {}
        self._files = Files("", "", "cpu", 0)

    @property
    def reads_memory(self) -> bool:
        """Whether what the process says of itself is held against its memory."""
        recorded = self._witness.recorded if self._witness else None
        return recorded is not None and self._memory is not None

    def begin(self, reply: Header, memory: ProcessMemory | None, files: Files) -> None:
        """Nothing of the candidate's file has run in the process yet."""
        self._memory, self._files = memory, files
        self._settings = _texts(reply["settings"])
        self._state, self._kernel = _texts(reply["state"]), kernel_state(self._pid)

    def loaded(self, reply: Header) -> None:
        """Its file has been imported, and ModelNew built."""
        self._later = [_texts(state) for state in reply["states"]]

    def settings_changed(self) -> dict[str, tuple[str, str]]:
        """Torch's global settings that differ, with the old and the new."""
        return settings_changed(self._settings, _texts(self._ask({"ask": "settings"})["settings"]))

    def patched(self) -> list[str]:
        """What of torch, Python and the judge is another object in the process.

        By its memory, and by what it says itself; less what importing the same libraries does, and
        building the original.
        """
        found = {str(name) for name in self._ask({"ask": "patched"})["names"]}
        if self.reads_memory:
            assert self._witness and self._witness.recorded and self._memory
            try:
                found |= set(self._witness.recorded.differences(self._memory))
            except OSError:
                return sorted({*found, "the access to its memory"})
        if found and self._witness is not None:
            found -= set(self._witness.differences(self._modules(), self._files))
        return sorted(found)

    def process_changed(self) -> list[str]:
        """What of Python and the system is not as it was: after the import, later, or now."""
        now = _texts(self._ask({"ask": "process_state"})["state"])
        found = {name for state in (*self._later, now) for name in changes(self._state, state)}
        found |= set(self._kernel_changes())
        if found and self._witness is not None:
            found -= set(self._witness.state_changes(self._modules(), self._files))
        return sorted(found)

    def _kernel_changes(self) -> list[str]:
        before, now = self._kernel, kernel_state(self._pid)
        if changes(before, now) and "triton" in self._modules():
            before, now = map(without_signals_of_llvm, (before, now))
        return changes(before, now)

    def _modules(self) -> list[str]:
        return [str(name) for name in self._ask({"ask": "process_state"})["modules"]]


def _texts(found: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in dict(found).items()}
