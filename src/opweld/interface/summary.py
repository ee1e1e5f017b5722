"""A judgement in GitHub's Markdown, for the summary of a job or a comment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from opweld.errors import UserError
from opweld.judge import report
from opweld.judge.report import Grid
from opweld.judge.values import Judgement

# GitHub's own variable: the file that a step's summary is appended to.
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_SHOWN_ROWS = 8
_PASSED, _FAILED = ":white_check_mark:", ":x:"


def summary_file(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the summary goes: the file that was asked for, or the one of the job's step."""
    step = environ.get(STEP_SUMMARY)
    return given or (Path(step) if step else None)


def append_summary(file: Path, text: str) -> None:
    """Append `text` to the file, which is made where it is not there.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise UserError(f"{file}: the summary cannot be written: {error.strerror}") from error


def markdown(judgement: Judgement, names: tuple[Path, Path]) -> str:
    """The verdict, what failed, the times, and the errors collapsed."""
    sign = _PASSED if judgement.verdict.passed else _FAILED
    model, new = (name.name.replace("`", "'") for name in names)
    parts = [f"### opweld: `{new}` against `{model}`"]
    parts.append(f"{sign} **{_escaped(report.verdict_line(judgement))}**")
    for grid in sorted(report.grids(judgement), key=lambda grid: grid.title != report.FAILED):
        table = _table(grid)
        shown = len(grid.rows) <= _SHOWN_ROWS
        parts.append(f"{grid.title}\n\n{table}" if shown else _collapsed(grid.title, table))
    found = "\n".join(f"- {_escaped(line)}" for line in report.lines(judgement))
    return "\n\n".join([*parts, _collapsed("Details", found)]) + "\n\n"


def _table(grid: Grid) -> str:
    heads = [_escaped(head.lstrip(">")) or " " for head in grid.heads]
    rules = ["---:" if head.startswith(">") else "---" for head in grid.heads]
    return "\n".join(map(_row, (heads, rules, *([*map(_escaped, row)] for row in grid.rows))))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _collapsed(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _escaped(text: str) -> str:
    """Without what Markdown or HTML would read as its own: a candidate chooses some of the text."""
    for sign, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "'")):
        text = text.replace(sign, written)
    for sign in "*_[]#!@":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
