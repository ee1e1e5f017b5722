"""The worker's process, from outside: it is started, asked, waited for, and ended with all of its.

Nothing that a unit does to it is more than its end.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from opweld.judge.process.processes import MARK, await_end, descendants, kill, marked
from opweld.judge.values import to_plain
from opweld.process.child import end_session
from opweld.process.worker import child_environment
from opweld.suite.values import Gpu, Task
from opweld.suite.worker.serve import LOCK, TASK, UNLOCK

_TICK_S = 0.1
_READ_BYTES = 1 << 16
LOG_BYTES = 8192
_END_S = 10.0
_FOLDER, _MARK_FILE = "suite", "worker-mark"
# Where libraries keep what they build, by their variables: one folder for each slot, emptied after
# each unit, so that no candidate meets what another has written.
CACHES = (
    *("TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"),
    *("PYTORCH_KERNEL_CACHE_PATH", "CCACHE_DIR"),
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a task: a message of the worker, or how it failed to send one."""

    kind: str
    value: Any = None


ENDED, TOO_LATE, STOPPED = "ended", "too late", "stopped"


class WorkerProcess:
    """One process with a folder of its own, for one task after the other."""

    def __init__(self, environ: Mapping[str, str], gpu: Gpu | None) -> None:
        self._folder = _new_folder()
        self._mark = secrets.token_hex(8)
        self._marks = {self._mark}
        (self._folder / _MARK_FILE).write_text(self._mark, "ascii")
        self._log, self._buffer = b"", b""
        reads, writes = os.pipe()
        caches = {name: str(self._folder / "caches" / name.lower()) for name in CACHES}
        for folder in (str(self._folder / "builds"), *caches.values()):
            os.makedirs(folder)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.serve", str(writes), self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(writes,),
                env={**_environment(), **environ, **caches, MARK: self._mark},
                start_new_session=True,
            )
        finally:
            os.close(writes)
        assert self._process.stdout is not None
        self._answers, self._output = reads, self._process.stdout.fileno()
        for descriptor in (self._answers, self._output):
            os.set_blocking(descriptor, False)
        self._write(to_plain(gpu))

    def lock(self, device: str, folder: Path, stop: Callable[[], bool]) -> Reply:
        """Has it wait for the lock of the device, for as long as that takes."""
        return self._ask(LOCK, {"device": device, "folder": str(folder)}, math.inf, stop)

    def unlock(self) -> None:
        self._send(UNLOCK, None)

    def ask(self, task: Task, limit_s: float, stop: Callable[[], bool]) -> Reply:
        """Hands it the task; its answer, or that it ended, took too long, or `stop` said so."""
        self._log = b""
        return self._ask(TASK, to_plain(task), limit_s, stop)

    def _ask(self, request: str, value: Any, limit_s: float, stop: Callable[[], bool]) -> Reply:
        if not self._send(request, value):
            return Reply(ENDED, self._how())
        until = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._answers, self._output):
                selector.register(descriptor, selectors.EVENT_READ)
            while not stop():
                if time.monotonic() > until:
                    return Reply(TOO_LATE)
                for key, _ in selector.select(_TICK_S):
                    data = _read(key.fd)
                    if data == b"":
                        selector.unregister(key.fd)
                    if key.fd == self._output:
                        self._log = (self._log + (data or b""))[-LOG_BYTES:]
                    elif data == b"":
                        return Reply(ENDED, self._how())
                    elif reply := self._take(data or b""):
                        return reply
        return Reply(STOPPED)

    @property
    def log(self) -> str:
        """The end of what it printed since it was asked."""
        with contextlib.suppress(OSError):
            self._log = (self._log + (_read(self._output) or b""))[-LOG_BYTES:]
        return self._log.decode(errors="replace")

    def close(self) -> None:
        """Ends it, and what it started, however far that went away from it."""
        started = descendants(self._process.pid)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        end_session(self._process)
        left = {*started, *(pid for mark in self._marks for pid in marked(mark))}
        for pid in left:
            kill(pid)
        await_end(left, _END_S)
        os.close(self._answers)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, request: str, value: Any) -> bool:
        return self._write([request, value])

    def _write(self, data: Any) -> bool:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(data).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return False
        return True

    def _take(self, data: bytes) -> Reply | None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        found = None
        for line in lines:
            message = json.loads(line)
            if message["kind"] == "mark":
                self._marks.add(message["value"])
            else:
                found = Reply(message["kind"], message["value"])
        return found

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        status = self._process.returncode
        return f"the worker's process ended with status {status}"


def _environment() -> dict[str, str]:
    """This process's, but for what opens the door of the cluster to whoever has it."""
    given = child_environment()
    return {name: value for name, value in given.items() if not name.startswith("RAY_")}


def _new_folder() -> Path:
    """A folder of this process's; those of processes that were killed go, with what still runs
    of them. A folder without the mark is somebody else's.
    """
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{_FOLDER}-*-*/{_MARK_FILE}"):
        owner = left.parent.name.split("-")[1]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(OSError):
                for pid in marked(left.read_text("ascii")):
                    kill(pid)
            shutil.rmtree(left.parent, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}-{os.getpid()}-", dir=root))


def _read(descriptor: int) -> bytes | None:
    """What there is; nothing at the end of it, None where there is nothing yet."""
    try:
        return os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return None
