"""Gradients of sliding windows: of pooling in one step, and of windows that nothing condenses.

An element of the operand gathers from the windows that it is in, in a fixed order; nothing is added
to from several places at once. Of a largest element the place is found again in a fold over each
window, as PyTorch finds it: the first of equal ones, or the last NaN.
"""

from __future__ import annotations

import math

from ..ir.attrs import IotaAttrs, PadAttrs, SliceAttrs, WindowAttrs
from ..ir.expr import Size
from ..ir.graph import Node
from ..ir.ops import Op
from ..ir.rules.windows import OUTSIDE, Windows, windows_of
from ..ir.types import DType
from .maker import Maker

_NOWHERE = -1
# A window of more neighbours is not gathered from tap by tap.
_MOST_TAPS = 8


def passed_on(m: Maker, node: Node, g: Node) -> tuple[Node, Node] | None:
    """The operand of a sum, or of the first largest elements, in sliding windows, and what reaches
    it; None for other nodes.
    """
    if node.op not in OUTSIDE or (node.op is Op.AMAX and not node.attrs.first):
        return None
    seen = windows_of(node)
    if seen is None or not _is_known(seen):
        return None
    counted = (*seen.lead, *seen.counts, *seen.rest)
    g = m.reshaped(g, counted)
    if node.op is Op.SUM:
        return seen.operand, _Gather(m, seen).sums(g)
    place = m.reshaped(_place(m, seen), counted)
    return seen.operand, _Gather(m, seen).at(place, g)


def _is_known(seen: Windows) -> bool:
    sizes = (*seen.sizes, *seen.counts, *seen.before)
    return all(isinstance(size, int) and size >= 0 for size in sizes)


def window(m: Maker, node: Node, g: Node) -> tuple[Node | None, ...] | None:
    """What reaches the operand of windows along one axis."""
    a: WindowAttrs = node.attrs
    size = node.inputs[0].type.shape[a.dim]
    if not isinstance(size, int) or not isinstance(a.count, int):
        return None
    if a.dilation == 1 and a.step >= a.width:
        return (_side_by_side(m, g, a, 0, size),)
    if a.width > _MOST_TAPS:
        return None
    taps = [_tap(m, g, a, tap, size) for tap in range(a.width)]
    total = taps[0]
    for each in taps[1:]:
        total = m.add(total, each)
    return (total,)


def _tap(m: Maker, g: Node, a: WindowAttrs, tap: int, size: int) -> Node:
    """The gradients of the elements at one place of the windows, where they are in the operand."""
    part = m.arena.make(Op.SLICE, g, attrs=SliceAttrs(a.dim + 1, tap, 1, 1))
    shape = part.type.shape
    part = m.reshaped(part, (*shape[: a.dim + 1], *shape[a.dim + 2 :]))
    spread = dilated(m, part, a.dim, a.step, 0.0)
    return fitted(m, spread, a.dim, -tap * a.dilation, size, 0.0)


