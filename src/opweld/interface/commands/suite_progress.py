"""How a suite goes: a live table on a terminal, and elsewhere a line now and then."""

from __future__ import annotations

import time
from collections import Counter

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from opweld.suite.driver import Progress
from opweld.suite.values import PASSED

# Between two lines where nobody watches; between two looks of somebody who does.
_LINE_S, _LOOK_S = 30.0, 0.5
_SHOWN = 5


class SuiteProgress:
    """Told the progress again and again; on a terminal it stays at the bottom."""

    def __init__(self, console: Console, line_s: float = _LINE_S) -> None:
        self._console, self._line_s = console, line_s
        self._live: Live | None = None
        self._told = time.monotonic()
        self._last: Progress | None = None

    def __enter__(self) -> SuiteProgress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *how: object) -> None:
        if self._live:
            self._live.stop()
        if self._last:
            self.say(summary(self._last))

    def follow(self, progress: Progress) -> None:
        self._last = progress
        wait_s = _LOOK_S if self._live else self._line_s
        if time.monotonic() - self._told < wait_s:
            return
        self._told = time.monotonic()
        if self._live:
            self._live.update(_panel(progress), refresh=True)
        else:
            self.say(summary(progress))

    def say(self, sentence: str) -> None:
        """A sentence that stays."""
        self._console.print(sentence, markup=False, highlight=False, emoji=False, soft_wrap=True)


def summary(progress: Progress) -> str:
    """How far it is in one line: counts, rate, time that is left, failures by kind."""
    parts = [counted(progress)]
    if progress.ended:
        parts += [f"{progress.per_minute:.3g} a minute", f"{progress.verdicts[PASSED]} passed"]
    left_s = progress.left_s
    if left_s:
        parts.append(f"{lasting(left_s)} left")
    return ", ".join(parts + troubles(progress))


def counted(progress: Progress) -> str:
    """How many have ended, of how many."""
    total = "" if progress.total is None else f" of {progress.total}"
    parts = [f"{progress.kept} from before" * bool(progress.kept)]
    parts.append(f"{progress.repeated} repeated" * bool(progress.repeated))
    beside = ", ".join(filter(None, parts))
    return f"{progress.done}{total} done" + (f" ({beside})" if beside else "")


def failures(progress: Progress) -> Counter[str]:
    """What did not pass, by verdict and cause."""
    named = Counter[str]()
    for (verdict, cause), num in progress.causes.items():
        named[verdict if cause in ("", verdict) else f"{verdict} ({cause})"] += num
    return named


def troubles(progress: Progress) -> list[str]:
    """The most frequent kinds of failures, and the faults of machines, with their numbers."""
    found = [f"{num} {words}" for words, num in failures(progress).most_common(_SHOWN)]
    return found + [f"{num} attempts ended by: {why}" for why, num in progress.faults.most_common()]


def lasting(seconds: float) -> str:
    """12 s, 3 min, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _panel(progress: Progress) -> Table:
    bar = ProgressBar(total=progress.total, completed=progress.done, pulse=progress.total is None)
    lines = [f"{counted(progress)}, {progress.running} running"]
    rate = f"{progress.per_minute:.3g} a minute"
    left_s = progress.left_s
    lines.append(f"{rate}, about {lasting(left_s)} left" if left_s else rate)
    lines.append(f"{progress.verdicts[PASSED]} passed")
    lines += troubles(progress)
    table = Table.grid(expand=True)
    table.add_row(bar)
    for line in lines:
        table.add_row(Text(line, no_wrap=True, overflow="ellipsis"))
    return table
