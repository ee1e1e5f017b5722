"""What a rule makes of its match where a pattern does not say it: each gives None for no place."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ACCESS = re.compile(r"(?<=\w)\[(?!k[A-Z]|\d+\])([^\[\]&]+)\]")
# Lines whose arithmetic is that of places and bounds, not of values.
_NO_VALUE = re.compile(
    r"\bint64_t\b|\bfor \(|\bconstexpr int\b|\btemplate\b|static_assert|\b(?:at|row|first) \+="
)
_FUNCTION_END = re.compile(r"^}", re.MULTILINE)


def line(match: re.Match[str]) -> str:
    """The line that the match begins on."""
    text, start = match.string, match.start()
    end = text.find("\n", start)
    return text[text.rfind("\n", 0, start) + 1 : len(text) if end < 0 else end]


def scaled(match: re.Match[str], factor: float) -> str | None:
    """The literal of group 1 times a factor; None for zero."""
    value = float(match[1])
    return repr(value * factor) if value else None


def compared(match: re.Match[str], others: Mapping[str, str]) -> str | None:
    """Another comparison, where it is not that of a loop: bounds have rules of their own."""
    return None if re.search(r"\bfor \(", line(match)) else f" {others[match[1]]} "


def in_value(match: re.Match[str], new: str) -> str | None:
    """The new text where values are computed, not places: no index, no bound, no stride."""
    return None if _NO_VALUE.search(line(match)) or _in_brackets(match) else new


def _in_brackets(match: re.Match[str]) -> bool:
    before = match.string[match.string.rfind(";", 0, match.start()) + 1 : match.start()]
    return before.count("[") > before.count("]")


def another_index(match: re.Match[str]) -> str | None:
    """The index of the next access of the function that has another one, or of the one before."""
    text = match.string
    ends = [end.start() for end in _FUNCTION_END.finditer(text)]
    first = max((end for end in ends if end < match.start()), default=0)
    last = min((end for end in ends if end > match.start()), default=len(text))
    accesses = list(_ACCESS.finditer(text, first, last))
    after = [a[1] for a in accesses if a.start() > match.start() and a[1] != match[1]]
    before = [a[1] for a in accesses if a.start() < match.start() and a[1] != match[1]]
    chosen = (after or before[::-1])[:1]
    return f"[{chosen[0]}]" if chosen else None


def exchanged_strides(match: re.Match[str]) -> str | None:
    """Two strides of a tensor, each in the other's place, in one expression."""
    base, one, between, other = match.groups()
    if one == other or "int64_t" in between:
        return None
    return f"{base}{other}{between}{base}{one}"


def another_axis(match: re.Match[str]) -> str | None:
    """The stride of the next axis, or of the one before the last."""
    tensor, axis = match[1], int(match[2])
    for other in (axis + 1, axis - 1):
        if f"{tensor}.stride({other})" in match.string:
            return f"{tensor}.stride({other})"
    return None
