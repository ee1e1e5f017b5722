"""Items of a container that a function names several times: the container is unpacked once.

`self.layers[0]` is a call of `Sequential.__getitem__`, which takes the host 2 us; a list's item is a
hundredth of that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

_ITEM = re.compile(r"\b(self(?:\.\w+)+)(?=\[\d+\])")


def items_unpacked(lines: Sequence[str], fresh: Callable[[str], str]) -> list[str]:
    """The statements with `layers[0]` for `self.layers[0]`; `fresh` gives names that are free."""
    counted = Counter(name for line in lines if _is_code(line) for name in _ITEM.findall(line))
    names = {name: fresh(name.rpartition(".")[2]) for name, n in counted.items() if n > 1}

    def named(line: str) -> str:
        return _ITEM.sub(lambda item: names.get(item[1], item[1]), line)

    unpacked = [f"{name} = [*{container}]" for container, name in names.items()]
    return [*unpacked, *(named(line) if _is_code(line) else line for line in lines)]


def _is_code(line: str) -> bool:
    return not line.lstrip().startswith("#")
