"""Writes the files that the user gets: whole under their name, or not at all."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opweld.errors import InternalError, OutputNotWritable, Where


def default_output(model: Path) -> Path:
    """`gelu.py` becomes `gelu_new.py` beside it."""
    return model.with_name(f"{model.stem}_new.py")


def check_output(out: Path, model: Path | None = None) -> None:
    """Finds out before the work what would stop the writing after it; leaves nothing behind.

    Raises:
        OutputNotWritable: `out` is the model itself, a folder, or in no folder we may write to.
    """
    place = Where(str(out))
    if out.is_dir():
        raise OutputNotWritable("is a folder", where=place, next_step="name a file")
    if model and out.exists() and out.samefile(model):
        raise OutputNotWritable(
            "is the model file itself", where=place, next_step="name another file with -o"
        )
    with partial_file(out, ""):
        return


@contextlib.contextmanager
def partial_file(out: Path, text: str) -> Iterator[Path]:
    """A file with `text` beside `out`, under a name of its own; gone at the end unless published.

    It stands in the same folder because the model may import its neighbours, and because a rename
    is whole only within one file system. Missing folders are made, and go with it.
    """
    with _folders_of(out):
        try:
            handle, name = tempfile.mkstemp(
                suffix=out.suffix, prefix=f".{out.stem}-", dir=out.parent
            )
        except OSError as error:
            raise _not_writable(out, error) from error
        partial = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            yield partial
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _folders_of(out: Path) -> Iterator[None]:
    """Makes the folders that `out` lacks; those that are empty at the end are removed again."""
    missing: list[Path] = []
    try:
        try:
            missing += [folder for folder in out.parents if not folder.exists()]
            out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _not_writable(out, error) from error
        yield
    finally:
        for folder in missing:  # the innermost first
            with contextlib.suppress(OSError):
                folder.rmdir()


def publish(partial: Path, out: Path) -> None:
    """Gives the finished file its name, replacing what had it before, in one step."""
    try:
        partial.chmod(0o666 & ~_umask())
        partial.replace(out)
    except OSError as error:
        raise _not_writable(out, error) from error


def write_whole(out: Path, text: str) -> None:
    with partial_file(out, text) as partial:
        publish(partial, out)


def write_json(out: Path, data: dict[str, Any]) -> None:
    write_whole(out, json.dumps(data, indent=2, allow_nan=False) + "\n")


def _not_writable(out: Path, error: OSError) -> OutputNotWritable:
    within = isinstance(error, (FileExistsError, NotADirectoryError))
    return OutputNotWritable(
        "is inside a file" if within else f"cannot be written: {error.strerror}",
        where=Where(str(out)),
        next_step="name another place",
    )


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def with_figures(text: str, figures: str) -> str:
    """The emitted file with `figures` as the last paragraph of its head comment.

    Raises:
        InternalError: the text has no head comment, or something beside it would change.
    """
    start, end = head_span(text)
    head = text[start:end]
    changed = f"{head[:-3].rstrip()}\n\n{_plain(figures)}\n{head[-3:]}"
    result = text[:start] + changed + text[end:]
    if body_of(result) != body_of(text):
        raise InternalError("the figures would change more than the head of the emitted file")
    return result


def body_of(text: str) -> str:
    """The emitted file without its head comment: what was verified."""
    start, end = head_span(text)
    return text[:start] + text[end:]


def head_span(text: str) -> tuple[int, int]:
    """Where the module's docstring stands in `text`, its quotes included."""
    first = next(iter(ast.parse(text).body), None)
    if not (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
        and first.end_lineno is not None
        and first.end_col_offset is not None
    ):
        raise InternalError("the emitted file has no head comment")
    lines = [f"{line}\n" for line in text.split("\n")]
    return (
        _offset(lines, first.lineno, first.col_offset),
        _offset(lines, first.end_lineno, first.end_col_offset),
    )


def _offset(lines: list[str], line: int, column_bytes: int) -> int:
    column = len(lines[line - 1].encode()[:column_bytes].decode())
    return sum(map(len, lines[: line - 1])) + column


def _plain(figures: str) -> str:
    return figures.replace("\\", "/").replace('"', "'").strip()
