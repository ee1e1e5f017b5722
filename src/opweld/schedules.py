"""The table of measured schedules as a file: one row a line, its fields between bars.

A line that begins with # is a comment. What a program writes into the table is data and no code, so
that reading it runs nothing, and a change is a line of a diff. Planning does not read it: the
driver does, and hands the rows on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TypeVar

from opweld.errors import BadTable, Where
from opweld.ir.kernels.product import Mode
from opweld.ir.measured import (
    Maker,
    Measured,
    PointwiseClass,
    ProductClass,
    Schedule,
    ShapeClass,
    is_launchable,
)
from opweld.ir.plan import PointwiseSchedule
from opweld.ir.types import DType
from opweld.options import OWN_TABLE

BAR = " | "
COLUMNS = (
    "kind", "target", "type", "shape class", "schedule", "us", "against", "us", "device", "date",
    "torch", "command",
)  # fmt: skip
HEADING = f"""\
# Measured schedules, which planning believes over its estimates (docs/4-adding-a-schedule.md).
# `opweld tune MODEL.py` proposes rows as a diff of this file, `--write` applies it.
# {BAR.join(COLUMNS)}
"""

_T = TypeVar("_T")
_SCHEDULE = re.compile(r"vector width (\d+), (\d+) in flight, (\d+) threads")
_POINTWISE = re.compile(r"elems 2\^(\d+) reads (\d+) writes (\d+) limit (memory|compute)")
_PRODUCT = re.compile(r"m 2\^(\d+) n 2\^(\d+) k 2\^(\d+) batches 2\^(\d+) (held|live) (tail|plain)")


def read_table(path: Path = OWN_TABLE) -> tuple[Measured, ...]:
    """The rows of the table at `path`.

    Raises:
        BadTable: there is no such file, or a line of it is no row.
    """
    return parse(read_text(path), str(path))


def read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError as error:
        raise BadTable(
            "there is no such table of schedules",
            where=Where(str(path)),
            next_step="make an empty file, or leave OPWELD_SCHEDULES unset",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadTable(f"cannot be read as a table: {error}", where=Where(str(path))) from error


def parse(text: str, name: str) -> tuple[Measured, ...]:
    """The rows of a table's text; `name` is the file that an error names.

    Raises:
        BadTable: a line is no row, or its target and class have a row already.
    """
    rows: dict[tuple[str, ShapeClass], tuple[int, Measured]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = row_of(line)
        except ValueError as error:
            raise _bad(str(error), name, number) from error
        if row.key in rows:
            raise _bad(f"line {rows[row.key][0]} has a row for the same class", name, number)
        rows[row.key] = number, row
    return tuple(row for _, row in rows.values())


def _bad(sentence: str, name: str, line: int) -> BadTable:
    return BadTable(
        f"is no row of measured schedules: {sentence}",
        where=Where(name, line),
        next_step="mend or delete the line",
    )


def line_of(row: Measured) -> str:
    """A row as a line of the table."""
    fields = (
        row.shape.kind, row.target, row.shape.type_text, row.shape, row.schedule,
        f"{row.us:.4g}", row.against, f"{row.against_us:.4g}", row.device, row.date, row.torch,
        row.command,
    )  # fmt: skip
    return BAR.join(" ".join(str(each).replace("|", "/").split()) for each in fields)


def row_of(line: str) -> Measured:
    """The row that a line is.

    Raises:
        ValueError: it is none; the message is a clause that says why.
    """
    words = [field.strip() for field in line.split("|")]
    if len(words) != len(COLUMNS):
        raise ValueError(f"it has {len(words)} fields, not {len(COLUMNS)}")
    for name, word in zip(COLUMNS, words, strict=True):
        if not word:
            raise ValueError(f"its field {name!r} is empty")
    kind, target, type_text, shape_text, chosen, us, against, against_us, device, day = words[:10]
    if kind not in _KINDS:
        raise ValueError(f"there is no kind {kind!r}, only {' and '.join(_KINDS)}")
    shape_of, schedule_of = _KINDS[kind]
    if day != _tried(lambda: date.fromisoformat(day), f"{day!r} is no date").isoformat():
        raise ValueError(f"{day!r} is no date")
    return Measured(
        target=target,
        shape=shape_of(type_text, shape_text),
        schedule=schedule_of(chosen),
        us=_microseconds(us),
        against=schedule_of(against),
        against_us=_microseconds(against_us),
        device=device,
        date=day,
        torch=words[10],
        command=words[11],
    )


def _pointwise_class(type_text: str, text: str) -> PointwiseClass:
    dtype = _tried(lambda: DType(type_text), f"there is no element type {type_text!r}")
    found = _matched(_POINTWISE, text, "elems 2^E reads R writes W limit memory|compute")
    return PointwiseClass(dtype, int(found[1]), int(found[2]), int(found[3]), found[4])


def _product_class(type_text: str, text: str) -> ProductClass:
    mode = _tried(lambda: Mode(type_text), f"there is no mode {type_text!r}")
    form = "m 2^M n 2^N k 2^K batches 2^B held|live tail|plain"
    found = _matched(_PRODUCT, text, form)
    m, n, k, batches = (int(found[position]) for position in range(1, 5))
    return ProductClass(mode, m, n, k, batches, found[5] == "held", found[6] == "tail")


def _pointwise_schedule(text: str) -> PointwiseSchedule:
    found = _matched(_SCHEDULE, text, "vector width L, V in flight, T threads")
    schedule = PointwiseSchedule(*(int(found[position]) for position in (1, 2, 3)))
    if not is_launchable(schedule):
        raise ValueError(f"no kernel can have {text!r}")
    return schedule


def _maker(text: str) -> Maker:
    return _tried(lambda: Maker(text), f"{text!r} is neither ours nor library")


_KINDS: dict[
    str, tuple[Callable[[str, str], ShapeClass], Callable[[str], Schedule]]
] = {
    PointwiseClass.kind: (_pointwise_class, _pointwise_schedule),
    ProductClass.kind: (_product_class, _maker),
}  # fmt: skip


def _matched(pattern: re.Pattern[str], text: str, form: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} has not the form {form!r}")
    return found


def _microseconds(text: str) -> float:
    value = _tried(lambda: float(text), f"{text!r} is no number of microseconds")
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is no number of microseconds")
    return value


def _tried(make: Callable[[], _T], problem: str) -> _T:
    try:
        return make()
    except ValueError as error:
        raise ValueError(problem) from error


def with_rows(text: str, rows: tuple[Measured, ...]) -> str:
    """The table's text with these rows: each in the place of the one of its target and class, or at
    the end. All other lines stay as they are.
    """
    new = {row.key: line_of(row) for row in rows}
    lines = (text if text.strip() else HEADING).splitlines()
    for index, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            lines[index] = new.pop(row_of(line).key, line)
    return "\n".join([*lines, *new.values()]) + "\n"


def diff(before: str, after: str, name: str) -> str:
    """What changes, as a unified diff; empty where nothing does."""
    lines = difflib.unified_diff(
        before.splitlines(),
        after.splitlines(),
        f"{name} (now)",
        f"{name} (proposed)",
        "",
        "",
        2,
        "",
    )
    return "\n".join(lines)
