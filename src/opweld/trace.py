"""Watches the stages run: times them, checks what they give, keeps, dumps and prints its text.

`OPWELD_DUMP=dir` writes each stage's text to a file; `OPWELD_DEBUG=1..5` prints more of it a level.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar

from opweld.errors import OutputNotWritable, Where
from opweld.ir.check import check
from opweld.ir.kernel import Source
from opweld.ir.text import to_text
from opweld.options import Options

T = TypeVar("T")

# What a stage gives, where that has a name of its own; `opweld plan --stage` asks by it.
GIVES = {"simplify": "graph", "lower": "kernel", "render": "source"}
DUMP_FILES = {
    "capture": "01-capture.txt",
    "graph": "02-graph.txt",
    "plan": "03-plan.txt",
    "kernel": "04-kernel.txt",
    "emit": "05-emit.py",
    "source": "06-source",
}
SOURCE_SUFFIX = {"cuda": ".cu", "c++": ".cpp"}
# From which OPWELD_DEBUG on a text is printed; timings are level 1, every stage's text level 5.
PRINT_LEVEL = {"plan": 2, "rules": 3, "source": 4}
ALL_TEXTS_LEVEL = 5


class Trace:
    """The observer of one compilation.

    `seconds` gathers the time of each stage and `texts` the canonical text of what it gave (graph,
    plan, kernel, source, ...); a stage that runs several times (once a variant) adds to both.
    `on_stage` is told each stage's name as it begins.
    """

    def __init__(
        self,
        options: Options,
        on_stage: Callable[[str], None] = lambda stage: None,
        out: TextIO | None = None,
    ) -> None:
        self._options = options
        self._on_stage = on_stage
        self._out = out or sys.stderr
        self.seconds: dict[str, float] = {}
        self.texts: dict[str, str] = {}

    def run(self, stage: str, function: Callable[..., T], *args: Any) -> T:
        """`function(*args)`, which gives a value of `ir`, a tuple of them, or text.

        Raises whatever the function raises, and what `ir.check.check` raises for its result.
        """
        self._on_stage(stage)
        start = time.perf_counter()
        value = function(*args)
        spent = time.perf_counter() - start
        self.seconds[stage] = self.seconds.get(stage, 0.0) + spent
        self._print(1, f"{stage}: {spent * 1e3:.1f} ms")
        for each in value if isinstance(value, tuple) else (value,):
            self._watch(stage, each)
        return value

    def note(self, name: str, text: str) -> None:
        """Keeps a text that is no stage's value, such as the rules that fired."""
        self._keep(name, text, "")

    def _watch(self, stage: str, value: object) -> None:
        if isinstance(value, str):
            return self.note(stage, value)
        suffix = SOURCE_SUFFIX[value.language] if isinstance(value, Source) else ""
        if not suffix:
            check(value)
        return self._keep(GIVES.get(stage, stage), to_text(value), suffix)

    def _keep(self, name: str, text: str, suffix: str) -> None:
        self.texts[name] = self.texts.get(name, "") + text
        self._print(PRINT_LEVEL.get(name, ALL_TEXTS_LEVEL), f"-- {name}\n{text}")
        if self._options.dump and name in DUMP_FILES:
            self._dump(Path(self._options.dump), DUMP_FILES[name] + suffix, self.texts[name])

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
