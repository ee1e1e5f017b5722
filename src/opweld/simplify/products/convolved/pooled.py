"""Sums over windows of a convolution's results: a convolution with larger steps.

    sum over r of conv(x, W)(q n + r)  =  conv(x, W')(n)     W'_u = sum of the W_t that meet x_u

Steps are those of both; of a transposed convolution, whose results are as dense as its stride, an
ordinary one is left. A convolution of one tap follows the windows instead: it is linear.

An infinite x meets each of the W_t that W'_u is the sum of, and makes NaN where they have both
signs: so x has to be bounded. Zeros that are beyond the ends of a transposed convolution's input
now, and windows of x before its product, change what an infinite W_t makes: these are for finite
values. Errors of the results of a window average out, which the one result that is left cannot: so
it takes products whose errors are smaller than the library's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.attrs import CatAttrs, PadAttrs, ShapeAttrs, SliceAttrs
from ....ir.expr import Size, product
from ....ir.graph import Arena, Node
from ....ir.ops import Op
from ....ir.rules.pattern import Computed, Match
from ....ir.rules.rewrite import Condition, Domain, Effect, Numerics, Rule
from ...names import name_of
from ...terms import total, x
from ..conditions import IN_CALLS, LEAST_GAIN, Checked, unbounded
from ..reasons import OVER_WINDOWS
from .convolution import Convolution, call_convolution, convolution_of
from .mean import text_of
from .windows import Windows, condensed, windows_of, without_windows

_CALLS_AN_AXIS = 3  # for the sums of the weight


@dataclass(frozen=True, slots=True)
class Axis:
    """Along one axis of space: which taps make each tap of the sum, its steps, the place of its
    first tap for the first result, and how many zeros it needs at both ends.
    """

    taps: tuple[tuple[int, ...], ...]
    step: int
    first: int
    size: int
    results: int

    @property
    def before(self) -> int:
        return max(-self.first, 0)

    @property
    def after(self) -> int:
        end = (self.results - 1) * self.step + len(self.taps) + self.first
        return max(end - self.size, 0)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A convolution, windows of its results that are added up, and the axes of the sum; None where
    a convolution of one tap follows the windows.
    """

    conv: Convolution
    windows: Windows
    axes: tuple[Axis, ...] | None

    @property
    def flops(self) -> Size:
        taps = product(len(axis.taps) for axis in self.axes) if self.axes else 1
        batch = self.conv.x.type.shape[0]
        places = product(self.windows.counts)
        return batch * self.conv.filters * self.conv.channels * places * taps * 2

    @property
    def power(self) -> int:
        """The least power of two that is not less than what a window counts."""
        return int(2 ** (self.windows.num_elems - 1).bit_length())


def pooled_of(root: Node) -> Pooled | None:
    """The convolution behind a sum over windows, whoever else reads it."""
    windows = windows_of(root)
    conv = convolution_of(windows.of) if windows is not None else None
    if windows is None or conv is None or root.type.dtype not in IN_CALLS:
        return None
    if conv.is_of_one_tap and not conv.transposed:
        return Pooled(conv, windows, None)
    axes = [_axis(conv, windows, axis) for axis in range(len(conv.taps))]
    found = tuple(axis for axis in axes if axis is not None)
    return Pooled(conv, windows, found) if len(found) == len(axes) else None


