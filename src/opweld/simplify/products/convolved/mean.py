"""Sums of a convolution's results over all of space: no convolution is left.

    sum over places p of (sum_k W_ok x_k(p) + b_o)  =  sum_k W_ok (sum over p of x_k(p)) + n b_o

k counts channels and taps. Each tap meets the input but for its borders: what is common to the taps
is added up once, and the borders beside it. With n results for each filter, one product with the
sums is left. Both are of float64, as that with a mean of rows is: errors of n results average out.

An infinite or NaN x is in the sums of the taps that meet it, as it is in the original. An infinite
W_ok makes NaN unless all that it meets, zeros of the padding among it, has one sign: so it meets
that sign in a second product (see pooled_rows).
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.attrs import CastAttrs, CatAttrs, ReduceAttrs, ShapeAttrs, SliceAttrs
from ....ir.expr import product
from ....ir.graph import Arena, Node
from ....ir.ops import Op
from ....ir.rules.pattern import Computed, Match
from ....ir.rules.rewrite import Condition, Domain, Effect, Numerics, Rule
from ....ir.types import DType
from ...names import name_of
from ...terms import total, x
from ..affine import Affine, affine_of
from ..conditions import LEAST_GAIN, Checked
from ..pooled_rows import one_sign, product_in_float64, product_with_signs
from .convolution import Convolution, Span, convolution_of, span_of

_CALLS_BESIDE = 4
_JOINED = {Op.SUM: Op.ADD, Op.AMIN: Op.MINIMUM, Op.AMAX: Op.MAXIMUM}


@dataclass(frozen=True, slots=True)
class Averaged:
    """A convolution all of whose results are added up, each by f."""

    conv: Convolution
    step: Affine

    @property
    def count(self) -> int:
        return int(product(self.conv.results))  # type: ignore[arg-type]

    @property
    def power(self) -> int:
        """The least power of two that is not less than `count`."""
        return int(2 ** (self.count - 1).bit_length())


def averaged_of(match: Match) -> Averaged | None:
    """The convolution behind the sum at the root of a match, whoever else reads it."""
    step = affine_of(match.root.inputs[0])
    conv = convolution_of(step.core)
    if conv is None or step.core.type.dtype is not DType.F32:
        return None
    everywhere = tuple(range(2, step.core.type.rank))
    if match.root.attrs.axes != everywhere or 0 in conv.results:
        return None
    taps = [span_of(conv, axis, tap) for axis, n in enumerate(conv.taps) for tap in range(n)]
    return Averaged(conv, step) if all(span.count for span in taps) else None


def _why_not(match: Match, found: Averaged, exact: bool) -> str | None:
    """The part of the condition that does not hold."""
    inside = [*found.step.nodes, found.step.core]
    if any(not match.is_read_only_by(node, [*inside, match.root]) for node in inside):
        return "others read the convolution's results, too"
    conv, costs = found.conv, match.costs
    own = costs.seconds(conv.flops, conv.x.type.size_bytes + conv.call.type.size_bytes * 2)
    reads = 1 if _core(conv) is not None else conv.taps[-1]
    added = costs.seconds(0, conv.x.type.size_bytes * (reads * (3 if exact else 1)))
    # Each span of an axis but the last, what is joined and edges; then products.
    of_spans = 2 + sum(conv.taps[:-1]) + len(conv.taps)
    added += costs.call_s * (of_spans * (2 if exact else 1) + _CALLS_BESIDE)
    if own < LEAST_GAIN * added:
        return "adding up the convolution's input takes no less time than the convolution"
    return None


def _made(match: Match, exact: bool) -> Node:
    found = averaged_of(match)
    assert found is not None, "the condition holds"
    arena, conv = match.arena, found.conv
    made = _products(found, arena, exact)
    made = arena.make(Op.MUL, made, arena.const(found.power / found.count, made.type.dtype))
    if conv.bias is not None:
        made = arena.make(Op.ADD, made, conv.bias)
    made = found.step.of(made, arena)
    made = arena.make(Op.MUL, made, arena.const(float(found.count), made.type.dtype))
    return arena.make(Op.RESHAPE, made, attrs=ShapeAttrs(match.root.type.shape))


def _products(found: Averaged, arena: Arena, exact: bool) -> Node:
    """The sums of the taps by `power`, times the weight: [batch, filters]."""
    conv = found.conv
    weight = conv.filters_first(arena)
    flat = ShapeAttrs((conv.filters, product(weight.type.shape[1:])))
    weight = arena.make(Op.RESHAPE, weight, attrs=flat)
    wide = arena.make(Op.CAST, conv.x, attrs=CastAttrs(DType.F64))
    scaled = arena.make(Op.MUL, wide, arena.const(1.0 / found.power, DType.F64))
    sums = _over_taps(Op.SUM, scaled, conv, arena)
    if not exact:
        return product_in_float64(sums, weight, arena)
    least, most = (_over_taps(op, conv.x, conv, arena) for op in (Op.AMIN, Op.AMAX))
    return product_with_signs(sums, one_sign(least, most, arena), weight, arena)


def _over_taps(op: Op, value: Node, conv: Convolution, arena: Arena) -> Node:
    """What each tap of each channel meets, condensed: [batch, channels * taps]."""
    num_axes = len(conv.taps)
    if {*conv.taps} == {1}:
        return _of_one_tap(op, value, conv, arena)
    # The last axis first; the taps of an axis take its place.
    for axis in reversed(range(num_axes)):
        spans = [span_of(conv, axis, tap) for tap in range(conv.taps[axis])]
        core = _core(conv) if axis == num_axes - 1 else None
        own = _condensed(op, value, axis + 2, core, arena) if core is not None else None
        parts = [_of_span(op, value, axis + 2, span, core, own, arena) for span in spans]
        value = arena.make(Op.CAT, *parts, attrs=CatAttrs(axis + 2)) if parts[1:] else parts[0]
    batch, channels, *taps = value.type.shape
    shape = ShapeAttrs((batch, channels * product(taps)))
    return arena.make(Op.RESHAPE, value, attrs=shape)


def _of_one_tap(op: Op, value: Node, conv: Convolution, arena: Arena) -> Node:
    """The same where all axes are condensed at once."""
    num_axes, is_padded = len(conv.taps), False
    for axis in range(num_axes):
        span = span_of(conv, axis, 0)
        is_padded = is_padded or span.padded
        value = _within(value, axis + 2, span, arena)
    made = arena.make(op, value, attrs=ReduceAttrs(tuple(range(2, num_axes + 2))))
    if is_padded and op is not Op.SUM:
        made = arena.make(_JOINED[op], made, arena.const(0.0, made.type.dtype))
    return arena.make(Op.RESHAPE, made, attrs=ShapeAttrs(made.type.shape[:2]))


def _within(value: Node, axis: int, span: Span, arena: Arena) -> Node:
    if (span.start, span.count, span.step) == (0, value.type.shape[axis], 1):
        return value
    attrs = SliceAttrs(axis, span.start, span.step, span.count)
    return arena.make(Op.SLICE, value, attrs=attrs)


def _core(conv: Convolution) -> Span | None:
    """What all taps meet along the last axis, if it is more than what single ones meet."""
    axis = len(conv.taps) - 1
    spans = [span_of(conv, axis, tap) for tap in range(conv.taps[axis])]
    start, end = max(span.start for span in spans), min(span.end for span in spans)
    widest = max(span.end for span in spans) - min(span.start for span in spans)
    if len(spans) == 1 or any(span.step != 1 for span in spans) or 2 * (end - start) < widest:
        return None
    return Span(start, end - start, 1, False)


def _of_span(
    op: Op,
    value: Node,
    axis: int,
    span: Span,
    core: Span | None,
    own: Node | None,
    arena: Arena,
) -> Node:
    """The elements of one span, condensed along an axis; `own` is what the core gave."""
    if core is None or own is None:
        made = _condensed(op, value, axis, span, arena)
    else:
        made = own
        for start, end in ((span.start, core.start), (core.end, span.end)):
            if start < end:
                edge = _condensed(op, value, axis, Span(start, end - start, 1, False), arena)
                made = arena.make(_JOINED[op], made, edge)
    if span.padded and op is not Op.SUM:
        made = arena.make(_JOINED[op], made, arena.const(0.0, made.type.dtype))
    return made


def _condensed(op: Op, value: Node, axis: int, span: Span, arena: Arena) -> Node:
    return arena.make(op, _within(value, axis, span, arena), attrs=ReduceAttrs((axis,)))


def text_of(conv: Convolution) -> str:
    """As mathematics in the user's names."""
    name = "conv_transpose" if conv.transposed else "conv"
    bias = "" if conv.bias is None else f" + {name_of(conv.bias)}"
    return f"{name}({name_of(conv.x)}, {name_of(conv.weight)}){bias}"


