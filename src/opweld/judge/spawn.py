"""Running the child: output captured and bounded, ended as a group, nothing left behind.

This side imports no torch.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import opweld
from opweld.judge.processes import MARK, marked

_TICK_S = 0.1
_LAST_WORDS_S = 0.5
_KEPT_BYTES = 64 * 1024

Message = dict[str, Any]
Outcome = Literal["answered", "ended", "timed out", "flooded"]


@dataclass(slots=True)
class Child:
    """How the child went: its messages in order, its exit status, the tails of what it printed."""

    outcome: Outcome = "ended"
    status: int | None = None
    messages: list[Message] = field(default_factory=list)
    stdout: bytes = b""
    stderr: bytes = b""

    def last(self, kind: str) -> Any:
        """The value of the last message of a kind; None without one."""
        values = (m["value"] for m in reversed(self.messages) if m.get("kind") == kind)
        return next(values, None)


def run_child(
    request_path: Path,
    time_limit_s: float,
    max_output_bytes: int,
    on_message: Callable[[Message], None],
) -> Child:
    """Start the child, follow it to its answer, its end or its limits, and end all it started."""
    started = time.time()
    mark = secrets.token_hex(8)
    read_messages, write_messages = os.pipe()
    read_alive, write_alive = os.pipe()
    process = None
    try:
        process = subprocess.Popen(
            _command(request_path, write_messages, read_alive),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(write_messages, read_alive),
            env=_environment(mark),
            start_new_session=True,
        )
        os.close(write_messages)
        write_messages = -1
        follower = _Follower(process, read_messages, max_output_bytes, on_message)
        child = follower.follow(time.monotonic() + time_limit_s)
    finally:
        if process is not None:
            _end_all(process, mark)
            _remove_stale_locks(started)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
        for descriptor in (read_messages, write_messages, read_alive, write_alive):
            if descriptor >= 0:
                os.close(descriptor)
    return child


class _Follower:
    """Reads the three pipes of a running child without ever waiting on one of them alone."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        messages: int,
        max_output_bytes: int,
        on_message: Callable[[Message], None],
    ) -> None:
        assert process.stdout and process.stderr
        self._process = process
        self._on_message = on_message
        self._room = max_output_bytes
        self._line = b""
        self._child = Child()
        self._takers: dict[int, Callable[[bytes], None]] = {
            messages: self._take_message,
            process.stdout.fileno(): self._take_stdout,
            process.stderr.fileno(): self._take_stderr,
        }
        self._selector = selectors.DefaultSelector()
        for descriptor in self._takers:
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)

    def follow(self, deadline: float) -> Child:
        child = self._child
        with self._selector:
            while child.status is None:
                # the status first: what was written before the end is then read below
                child.status = self._process.poll()
                self._read(_TICK_S if child.status is None else 0)
                if self._answered():
                    child.outcome = "answered"
                    break
                if self._room < 0:
                    child.outcome = "flooded"
                    break
                if child.status is None and time.monotonic() > deadline:
                    child.outcome = "timed out"
                    self._ask_where()
                    break
        return child

    def _answered(self) -> bool:
        return any(m.get("kind") in ("done", "error") for m in self._child.messages[-1:])

    def _ask_where(self) -> None:
        """The child prints the stack of its main thread, even when it is stuck in C."""
        os.kill(self._process.pid, signal.SIGUSR1)
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
        if not data:
            self._selector.unregister(descriptor)
            return
        self._takers[descriptor](data)

    def _take_stdout(self, data: bytes) -> None:
        self._room -= len(data)
        self._child.stdout = (self._child.stdout + data)[-_KEPT_BYTES:]

    def _take_stderr(self, data: bytes) -> None:
        self._room -= len(data)
        self._child.stderr = (self._child.stderr + data)[-_KEPT_BYTES:]

    def _take_message(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._child.messages.append(message)
            self._on_message(message)


def _command(request_path: Path, messages: int, alive: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "opweld.judge.child",
        str(request_path),
        str(messages),
        str(alive),
    ]


def _environment(mark: str) -> dict[str, str]:
    """This process's environment, with this very opweld importable and the mark."""
    source = str(Path(opweld.__file__).parent.parent)
    path = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), MARK: mark}


def _end_all(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill the child's group, wait for it, then whatever left the group."""
    _kill(lambda: os.killpg(process.pid, signal.SIGKILL))
    process.wait()
    for pid in marked(mark):
        _kill(lambda pid=pid: os.kill(pid, signal.SIGKILL))  # type: ignore[misc]


def _kill(action: Callable[[], None]) -> None:
    try:
        action()
    except ProcessLookupError:
        pass  # it has ended already


def _remove_stale_locks(started: float) -> None:
    """Free extension folders whose build died with the child: torch would wait for them for ever.

    Only locks younger than the child are touched.
    """
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
    for lock in (*Path(root).glob("*/lock"), *Path(root).glob("*/*/lock")):
        try:
            if lock.stat().st_mtime >= started:
                lock.unlink()
        except FileNotFoundError:
            continue
