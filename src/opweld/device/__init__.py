"""The device library: CUDA and C++ texts that emitted files copy, function by function.

A piece begins at a line `// @name deps: a, b` of one of the files below and ends before the next
such line; its text is what follows that line. Pieces inside `namespace op` are functions and types,
those outside are what must stand at the head of a file (includes and macros).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

_FILES = ("mvec.h", "math.h", "storage.h", "vector.cuh")
_MARK = re.compile(r"^// @(\w+) deps:(.*)$")
_PROLOGUE = "prologue"
_OPEN = "namespace op {"
_CLOSE = "}  // namespace op"


@dataclass(frozen=True, slots=True)
class _Piece:
    deps: tuple[str, ...]
    in_namespace: bool
    text: str


def _parse(source: str) -> dict[str, _Piece]:
    pieces: dict[str, _Piece] = {}
    name, deps, in_namespace, lines = "", (), False, list[str]()

    def close() -> None:
        if name:
            pieces[name] = _Piece(deps, in_namespace, "\n".join(lines).strip("\n") + "\n")

    for line in source.splitlines():
        mark = _MARK.match(line)
        if not mark and line not in (_OPEN, _CLOSE):
            lines.append(line)
            continue
        close()
        name, lines = "", []
        if mark:
            name, deps = mark[1], tuple(mark[2].replace(",", " ").split())
        else:
            in_namespace = line == _OPEN
    close()
    return pieces


def _read(file: str) -> str:
    return (resources.files(__name__) / file).read_text(encoding="utf-8")


_PIECES = {name: piece for file in _FILES for name, piece in _parse(_read(file)).items()}


def names() -> tuple[str, ...]:
    """The names of all pieces, in the order of the files."""
    return tuple(_PIECES)


def pieces(names: Iterable[str]) -> tuple[str, ...]:
    """The texts of the named pieces and of all they need, in the order of the files.

    Joined by newlines they are a complete C++ or CUDA text: includes and macros, then the functions
    inside `namespace op { }`. Include "mvec" for C++ loops that are to be vectorised.

    Raises:
        KeyError: for a name that is no piece.
    """
    needed = _closure((_PROLOGUE, *names))
    chosen = [piece for name, piece in _PIECES.items() if name in needed]
    head = tuple(piece.text for piece in chosen if not piece.in_namespace)
    body = tuple(piece.text for piece in chosen if piece.in_namespace)
    return (*head, _OPEN + "\n", *body, _CLOSE + "\n") if body else head


def _closure(names: Iterable[str]) -> frozenset[str]:
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting.extend(_PIECES[name].deps)
    return frozenset(needed)
