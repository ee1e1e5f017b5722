"""Gradients of convolutions: PyTorch's own of the input and of the filters, and a sum for the bias.

The two are a call each, so that of a frozen input or weight none is made. What follows a
convolution is differentiated in kernels before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..ir.attrs import CallAttrs, Operand
from ..ir.graph import Node
from ..ir.ops import Op
from .maker import Maker

Parts = tuple[Node | None, ...]

_FORWARD = ("stride", "padding", "dilation", "groups")
_TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")
_TARGETS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "aten.conv1d.default": (1, _FORWARD),
    "aten.conv2d.default": (2, _FORWARD),
    "aten.conv3d.default": (3, _FORWARD),
    "aten.conv_transpose1d.default": (1, _TRANSPOSED),
    "aten.conv_transpose2d.input": (2, _TRANSPOSED),
    "aten.conv_transpose3d.input": (3, _TRANSPOSED),
}
_GIVEN = 3  # input, weight and bias come before the numbers


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What a convolution over `space` axes is called with beside tensors."""

    space: int
    named: Mapping[str, Any]
    transposed: bool

    def each(self, name: str, usual: int) -> tuple[Any, ...]:
        """One number for each axis of space."""
        value = self.named.get(name, (usual,))
        value = value if isinstance(value, tuple) else (value,)
        return value * self.space if len(value) == 1 else value

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Those of `convolution_backward`, from the stride to the groups."""
        window = (self.each("stride", 1), self.each("padding", 0), self.each("dilation", 1))
        more = (self.transposed, self.each("output_padding", 0), self.named.get("groups", 1))
        return (*window, *more)


def parts_of(m: Maker, node: Node, g: Node) -> Parts | None:
    """What reaches input, filters and bias of a convolution; None for other calls, and where no
    row says.
    """
    a: CallAttrs = node.attrs
    if a.target not in _TARGETS:
        return None
    space, names = _TARGETS[a.target]
    tensors = [each for each in a.arguments[:_GIVEN] if each is not None]
    in_order = tensors == [Operand(place) for place in range(len(node.inputs))]
    if not in_order or a.keywords or node.type.rank != space + 2:
        return None
    named = dict(zip(names, a.arguments[_GIVEN:], strict=False))
    numbers = _Numbers(space, named, "output_padding" in names)
    x, weight, *bias = node.inputs
    given = (_first(m, node, g), _first(m, node, x), weight)
    of_x, of_weight = (_called(m, numbers, given, place) for place in (0, 1))
    channels = g.type.rank - 1 if a.channels_last else 1
    others = tuple(axis for axis in range(g.type.rank) if axis != channels)
    of_bias = [m.reshaped(m.reduced(Op.SUM, g, others), each.type.shape) for each in bias]
    return (_last(m, node, of_x), of_weight, *of_bias)


def _called(m: Maker, numbers: _Numbers, given: tuple[Node, ...], place: int) -> Node:
    """The gradient of the input, or with 1 that of the filters."""
    kinds = tuple(given[1 + at].type if at == place else None for at in range(3))
    mask = tuple(at == place for at in range(3))
    arguments = (*(Operand(at) for at in range(3)), None, *numbers.arguments, mask)
    reason = "the gradient of a convolution is the library's"
    attrs = CallAttrs("aten.convolution_backward.default", arguments, (), kinds, reason)
    return m.arena.item(m.arena.call(given, attrs), place, given[1 + place].type)


def _first(m: Maker, node: Node, x: Node) -> Node:
    """With its channels before its space, a view."""
    rank = x.type.rank
    if not node.attrs.channels_last:
        return x
    return m.permuted(x, (0, rank - 1, *range(1, rank - 1)))


def _last(m: Maker, node: Node, x: Node) -> Node:
    """As the input lies."""
    return m.permuted(x, (0, *range(2, x.type.rank), 1)) if node.attrs.channels_last else x
