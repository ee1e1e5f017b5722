"""Reductions of sliding windows, as capture arranges them: what PyTorch calls pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..attrs import WindowAttrs
from ..expr import Size
from ..graph import Node
from ..ops import Op

OUTSIDE: Mapping[Op, float] = {Op.AMAX: float("-inf"), Op.SUM: 0.0}
"""What stands around the operand of each reduction."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along axes of `operand` from number `first` on, the first of each `before` its
    elements.
    """

    operand: Node
    first: int
    along: tuple[WindowAttrs, ...]
    before: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.along)

    @property
    def lead(self) -> tuple[Size, ...]:
        """The sizes of the axes before those of the windows."""
        return self.operand.type.shape[: self.first]

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes of the axes that the windows are along."""
        return self.operand.type.shape[self.first : self.first + self.rank]

    @property
    def rest(self) -> tuple[Size, ...]:
        """The sizes of the axes behind: of the channels, where these are last."""
        return self.operand.type.shape[self.first + self.rank :]

    @property
    def counts(self) -> tuple[Size, ...]:
        """The number of windows along each axis."""
        return tuple(w.count for w in self.along)

    @property
    def disjoint(self) -> bool:
        """Whether no element is in two windows, and none between the elements of one."""
        return all(w.dilation == 1 and w.step >= w.width for w in self.along)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The elements that a window spans along each axis."""
        return tuple((w.width - 1) * w.dilation + 1 for w in self.along)


def windows_of(reduction: Node) -> Windows | None:
    """The windows of which all that is in one is condensed."""
    view, dims, found = reduction.inputs[0], None, list[WindowAttrs]()
    if view.op is Op.PERMUTE:
        view, dims = view.inputs[0], view.attrs.dims
    while view.op is Op.WINDOW:
        found.append(view.attrs)
        view = view.inputs[0]
    first = found[0].dim if found else 0
    if not 1 <= len(found) <= 3 or [w.dim - first for w in found] != list(range(len(found))):
        return None
    counts = tuple(first + 2 * place for place in range(len(found)))
    widths = tuple(axis + 1 for axis in counts)
    rest = range(first + 2 * len(found), view.type.rank + len(found))
    # As capture arranges them: what is in a window comes first, or stays where it is.
    arranged = (*widths, *range(first), *counts, *rest)
    axes = tuple(range(len(found))) if dims == arranged else widths
    if reduction.attrs.axes != axes or dims not in (None, arranged):
        return None
    operand, before = view, (0,) * len(found)
    if view.op is Op.PAD and view.attrs.value == OUTSIDE[reduction.op]:
        operand, before = view.inputs[0], view.attrs.before[first : first + len(found)]
        around = (view.attrs.before, view.attrs.after)
        if any(any((*side[:first], *side[first + len(found) :])) for side in around):
            return None
    return Windows(operand, first, tuple(found), before)
