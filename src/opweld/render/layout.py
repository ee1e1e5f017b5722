"""Text within 100 columns: folded statements, lists, comments."""

from __future__ import annotations

import re
import textwrap

COLUMNS = 100

# Where a long statement breaks, best places first: before what chooses, behind a comma that is not
# among template arguments, before an operator, behind any comma.
_COMMA = r"(?<=,) (?![^<>()]*>)"
_BREAKS = tuple(
    re.compile(pattern)
    for pattern in (
        r" (?=(?:\?|:|&&|\|\|) )",
        _COMMA,
        r" (?=[+\-] )",
        rf"{_COMMA}| (?=[+\-*/%?:] )| (?=(?:&&|\|\|) )",
        r"(?<=,) ",
    )
)

# A statement that is one call, and nothing but its arguments in the parentheses.
_CALL = re.compile(r"(\s*(?:const [\w:]+ \w+ = )?[\w:]+)\((.*)\);")


def _arguments(text: str) -> list[str]:
    """What stands between the commas that are in no parentheses."""
    found, depth = [""], 0
    for word in text.split(", "):
        found[-1] += f", {word}" if found[-1] else word
        depth += word.count("(") - word.count(")")
        if not depth:
            found.append("")
    return [argument for argument in found if argument]


def folded(line: str) -> str:
    """A statement over as many lines as it needs; those after the first are indented further."""
    if len(line) <= COLUMNS or line.lstrip().startswith(("//", "#")):
        return line
    indent = len(line) - len(line.lstrip())
    if found := _CALL.fullmatch(line):
        return f"{found[1]}(\n{listed(_arguments(found[2]), indent + 4, ');')}"
    broken_at = [_broken_at(place, line.strip(), indent) for place in _BREAKS]
    # the first way that fits, or that comes nearest
    return "\n".join(min(broken_at, key=lambda lines: max(COLUMNS, *map(len, lines))))


def _broken_at(place: re.Pattern[str], text: str, indent: int) -> list[str]:
    first, *words = place.split(text)
    lines = [" " * indent + first]
    for word in words:
        longer = f"{lines[-1]} {word}"
        fits = len(longer) <= COLUMNS
        lines = [*lines[:-1], longer] if fits else [*lines, " " * (indent + 4) + word]
    return lines


def broken(start: str, rest: str, columns: int = COLUMNS) -> list[str]:
    """A statement on one line, or its rest on a second."""
    line = f"{start} {rest}"
    if len(line) <= columns:
        return [line]
    indent = len(start) - len(start.lstrip())
    return [start, f"{' ' * (indent + 4)}{rest}"]


def listed(items: list[str], indent: int, tail: str = "") -> str:
    """A comma-separated list over as many lines as it needs, each indented."""
    lines = [""]
    for item in items[:-1]:
        lines = _appended(lines, f"{item},", COLUMNS - indent)
    lines = _appended(lines, items[-1] + tail, COLUMNS - indent)
    return "\n".join(" " * indent + line for line in lines)


def _appended(lines: list[str], word: str, width: int) -> list[str]:
    longer = f"{lines[-1]} {word}".strip()
    return [*lines[:-1], longer] if len(longer) <= width or not lines[-1] else [*lines, word]


def head(start: str, params: list[str], tail: str) -> str:
    """The head of a function: on one line where it fits, else its parameters below."""
    line = f"{start}({', '.join(params)}){tail}"
    return line if len(line) <= COLUMNS else f"{start}(\n{listed(params, 4, f'){tail}')}"


def call(start: str, arguments: list[str], indent: int, tail: str = ";") -> str:
    """An indented call, likewise."""
    line = f"{' ' * indent}{start}({', '.join(arguments)}){tail}"
    if len(line) <= COLUMNS:
        return line
    start = folded(f"{' ' * indent}{start}(")
    return f"{start}\n{listed(arguments, indent + 4, f'){tail}')}"


def comment(text: str, indent: int = 0, further: int = 0) -> str:
    """A comment of any length; nothing in the text can end it. Lines after the first are indented
    by `further`.
    """
    # A trigraph or a backslash at the end would make the next line a comment too.
    plain = re.sub(r"[ \t\n\r\f\v]+", " ", text).replace("??/", "?? /").rstrip("\\")
    lines = textwrap.wrap(plain, COLUMNS - indent - 3 - further, break_on_hyphens=False) or [""]
    lines = [line.rstrip("\\") for line in lines]
    start = f"{' ' * indent}// "
    return "\n".join([start + lines[0], *(f"{start}{' ' * further}{line}" for line in lines[1:])])


def indented(lines: list[str], spaces: int) -> list[str]:
    """Lines, which may hold several, moved to the right; directives stay where they are."""
    moved = [line for text in lines for line in text.split("\n")]
    return [line if line.startswith("#") or not line else " " * spaces + line for line in moved]
