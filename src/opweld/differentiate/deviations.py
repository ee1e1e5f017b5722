"""Gradients of sums of squared deviations from a mean.

Deviations add up to 0, so what reaches the mean from their squares is 0 in mathematics, and takes
another walk over each row where it is computed.
"""

from __future__ import annotations

from ..ir.graph import Node
from ..ir.ops import Op
from .maker import Maker


def passed_on(m: Maker, node: Node, g: Node) -> tuple[Node, Node] | None:
    """The operand x of sum((x - mean(x))^2), and what reaches it; None for other nodes."""
    if node.op is not Op.SUM or node.inputs[0].op is not Op.MUL:
        return None
    deviation, other = node.inputs[0].inputs
    if deviation is not other or deviation.op is not Op.SUB:
        return None
    x, mean = deviation.inputs
    if not _is_mean(mean, x, node.attrs.axes):
        return None
    return x, m.mul(m.mul(g, 2.0), deviation)


def _is_mean(node: Node, x: Node, axes: tuple[int, ...]) -> bool:
    """Whether `node` is the mean of `x` along the axes: as one node, or a sum with what divides it
    by the count, which is then a number.
    """
    if node.op is Op.MEAN:
        return node.inputs[0] is x and node.attrs.axes == axes
    if node.op not in (Op.MUL, Op.DIV):
        return False
    total, factor = node.inputs
    if total.op is not Op.SUM or total.inputs[0] is not x or total.attrs.axes != axes:
        return False
    count = 1
    for axis in axes:
        size = x.type.shape[axis]
        if not isinstance(size, int):
            return False
        count *= size
    value = factor.attrs.value if factor.op is Op.CONST else None
    wanted = count if node.op is Op.DIV else 1.0 / count
    return isinstance(value, int | float) and float(value) == float(wanted)
