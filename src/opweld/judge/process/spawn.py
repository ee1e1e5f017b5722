"""Running a judgement in other processes: output captured and bounded, nothing left behind.

This side imports no torch. The warm server can serve many judgements, one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import opweld
from opweld.judge.build.locks import remove_stale_locks
from opweld.judge.process.exit_status import Outcome
from opweld.judge.process.processes import (
    DRIVER_CHECK,
    MARK,
    await_end,
    descendants,
    kill,
    kill_group,
    marked,
)
from opweld.sandbox import DEFAULT, Sandbox, confined

_TICK_S = 0.1
_LAST_WORDS_S = 0.5
_START_S = 300.0
# The referee ends a candidate at the time limit by itself; it gets this much longer to say so.
_GRACE_S = 10.0
_KEPT_BYTES = 64 * 1024

Message = dict[str, Any]


@dataclass(slots=True)
class Child:
    """How it went: messages in order, the referee's exit status, the tails of what it printed."""

    outcome: Outcome = "ended"
    status: int | None = None
    messages: list[Message] = field(default_factory=list)
    stdout: bytes = b""
    stderr: bytes = b""

    def last(self, kind: str) -> Any:
        """The value of the last message of a kind; None without one."""
        values = (m["value"] for m in reversed(self.messages) if m.get("kind") == kind)
        return next(values, None)


