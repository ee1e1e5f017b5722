"""How a process that ran someone's file ended, in one sentence. This side imports no torch."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Outcome = Literal["answered", "ended", "timed out", "flooded", "took too much memory"]
# What each outcome is called where many are counted, by words of the sentence below.
_KINDS = {
    " did not return within ": "timed out",
    " printed more than ": "flooded",
    " GiB of memory": "out of memory",
    " was killed by ": "crashed",
    " crashed with ": "crashed",
    " ended the process with ": "crashed",
}
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may take: seconds from its start, bytes that it prints, bytes of memory."""

    time_s: float
    output_bytes: int
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """An outcome, with the exit status (negative: a signal) where there is one."""

    outcome: Outcome
    status: int | None
    stderr: bytes


def sentence(who: str, step: str, ending: Ending, limits: Limits, paths: tuple[Path, ...]) -> str:
    """Who did what, where, in which step; `paths` are the files that a line may be named in."""
    place = last_place(ending.stderr.decode(errors="replace"), paths)
    at, during = f" at {place}" if place else "", f" ({step})"
    if ending.outcome == "timed out":
        return f"{who} did not return within {limits.time_s:g} s{at}{during}"
    if ending.outcome == "flooded":
        return f"{who} printed more than {limits.output_bytes / 2**20:g} MiB{during}"
    if ending.outcome == "took too much memory":
        return f"{who} took more than {limits.memory_bytes / 2**30:.3g} GiB of memory{at}{during}"
    if ending.status == -signal.SIGKILL:
        return (
            f"{who} was killed by SIGKILL{during}: the system does that for lack of memory,"
            " or another process did"
        )
    if ending.status is not None and ending.status < 0:
        return f"{who} crashed with {signal.Signals(-ending.status).name}{at}{during}"
    return f"{who} ended the process with exit code {ending.status}{during}{_last_line(ending)}"


def kind_of(reason: str) -> str | None:
    """Which outcome a `sentence` tells of, in a word or two; None where it is no such sentence."""
    return next((kind for words, kind in _KINDS.items() if words in reason), None)


def last_place(stderr: str, paths: tuple[Path, ...]) -> str | None:
    """The innermost frame in one of the files, from the stack that the process printed last."""
    stack = stderr.rpartition("most recent call first")[2]
    names = {str(path.absolute()): path.name for path in paths}
    for frame in _FRAME.finditer(stack):
        if frame["file"] in names:
            return f"{names[frame['file']]}:{frame['line']}"
    return None


def _last_line(ending: Ending) -> str:
    lines = ending.stderr.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""
