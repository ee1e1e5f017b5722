"""Sources as the page shows them: highlighted, and the user's lines beside the kernel's.

What highlights escapes all text; nothing else here makes markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import CppLexer, PythonLexer

from opweld.report.kernels import Kernel

_PLACE = re.compile(r"^\s*//\s*(\S+:\d+)\s(.*)$")
# Longer texts are shown as they are: colours multiply their size.
MOST_HIGHLIGHTED = 60_000


@dataclass(frozen=True, slots=True)
class UserLine:
    """A line of the user's, with the number that it has in its file."""

    place: str
    html: Markup


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of a kernel, and the user's line that they compute, if any."""

    lines: tuple[UserLine, ...]
    html: Markup


@dataclass(frozen=True, slots=True)
class Listing:
    """One kernel's text, side by side; `left_out` where the page has no room for it."""

    kernel: Kernel
    pieces: tuple[Piece, ...]
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class FileLine:
    number: int
    html: Markup
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class File:
    name: str
    lines: tuple[FileLine, ...]


def files_of(
    sources: Mapping[str, str], kernels: Sequence[Kernel], room: int
) -> tuple[tuple[File, ...], int]:
    """The user's files, each line with the kernels that compute it; and the letters they take.

    A file for which there is no room is left out.
    """
    by_place: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        for place in dict.fromkeys(place for row in kernel.rows for place in row.places):
            by_place.setdefault(place, []).append(kernel)
    found, taken = [], 0
    for name, text in sources.items():
        if taken + len(text) > room:
            continue
        taken += len(text)
        lines = highlighted(text.rstrip("\n"), "python")
        found.append(
            File(
                name,
                tuple(
                    FileLine(number, line, tuple(by_place.get(f"{name}:{number}", ())))
                    for number, line in enumerate(lines, 1)
                ),
            )
        )
    return tuple(found), taken


def listings_of(
    kernels: Sequence[Kernel], texts: Mapping[str, str], lines: Mapping[str, str], room: int
) -> tuple[Listing, ...]:
    """Kernels that have a text, in the order of the plan, as far as there is `room` for letters."""
    found = []
    for kernel in kernels:
        if kernel.name not in texts:
            continue
        text = texts[kernel.name]
        if len(text) > room:
            found.append(Listing(kernel, (), left_out=True))
            continue
        room -= len(text)
        found.append(Listing(kernel, tuple(pieces_of(text, lines))))
    return tuple(found)


def pieces_of(text: str, lines: Mapping[str, str]) -> Iterable[Piece]:
    """The kernel's text cut before each comment that names one of the user's lines."""
    shown = highlighted(text, "cpp")
    user: list[UserLine] = []
    own: list[Markup] = []
    for plain, line in zip(text.split("\n"), shown, strict=True):
        found = _PLACE.match(plain)
        if found is None or found[1] not in lines:
            own.append(line)
            continue
        if own:
            yield Piece(tuple(user), _joined(own))
            user, own = [], []
        user.append(UserLine(found[1], highlighted(lines[found[1]].strip(), "python")[0]))
    if own or user:
        yield Piece(tuple(user), _joined(own))


def _joined(lines: Iterable[Markup]) -> Markup:
    return Markup("\n").join(lines)


def highlighted(text: str, language: str) -> list[Markup]:
    """The lines of a text as HTML, as many as it has."""
    plain = text.split("\n")
    if len(text) > MOST_HIGHLIGHTED:
        return [escape(line) for line in plain]
    html = highlight(text, _lexer(language), HtmlFormatter(nowrap=True, classprefix="t-"))
    lines = html.split("\n")
    if len(lines) < len(plain) or any(lines[len(plain) :]):
        return [escape(line) for line in plain]  # another letter ended a line for the lexer
    return [Markup(line) for line in lines[: len(plain)]]


@cache
def _lexer(language: str) -> Lexer:
    lexer = {"python": PythonLexer, "cpp": CppLexer}[language]
    return lexer(stripnl=False, ensurenl=False)
