"""Shows the run as it goes: a live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.status import Status

STAGES = ("capture", "plan", "build", "verify", "measure")
# The stages of the compiler and of the judge, as the five that the user follows.
SHOWN_AS = {
    "capture": "capture",
    "graph": "plan",
    "simplify": "plan",
    "plan": "plan",
    "kernel": "plan",
    "lower": "plan",
    "source": "plan",
    "host": "plan",
    "render": "plan",
    "emit": "plan",
    "load": "build",
    "build": "build",
    "verify": "verify",
    "measure": "measure",
}


class Progress:
    """Told each step; prints each stage once as it begins, and its time when it has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._stage = ""
        self._stage_start = self._start
        self._status: Status | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_stage(ended=error is None)
        if self._status:
            self._status.stop()

    def step(self, stage: str, message: str = "") -> None:
        """One step of `stage`, a name of the compiler's or of the judge's."""
        shown = SHOWN_AS.get(stage, stage)
        if shown != self._stage:
            self._end_stage(ended=True)
            self._begin_stage(shown)
        if self._status:
            self._status.update(f"[bold]{shown}[/] {message}")
        elif message:
            self._line(f"    {message}")

    def say(self, sentence: str) -> None:
        """A sentence that stays."""
        self._line(sentence)

    def _begin_stage(self, shown: str) -> None:
        self._stage, self._stage_start = shown, time.monotonic()
        if not self._status:
            self._line(f"[{self._stage_start - self._start:6.1f} s] {shown}")

    def _end_stage(self, ended: bool) -> None:
        if self._status and self._stage and ended:
            self._line(f"{self._stage:8} {time.monotonic() - self._stage_start:6.1f} s")
        self._stage = ""

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
