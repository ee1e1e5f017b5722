"""Blocks of timed calls in the candidate's process, asked for by frames."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Sequence
from typing import NoReturn, Protocol

from torch import Tensor

from opweld.judge.load import Call
from opweld.judge.measure.blocks import Order
from opweld.judge.process.processes import cpu_seconds, kill, offspring
from opweld.judge.process.wire import BadFrame, Header, pack_call
from opweld.judge.verify.run import Run


class Ask(Protocol):
    """Sends a question and gives the answer, which has no payload."""

    def __call__(self, header: Header, data: Tensor | None = None, /) -> Header: ...


class RunOf(Protocol):
    """The run that an answer describes; its tensors stay where they are."""

    def __call__(self, reply: Header, /) -> Run: ...


class Refuse(Protocol):
    """Ends the candidate, for its answer is none."""

    def __call__(self, error: Exception | None = None, /) -> NoReturn: ...


class RemoteBlocks:
    """`Timed`, over the wire."""

    def __init__(self, pid: int, pids: set[int], ask: Ask, run_of: RunOf, refuse: Refuse) -> None:
        self._pid = pid
        self._known = pids
        self._ask = ask
        self._run_of = run_of
        self._refuse = refuse
        self._num_armed = 0
        self._processors = os.sched_getaffinity(pid)

    def prepare(self, calls: Sequence[Call], step: bool = False) -> None:
        packed, data = pack_call(Call(tuple((call.args, call.kwargs) for call in calls), {}))
        self._ask({"ask": "prepare", "calls": packed, "step": step}, data)

    def arm(self, order: Order) -> None:
        self._num_armed = len(order)
        self._ask({"ask": "arm", "order": [list(entry) for entry in order]})

    def block(self, run: bool) -> list[float]:
        return self._times(self._ask({"ask": "block", "run": run}))

    def result(self, number: int) -> Run:
        return self._run_of(self._ask({"ask": "result", "number": number}))

    def release(self) -> None:
        self._ask({"ask": "release"})

    def pause(self) -> None:
        """Stop all threads of the process."""
        kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        kill(self._pid, signal.SIGCONT)

    def pin(self, processor: int | None) -> None:
        """The first thread of the process, which is the one that calls."""
        with contextlib.suppress(ProcessLookupError):  # the next question finds that out
            os.sched_setaffinity(self._pid, self._processors if processor is None else {processor})

    def busy_s(self) -> float:
        """Of the process and of those that it started."""
        known = {os.getpid(), os.getppid(), *self._known}
        return cpu_seconds(self._pid) + sum(map(cpu_seconds, offspring(known)))

    def _times(self, reply: Header) -> list[float]:
        """One time for each call that was armed, no less than 0."""
        try:
            times = [float(ms) for ms in reply["ms"]]
            if len(times) != self._num_armed or not all(0 <= ms < math.inf for ms in times):
                raise BadFrame("times that are none")
        except (KeyError, TypeError, ValueError, BadFrame) as error:
            self._refuse(error)
        return times
