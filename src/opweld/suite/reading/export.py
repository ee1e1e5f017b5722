"""The results as a table, written row group by row group: Parquet, CSV or JSON lines."""

from __future__ import annotations

import csv
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opweld.delivery import check_output, publish
from opweld.errors import UserError, Where
from opweld.suite.optional import optional
from opweld.suite.store import Row, columns_of, reading, rows

_ROWS = 1024
_INTEGERS = ("id", "run", "seed", "calibration", "attempts")
_FIGURES = (
    *("eager_ms", "compile_ms", "opweld_ms", "limit_ms", "ratio", "ratio_low", "ratio_high"),
    *("seconds", "build_seconds"),
)


def export(store: Path, out: Path) -> int:
    """Writes all results to `out`, whole or not at all; how many there are.

    Raises:
        UserError: it is no store, the ending is unknown, or pyarrow is not installed.
        OutputNotWritable: it cannot be written.
    """
    write = {".parquet": _parquet, ".csv": _csv, ".jsonl": _json}.get(out.suffix)
    if write is None:
        raise UserError(
            f"ends in {out.suffix or 'nothing'}",
            where=Where(str(out)),
            next_step="name a file that ends in .parquet, .csv or .jsonl",
        )
    check_output(out)
    with reading(store) as db, tempfile.TemporaryDirectory(dir=out.parent) as folder:
        partial = Path(folder, out.name)
        names = columns_of(db)
        number = write(partial, names, rows(db, names))
        publish(partial, out)
    return number


def _csv(out: Path, names: tuple[str, ...], found: Iterator[Row]) -> int:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        number = 0
        for row in found:
            writer.writerow(row)
            number += 1
    return number


def _json(out: Path, names: tuple[str, ...], found: Iterator[Row]) -> int:
    with out.open("w", encoding="utf-8") as file:
        number = 0
        for row in found:
            file.write(json.dumps(row) + "\n")
            number += 1
    return number


def _parquet(out: Path, names: tuple[str, ...], found: Iterator[Row]) -> int:
    pyarrow, parquet = (
        optional(name, "writing Parquet", "parquet", "write .csv or .jsonl", Where(str(out)))
        for name in ("pyarrow", "pyarrow.parquet")
    )
    kinds = {
        **dict.fromkeys(_INTEGERS, pyarrow.int64()),
        **dict.fromkeys(_FIGURES, pyarrow.float64()),
    }
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in names])
    number = 0
    with parquet.ParquetWriter(out, schema) as writer:
        while some := list(itertools.islice(found, _ROWS)):
            writer.write_table(pyarrow.Table.from_pylist(some, schema))
            number += len(some)
    return number