class _Gather:
    """Sums over the windows that each element of their operand is in."""

    def __init__(self, m: Maker, seen: Windows) -> None:
        self.m, self.seen = m, seen

    def sums(self, g: Node) -> Node:
        """Of `g`, a number for each window."""
        if self.seen.disjoint:
            return self._laid_out(self._beside(g))
        inside = self._inside()
        grads = self._around(g, 0.0)
        return self._condensed(grads if inside is None else self.m.where(inside, grads, 0.0))

    def at(self, place: Node, g: Node) -> Node:
        """Of `g`, for the element at `place` of each window alone."""
        m = self.m
        if self.seen.disjoint:
            kept = m(Op.EQ, self._beside(place), self._numbers_beside())
            return self._laid_out(m.where(kept, self._beside(g), 0.0))
        near, grads = self._around(place, _NOWHERE), self._around(g, 0.0)
        return self._condensed(m.where(m(Op.EQ, near, self._numbers_around()), grads, 0.0))

    # --- windows that do not overlap ---

    def _beside(self, x: Node) -> Node:
        """A number for each window, with an axis for the places in it behind each of its axes."""
        lead, counts, rest = self.seen.lead, self.seen.counts, self.seen.rest
        split = (each for count in counts for each in (count, 1))
        spread = self.m.reshaped(x, (*lead, *split, *rest))
        pairs = zip(counts, self.seen.along, strict=True)
        placed = (each for count, w in pairs for each in (count, w.width))
        return self.m.expanded(spread, (*lead, *placed, *rest))

    def _laid_out(self, x: Node) -> Node:
        """The elements of all windows where they are in the operand."""
        given = zip(self.seen.along, self.seen.before, self.seen.sizes, strict=True)
        for place, (w, before, size) in enumerate(given):
            attrs = WindowAttrs(self.seen.first + place, w.count, w.step, w.width)
            x = _side_by_side(self.m, x, attrs, before, int(str(size)))
        return x

    def _numbers_beside(self) -> Node:
        """The row-major number of each place in a window, in a shape that broadcasts."""
        widths = tuple(w.width for w in self.seen.along)
        count = math.prod(widths)
        beside = tuple(each for width in widths for each in (1, width))[1:]
        numbers = self.m.arena.iota(IotaAttrs(0, 1, count), DType.I32)
        return self.m.reshaped(numbers, (*beside, *(1,) * len(self.seen.rest)))

    # --- windows that do ---

    def _around(self, x: Node, outside: float) -> Node:
        """For each element of the operand the windows that it may be in, farthest first: along the
        first axes.
        """
        m, rank, first, sizes = self.m, self.seen.rank, self.seen.first, self.seen.sizes
        for place, w in enumerate(self.seen.along):
            axis, reach = first + place, (_most_windows(w) - 1) * _distance(w)
            # Repeated, fewer windows are looked at, but dilated ones leave elements out.
            by_tap = w.dilation > 1
            x = dilated(m, x, axis, w.step, outside) if by_tap else repeated(m, x, axis, w.step)
            start, length = self.seen.before[place] - reach, int(str(sizes[place])) + reach
            x = fitted(m, x, axis, start, length, outside)
        for place in reversed(range(rank)):
            w, axis = self.seen.along[place], first + place
            attrs = WindowAttrs(axis, sizes[place], 1, _most_windows(w), _distance(w))
            x = m.arena.make(Op.WINDOW, x, attrs=attrs)
        return m.permuted(x, _widths_first(first, rank, x.type.rank))

    def _places(self, axis: int) -> Node:
        """Where the elements along an axis are in each of the windows around them."""
        m, w, size = self.m, self.seen.along[axis], int(str(self.seen.sizes[axis]))
        most, distance = _most_windows(w), 1 if w.dilation > 1 else w.step
        counted = m.arena.iota(IotaAttrs((most - 1) * distance, -distance, most), DType.I32)
        before = self.seen.rank - 1 - axis
        behind = before + len(self.seen.rest)
        counted = m.reshaped(counted, (most, *(1,) * (before + self.seen.operand.type.rank)))
        if distance == 1:
            return counted
        # (number + before) % step, without a division
        start = self.seen.before[axis] % w.step
        rounds = -(-(start + size) // w.step)
        once = m.reshaped(m.arena.iota(IotaAttrs(0, 1, w.step), DType.I32), (1, w.step))
        several = m.reshaped(m.expanded(once, (rounds, w.step)), (rounds * w.step,))
        phase = fitted(m, several, 0, start, size, 0)
        return m.add(counted, m.reshaped(phase, (size, *(1,) * behind)))

    def _inside(self) -> Node | None:
        """Whether elements are in the windows around them; None where all are."""
        total: Node | None = None
        for axis, w in enumerate(self.seen.along):
            if w.dilation == 1 and w.width % w.step:
                test = self.m(Op.LT, self._places(axis), w.width)
                total = test if total is None else self.m(Op.LOGICAL_AND, total, test)
        return total

    def _numbers_around(self) -> Node:
        """The row-major number that each element has in the windows around it, in a shape that
        broadcasts; of those that it is not in, a number that no place has.
        """
        m, below = self.m, 1
        total: Node | None = None
        for axis, w in reversed(list(enumerate(self.seen.along))):
            part = m.mul(self._places(axis), below)
            total = part if total is None else m.add(part, total)
            below *= w.width
        assert total is not None
        inside = self._inside()
        return total if inside is None else m.where(inside, total, _NOWHERE - 1)

    def _condensed(self, elems: Node) -> Node:
        total = self.m.reduced(Op.SUM, elems, tuple(range(self.seen.rank)))
        return self.m.reshaped(total, self.seen.operand.type.shape)


def _most_windows(w: WindowAttrs) -> int:
    """How many windows along an axis one element may be in."""
    return w.width if w.dilation > 1 else -(-w.width // w.step)


def _distance(w: WindowAttrs) -> int:
    """How far apart those are that an element may be in, once they are spread or repeated."""
    return w.dilation if w.dilation > 1 else w.step


def repeated(m: Maker, x: Node, axis: int, times: int) -> Node:
    """Each element several times, one behind the other."""
    if times == 1:
        return x
    lead, size, rest = x.type.shape[:axis], x.type.shape[axis], x.type.shape[axis + 1 :]
    x = m.reshaped(x, (*lead, size, 1, *rest))
    x = m.expanded(x, (*lead, size, times, *rest))
    return m.reshaped(x, (*lead, size * times, *rest))


def _place(m: Maker, seen: Windows) -> Node:
    """The row-major number of the element in each window that is its largest."""
    x, rank = seen.operand, seen.rank
    if x.type.dtype.is_half:
        x = m.cast(x, x.type.dtype)  # compared as they would be stored
    elems, axes = _elems(m, x, seen), tuple(range(rank))
    place = m.cast(m.reduced(Op.ARGMAX, elems, axes), DType.I32)
    widths = tuple(w.width for w in seen.along)
    numbers = m.arena.iota(IotaAttrs(0, 1, math.prod(widths)), DType.I32)
    numbers = m.reshaped(numbers, (*widths, *(1,) * x.type.rank))
    nowhere = m.arena.const(_NOWHERE, DType.I32)
    at_nan = m.arena.make(Op.WHERE, m(Op.ISNAN, elems), numbers, nowhere)
    last = m.reduced(Op.AMAX, at_nan, axes)
    place = m.where(m(Op.GE, last, 0), last, place)
    # Where all elements are the least there are, what is around the operand is none of them.
    first = _first_inside(m, seen)
    return place if first is None else m(Op.CLAMP_MIN, place, first)


def _first_inside(m: Maker, seen: Windows) -> Node | None:
    """The row-major number in each window of its first element; None where it is always 0."""
    total, below = None, 1
    for place in reversed(range(seen.rank)):
        w, before = seen.along[place], seen.before[place]
        if before > 0:
            beyond = m.arena.iota(IotaAttrs(before, -w.step, w.count), DType.I32)
            behind = seen.rank - 1 - place + len(seen.rest)
            beyond = m.reshaped(beyond, (w.count, *(1,) * behind))
            beyond = m(Op.CLAMP_MIN, beyond, 0)
            if w.dilation > 1:
                beyond = m(Op.DIV_TRUNC, m.add(beyond, w.dilation - 1), w.dilation)
            part = m.mul(beyond, below)
            total = part if total is None else m.add(total, part)
        below *= w.width
    return total


def _elems(m: Maker, x: Node, seen: Windows) -> Node:
    """The windows of `x`, as capture arranges them: what is in one lies along the first axes."""
    rank, first = seen.rank, seen.first
    for place, w in enumerate(seen.along):
        reach = (int(str(w.count)) - 1) * w.step + seen.lengths[place]
        before, size = seen.before[place], int(str(seen.sizes[place]))
        after = max(reach - before - size, 0)
        x = padded(m, x, first + place, before, after, OUTSIDE[Op.AMAX])
    for place in reversed(range(rank)):
        w = seen.along[place]
        attrs = WindowAttrs(first + place, w.count, w.step, w.width, w.dilation)
        x = m.arena.make(Op.WINDOW, x, attrs=attrs)
    return m.permuted(x, _widths_first(first, rank, x.type.rank))


def _widths_first(first: int, rank: int, total: int) -> tuple[int, ...]:
    """The order of axes in which what is in a window lies along the first ones."""
    counts = tuple(first + 2 * place for place in range(rank))
    widths = (axis + 1 for axis in counts)
    return (*widths, *range(first), *counts, *range(first + 2 * rank, total))


def _side_by_side(m: Maker, x: Node, w: WindowAttrs, before: int, size: int) -> Node:
    """Windows that do not overlap, one behind the other along the axis of their operand."""
    shape = x.type.shape
    x = fitted(m, x, w.dim + 1, 0, w.step, 0.0)
    count = int(str(w.count))
    x = m.reshaped(x, (*shape[: w.dim], count * w.step, *shape[w.dim + 2 :]))
    return fitted(m, x, w.dim, before, size, 0.0)


def dilated(m: Maker, x: Node, axis: int, step: int, outside: float) -> Node:
    """With `step` - 1 elements of `outside` behind each."""
    if step == 1:
        return x
    shape = x.type.shape
    apart = m.reshaped(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    apart = fitted(m, apart, axis + 1, 0, step, outside)
    return m.reshaped(apart, (*shape[:axis], shape[axis] * step, *shape[axis + 1 :]))


def fitted(m: Maker, x: Node, axis: int, start: int, length: int, outside: float) -> Node:
    """`length` elements along an axis from number `start` on; those beyond it are `outside`."""
    size = int(str(x.type.shape[axis]))
    low, high = max(start, 0), min(start + length, size)
    if high <= low:
        low, high = 0, 0
    before, after = max(-start, 0), length - max(-start, 0) - (high - low)
    if (low, high) != (0, size):
        x = m.arena.make(Op.SLICE, x, attrs=SliceAttrs(axis, low, 1, high - low))
    return padded(m, x, axis, before, after, outside)


def padded(m: Maker, x: Node, axis: int, before: Size, after: Size, outside: float) -> Node:
    if before == 0 and after == 0:
        return x
    none: tuple[Size, ...] = (0,) * x.type.rank
    low, high = ((*none[:axis], number, *none[axis + 1 :]) for number in (before, after))
    return m.arena.make(Op.PAD, x, attrs=PadAttrs(low, high, outside))
