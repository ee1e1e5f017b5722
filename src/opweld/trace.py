"""Watches the stages run: times them, checks what they give, keeps, dumps and prints its text.

`OPWELD_DUMP=dir` writes each stage's text to a file; `OPWELD_DEBUG=1..5` prints more of it a level.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

from opweld.errors import OutputNotWritable, Where
from opweld.options import Options

T = TypeVar("T")

DUMP_FILES = {
    "capture": "01-capture.txt",
    "graph": "02-graph.txt",
    "plan": "03-plan.txt",
    "kernel": "04-kernel.txt",
    "emit": "05-emit.py",
    "source": "06-source",
}
# From which OPWELD_DEBUG on a text is printed; timings are level 1, every stage's text level 5.
PRINT_LEVEL = {"plan": 2, "rules": 3, "source": 4}
ALL_TEXTS_LEVEL = 5


class Check(Protocol):
    """`ir.check.check`: raises where a value breaks its invariants; knows some types only."""

    def __call__(self, value: Any) -> None: ...

    def dispatch(self, cls: type) -> Callable[..., Any]: ...


class Trace:
    """The observer of one compilation.

    `seconds` gathers the time of each stage, of all its runs where there are several; `texts` keeps
    what `note` is given. `on_stage` is told each stage's name as it begins.
    """

    def __init__(
        self,
        options: Options,
        check: Check,
        on_stage: Callable[[str], None] = lambda stage: None,
        out: TextIO | None = None,
    ) -> None:
        self._options = options
        self._check = check
        self._on_stage = on_stage
        self._out = out or sys.stderr
        self.seconds: dict[str, float] = {}
        self.texts: dict[str, str] = {}

    def run(self, stage: str, function: Callable[..., T], *args: Any) -> T:
        """`function(*args)`, timed; the value, or each of a tuple, has passed the check.

        Raises whatever the function raises, and what the check raises for its result.
        """
        self._on_stage(stage)
        start = time.perf_counter()
        value = function(*args)
        spent = time.perf_counter() - start
        self.seconds[stage] = self.seconds.get(stage, 0.0) + spent
        self._print(1, f"{stage}: {spent * 1e3:.1f} ms")
        for each in value if isinstance(value, tuple) else (value,):
            if self._check.dispatch(type(each)) is not self._check.dispatch(object):
                self._check(each)
        return value

    def note(self, name: str, text: str, suffix: str = "") -> None:
        """Keeps the canonical text `name`; dumps and prints it where the options ask for it."""
        self.texts[name] = text
        self._print(PRINT_LEVEL.get(name, ALL_TEXTS_LEVEL), f"-- {name}\n{text}")
        if self._options.dump and name in DUMP_FILES:
            self._dump(Path(self._options.dump), DUMP_FILES[name] + suffix, text)

    def _print(self, level: int, text: str) -> None:
        if self._options.debug >= level:
            print(text, file=self._out)

    def _dump(self, folder: Path, name: str, text: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        except OSError as error:
            raise OutputNotWritable(
                f"cannot be written: {error.strerror}",
                where=Where(str(folder / name)),
                next_step="set OPWELD_DUMP to a folder that can be written",
            ) from error
