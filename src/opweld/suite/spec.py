"""What a suite is to do, read lazily: a folder, a glob, JSON lines, Parquet, or any iterable."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from opweld.errors import UserError, Where
from opweld.model_file import main_file
from opweld.suite.optional import optional
from opweld.suite.values import CHECK, Unit

FORMS = "name a folder, a glob, or a file that ends in .jsonl or .parquet"
NEW = "_new"
# A model file by its text, which is not run: Model is defined or bound at the top.
_MODEL = re.compile(rb"^(class Model\b|Model\s*[:=]|from .+ import .*\bModel\b)", re.MULTILINE)
_FIELDS = {item.name: item.type for item in fields(Unit)}
_FILES = ("model", "new")
_CHUNK_BYTES = 1 << 20
_ROWS = 1024

Item = Unit | str | Path | Mapping[str, Any] | tuple[str | Path, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """Units to come, one after the other, and how many where that is known."""

    units: Iterator[Unit]
    total: int | None = None


def read_spec(text: str, do: str) -> Spec:
    """The units that `text` names: a folder, a glob, a file of JSON lines or of Parquet.

    In a folder or among the matches of a glob, a pair is X.py with X_new.py (or the package X_new)
    beside it, and a model is a .py file that defines Model at its top and does not end in _new.

    Raises:
        UserError: there is no such thing, it holds nothing to do, or a line of it cannot be read.
    """
    path = Path(text)
    if path.suffix == ".jsonl" and path.is_file():
        return _of_rows(path, _json_rows(path), do)
    if path.suffix == ".parquet" and path.is_file():
        return _of_rows(path, _parquet_rows(path), do)
    if path.is_dir():
        return _of_files(sorted(_python_files(path)), path, do, text)
    if glob.has_magic(text):
        found = sorted(Path(each) for each in glob.iglob(text, recursive=True))
        return _of_files(found, Path(_root_of(text)), do, text)
    if path.suffix == ".py" and path.is_file():
        return _of_files([path], path.parent, do, text)
    missing = "no such file or folder" if not path.exists() else "is nothing that a suite can be"
    raise UserError(missing, where=Where(text), next_step=FORMS)


def units_of(items: Iterable[Item], do: str) -> Spec:
    """Units of a Python iterable, which is taken from as there is room: paths, (model, candidate),
    mappings with the fields of `Unit`, or units.
    """
    total = len(items) if isinstance(items, Sized) else None
    return Spec((_unit_of(item, do) for item in items), total)


def digests_of(unit: Unit) -> dict[str, str]:
    """SHA-256 of each file of a unit; of a package, of all its files.

    Raises:
        UserError: a file cannot be read.
    """
    named = {name: getattr(unit, name) for name in _FILES}
    return {name: _digest(Path(path)) for name, path in named.items() if path}


def key_of(unit: Unit, digests: Mapping[str, str], work: str) -> str:
    """What a unit is known by: its name, its inputs' content, and the digest of the work."""
    functions = (unit.reference, unit.candidate)
    text = json.dumps([unit.name, sorted(digests.items()), functions, work])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with _readable(path):
        files = _package_files(path) if path.is_dir() else [path]
        for file in files:
            if path.is_dir():
                found.update(os.fsencode(file.relative_to(path)) + b"\0")
            with file.open("rb") as source:
                while chunk := source.read(_CHUNK_BYTES):
                    found.update(chunk)
    return found.hexdigest()


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        sentence = "no such file" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise UserError(sentence, where=Where(str(path))) from error


def _package_files(path: Path) -> list[Path]:
    files = (each for each in path.rglob("*") if "__pycache__" not in each.parts)
    return sorted(each for each in files if each.is_file())


