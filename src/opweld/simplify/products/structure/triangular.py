"""Products with a triangular matrix: blocks that are zero are not multiplied.

    x @ tril(W)  =  for each block of columns the columns of x from its first one on, times the rows
                    of W from there on; with triu, those up to its last one
    tril(A) @ B  =  for each block of rows ...

What is not finite in a part of x that is left out meets zeros in the original, which make NaN: so
0 times that part is added, in a sum, to the block.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.attrs import CatAttrs, ReduceAttrs, SliceAttrs
from ....ir.expr import Size, product
from ....ir.graph import Arena, Node
from ....ir.ops import Kind, Op
from ....ir.rules.costs import Costs
from ....ir.rules.pattern import AnyOf, Computed, Match
from ....ir.rules.rewrite import Condition, Domain, Effect, Missed, Numerics, Rule
from ...names import name_of
from ...range import range_of
from ..conditions import IN_CALLS, LEAST_GAIN
from ..linear import call_linear, linear_of, swapped
from ..reasons import OF_TRIANGLE, is_made
from .bands import EVERYWHERE, Band, band_of, name_of_band

_NUM_BLOCKS = (2, 4, 8)
_LEAST_BLOCK = 32


@dataclass(frozen=True, slots=True)
class Triangle:
    """A product, one of whose operands is a triangle [size, depth] or, on the right, [depth, size].

    `band` has it as [depth, size], as on the right. `other` is [..., depth], or [depth, columns].
    """

    other: Node
    triangle: Node
    transposed: bool
    left: bool
    bias: Node | None
    band: Band
    depth: int
    size: int
    rows: Size

    def used(self, first: int, last: int) -> tuple[int, int]:
        """The part of the depth that a block of the other axis of the triangle needs."""
        low, high = self.band.low, self.band.high
        start = 0 if high is None else min(max(first - high, 0), self.depth)
        end = self.depth if low is None else max(min(last - low, self.depth), 0)
        return start, max(end, start)


def triangle_of(node: Node) -> Triangle | None:
    """What a product with a triangle is; None where it is another, or of sizes that vary."""
    own = linear_of(node)
    if own is None or node.type.dtype not in IN_CALLS:
        return None
    band = band_of(own.weight)
    if band != EVERYWHERE:
        transposed = own.features == 0
        depth, size = own.depth, own.num_features
        if not isinstance(depth, int) or not isinstance(size, int):
            return None
        own_band = band.mirrored if transposed else band
        rows = own.num_rows
        return Triangle(own.x, own.weight, transposed, False, own.bias, own_band, depth, size, rows)
    return _on_the_left(node)


def _on_the_left(node: Node) -> Triangle | None:
    own = linear_of(node)
    if own is None or own.bias is not None or own.x.type.rank != 2 or own.features == 0:
        return None
    band = band_of(own.x)
    size, depth = own.x.type.shape
    if band == EVERYWHERE or not isinstance(depth, int) or not isinstance(size, int):
        return None
    return Triangle(
        own.weight, own.x, True, True, None, band.mirrored, depth, size, own.num_features
    )


def _blocks(found: Triangle, count: int) -> list[tuple[int, int]]:
    width = -(-found.size // count)
    starts = range(0, found.size, width)
    return [(first, min(first + width, found.size)) for first in starts]


def _seconds(found: Triangle, count: int, costs: Costs) -> float:
    """The time of so many blocks, and of putting them together."""
    size = found.other.type.dtype.itemsize_bytes
    total = 0.0
    for first, last in _blocks(found, count):
        start, end = found.used(first, last)
        depth, width = end - start, last - first
        elems = found.rows * (depth + width) + depth * width
        total += costs.seconds(found.rows * depth * width * 2, elems * size)
    if count == 1:
        return total
    # 0 times what is left out is read, and results are written twice.
    read = found.rows * (found.depth * count // 2 + 2 * found.size) * size
    return total + costs.seconds(0, read) + costs.call_s * count


def _best(found: Triangle, costs: Costs) -> int | None:
    """The number of blocks that takes the least time; None where it is not much less."""
    counts = [n for n in _NUM_BLOCKS if found.size >= n * _LEAST_BLOCK]
    whole = _whole_seconds(found, costs)
    options = [(_seconds(found, count, costs), count) for count in counts]
    least, count = min(options, default=(whole, 0))
    return count if whole >= LEAST_GAIN * least else None


def _whole_seconds(found: Triangle, costs: Costs) -> float:
    size = found.other.type.dtype.itemsize_bytes
    elems = found.rows * (found.depth + found.size) + found.depth * found.size
    return costs.seconds(found.rows * found.depth * found.size * 2, elems * size)


def _made(match: Match, exact: bool) -> Node:
    found = triangle_of(match.root)
    assert found is not None, "the condition holds"
    count = _best(found, match.costs)
    assert count is not None, "the condition holds"
    exact = exact and not range_of(found.other).is_finite
    parts = [_block(found, *ends, exact, match.arena) for ends in _blocks(found, count)]
    axis = 0 if found.left else match.root.type.rank - 1
    return match.arena.make(Op.CAT, *parts, attrs=CatAttrs(axis))


def _block(found: Triangle, first: int, last: int, exact: bool, arena: Arena) -> Node:
    start, end = found.used(first, last)
    depth_axis = 0 if found.left else found.other.type.rank - 1
    other = _part(found.other, depth_axis, start, end, arena)
    triangle = _part(found.triangle, 0 if found.transposed else 1, first, last, arena)
    triangle = _part(triangle, 1 if found.transposed else 0, start, end, arena)
    bias = None if found.bias is None else _part(found.bias, 0, first, last, arena)
    if found.left:
        made = call_linear(arena, triangle, swapped(other, arena), None, OF_TRIANGLE)
    else:
        weight = triangle if found.transposed else swapped(triangle, arena)
        made = call_linear(arena, other, weight, bias, OF_TRIANGLE)
    for left, right in ((0, start), (end, found.depth)) if exact else ():
        if left < right:
            made = arena.make(Op.ADD, made, _zero_or_nan(found, depth_axis, left, right, arena))
    return made


def _zero_or_nan(found: Triangle, axis: int, start: int, end: int, arena: Arena) -> Node:
    """0, or NaN where a part of the other operand is not finite."""
    part = _part(found.other, axis, start, end, arena)
    zero = arena.const(0.0, part.type.dtype)
    terms = arena.make(Op.MUL, part, zero)
    return arena.make(Op.SUM, terms, attrs=ReduceAttrs((axis,)))


def _part(node: Node, axis: int, start: int, end: int, arena: Arena) -> Node:
    if (start, end) == (0, node.type.shape[axis]):
        return node
    return arena.make(Op.SLICE, node, attrs=SliceAttrs(axis, start, 1, end - start))


def _flops(found: Triangle, count: int) -> Size:
    total: Size = 0
    for first, last in _blocks(found, count):
        start, end = found.used(first, last)
        total = total + found.rows * (end - start) * (last - first) * 2
    return total


def _text(found: Triangle) -> str:
    other, triangle = name_of(found.other), name_of_band(found.triangle)
    if found.left:
        return f"{triangle} @ {other}"
    bias = "" if found.bias is None else f" + {name_of(found.bias)}"
    return f"{other} @ {triangle}{'.T' if found.transposed else ''}{bias}"


def _effect(match: Match, exact: bool) -> Effect:
    found = triangle_of(match.root)
    assert found is not None, "the condition holds"
    count = _best(found, match.costs)
    assert count is not None, "the condition holds"
    text, axis = _text(found), "rows" if found.left else "columns"
    return Effect(
        text,
        f"{text} in {count} blocks of {axis}, without what is zero",
        product((found.rows, found.depth, found.size)) * 2,
        _flops(found, count),
        -(product(match.root.type.shape) * match.root.type.dtype.itemsize_bytes * 2),
    )


def _missed(match: Match) -> Missed | None:
    found = triangle_of(match.root)
    if found is None or is_made(match.root) or _best(found, match.costs) is not None:
        return None
    if found.size < _NUM_BLOCKS[0] * _LEAST_BLOCK:
        return Missed(_text(found), f"a block of {found.size} is one of {_LEAST_BLOCK} at least")
    return Missed(_text(found), "blocks take no less time than the whole product")


def _rule(name: str, exact: bool) -> Rule:
    nothing = ", NaN where what is left out is not finite" if exact else ""
    return Rule(
        name,
        AnyOf(Kind.OPAQUE, "x"),
        Computed(f"blocks of what is not zero{nothing}", lambda match: _made(match, exact)),
        Numerics.REORDER,
        Condition(
            f"x is a product with a `tril` or `triu`, in whose blocks it takes {LEAST_GAIN} times"
            " less time",
            lambda m: (t := triangle_of(m.root)) is not None and _best(t, m.costs) is not None,
        ),
        Domain.FLOAT,
        lambda match: _effect(match, exact),
        _missed,
    )


TRIANGLES: tuple[Rule, ...] = (_rule("triangular-product", exact=True),)
TRIANGLES_FINITE: tuple[Rule, ...] = (_rule("triangular-product-finite", exact=False),)
