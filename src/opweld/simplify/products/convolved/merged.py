"""Maps of channels one behind another: a convolution of one tap, or a linear layer, behind another
convolution or layer, with views and what scales and shifts channels between.

    W2 (s conv(x, W1) + t) + b2  =  conv(x, (W2 s) W1) + W2 (s b1 + t) + b2

Two linear layers with nothing but steps between are a chain of products (see `order`). As there,
an infinite value makes NaN in the one where it is infinite in the other. The product of the weights
is of float64, and rounded once: the longer sums are there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....ir.attrs import ShapeAttrs
from ....ir.expr import Size, product
from ....ir.graph import Arena, Node
from ....ir.ops import Kind, Op
from ....ir.rules.pattern import AnyOf, Computed, Match
from ....ir.rules.rewrite import Condition, Domain, Effect, Numerics, Rule
from ...names import name_of
from ..conditions import IN_CALLS, LEAST_GAIN, Checked, unbounded
from ..feature_steps import FeatureSteps, feature_steps
from ..linear import call_linear, linear_of, swapped
from ..pooled_rows import product_in_float64
from ..reasons import OF_WEIGHTS, is_made
from .convolution import Convolution, call_convolution, convolution_of
from .mean import text_of

_CALLS_OF_WEIGHTS = 5  # conversions, and the bias
_FLOAT64 = 4  # times that an operation of float64 takes


@dataclass(frozen=True, slots=True)
class ChannelMap:
    """A layer on the channels of x, which are its axis `axis`, counted from the front, and those of
    its result. `weight` is [channels of the result, channels of x, taps...], or, `transposed`, the
    other way round.
    """

    call: Node
    x: Node
    weight: Node
    transposed: bool
    bias: Node | None
    axis: int
    conv: Convolution | None
    flops: Size

    @property
    def channels(self) -> Size:
        return self.weight.type.shape[1 if self.transposed else 0]

    def plain(self, arena: Arena) -> Node:
        """The weight as [channels of the result, the rest]."""
        if self.transposed:
            return swapped(self.weight, arena)
        shape = ShapeAttrs((self.channels, product(self.weight.type.shape[1:])))
        return arena.make(Op.RESHAPE, self.weight, attrs=shape)


@dataclass(frozen=True, slots=True)
class Merging:
    """`outer` of `steps` of `views` of `inner`."""

    outer: ChannelMap
    steps: FeatureSteps
    views: tuple[tuple[Node, int], ...]
    inner: ChannelMap

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All values that results are made of."""
        biases = [m.bias for m in (self.inner, self.outer) if m.bias is not None]
        weights = (self.inner.weight, self.outer.weight)
        return (self.inner.x, *weights, *biases, *self.steps.vectors)

    @property
    def flops(self) -> tuple[Size, Size]:
        """Of both layers, and of the one that is left with its weight."""
        rows = product(self.outer.x.type.shape)  # of the outer one, times what it sums up
        positions = product(
            size for axis, size in enumerate(self.outer.x.type.shape) if axis != self.outer.axis
        )
        taps = product(self.inner.weight.type.shape[2:]) if self.inner.conv else 1
        channels = self.inner.x.type.shape[self.inner.axis]
        after = positions * taps * channels * self.outer.channels * 2
        return self.inner.flops + rows * self.outer.channels * 2, after + self.flops_of_weights

    @property
    def flops_of_weights(self) -> Size:
        """Of their product."""
        return product(self.inner.weight.type.shape) * self.outer.channels * 2


def map_of(node: Node, transposed: bool = False) -> ChannelMap | None:
    """The layer that a call is; None where it is another, or a convolution that is transposed, if
    such are not wanted.
    """
    own = linear_of(node)
    if own is not None:
        axis = own.x.type.rank - 1
        return ChannelMap(
            node, own.x, own.weight, own.features == 1, own.bias, axis, None, own.flops
        )
    conv = convolution_of(node)
    if conv is None or (conv.transposed and not transposed):
        return None
    return ChannelMap(node, conv.x, conv.weight, conv.transposed, conv.bias, 1, conv, conv.flops)


def merging_of(match: Match) -> Merging | None:
    """The two layers that end at the root of a match."""
    outer = map_of(match.root) if match.root.op is Op.CALL else None
    if outer is None or match.root.type.dtype not in IN_CALLS:
        return None
    if outer.conv is not None and not outer.conv.is_of_one_tap:
        return None
    steps = feature_steps(outer.x, outer.axis - outer.x.type.rank)
    node, axis, views = steps.core, outer.axis, list[tuple[Node, int]]()
    while node.op in (Op.PERMUTE, Op.RESHAPE):
        below = _axis_below(node, axis)
        if below is None:
            return None
        views.append((node, axis))
        node, axis = node.inputs[0], below
    inner = map_of(node) if node.op is Op.CALL else None
    if inner is None or _axis_of_result(inner) != axis:
        return None
    if outer.conv is None and inner.conv is None and not views:
        return None
    return Merging(outer, steps, tuple(views), inner)


def _axis_of_result(inner: ChannelMap) -> int:
    return 1 if inner.conv is not None else inner.call.type.rank - 1


def _axis_below(view: Node, axis: int) -> int | None:
    """The axis of a view's operand that is one of the view; None where there is none."""
    if view.op is Op.PERMUTE:
        below: int = view.attrs.dims[axis]
        return below
    before, after = view.inputs[0].type.shape, view.type.shape
    behind = product(after[axis + 1 :])
    places = (place for place, size in enumerate(before) if size == after[axis])
    return next((place for place in places if product(before[place + 1 :]) == behind), None)


