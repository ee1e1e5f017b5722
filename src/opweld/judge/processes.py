"""Finding every process that a judged file started, by a mark in its environment.

A process may leave its group and its session; its environment at start cannot be changed from
within, so the mark is found in /proc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MARK = "OPWELD_JUDGE_MARK"
# Companions that torch, Python and compiler caches keep beyond the call that started them.
_KNOWN = ("torch._inductor", "compile_worker", "multiprocessing.resource_tracker", "sccache")


def marked(mark: str) -> Iterator[int]:
    """Ids of the live processes that were started with this mark."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and wanted in _read(entry / "environ").split(b"\0"):
            yield int(entry.name)


def strays() -> list[str]:
    """Command lines of the other processes with this process's mark, known companions left out."""
    mark = os.environ.get(MARK)
    if not mark:
        return []
    others = (pid for pid in marked(mark) if pid != os.getpid())
    lines = (_command(pid) for pid in others)
    return [line for line in lines if line and not any(name in line for name in _KNOWN)]


def _command(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode(errors="replace").strip()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it ended, or belongs to somebody else
