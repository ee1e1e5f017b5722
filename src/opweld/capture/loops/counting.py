"""The operations of a forward as it runs: how many there are, and which loop repeats them."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.errors import Where

from ..modules.origins import is_users

# An export takes some 10 ms for each call, and a capture has three: beyond so many calls it is
# asked whether a loop repeats them.
MOST_CALLS = 600
LONG_LOOP = 32
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIMITED = contextvars.ContextVar("limited", default=False)
# Which part of a tensor they give is another number in each turn.
_PARTS = frozenset(("select", "slice", "narrow", "unbind", "split", "index_select"))


class LongLoop(Exception):
    """An export was left because a loop makes it long; `where` is its line, `turns` are at least
    those that had run.
    """

    def __init__(self, where: Where | None, turns: int) -> None:
        super().__init__(f"a loop of at least {turns} turns")
        self.where = where
        self.turns = turns


@contextlib.contextmanager
def leaving_long_loops() -> Iterator[None]:
    """Inside, exports raise LongLoop."""
    token = _LIMITED.set(True)
    try:
        yield
    finally:
        _LIMITED.reset(token)


@dataclass(slots=True)
class _Turns:
    """How often each operation ran within each run of a function around it."""

    counts: Counter[tuple[int, CodeType, CodeType, int]] = field(default_factory=Counter)
    lines: dict[tuple[int, CodeType, CodeType, int], int] = field(default_factory=dict)

    def note(self, frame: FrameType | None) -> bool:
        """Whether the call is the user's, of an operation of theirs."""
        frames = []
        while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
            # "<string>" is torch's own, made to call the module.
            if is_users(frame.f_code.co_filename) and frame.f_code.co_filename != "<string>":
                frames.append(frame)
            frame = frame.f_back
        if not frames:
            return False
        inner = frames[0]
        for around in frames:
            key = id(around), around.f_code, inner.f_code, inner.f_lasti
            self.counts[key] += 1
            self.lines[key] = around.f_lineno
        return True

    def longest(self) -> tuple[int, Where | None]:
        """The most turns, and a line of the loop that has them: in the outermost function."""
        if not self.counts:
            return 0, None
        turns = max(self.counts.values())
        key = [key for key, count in self.counts.items() if count == turns][-1]
        return turns, Where(os.path.basename(key[1].co_filename), self.lines[key])


class Watch(TorchFunctionMode):
    """Raises LongLoop within an export, where that is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0
        self._turns = _Turns()
        self._limited = _LIMITED.get()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if self._limited and getattr(function, "__name__", "") != "__get__":
            self._calls += self._turns.note(sys._getframe(1))
            if self._calls > MOST_CALLS and self._calls % 64 == 0:
                turns, where = self._turns.longest()
                if turns >= LONG_LOOP:
                    self._limited = False  # what ends the export calls functions, too
                    raise LongLoop(where, turns)
        return function(*args, **(kwargs or {}))


Operation = tuple[Any, ...]
"""What an operation is, with the shapes of its tensors and its numbers."""


class Seen(TorchDispatchMode):
    """Counts the operations inside; `kinds` has those that differ, in the order of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.kinds: dict[Operation, None] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.count += 1
        name = str(function)
        given = [*map(_described, pytree.tree_leaves((args, kwargs)))]
        if name.split(".")[1] in _PARTS:
            given = [each for each in given if isinstance(each, tuple)]
        made = map(_described, pytree.tree_leaves(result))
        self.kinds.setdefault((name, _rows(given), _rows(made)))
        return result


def _rows(values: Iterable[Any]) -> tuple[Any, ...]:
    """Tensors that are alike in a row as one, with their number."""
    found: list[Any] = []
    for value, row in itertools.groupby(values):
        number = len([*row])
        found += [(value, number)] if isinstance(value, tuple) else [value] * number
    return tuple(found)


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