def _why_not(match: Match, found: Merging, exact: bool) -> str | None:
    """The part of the condition that does not hold."""
    between = [*found.steps.nodes, *(view for view, _ in found.views), found.inner.call]
    if any(not match.is_read_only_by(node, [*between, match.root]) for node in between):
        return f"others read the results of {name_of_layer(found.inner)}, too"
    costs, size = match.costs, match.root.type.dtype.itemsize_bytes
    before, after = found.flops
    moved, result = found.inner.x.type.size_bytes, match.root.type.size_bytes
    middle = found.inner.call.type.size_bytes
    weights = product(found.inner.weight.type.shape) * size
    of_weights = found.flops_of_weights * _FLOAT64
    first = costs.seconds(found.inner.flops, moved + middle)
    one = first + costs.seconds(before - found.inner.flops, middle + result)
    other = costs.seconds(after, moved + result) + costs.seconds(of_weights, weights * 4)
    other += costs.call_s * _CALLS_OF_WEIGHTS
    if one < LEAST_GAIN * other:
        number = costs.number
        flops = f"{number(after) / 1e9:.3g} Gflop instead of {number(before) / 1e9:.3g}"
        return f"one layer takes no less time: {flops}, with the product of the weights"
    if exact:
        bad = unbounded(found.nodes)
        if bad:
            return f"no value may be infinite, and {name_of(bad[0])} may"
    return None


def _made(match: Match) -> Node:
    found = merging_of(match)
    assert found is not None, "the condition holds"
    arena, inner, outer = match.arena, found.inner, found.outer
    scale = found.steps.pair(arena)[0] if found.steps.nodes else None
    second = outer.plain(arena)
    scaled = second if scale is None else arena.make(Op.MUL, second, scale)
    weight = product_in_float64(scaled, swapped(inner.plain(arena), arena), arena)
    bias = _bias(found, second, arena)
    made = _called(inner, weight, bias, arena)
    for view, axis in reversed(found.views):
        made = _viewed(view, axis, made, outer.channels, arena)
    return made


def _bias(found: Merging, second: Node, arena: Arena) -> Node | None:
    """W2 (s b1 + t) + b2."""
    own = found.steps.of_vector(found.inner.bias, arena)
    if own is None:
        return found.outer.bias
    row = arena.make(Op.RESHAPE, own, attrs=ShapeAttrs((1, found.inner.channels)))
    made = call_linear(arena, row, second, found.outer.bias, OF_WEIGHTS)
    return arena.make(Op.RESHAPE, made, attrs=ShapeAttrs((found.outer.channels,)))


def _called(inner: ChannelMap, weight: Node, bias: Node | None, arena: Arena) -> Node:
    """The inner layer with another weight, [channels, the rest]."""
    conv = inner.conv
    if conv is None:
        return call_linear(arena, inner.x, weight, bias, OF_WEIGHTS)
    shape = ShapeAttrs((weight.type.shape[0], *inner.weight.type.shape[1:]))
    weight = arena.make(Op.RESHAPE, weight, attrs=shape)
    sizes = (conv.stride, conv.padding, conv.dilation)
    return call_convolution(arena, conv.x, weight, bias, *sizes, OF_WEIGHTS)


def _viewed(view: Node, axis: int, value: Node, channels: Size, arena: Arena) -> Node:
    """The view of a value with another number of channels."""
    if view.op is Op.PERMUTE:
        return arena.make(Op.PERMUTE, value, attrs=view.attrs)
    shape = (*view.type.shape[:axis], channels, *view.type.shape[axis + 1 :])
    return arena.make(Op.RESHAPE, value, attrs=replace(view.attrs, shape=shape))


def name_of_layer(layer: ChannelMap) -> str:
    """As mathematics in the user's names."""
    if layer.conv is not None:
        return text_of(layer.conv)
    bias = "" if layer.bias is None else f" + {name_of(layer.bias)}"
    return f"{name_of(layer.x)} @ {name_of(layer.weight)}.T{bias}"


def _before(found: Merging) -> str:
    outer = found.outer
    bias = "" if outer.bias is None else f" + {name_of(outer.bias)}"
    between = "scaled and shifted " if found.steps.nodes else ""
    return f"{name_of(outer.weight)} @ ({between}{name_of_layer(found.inner)}){bias}"


def _effect(match: Match) -> Effect:
    found = merging_of(match)
    assert found is not None, "the condition holds"
    inner, outer = found.inner, found.outer
    kind = "conv" if inner.conv is not None else "linear"
    scale = " scaled" if found.steps.nodes else ""
    weight = f"{name_of(outer.weight)}{scale} @ {name_of(inner.weight)}"
    before, after = found.flops
    return Effect(
        _before(found),
        f"{kind}({name_of(inner.x)}, {weight}), with what both add",
        before,
        after,
        inner.call.type.size_bytes * 2,
    )


def _rule(name: str, exact: bool) -> Rule:
    checked = Checked(merging_of, lambda match, found: _why_not(match, found, exact), _before)
    bounded = ", none of its values can be infinite" if exact else ""
    return Rule(
        name,
        AnyOf(Kind.OPAQUE, "x"),
        Computed("conv(z, (W2 s) W1) + W2 (s b1 + t) + b2", _made),
        Numerics.REORDER,
        Condition(
            "x is W2 (s (conv(z, W1) + b1) + t) + b2, a linear layer or a convolution of one tap"
            f" behind another that nothing else reads{bounded}, and takes {LEAST_GAIN} times"
            " longer",
            checked.holds,
        ),
        Domain.FLOAT,
        _effect,
        lambda match: None if is_made(match.root) else checked.missed(match),
    )


MERGED: tuple[Rule, ...] = (_rule("merged-layers", exact=True),)
MERGED_FINITE: tuple[Rule, ...] = (_rule("merged-layers-finite", exact=False),)
