"""Runs code that is not ours in a child process that cannot outlive us, hang us or flood us.

The child leads a session of its own, so that everything it starts can be found and ended: ninja
puts each compiler in a process group of its own, which a signal to the child's group misses.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from opweld.sandbox import OFF, Sandbox, confined, launched

UNUSED = Sandbox(OFF)
TAIL_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
# Between a request to stop and the kill: time for ninja to remove half-written objects.
GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Finished:
    """How a child ended: its exit status (negative: a signal), and the end of what it printed."""

    status: int
    tail: str
    timed_out: bool

    @property
    def last_line(self) -> str:
        lines = [line for line in self.tail.splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""

    def ending(self) -> str:
        """How it ended, as words that follow "the process"."""
        if self.timed_out:
            return "did not return within its time limit"
        if self.status < 0:
            return f"was ended by {signal_name(-self.status)}"
        return f"ended with status {self.status}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_child(
    argv: Sequence[str],
    *,
    time_limit_s: float,
    environ: Mapping[str, str] | None = None,
    on_event: Callable[[str], None] | None = None,
    on_output: Callable[[bytes], object] | None = None,
    stop: Callable[[], bool] | None = None,
    sandbox: Sandbox = UNUSED,
    writable: Sequence[str | Path] = (),
) -> Finished:
    """Runs `argv`; returns when it ends or when `time_limit_s` seconds have passed.

    So it does, as if the time were over, when `stop` says so, which is asked again and again.

    What the child prints is read to the end, handed to `on_output`, and its last 64 KiB kept.
    Lines that it writes to the file descriptor named by OPWELD_EVENTS arrive one by one at
    `on_event`. Nothing of it runs any more when this returns or raises (KeyboardInterrupt too).
    In the `sandbox` it may write to the folders `writable`.

    Raises:
        SandboxMissing: the sandbox is required, and the kernel lacks a part.
    """
    given = os.environ if environ is None else environ
    with confined(sandbox, given, *writable) as (policy, env):
        events_in, events_out = os.pipe()
        env["OPWELD_EVENTS"] = str(events_out)
        command = launched(policy, argv)
        with os.fdopen(events_in, "rb"), _session(command, env, events_out) as process:
            streams = _Streams(process, events_in, on_event, on_output)
            timed_out = not streams.read_until(time.monotonic() + time_limit_s, stop)
    return Finished(process.returncode, streams.tail(), timed_out)


@contextlib.contextmanager
def _session(
    argv: Sequence[str], env: Mapping[str, str], events_out: int
) -> Iterator[subprocess.Popen[bytes]]:
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(events_out,),
            start_new_session=True,
        )
    finally:
        os.close(events_out)
    try:
        yield process
    finally:
        end_session(process)


class _Streams:
    """Reads a child's output and its events without ever blocking on either."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        events: int,
        on_event: Callable[[str], None] | None,
        on_output: Callable[[bytes], object] | None,
    ) -> None:
        assert process.stdout is not None
        self._process = process
        self._output = process.stdout.fileno()
        self._events = events
        self._on_event = on_event
        self._on_output = on_output
        self._tail = b""
        self._line = b""

    def read_until(self, deadline: float, stop: Callable[[], bool] | None = None) -> bool:
        """True if the child ended before `deadline` (monotonic seconds) and before `stop`."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._output, self._events):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            while time.monotonic() < deadline and not (stop and stop()):
                ended = self._process.poll() is not None
                self._read_ready(selector, 0.0 if ended else 0.05)
                if ended:
                    return True
        return False

    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def _read_ready(self, selector: selectors.BaseSelector, wait_s: float) -> None:
        if not selector.get_map():
            time.sleep(wait_s)
            return
        for key, _ in selector.select(wait_s):
            descriptor = key.fd
            chunk = os.read(descriptor, READ_BYTES)
            if not chunk:
                selector.unregister(descriptor)
            elif descriptor == self._output:
                self._take_output(chunk)
            else:
                self._take_events(chunk)

    def _take_output(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        if self._on_output:
            self._on_output(chunk)

    def _take_events(self, chunk: bytes) -> None:
        *lines, self._line = (self._line + chunk)[-TAIL_BYTES:].split(b"\n")
        for line in lines:
            if self._on_event:
                self._on_event(line.decode(errors="replace"))


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends the child and all that it started; a second Ctrl-C cannot cut this short."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        if process.poll() is None:
            _signal_members(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        while _signal_members(process.pid, signal.SIGKILL):
            time.sleep(0.005)
            process.poll()
        process.wait()
        if process.stdout:
            process.stdout.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _signal_members(session: int, number: int) -> bool:
    """Sends the signal to each living process of the session; False if there is none."""
    members = _session_members(session)
    for member in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, number)
    return bool(members)


def _session_members(session: int) -> tuple[int, ...]:
    return tuple(p.pid for p in psutil.process_iter(["status"]) if _lives_in(p, session))


def _lives_in(process: psutil.Process, session: int) -> bool:
    if process.info["status"] in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        return os.getsid(process.pid) == session
    return False
