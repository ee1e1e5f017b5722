"""The candidate's process seen from the referee: its socket, its output, its limits and its end.

Whatever happens there (a crash, a hang, a flood, an exit, memory without end) becomes one sentence.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from opweld.judge.load import NEW, CandidateError
from opweld.judge.process import candidate
from opweld.judge.process.exit_status import Ending, Limits, Outcome, sentence
from opweld.judge.process.processes import kill, kill_group, resident_bytes
from opweld.judge.process.shared import SharedMemory, new_shared_memory
from opweld.sandbox import UNCONFINED, Policy

_TICK_S = 0.05
_LAST_WORDS_S = 0.5
_KEPT_BYTES = 64 * 1024


class CandidateEnded(CandidateError):
    """The candidate's process is gone, or was ended for going beyond a limit."""


class Connection:
    """The candidate's process: its socket, what it prints, and its limits."""

    def __init__(self, pid: int, sock: socket.socket, memory: int, out: int, err: int) -> None:
        self.pid = pid
        self.shared = SharedMemory(memory)
        self.step = "starting"
        self.limits = Limits(3600.0, 16 * 2**20)
        self.paths: tuple[Path, ...] = ()
        self._sock = sock
        self._pipes = {out, err}
        self._err = err
        self._stderr = b""
        self._num_printed = 0
        self._deadline = time.monotonic() + self.limits.time_s
        self._status: int | None = None
        sock.setblocking(False)
        for descriptor in self._pipes:
            os.set_blocking(descriptor, False)

    def limit(self, limits: Limits, paths: tuple[Path, ...]) -> None:
        """From here on; `time_s` counts from now. `paths` are the files that a line is named in."""
        self.limits, self.paths = limits, paths
        self._deadline = time.monotonic() + limits.time_s

    def send_all(self, data: memoryview) -> None:
        while data:
            self._wait(writing=True)
            try:
                data = data[self._sock.send(data[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except OSError:
                self._fail("ended")

    def receive_all(self, buffer: memoryview) -> None:
        while buffer:
            self._wait(writing=False)
            try:
                count = self._sock.recv_into(buffer)
            except BlockingIOError:
                continue
            except OSError:
                count = 0
            if count == 0:
                self._fail("ended")
            buffer = buffer[count:]

    def close(self, wait: bool = True) -> None:
        """End the process and all of its session; without `wait` another one sees it end."""
        kill_group(self.pid)
        kill(self.pid)
        if wait and self._status is None:
            self._reap()
        self._sock.close()
        self.shared.close()
        for descriptor in self._pipes:
            os.close(descriptor)
        self._pipes = set()

    def _wait(self, writing: bool) -> None:
        """Until the socket is ready; what the process prints is read meanwhile."""
        while True:
            sock = self._sock.fileno()
            reading = [*self._pipes] if writing else [sock, *self._pipes]
            ready, writable, _ = select.select(reading, [sock] if writing else [], [], _TICK_S)
            for descriptor in self._pipes & set(ready):
                self._read(descriptor)
            if self._num_printed > self.limits.output_bytes:
                self._fail("flooded")
            if writable or sock in ready:
                return
            self._check_limits()

    def _check_limits(self) -> None:
        if 0 < self.limits.memory_bytes < resident_bytes(self.pid):
            self._fail("took too much memory")
        if time.monotonic() > self._deadline:
            self._fail("timed out")

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._pipes.discard(descriptor)
            os.close(descriptor)
        self._num_printed += len(data)
        if descriptor == self._err:
            self._stderr = (self._stderr + data)[-_KEPT_BYTES:]

    def _fail(self, outcome: Outcome) -> NoReturn:
        """The sentence for how it went; the process is ended."""
        if outcome in ("timed out", "took too much memory"):
            kill(self.pid, signal.SIGUSR1)  # it prints the stack of its main thread
            self._drain(_LAST_WORDS_S)
        if outcome != "ended":
            kill(self.pid)
        self._reap()
        self._drain(0.0)
        ending = Ending(outcome, self._status, self._stderr)
        raise CandidateEnded(sentence(NEW, self.step, ending, self.limits, self.paths))

    def _drain(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._pipes:
            left = max(0.0, until - time.monotonic())
            ready, _, _ = select.select([*self._pipes], [], [], min(left, _TICK_S))
            for descriptor in ready:
                self._read(descriptor)
            if not ready and left == 0.0:
                return

    def _reap(self) -> None:
        """Its exit status; one that closed its socket without ending is killed."""
        if self._status is not None:
            return
        until = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
                return
            time.sleep(_TICK_S / 10)
        kill(self.pid)
        self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start_candidate(policy: Policy = UNCONFINED, protected: Sequence[int] = ()) -> Connection:
    """Forks the process; call it before CUDA, a file or a seed is known here.

    It is confined beyond `policy`, which is this process's, and sends no signals to this process,
    to its parent and to those `protected`.
    """
    ours, theirs = socket.socketpair()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    memory = new_shared_memory()
    sys.stdout.flush()
    sys.stderr.flush()
    judges = os.getpid(), os.getppid(), *protected
    pid = os.fork()
    if pid == 0:
        candidate.main(theirs, memory, out_write, err_write, policy, judges)
    theirs.close()
    os.close(out_write)
    os.close(err_write)
    return Connection(pid, ours, memory, out_read, err_read)
