"""Writes the files and packages that the user gets: whole under their name, or not at all."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opweld.emission.package import KERNELS, MAIN, ORIGINAL, SUPPORT, package_files
from opweld.errors import InternalError, OutputNotWritable, Where


def default_output(model: Path) -> Path:
    """`gelu.py` becomes `gelu_new.py` beside it."""
    return model.with_name(f"{model.stem}_new.py")


def is_package(out: Path) -> bool:
    """Whether `out` names a package: a folder, or a name without an ending."""
    return out.is_dir() or not out.suffix


def check_output(out: Path) -> None:
    """Finds out before the work what would stop the writing of a file after it; leaves nothing
    behind.

    Raises:
        OutputNotWritable: `out` is a folder, or in no folder we may write to.
    """
    if out.is_dir():
        raise OutputNotWritable("is a folder", where=Where(str(out)), next_step="name a file")
    with _partial(out, folder=False):
        return


def check_result(out: Path, model: Path | None = None) -> None:
    """The same for the emitted file or package.

    Raises:
        OutputNotWritable: `out` is the model itself, a folder with other things than a package of
            ours, a package that cannot be imported, or in no folder we may write to.
    """
    if model and out.exists() and out.samefile(model):
        raise OutputNotWritable(
            "is the model file itself",
            where=Where(str(out)),
            next_step="name another file with -o",
        )
    if is_package(out):
        _check_package(out)
    elif out.suffix != ".py":
        raise OutputNotWritable(
            f"ends in {out.suffix}, which Python does not import",
            where=Where(str(out)),
            next_step="name a file that ends in .py, or a package without an ending",
        )
    with _partial(out, is_package(out)):
        return


def _check_package(out: Path) -> None:
    """Refuses what Python cannot import, and to replace a folder that has other things in it."""
    place = Where(str(out))
    if not out.resolve().name.isidentifier():
        raise OutputNotWritable(
            "is no name that Python can import",
            where=place,
            next_step="name a package in letters, digits and _, or a file that ends in .py",
        )
    if out.exists() and not out.is_dir():
        raise OutputNotWritable(
            "is a file, not a package", where=place, next_step="name another folder"
        )
    if out.is_dir() and any(out.iterdir()) and not _is_ours(out):
        raise OutputNotWritable(
            "is a folder with other things in it",
            where=place,
            next_step="name a new folder, or a file that ends in .py",
        )


def _is_ours(folder: Path) -> bool:
    """Whether all that stands in a folder is of a package that was written here."""
    ours = {MAIN, ORIGINAL, SUPPORT, KERNELS, "__pycache__"}
    main = folder / MAIN
    return (
        {each.name for each in folder.iterdir()} <= ours
        and main.is_file()
        and main.read_text("utf-8", errors="replace").startswith('"""ModelNew for ')
    )


@contextlib.contextmanager
def partial_result(out: Path, text: str) -> Iterator[Path]:
    """The emitted file, or its package, beside `out`, under a name of its own; gone at the end
    unless published.

    It stands in the same folder because the model may import its neighbours, and because a rename
    is whole only within one file system. Missing folders are made, and go with it.
    """
    with _partial(out, is_package(out)) as partial:
        write_result(partial, text)
        yield partial


def write_result(partial: Path, text: str) -> None:
    """Writes the emitted file, or its package where `partial` is a folder."""
    files = package_files(text) if partial.is_dir() else {"": text}
    for name, content in files.items():
        path = partial / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, "utf-8")


@contextlib.contextmanager
def _partial(out: Path, folder: bool) -> Iterator[Path]:
    """An empty file or folder beside `out`, whose folders are made; gone at the end."""
    with _folders_of(out):
        try:
            partial = _made(out, folder)
        except OSError as error:
            raise _not_writable(out, error) from error
        try:
            yield partial
        finally:
            if partial.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink(missing_ok=True)


def _made(out: Path, folder: bool) -> Path:
    prefix = f".{out.stem}-"
    if folder:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    handle, name = tempfile.mkstemp(suffix=out.suffix, prefix=prefix, dir=out.parent)
    os.close(handle)
    return Path(name)


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
    """Gives the finished file or package its name, replacing what had it before.

    A file is replaced in one step. A package is put in the place of the old one, which is put back
    where that fails.
    """
    try:
        if partial.is_dir():
            _publish_folder(partial, out)
        else:
            partial.chmod(0o666 & ~_umask())
            partial.replace(out)
    except OSError as error:
        raise _not_writable(out, error) from error


def _publish_folder(partial: Path, out: Path) -> None:
    partial.chmod(0o777 & ~_umask())
    shutil.rmtree(partial / "__pycache__", ignore_errors=True)
    if not out.exists():
        partial.rename(out)
        return
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as aside:
        before = out.rename(Path(aside, out.name))
        try:
            partial.rename(out)
        except OSError:
            before.rename(out)
            raise


def write_whole(out: Path, content: str | bytes) -> None:
    with _partial(out, folder=False) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        publish(partial, out)


def write_json(out: Path, data: dict[str, Any]) -> None:
    write_whole(out, json_text(data))


def json_text(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


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
