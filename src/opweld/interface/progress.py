"""Shows the run as it goes: a live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as Live
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from opweld.judge.values import ESTIMATE

STAGES = ("capture", "plan", "build", "verify", "measure")
# What the judge does of them.
JUDGED = ("build", "verify", "measure")
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
    """Told each step; shows which of `stages` it is, for how long, and what is being done.

    On a terminal a stage that has ended leaves a line with its time. Elsewhere each has a line when
    it begins, and with `verbose` one for each step. Steps of verifying are checks, and counted.
    """

    def __init__(
        self, console: Console, stages: tuple[str, ...] = STAGES, verbose: bool = False
    ) -> None:
        self._console = console
        self._stages, self._verbose = stages, verbose
        self._start = time.monotonic()
        self._stage = ""
        self._stage_start = self._start
        self._checks = 0
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = _live(self._console)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_stage(ended=error is None)
        if self._live:
            self._live.stop()

    def step(self, stage: str, message: str = "") -> None:
        """One step of `stage`, a name of the compiler's or of the judge's."""
        if stage == ESTIMATE:
            self.say(message)
            return
        shown = SHOWN_AS.get(stage, stage)
        if (self._stage, shown) == ("measure", "verify"):
            shown = self._stage  # timed results are checked as they are timed
        if shown != self._stage:
            self._end_stage(ended=True)
            self._begin_stage(shown)
        if message and shown == "verify":
            self._checks += 1
            message = f"check {self._checks}: {message}"
        if self._live:
            self._live.update(self._live.tasks[-1].id, message=message, refresh=True)
        elif message and self._verbose:
            self._line(f"    {message}")

    def say(self, sentence: str) -> None:
        """A sentence that stays."""
        self._line(sentence)

    def _numbered(self) -> str:
        """Which stage of how many."""
        if self._stage not in self._stages:
            return self._stage
        return f"[{self._stages.index(self._stage) + 1}/{len(self._stages)}] {self._stage}"

    def _begin_stage(self, shown: str) -> None:
        self._stage, self._stage_start, self._checks = shown, time.monotonic(), 0
        if self._live:
            self._live.add_task(self._numbered(), total=None, message="")
        else:
            self._line(f"{self._stage_start - self._start:6.1f} s  {self._numbered()}")

    def _end_stage(self, ended: bool) -> None:
        if self._live and self._stage:
            self._live.remove_task(self._live.tasks[-1].id)
            if ended:
                checks = f"  {self._checks} checks" if self._checks else ""
                spent = time.monotonic() - self._stage_start
                self._line(f"{self._numbered():14} {spent:6.1f} s{checks}")
        self._stage = ""

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _live(console: Console) -> Live:
    """One line: the stage, its time, and what is being done, cut at the terminal's edge."""
    message = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return Live(
        SpinnerColumn(),
        TextColumn("{task.description}", style="bold", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}", markup=False, table_column=message),
        console=console,
        transient=True,
        expand=True,
    )