def _axis(conv: Convolution, windows: Windows, axis: int) -> Axis | None:
    stride, padding = conv.stride[axis], conv.padding[axis]
    own = windows.axes[axis]
    dilated = range(0, conv.taps[axis] * conv.dilation[axis], conv.dilation[axis])
    taps: dict[int, list[int]] = {}
    for place in range(own.width):
        for tap, offset in enumerate(dilated):
            met = place + padding - offset if conv.transposed else place * stride + offset
            if not conv.transposed or met % stride == 0:
                taps.setdefault(met // stride if conv.transposed else met, []).append(tap)
    if conv.transposed and own.step % stride:
        return None
    places = range(min(taps, default=0), max(taps, default=-1) + 1)
    if not all(place in taps for place in places):
        return None
    step = own.step // stride if conv.transposed else own.step * stride
    first = places[0] if conv.transposed else places[0] - padding
    by_place = tuple(tuple(taps[place]) for place in places)
    return Axis(by_place, step, first, conv.space[axis], windows.counts[axis])


def _why_not(match: Match, found: Pooled, exact: bool) -> str | None:
    """The part of the condition that does not hold."""
    inside = [*found.windows.inside, found.conv.call]
    if any(not match.is_read_only_by(node, [*inside, match.root]) for node in inside):
        return "others read the convolution's results, too"
    if exact:
        if found.axes is None or found.conv.transposed:
            return "infinite weights would make other results than NaN"
        if unbounded([found.conv.x]):
            return f"{name_of(found.conv.x)} may be infinite"
    if not match.costs.own_products:
        return "the library's products have too large errors, which a window's results average out"
    conv, costs = found.conv, match.costs
    moved, written = conv.x.type.size_bytes, match.root.type.size_bytes
    whole = costs.seconds(conv.flops, moved + conv.call.type.size_bytes)
    before = whole + costs.seconds(0, conv.call.type.size_bytes + written)
    passes = 2 if found.axes is None or _needs_pad(found) else 1
    after = costs.seconds(found.flops, moved + written) + costs.seconds(0, moved) * (passes - 1)
    after += costs.call_s * len(conv.taps) * (_CALLS_AN_AXIS if found.axes is not None else 0)
    if before < LEAST_GAIN * after:
        return "one convolution takes no less time"
    return None


def _needs_pad(found: Pooled) -> bool:
    return any(axis.after > axis.before for axis in found.axes or ())


def _made(match: Match) -> Node:
    found = pooled_of(match.root)
    assert found is not None, "the condition holds"
    arena = match.arena
    made = _convolved(found, arena) if found.axes is not None else _after_windows(found, arena)
    made = arena.make(Op.MUL, made, arena.const(float(found.power), made.type.dtype))
    return arena.make(Op.RESHAPE, made, attrs=ShapeAttrs(match.root.type.shape))


def _bias(found: Pooled, arena: Arena) -> Node | None:
    """What a window adds up of it, by `power`."""
    if found.conv.bias is None:
        return None
    share = arena.const(found.windows.num_elems / found.power, found.conv.bias.type.dtype)
    return arena.make(Op.MUL, found.conv.bias, share)


def _after_windows(found: Pooled, arena: Arena) -> Node:
    conv, axes = found.conv, found.windows.axes
    scale = arena.const(1.0 / found.power, conv.x.type.dtype)
    sums = condensed(Op.SUM, arena.make(Op.MUL, conv.x, scale), axes, arena)
    sums = without_windows(sums, len(axes), arena)
    ones, zeros = (1,) * len(axes), (0,) * len(axes)
    bias = _bias(found, arena)
    return call_convolution(arena, sums, conv.weight, bias, ones, zeros, ones, OVER_WINDOWS)


def _convolved(found: Pooled, arena: Arena) -> Node:
    conv, axes = found.conv, found.axes
    assert axes is not None, "asked for"
    weight = conv.filters_first(arena)
    scale = arena.const(1.0 / found.power, weight.type.dtype)
    weight = arena.make(Op.MUL, weight, scale)
    for place, axis in enumerate(axes):
        parts = [_sum_of_taps(weight, place + 2, taps, arena) for taps in axis.taps]
        weight = arena.make(Op.CAT, *parts, attrs=CatAttrs(place + 2)) if parts[1:] else parts[0]
    value = _without_first(conv.x, axes, arena)
    padding = tuple(axis.before for axis in axes)
    if _needs_pad(found):
        after = (0, 0, *(axis.after for axis in axes))
        attrs = PadAttrs((0, 0, *padding), after, 0.0)
        value, padding = arena.make(Op.PAD, value, attrs=attrs), (0,) * len(axes)
    step, ones = tuple(axis.step for axis in axes), (1,) * len(axes)
    bias = _bias(found, arena)
    made = call_convolution(arena, value, weight, bias, step, padding, ones, OVER_WINDOWS)
    for place, axis in enumerate(axes):
        if made.type.shape[place + 2] != axis.results:
            made = arena.make(Op.SLICE, made, attrs=SliceAttrs(place + 2, 0, 1, axis.results))
    return made


def _without_first(value: Node, axes: tuple[Axis, ...], arena: Arena) -> Node:
    """From the first element on that is met."""
    for place, axis in enumerate(axes):
        if axis.first > 0:
            length = axis.size - axis.first
            attrs = SliceAttrs(place + 2, axis.first, 1, length)
            value = arena.make(Op.SLICE, value, attrs=attrs)
    return value


def _sum_of_taps(weight: Node, axis: int, taps: tuple[int, ...], arena: Arena) -> Node:
    parts = [arena.make(Op.SLICE, weight, attrs=SliceAttrs(axis, tap, 1, 1)) for tap in taps]
    made = parts[0]
    for part in parts[1:]:
        made = arena.make(Op.ADD, made, part)
    return made


def _before(found: Pooled) -> str:
    widths = "x".join(map(str, found.windows.widths))
    return f"sums over windows of {widths} of {text_of(found.conv)}"


def _effect(match: Match) -> Effect:
    found = pooled_of(match.root)
    assert found is not None, "the condition holds"
    conv = found.conv
    value, weight = name_of(conv.x), name_of(conv.weight)
    if found.axes is None:
        after = f"conv(sums over windows of {value}, {weight})"
    else:
        taps = "x".join(str(len(axis.taps)) for axis in found.axes)
        steps = "x".join(str(axis.step) for axis in found.axes)
        after = f"conv({value}, sums of {weight} for {taps} taps, steps of {steps})"
    bias = "" if conv.bias is None else f" + {found.windows.num_elems} * {name_of(conv.bias)}"
    written = conv.call.type.size_bytes * 2 - match.root.type.size_bytes
    return Effect(_before(found), f"{after}{bias}", conv.flops, found.flops, written)


def _rule(name: str, exact: bool) -> Rule:
    checked = Checked(
        lambda match: pooled_of(match.root),
        lambda match, found: _why_not(match, found, exact),
        _before,
    )
    bounded = ", z is never infinite" if exact else ""
    return Rule(
        name,
        total(x, attrs="p"),
        Computed("conv(z, sums of the W_t that meet one place, the steps of both)", _made),
        Numerics.REORDER,
        Condition(
            "x is windows of a convolution's results conv(z, W) + b that nothing else reads"
            f"{bounded}, and the convolution takes {LEAST_GAIN} times longer",
            checked.holds,
        ),
        Domain.FLOAT,
        _effect,
        checked.missed,
    )


POOLED: tuple[Rule, ...] = (_rule("pooled-convolution", exact=True),)
POOLED_FINITE: tuple[Rule, ...] = (_rule("pooled-convolution-finite", exact=False),)
