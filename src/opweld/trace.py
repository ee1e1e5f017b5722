"""Watches the stages run: times them, checks what they give, keeps and prints their text.

`OPWELD_DUMP=dir` writes each stage's text to a file; `OPWELD_DEBUG=1..5` prints more of it a level.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar

from opweld.errors import OutputNotWritable, Where
from opweld.options import Options

T = TypeVar("T")

DUMP_FILES = {
    "capture": "01-capture.txt",
    "graph": "02-graph.txt",
    "plan": "03-plan.txt",
    "kernel": "04-kernel.txt",
    "emit": "05-emit.py",
    "source": "06-source{suffix}",
}
# From which OPWELD_DEBUG a stage's text is printed; rule hits are level 3, timings level 1.
PRINT_LEVEL = {"plan": 2, "rules": 3, "source": 4}
ALL_TEXTS_LEVEL = 5


class Trace:
    """One compilation's observer.

    Args:
        options: where to dump and how much to print.
        check: raises where a stage's value breaks its invariants; called after every stage.
        on_stage: told the name of each stage as it begins.
    """

    def __init__(
        self,
        options: Options,
        check: Callable[[Any], None],
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
        """`function(*args)`, timed; its result has passed the check."""
        self._on_stage(stage)
        start = time.perf_counter()
        value = function(*args)
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start
        self._check(value)
        if self._options.debug >= 1:
            print(f"{stage}: {self.seconds[stage] * 1e3:.1f} ms", file=self._out)
        return value

    def note(self, name: str, text: str, suffix: str = "") -> None:
        """Keeps the text of a stage; dumps and prints it where the options ask for it."""
        self.texts[name] = text
        if self._options.debug >= PRINT_LEVEL.get(name, ALL_TEXTS_LEVEL):
            print(f"-- {name}\n{text}", file=self._out)
        if self._options.dump and name in DUMP_FILES:
            self._dump(Path(self._options.dump), DUMP_FILES[name].format(suffix=suffix), text)

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