def _python_files(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        yield from (Path(here, name) for name in names if name.endswith(".py"))


def _root_of(pattern: str) -> str:
    """The folders of a glob in front of its first wildcard."""
    parts = Path(pattern).parts
    plain = next(n for n, part in enumerate(parts) if glob.has_magic(part))
    return str(Path(*parts[:plain]))


def _of_files(found: list[Path], root: Path, do: str, text: str) -> Spec:
    files = [path for path in found if path.suffix == ".py" and path.is_file()]
    models = [path for path in files if not path.stem.endswith(NEW)]
    units = [unit for path in models if (unit := _file_unit(path, root, do))]
    if not units:
        what = "pair, X.py with X_new.py beside it" if do == CHECK else "file with a Model"
        raise UserError(f"there is no {what}", where=Where(text), next_step=FORMS)
    return Spec(iter(units), len(units))


def _file_unit(path: Path, root: Path, do: str) -> Unit | None:
    """The unit whose model is this file; None where it is no model, or has no candidate."""
    name = str(path.relative_to(root) if path.is_relative_to(root) else path)
    if do == CHECK:
        file, package = path.with_name(f"{path.stem}{NEW}.py"), path.with_name(f"{path.stem}{NEW}")
        new = next((each for each in (file, package) if main_file(each).is_file()), None)
        return Unit(name, str(path), str(new)) if new else None
    with _readable(path):
        text = path.read_bytes()
    return Unit(name, str(path)) if _MODEL.search(text) else None


def _of_rows(path: Path, rows: Iterator[tuple[str, Any]], do: str) -> Spec:
    """All rows are looked at before the first is done: a wrong one at the end is found at once."""
    total = sum(1 for _ in _row_units(path, rows, do))
    if not total:
        raise UserError("has no rows", where=Where(str(path)), next_step="give a row for each unit")
    again = _json_rows(path) if path.suffix == ".jsonl" else _parquet_rows(path)
    return Spec(_row_units(path, again, do), total)


def _row_units(path: Path, rows: Iterator[tuple[str, Any]], do: str) -> Iterator[Unit]:
    for place, row in rows:
        try:
            unit = _unit_of(row, do)
        except UserError as error:
            raise UserError(
                f"{place}: {error.sentence}", where=Where(str(path)), next_step=error.next_step
            ) from None
        # beside the file of rows, so that it can be moved with what it names
        model, new = (each and str(path.parent / each) for each in (unit.model, unit.new))
        yield replace(unit, model=model, new=new)


def _json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    with _readable(path), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:  # of text that is not UTF-8, too
                raise UserError(
                    f"line {number} is no JSON: {error}",
                    where=Where(str(path)),
                    next_step='write {"model": "x.py", "new": "x_new.py"}, one to a line',
                ) from error
            yield f"line {number}", row


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    where = Where(str(path))
    parquet = optional("pyarrow.parquet", "reading Parquet", "parquet", "write JSON lines", where)
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(_ROWS):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", {k: v for k, v in row.items() if v is not None}
    except (OSError, ValueError) as error:  # pyarrow's own are both of them
        raise UserError(f"is no Parquet file: {error}", where=where) from error


def _unit_of(item: Any, do: str) -> Unit:
    """A unit of a path, a pair of paths, or a mapping; its name is that of its files."""
    if isinstance(item, Unit):
        return item
    if isinstance(item, (str, Path)):
        item = {"model": str(item)}
    elif isinstance(item, tuple):
        item = dict(zip(_FILES, map(str, item), strict=False))
    if not isinstance(item, Mapping) or not isinstance(item.get("model"), str):
        raise UserError('there is no "model"', next_step=f"give {', '.join(_FIELDS)}")
    unknown = sorted(set(item) - set(_FIELDS))
    if unknown:
        raise UserError(f"there is no field {unknown[0]!r}", next_step=f"use {', '.join(_FIELDS)}")
    for name, value in item.items():
        wanted: tuple[type, ...] = (int, float) if name == "gpu_memory_gb" else (str,)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UserError(f"{name} is {value!r}", next_step=f"give a {wanted[0].__name__}")
    parts = [item["model"], *filter(None, [item.get("new") if do == CHECK else None])]
    return Unit(**{"name": " ".join(parts), **item})
