"""An emitted file as a package: the same texts, each in a file of its own.

__init__.py          ModelNew, and what the kernels compute in PyTorch
original.py          the model file as it was
support.py           what builds the kernels and makes operations of them
kernels/K.cu         the kernels of a library whose first one is K; K.cpp for the CPU
kernels/K_host.cpp   what PyTorch calls of them
kernels/device.cuh, kernels/host.h   what kernels, and calls, use of the device library
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from . import piece
from .support import MARKER

MAIN, ORIGINAL, SUPPORT, KERNELS = "__init__.py", "original.py", "support.py", "kernels"
_SUPPORT_HEAD = '''"""Builds kernels and makes operations of them: the same in every package."""

import pathlib

import torch'''
# What libraries share, as files: for CUDA, and for the CPU.
_HEADERS = {"_DEVICE": ("device.cuh", "device.h"), "_HOST": ("host.h", "host.h")}


def package_files(text: str) -> dict[str, str]:
    """The files of the package by their paths in it, from the text of the single file.

    The package builds the same libraries from the same sources, and exports the same names. Where
    there are no kernels, there are neither `support.py` nor `kernels`.
    """
    file = _File(text)
    files = {MAIN: _main(file)}
    if "_ORIGINAL" in file.strings:
        files[ORIGINAL] = file.strings["_ORIGINAL"]
    if file.libraries:
        support = ["\n".join(file.lines_of(each)) for each in file.support]
        sections = [_SUPPORT_HEAD, piece("package").strip(), *support]
        files[SUPPORT] = "\n\n\n".join(sections) + "\n"
        files |= {f"{KERNELS}/{name}": source for name, source in _sources(file)}
    return files


@dataclass(frozen=True, slots=True)
class LibraryTexts:
    """The whole texts that a library is built of: `host` holds all of it on the CPU."""

    first: str
    host: str
    cuda: str


def library_texts(text: str) -> tuple[LibraryTexts, ...]:
    """What each library of the single file is built of, as the file itself hands it over."""
    file = _File(text)

    def joined(names: list[str]) -> str:
        return "\n".join(file.strings[name] for name in names)

    return tuple(
        LibraryTexts(each.first, joined(each.host), joined(each.kernels))
        if each.on_cuda
        else LibraryTexts(each.first, joined([*each.kernels, *each.host]), "")
        for each in file.libraries
    )


@dataclass(frozen=True, slots=True)
class _Library:
    """The name of a library's first operator, the names of its sources, headers first, and its
    entry in the list of libraries.
    """

    first: str
    kernels: list[str]
    host: list[str]
    on_cuda: bool
    entry: ast.expr


class _File:
    """The single file, by its statements."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.statements = ast.parse(text).body
        # Its line; 0 where there is no support.
        self.marker = self.lines.index(MARKER) + 1 if MARKER in self.lines else 0

    @cached_property
    def strings(self) -> dict[str, str]:
        """The texts that the file holds, by their names."""
        return {
            statement.targets[0].id: statement.value.value
            for statement in self.statements
            if isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Name)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        }

    @property
    def support(self) -> list[ast.FunctionDef | ast.ClassDef]:
        """The definitions behind the marker."""
        kinds = (ast.FunctionDef, ast.ClassDef)
        found = [each for each in self.statements if isinstance(each, kinds)]
        return [each for each in found if 0 < self.marker < each.lineno]

    @cached_property
    def libraries(self) -> list[_Library]:
        """As the one call of what builds them lists them."""
        values: Any = [each.value for each in self.statements if isinstance(each, ast.Expr)]
        calls: list[Any] = [each for each in values if isinstance(each, ast.Call)]
        return [_library(entry) for call in calls for entry in call.args[2].elts]

    def lines_of(self, statement: ast.stmt) -> list[str]:
        return self.lines[statement.lineno - 1 : statement.end_lineno]

    def without(self, statements: list[ast.stmt]) -> str:
        """The text without some statements, the comments right before them, and the marker."""
        gone = {self.marker}
        for statement in statements:
            first = statement.lineno
            while self.lines[first - 2].startswith("#"):
                first -= 1
            gone |= set(range(first, (statement.end_lineno or first) + 1))
        kept = [line for number, line in enumerate(self.lines, 1) if number not in gone]
        return re.sub(r"\n{3,}", "\n\n\n", "\n".join(kept)) + "\n"


def _library(entry: Any) -> _Library:
    first, given = entry.elts[0].value, entry.elts[1].keywords
    sources = {each.arg: [source.id for source in each.value.elts] for each in given}
    cpp, cuda = sources["cpp_sources"], sources.get("cuda_sources")
    host = [name for name in cpp if name.startswith(("_HOST", "_MAIN"))]
    kernels = cuda or [name for name in cpp if name not in host]
    return _Library(first, kernels, host, cuda is not None, entry)


def _sources(file: _File) -> Iterator[tuple[str, str]]:
    """The names and the texts of the files in the folder of kernels."""
    headers: dict[str, str] = {}
    for library in file.libraries:
        ending = ".cu" if library.on_cuda else ".cpp"
        for names, last in ((library.kernels, ending), (library.host, "_host.cpp")):
            *shared, own = names
            files = {_HEADERS[n][not library.on_cuda]: _lines(file.strings[n]) for n in shared}
            includes = "".join(f'#include "{header}"\n' for header in files)
            yield f"{library.first}{last}", includes + _lines(file.strings[own])
            headers |= files
    yield from headers.items()


def _lines(text: str) -> str:
    return text.rstrip("\n") + "\n"


def _main(file: _File) -> str:
    """The file without what stands in files of its own, which it imports instead."""
    moved = [each for each in file.statements if _is_moved(each, file)]
    text = file.without([*moved, *file.support])
    for library in file.libraries:
        entry = ast.get_source_segment("\n".join(file.lines), library.entry)
        text = text.replace(entry or "", f'_library("{library.first}")')
    imports = ["from . import original as _original"] if "_ORIGINAL" in file.strings else []
    functions = [name for each in file.support if re.search(rf"\b{(name := each.name)}\b", text)]
    if file.libraries:
        imports.append(f"from .support import {', '.join(sorted([*functions, '_library']))}")
    return text.replace("import torch\n", "\n".join(["import torch\n", *imports, ""]), 1)


def _is_moved(statement: ast.stmt, file: _File) -> bool:
    """Whether it is a text with a file of its own, or makes a module of the original's text."""
    names = {name for each in file.libraries for name in (*each.kernels, *each.host)}
    if "_ORIGINAL" in file.strings:
        names |= {"_ORIGINAL", "_original", "_apart"}
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.FunctionDef(name=name):
            return name in names
    return False