class Server:
    """A warm process that judges; started at the first request, and anew when it has died.

    `environ` is added to this process's environment (CUDA_VISIBLE_DEVICES, say), of which the
    `sandbox` passes on what is listed. What it judges may write to the folders `writable`.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        sandbox: Sandbox = DEFAULT,
        writable: Sequence[str | Path] = (),
    ) -> None:
        self._environ = dict(environ or {})
        self.sandbox, self._writable = sandbox, tuple(writable)
        self._confined = contextlib.ExitStack()
        self._mark = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._alive = -1
        # How often the process ended by itself, or by someone else, while it judged.
        self.num_deaths = 0

    @property
    def mark(self) -> str:
        """What every process that it starts has in its environment, under the name MARK."""
        return self._mark

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(
        self,
        request: str,
        time_limit_s: float,
        max_output_bytes: int,
        on_message: Callable[[Message], None],
    ) -> Child:
        """Have one request judged; follow it to its answer, its end or its limits."""
        started = time.time()
        pipes = [os.pipe() for _ in range(4)]
        reads, writes = [r for r, _ in pipes], [w for _, w in pipes]
        try:
            self.start()
            assert self._control is not None
            (asked, *_), (asking, *_) = reads, writes
            socket.send_fds(self._control, [b"j"], [asked, *writes[1:]])
            with open(os.dup(asking), "w", encoding="utf-8") as file:
                file.write(request)
            for descriptor in (asked, *writes):
                os.close(descriptor)
            reads, writes = reads[1:], []
            follower = _Follower(self._control, reads, max_output_bytes, on_message)
            child = follower.follow(time_limit_s)
            if not follower.settled:
                self.close()
            elif child.status is None and self._process:
                child.status = self._process.wait()
                self.num_deaths += 1
                self.close()
            return child
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in (*reads, *writes):
                os.close(descriptor)
            remove_stale_locks(started)

    def interrupt(self) -> None:
        """End the process from another thread; a judgement that runs there then returns."""
        process = self._process
        if process is not None:
            kill_group(process.pid)

    def close(self) -> None:
        """End the server and everything that it started."""
        if self._process is None:
            self._confined.close()
            return
        started = descendants(self._process.pid)
        kill_group(self._process.pid)
        self._process.wait()
        left = {*started, *marked(self._mark)}
        for pid in left:
            kill(pid)
        await_end(left, _GRACE_S)
        os.close(self._alive)
        if self._control:
            self._control.close()
        self._process = self._control = None
        self._confined.close()

    def start(self) -> None:
        """Begin to start it where it does not run; who asks it something waits until it has."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        confinement = confined(self.sandbox, os.environ, *self._writable, judges=True)
        policy, environ = self._confined.enter_context(confinement)
        ours, theirs = socket.socketpair()
        read_alive, self._alive = os.pipe()
        command = [sys.executable, "-m", "opweld.judge.process.server"]
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), str(read_alive)],
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(), read_alive),
            env=self._environment(environ),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with self._process.stdin as told:
            told.write(policy.to_json().encode())
        theirs.close()
        os.close(read_alive)
        self._control = ours

    def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment `environ`, with this very opweld importable and the mark."""
        source = str(Path(opweld.__file__).parent.parent)
        path = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **environ,
            **self._environ,
            "PYTHONPATH": os.pathsep.join(path),
            MARK: self._mark,
            DRIVER_CHECK: "1",
        }


class _Follower:
    """Reads a running judgement's pipes without ever waiting on one of them alone."""

    def __init__(
        self,
        control: socket.socket,
        reads: list[int],
        max_output_bytes: int,
        on_message: Callable[[Message], None],
    ) -> None:
        messages, out, err = reads
        self.settled = False
        self._on_message = on_message
        self._room = max_output_bytes
        self._lines = {messages: b"", control.fileno(): b""}
        self._child = Child()
        self._pid = 0
        self._takers: dict[int, Callable[[bytes], None]] = {
            messages: lambda data: self._take_lines(messages, data, self._take_message),
            out: self._take_stdout,
            err: self._take_stderr,
            control.fileno(): lambda data: self._take_lines(
                control.fileno(), data, self._take_fact
            ),
        }
        self._control = control.fileno()
        self._selector = selectors.DefaultSelector()
        for descriptor in self._takers:
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)

    def follow(self, time_limit_s: float) -> Child:
        """`settled` says afterwards whether the referee has ended, so that the server is free.

        The limit counts from when the referee begins, not from when the server does.
        """
        child = self._child
        deadline = time.monotonic() + _START_S
        with self._selector:
            while not self.settled and not self._answered() and child.outcome == "ended":
                begun = self._pid > 0
                self._read(_TICK_S)
                if self._pid and not begun:
                    deadline = time.monotonic() + time_limit_s
                if self._room < 0:
                    self._end("flooded")
                elif time.monotonic() > deadline + self._grace():
                    self._ask_where()
                    self._end("timed out")
            self._read(0)
            if self._answered():
                child.outcome = "answered"
                self._settle()
        return child

    def _grace(self) -> float:
        phase = self._child.last("phase")
        return _GRACE_S if phase and phase["who"] == "ModelNew" else 0.0

    def _answered(self) -> bool:
        return any(m.get("kind") in ("done", "error") for m in self._child.messages[-1:])

    def _end(self, outcome: Outcome) -> None:
        self._child.outcome = outcome
        kill(self._pid)
        if self._pid:
            self._settle()

    def _settle(self) -> None:
        """Wait for the referee to end; it has nothing to do any more."""
        until = time.monotonic() + _GRACE_S
        while not self.settled and time.monotonic() < until:
            self._read(_TICK_S)

    def _ask_where(self) -> None:
        """The referee prints the stack of its main thread, even when it is stuck in C."""
        kill(self._pid, signal.SIGUSR1)
        until = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < until:
            self._read(_TICK_S)

    def _read(self, wait_s: float) -> None:
        ready = self._selector.select(wait_s)
        while ready:
            for key, _ in ready:
                self._read_one(key.fd)
            if self._room < 0:
                return
            ready = self._selector.select(0)

    def _read_one(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if data:
            self._takers[descriptor](data)
            return
        self._selector.unregister(descriptor)
        if descriptor == self._control:
            self.settled = True  # the server itself has ended

    def _take_stdout(self, data: bytes) -> None:
        self._room -= len(data)
        self._child.stdout = (self._child.stdout + data)[-_KEPT_BYTES:]

    def _take_stderr(self, data: bytes) -> None:
        self._room -= len(data)
        self._child.stderr = (self._child.stderr + data)[-_KEPT_BYTES:]

    def _take_lines(self, source: int, data: bytes, take: Callable[[Message], None]) -> None:
        *lines, self._lines[source] = (self._lines[source] + data).split(b"\n")
        for line in lines:
            take(json.loads(line))

    def _take_message(self, message: Message) -> None:
        self._child.messages.append(message)
        self._on_message(message)

    def _take_fact(self, fact: Message) -> None:
        self._pid = fact.get("pid", self._pid)
        if "status" in fact:
            self._child.status = fact["status"]
            self.settled = True