def _before(found: Averaged) -> str:
    text = text_of(found.conv)
    each = f"f(y) = {found.step.text('y')}, y = {text}" if found.step.nodes else text
    return f"sum over {found.count} places of {each}"


def _effect(match: Match, exact: bool) -> Effect:
    found = averaged_of(match)
    assert found is not None, "the condition holds"
    conv = found.conv
    name, taps = name_of(conv.x), product(conv.taps)
    bias = "" if conv.bias is None else f" + {name_of(conv.bias)}"
    after = f"(mean of {name} for each of {taps} taps) @ {name_of(conv.weight)}.T{bias}"
    batch = conv.x.type.shape[0]
    left = batch * conv.filters * conv.channels * taps * (4 if exact else 2)
    return Effect(
        _before(found),
        f"{found.count} * {'f' if found.step.nodes else ''}({after})",
        conv.flops,
        left + product(conv.x.type.shape) * (3 if exact else 1),
        conv.call.type.size_bytes * 2,
    )


def _rule(name: str, exact: bool) -> Rule:
    checked = Checked(averaged_of, lambda match, found: _why_not(match, found, exact), _before)
    text = "n f(mean of z for each tap, times W, + b), in float64"
    return Rule(
        name,
        total(x, attrs="p"),
        Computed(
            f"{text}, infinite W_ok times the sign of all it meets" if exact else text,
            lambda match: _made(match, exact),
        ),
        Numerics.REORDER,
        Condition(
            "x is f(y), a y + c, of a convolution's results y = conv(z, W) + b that nothing else"
            f" reads, p all of space, and the convolution takes {LEAST_GAIN} times longer than"
            " adding up z",
            checked.holds,
        ),
        Domain.FLOAT,
        lambda match: _effect(match, exact),
        checked.missed,
    )


AVERAGED: tuple[Rule, ...] = (_rule("sum-of-convolution", exact=True),)
AVERAGED_FINITE: tuple[Rule, ...] = (_rule("sum-of-convolution-finite", exact=False),)
