"""Finding every process that a judged file started, by a mark in its environment.

A process may leave its group and its session; its environment at start cannot be changed from
within, so the mark is found in /proc.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NoReturn

MARK = "SESSION_MARK"
# torch then asks the driver whether there is a device, and CUDA is left alone
DRIVER_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
# Companions that torch, Python and compiler caches keep beyond the call that started them.
_KNOWN = ("torch._inductor", "compile_worker", "multiprocessing.resource_tracker", "sccache")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LOOK_S = 0.005
# Whether a process stands still is seen in some spans, of which one must be quiet.
_IDLE_AFTER_S, _SPAN_S, _NUM_LOOKS = 0.3, 0.1, 3


def marked(mark: str) -> Iterator[int]:
    """Ids of the live processes that were started with this mark."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and wanted in _read(entry / "environ").split(b"\0"):
            yield int(entry.name)


def descendants(pid: int) -> list[int]:
    """Ids of the live processes that a process, or one of its descendants, is the parent of."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found[1:]


def strays(known: Collection[int]) -> list[str]:
    """Command lines of the other processes that this judgement started, companions left out."""
    return [_command(pid) for pid in offspring(known)]


def offspring(known: Collection[int]) -> list[int]:
    """Ids of the other processes that this judgement started, companions left out.

    A mark is inherited and a parent known: a process would have to lose both to be missed. One
    whose parent has ended belongs to the server, which is this process's parent.
    """
    mark = os.environ.get(MARK)
    if not mark:
        return []
    others = sorted({*marked(mark), *descendants(os.getppid())} - set(known))
    lines = map(_command, others)
    return [
        pid
        for pid, line in zip(others, lines, strict=True)
        if line and not any(name in line for name in _KNOWN)
    ]


def start_anew(module: str, *arguments: str | int) -> NoReturn:
    """Run a module in this process in place of what runs; integers are descriptors that it gets."""
    for argument in arguments:
        if isinstance(argument, int):
            os.set_inheritable(argument, True)
    os.execv(sys.executable, [sys.executable, "-m", module, *map(str, arguments)])


def take_arguments(*arguments: str) -> None:
    """What others read as this process's command, and those that it forks; as much as has room."""
    fields = _stat(os.getpid())
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end
    text = b"".join(argument.encode() + b"\0" for argument in arguments)
    if 0 < start < end:
        text = text[: end - start - 1]
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _num_sleeps(pid: int) -> dict[int, int]:
    """How often each thread of a process, the main one left out, has gone to sleep so far."""
    found = {}
    for entry in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in _read(entry).splitlines():
            if line.startswith(b"voluntary_ctxt_switches:") and int(entry.parent.name) != pid:
                found[int(entry.parent.name)] = int(line.split()[1])
    return found


def idle_clause(pid: int, threads: bool) -> str | None:
    """What a process does although nothing is asked of it; None where it stands still.

    With `threads` those count, too, that only look whether there is something to do.
    """
    if threads and (num := _num_waking(pid)):
        return f"{num} of its threads wake up while it is asked nothing"
    if _spent(pid) == 0.0:
        return None
    time.sleep(_IDLE_AFTER_S)  # threads of a product may spin for a while after it
    spent = []
    for _ in range(_NUM_LOOKS):
        spent.append(_spent(pid))
        if spent[-1] == 0.0:
            return None
    share = sum(spent) / (_NUM_LOOKS * _SPAN_S)
    return f"its process takes {share:.0%} of a processor while it is asked nothing"


def _num_waking(pid: int) -> int:
    """Threads that go to sleep, and so were awake, again and again."""
    awake: set[int] | None = None
    for _ in range(_NUM_LOOKS):
        before = _num_sleeps(pid)
        time.sleep(_SPAN_S / 2)
        now = _num_sleeps(pid)
        again = {thread for thread in before if now.get(thread, 0) - before[thread] > 1}
        awake = again if awake is None else awake & again
        if not awake:
            return 0
    return len(awake or ())


def _spent(pid: int) -> float:
    before = cpu_seconds(pid)
    time.sleep(_SPAN_S)
    return cpu_seconds(pid) - before


def end_with_parent() -> None:
    """The kernel kills this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def say_where() -> None:
    """A crash, and SIGUSR1 where this process hangs, are answered by the stack on stderr."""
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)


def adopt_orphans() -> None:
    """What this process's descendants leave behind becomes its child."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """A signal to a process that may have ended already, or (0) never began."""
    if pid <= 0:
        return  # to the system that means a whole group, ours among them
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_group(pid: int) -> None:
    """Ends a process group that may have ended already."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def await_end(pids: Collection[int], seconds: float) -> None:
    """Until killed processes are gone: to give back much memory takes the kernel a while."""
    until = time.monotonic() + seconds
    while any(map(_is_running, pids)) and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _is_running(pid: int) -> bool:
    """Whether the process has not ended; one that its parent has not asked after yet has."""
    return _stat(pid)[:1] not in ([], [b"Z"], [b"X"])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far; 0 when it is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_S if len(fields) > 12 else 0.0


def resident_bytes(pid: int) -> int:
    """Memory of a process that is its own; 0 when it is gone."""
    fields = _read(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0


def _stat(pid: int) -> list[bytes]:
    """What follows the command in a process's line of status: state, parent, ...; or nothing."""
    # pid (command) state ppid ...; the command may hold spaces and parentheses
    return _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()


def _command(pid: int) -> str:
    text = _read(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode(errors="replace")
    return " ".join(text.split())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it ended, or belongs to somebody else
