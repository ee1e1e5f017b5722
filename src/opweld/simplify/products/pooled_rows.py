"""Sums over the rows of a product: the product with the mean of its rows.

    sum over m of f(x_m W^T + b)  =  n f(mean(x) W^T + b)        f(y) = a y + c, m = 1 .. n

x is added up before the product, which has a row where it had n. NaN and infinities of x are in the
mean as in the sum. An infinite W_jk makes x_mk W_jk of each row, which is NaN in the sum unless all
x_mk of the rows have one sign, and not zero: so it meets that sign, or 0, in a second product, and
its own sign stands for it in the first.

A mean of n results has a smaller rounding error than one result, where the rows have much in common
by the square root of n: so the one product that is left is of float64, and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.attrs import CastAttrs, ReduceAttrs
from ...ir.expr import Size, product
from ...ir.graph import Arena, Node
from ...ir.ops import Op
from ...ir.rules.pattern import Computed, Match
from ...ir.rules.rewrite import Condition, Domain, Effect, Missed, Numerics, Rule
from ...ir.types import DType
from ..names import name_of
from ..terms import total, x
from .affine import Affine, affine_of
from .linear import Linear, call_linear, linear_of, swapped
from .reasons import MEAN_OF_ROWS, is_made

LEAST_ROWS = 16
"""Fewer do not make up for a weight in float64."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """What a reduction adds up: f of `count` rows of a product, along `axes`."""

    product: Linear
    step: Affine
    axes: tuple[int, ...]
    count: int

    @property
    def power(self) -> int:
        """The least power of two that is not less than `count`."""
        return int(2 ** (self.count - 1).bit_length())


def pooled_of(match: Match) -> Pooled | None:
    """The sum at the root of a match; None where it is of something else, or of what others read
    too.
    """
    root, step = match.root, affine_of(match.root.inputs[0])
    own = linear_of(step.core)
    if own is None or step.core.type.dtype is not DType.F32:
        return None
    inside = [*step.nodes, step.core]
    if any(not match.is_read_only_by(node, [*inside, root]) for node in inside):
        return None
    axes = root.attrs.axes
    count = product(step.core.type.shape[axis] for axis in axes)
    if step.core.type.rank - 1 in axes or not isinstance(count, int):
        return None
    return Pooled(own, step, axes, count)


def _pooled(match: Match, exact: bool) -> Node:
    found = pooled_of(match)
    assert found is not None, "the condition holds"
    arena, own = match.arena, found.product
    made = _product_of_mean(found, arena, exact)
    factor = arena.const(found.power / found.count, made.type.dtype)
    made = arena.make(Op.MUL, made, factor)
    if own.bias is not None:
        made = arena.make(Op.ADD, made, own.bias)
    made = found.step.of(made, arena)
    return arena.make(Op.MUL, made, arena.const(float(found.count), made.type.dtype))


def _product_of_mean(found: Pooled, arena: Arena, exact: bool) -> Node:
    """The sum of the rows by `power`, times the weight."""
    own, attrs = found.product, ReduceAttrs(found.axes)
    scale = arena.const(1.0 / found.power, own.x.type.dtype)
    scaled = arena.make(Op.MUL, own.x, scale)
    mean = arena.make(Op.SUM, scaled, attrs=attrs)
    weight = own.weight
    if own.features == 1:
        weight = swapped(weight, arena)
    if not exact:
        return product_in_float64(mean, weight, arena)
    # Of what is added up, so that a kernel that makes x writes one value of it.
    least, most = (arena.make(op, scaled, attrs=attrs) for op in (Op.AMIN, Op.AMAX))
    signs = one_sign(least, most, arena)
    return product_with_signs(mean, signs, weight, arena)


def product_with_signs(rows: Node, signs: Node, weight: Node, arena: Arena) -> Node:
    """Rows times the transposed of a weight whose infinities meet `signs` instead."""
    zero = arena.const(0.0, weight.type.dtype)
    infinite = arena.make(Op.ISINF, weight)
    finite = arena.make(Op.WHERE, infinite, arena.make(Op.SIGN, weight), weight)
    others = arena.make(Op.WHERE, infinite, weight, zero)
    one, other = (product_in_float64(*pair, arena) for pair in ((rows, finite), (signs, others)))
    return arena.make(Op.ADD, one, other)


def product_in_float64(rows: Node, weight: Node, arena: Arena) -> Node:
    """Rows times the transposed of a weight in float64, rounded once to the weight's type."""
    wide, narrow = CastAttrs(DType.F64), CastAttrs(weight.type.dtype)
    operands = [
        each if each.type.dtype is DType.F64 else arena.make(Op.CAST, each, attrs=wide)
        for each in (rows, weight)
    ]
    made = call_linear(arena, operands[0], operands[1], None, MEAN_OF_ROWS)
    return made if weight.type.dtype is DType.F64 else arena.make(Op.CAST, made, attrs=narrow)


