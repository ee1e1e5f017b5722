"""Convolutions as PyTorch's calls write them, and which of their inputs each tap meets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ....ir.attrs import CallAttrs, Operand, PermuteAttrs
from ....ir.expr import Size, product
from ....ir.graph import Arena, Node
from ....ir.ops import Op
from ....ir.types import TensorType

_AXES = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_TRANSPOSED = {"conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3}
Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Convolution:
    """A call of one group on [batch, channels, space...]. The weight is [filters, channels,
    taps...], or, transposed, [channels, filters, taps...].
    """

    call: Node
    x: Node
    weight: Node
    bias: Node | None
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool

    @property
    def filters(self) -> Size:
        return self.weight.type.shape[1 if self.transposed else 0]

    @property
    def channels(self) -> Size:
        return self.x.type.shape[1]

    @property
    def taps(self) -> Sizes:
        return _ints(self.weight.type.shape[2:])

    @property
    def space(self) -> Sizes:
        """Of the input."""
        return _ints(self.x.type.shape[2:])

    @property
    def results(self) -> Sizes:
        """The space of the result."""
        return _ints(self.call.type.shape[2:])

    @property
    def flops(self) -> Size:
        space = self.space if self.transposed else self.results
        batch = self.x.type.shape[0]
        return batch * self.filters * self.channels * product((*space, *self.taps)) * 2

    @property
    def is_of_one_tap(self) -> bool:
        """Whether each place of the result is made of the same place alone."""
        return {*self.taps, *self.stride} == {1} and not any(self.padding)

    def filters_first(self, arena: Arena) -> Node:
        """The weight as [filters, channels, taps...]."""
        if not self.transposed:
            return self.weight
        dims = (1, 0, *range(2, self.weight.type.rank))
        return arena.make(Op.PERMUTE, self.weight, attrs=PermuteAttrs(dims))


def convolution_of(node: Node) -> Convolution | None:
    """What a call is; None where it is another, has groups, or sizes that vary in space."""
    if node.op is not Op.CALL or node.attrs.keywords or node.attrs.channels_last:
        return None
    name = node.attrs.target.split(".")[1]
    axes = _AXES.get(name) or _TRANSPOSED.get(name)
    if axes is None or not node.type.dtype.is_float:
        return None
    transposed = name in _TRANSPOSED
    given = [_value(node, each) for each in node.attrs.arguments]
    x, weight, bias, stride, padding = (*given, *[None] * 5)[:5]
    others = (*given, *[None] * 8)[5:8]
    # (output_padding, groups, dilation) of a transposed one, (dilation, groups) of others
    groups, dilation = (others[1], others[2]) if transposed else (others[1], others[0])
    if groups not in (None, 1) or isinstance(padding, str):
        return None
    sizes = [_per_axis(each, axes, default) for each, default in ((stride, 1), (padding, 0))]
    sizes.append(_per_axis(dilation, axes, 1))
    operands = [x, weight, *([bias] if bias is not None else [])]
    plain = all(each.type.dtype is node.type.dtype for each in operands)
    spaces = (*x.type.shape[2:], *weight.type.shape[2:], *node.type.shape[2:])
    fits = x.type.rank == axes + 2 and all(isinstance(size, int) for size in spaces)
    if not plain or not fits or None in sizes:
        return None
    stride, padding, dilation = (each or () for each in sizes)
    return Convolution(node, x, weight, bias, stride, padding, dilation, transposed)


def call_convolution(
    arena: Arena,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    reason: str,
) -> Node:
    """A convolution of one group as a call; `weight` is [filters, channels, taps...]."""
    taps, space = _ints(weight.type.shape[2:]), _ints(x.type.shape[2:])
    sizes = zip(space, taps, stride, padding, dilation, strict=True)
    results = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
    shape = (x.type.shape[0], weight.type.shape[0], *results)
    operands = (x, weight) if bias is None else (x, weight, bias)
    places = (Operand(0), Operand(1), None if bias is None else Operand(2))
    result = TensorType(x.type.dtype, shape)
    arguments = (*places, stride, padding, dilation)
    target = f"aten.conv{len(taps)}d.default"
    return arena.call(operands, CallAttrs(target, arguments, (), (result,), reason))


def with_weight(
    arena: Arena, conv: Convolution, weight: Node, bias: Node | None, reason: str
) -> Node:
    """The same convolution with another weight, of that type, and another bias."""
    operands = (conv.x, weight) if bias is None else (conv.x, weight, bias)
    given = conv.call.attrs
    places = (Operand(0), Operand(1), None if bias is None else Operand(2))
    attrs = replace(given, arguments=(*places, *given.arguments[3:]), reason=reason)
    return arena.call(operands, attrs)


@dataclass(frozen=True, slots=True)
class Span:
    """The places along an axis of the input that meet a tap: `count`, `step` apart. `padded`: zeros
    beyond the ends meet it, too.
    """

    start: int
    count: int
    step: int
    padded: bool

    @property
    def end(self) -> int:
        return self.start + (self.count - 1) * self.step + 1 if self.count else self.start


def span_of(conv: Convolution, axis: int, tap: int) -> Span:
    """Of a tap along an axis of space, over all results."""
    size, results = conv.space[axis], conv.results[axis]
    stride, offset = conv.stride[axis], tap * conv.dilation[axis] - conv.padding[axis]
    if conv.transposed:  # result = place * stride + offset
        start = max(0, -(offset // stride))
        end = min(size, (results - 1 - offset) // stride + 1)
        return Span(start, max(end - start, 0), 1, False)
    inside = [i for n in range(results) if 0 <= (i := n * stride + offset) < size]
    return Span(inside[0] if inside else 0, len(inside), stride, len(inside) < results)


def _value(node: Node, value: Any) -> Any:
    return node.inputs[value.index] if isinstance(value, Operand) else value


def _per_axis(value: Any, axes: int, default: int) -> Sizes | None:
    if value is None:
        return (default,) * axes
    found = (value,) * axes if isinstance(value, int) else tuple(value)
    found = found * axes if len(found) == 1 else found
    return found if len(found) == axes and all(isinstance(n, int) for n in found) else None


def _ints(sizes: tuple[Size, ...]) -> Sizes:
    """Sizes that are numbers."""
    return tuple(size for size in sizes if isinstance(size, int))
