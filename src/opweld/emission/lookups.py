"""What a function names several times below a module is looked up once.

Each step of `self.cell.fc.weight` is a call of `Module.__getattr__`, and `self.layers[0]` one of
`Sequential.__getitem__`, which take the host 0.5 us and 2 us.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

_ACCESS = re.compile(r"\bself(?:\.\w+|\[\d+\])+")
_CONTAINER = re.compile(r"\bself(?:\.\w+)+(?=\[\d+\])")


def looked_up_once(lines: Sequence[str], fresh: Callable[[str], str]) -> list[str]:
    """The statements with `layers[0]` for `self.layers[0]`, and with a name for what is repeated as
    it stands; `fresh` gives names that are free.
    """
    lines = _named(lines, _ACCESS, "{}", fresh)
    return _named(lines, _CONTAINER, "[*{}]", fresh)


def _named(
    lines: Sequence[str], access: re.Pattern[str], value: str, fresh: Callable[[str], str]
) -> list[str]:
    counted = Counter(text for line in _running(lines) for text in access.findall(line))
    names = {text: fresh(_wish(text)) for text, count in counted.items() if count > 1}

    def named(line: str) -> str:
        return access.sub(lambda found: names.get(found[0], found[0]), line)

    given = [f"{name} = {value.format(text)}" for text, name in names.items()]
    return [*given, *(named(line) if _is_code(line) else line for line in lines)]


def _running(lines: Sequence[str]) -> Iterator[str]:
    """The statements, those of a loop twice."""
    depth: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if depth is not None and indent <= depth:
            depth = None
        if _is_code(line):
            yield from (line,) if depth is None else (line, line)
        if depth is None and line.lstrip().startswith("for "):
            depth = indent


def _wish(access: str) -> str:
    """`fc_weight` for `self.cell.fc.weight`."""
    names = re.findall(r"\.(\w+)", access)
    return "_".join(names[-2:])


def _is_code(line: str) -> bool:
    return not line.lstrip().startswith("#")