def one_sign(least: Node, most: Node, arena: Arena) -> Node:
    """1 or -1, the sign of all numbers between two, or 0 where there is none; of NaN, too."""
    zero, one, minus_one = (arena.const(v, least.type.dtype) for v in (0.0, 1.0, -1.0))
    negative = arena.make(Op.WHERE, arena.make(Op.LT, most, zero), minus_one, zero)
    return arena.make(Op.WHERE, arena.make(Op.GT, least, zero), one, negative)


def _effect(match: Match, exact: bool) -> Effect:
    found = pooled_of(match)
    assert found is not None, "the condition holds"
    own, function = found.product, found.step.text("y")
    transposed = ".T" if own.features == 0 else ""
    bias = "" if own.bias is None else f" + {name_of(own.bias)}"
    right = f" @ {name_of(own.weight)}{transposed}{bias}"
    value = name_of(own.x)
    each = f"{value}{right}"
    if found.step.nodes:
        each = f"f(y) = {function}, y = {each}"
    rows = own.num_rows * own.depth
    products = 2 if exact else 1
    return Effect(
        f"sum over {found.count} rows of {each}",
        f"{found.count} * {'f' if found.step.nodes else ''}(mean({value}){right})",
        own.flops,
        rows + _flops_left(found) * products,
        own.call.type.size_bytes * 2,
    )


def _flops_left(found: Pooled) -> Size:
    """Of one product with the mean of rows."""
    shape, own = found.product.x.type.shape[:-1], found.product
    left = product(size for axis, size in enumerate(shape) if axis not in found.axes)
    return left * own.depth * own.num_features * 2


def _missed(match: Match) -> Missed | None:
    """Of a sum over the rows of a product that does not fulfil the condition."""
    root, step = match.root, affine_of(match.root.inputs[0])
    own = linear_of(step.core)
    if own is None or is_made(own.call) or step.core.type.rank - 1 in root.attrs.axes:
        return None
    before = f"sum over rows of {name_of(own.x)} @ {name_of(own.weight)}"
    inside = [*step.nodes, step.core]
    if not all(match.is_read_only_by(node, [*inside, root]) for node in inside):
        return Missed(before, "others read the product's rows, too")
    if step.core.type.dtype is not DType.F32:
        return Missed(before, f"products of {step.core.type.dtype.value} have none in float64")
    found = pooled_of(match)
    if found is None:
        return Missed(before, "the number of rows is not known")
    few = found.count < LEAST_ROWS
    return Missed(before, f"{found.count} rows are less than {LEAST_ROWS}") if few else None


def _rule(name: str, exact: bool) -> Rule:
    def holds(match: Match) -> bool:
        found = pooled_of(match)
        return found is not None and found.count >= LEAST_ROWS

    text = "n f(mean(x) W^T + b), in float64"
    return Rule(
        name,
        total(x, attrs="p"),
        Computed(
            f"{text}, infinite W_jk times the sign of all x_mk" if exact else text,
            lambda match: _pooled(match, exact),
        ),
        Numerics.REORDER,
        Condition(
            "x is f(y_m), a y_m + c, of a product's rows y_m = x_m W^T + b that nothing else reads,"
            f" {LEAST_ROWS} or more of them",
            holds,
        ),
        Domain.FLOAT,
        lambda match: _effect(match, exact),
        _missed,
    )


POOLED_ROWS: tuple[Rule, ...] = (_rule("sum-of-rows", exact=True),)
POOLED_ROWS_FINITE: tuple[Rule, ...] = (_rule("sum-of-rows-finite", exact=False),)
