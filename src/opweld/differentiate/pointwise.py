"""Gradients of pointwise operations: one row each, the formulas of PyTorch's autograd.

A row gives, of the gradient `g` of the result, what reaches each operand, None where nothing does;
what operands were broadcast to is summed up by who asks. At points without a derivative a row says
what PyTorch says there (derivatives.yaml).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..ir.graph import Node
from ..ir.ops import Op
from . import binary
from .maker import Maker

Parts = tuple[Node | None, ...]
Row = Callable[[Maker, Node, Node], Parts]
"""(maker, the node, the gradient of its result) -> the gradients of its operands."""


def _of_operand(formula: Callable[[Maker, Node, Node], Node]) -> Row:
    """A row by the operand `x`."""
    return lambda m, node, g: (formula(m, g, node.inputs[0]),)


def _of_result(formula: Callable[[Maker, Node, Node], Node]) -> Row:
    """A row by the result `y`."""
    return lambda m, node, g: (formula(m, g, node),)


def _of_both(formula: Callable[[Maker, Node, Node, Node], Parts]) -> Row:
    """A row of two operands."""
    return lambda m, node, g: formula(m, g, *node.inputs)


def _gelu(m: Maker, g: Node, x: Node) -> Node:
    below = m.mul(m.add(m(Op.ERF, m.mul(x, math.sqrt(0.5))), 1.0), 0.5)
    return m.mul(g, m.add(below, m.mul(x, m.normal(x))))


def _gelu_tanh(m: Maker, g: Node, x: Node) -> Node:
    scale, cubic = math.sqrt(2.0 / math.pi), 0.044715
    square = m.square(x)
    inner = m.mul(m.mul(x, m.add(m.mul(square, cubic), 1.0)), scale)
    t = m(Op.TANH, inner)
    left = m.mul(m.add(t, 1.0), 0.5)
    slope = m.mul(m.add(m.mul(square, 3.0 * cubic), 1.0), scale)
    right = m.mul(m.mul(m.mul(x, 0.5), m.sub(1.0, m.square(t))), slope)
    return m.mul(g, m.add(left, right))


def _silu(m: Maker, g: Node, x: Node) -> Node:
    s = m(Op.SIGMOID, x)
    return m.mul(g, m.mul(s, m.add(m.mul(x, m.sub(1.0, s)), 1.0)))


def _mish(m: Maker, g: Node, x: Node) -> Node:
    """mish is x * tanh(softplus(x)), and that tanh is mish(x) / x but at 0."""
    s = m(Op.SIGMOID, x)
    softplus = m.sub(m(Op.CLAMP_MIN, x, 0.0), m(Op.LOGSIGMOID, m(Op.ABS, x)))
    t = m(Op.TANH, softplus)
    return m.mul(g, m.add(t, m.mul(m.mul(x, s), m.sub(1.0, m.square(t)))))


def _hardsigmoid(m: Maker, g: Node, x: Node) -> Node:
    inside = m(Op.LOGICAL_AND, m(Op.GT, x, -3.0), m(Op.LT, x, 3.0))
    return m.where(inside, m.div(g, 6.0), 0.0)


def _hardswish(m: Maker, g: Node, x: Node) -> Node:
    between = m.where(m(Op.LT, x, 3.0), m.mul(g, m.add(m.div(x, 3.0), 0.5)), g)
    return m.where(m(Op.LE, x, -3.0), 0.0, between)


def _hardtanh(m: Maker, node: Node, g: Node) -> Parts:
    x, a = node.inputs[0], node.attrs
    outside = m(Op.LOGICAL_OR, m(Op.LE, x, a.low), m(Op.GE, x, a.high))
    return (m.where(outside, 0.0, g),)


def _leaky_relu(m: Maker, node: Node, g: Node) -> Parts:
    return (m.where(m(Op.GT, node.inputs[0], 0.0), g, m.mul(g, node.attrs.slope)),)


def _elu(m: Maker, node: Node, g: Node) -> Parts:
    x, a = node.inputs[0], node.attrs
    power = m(Op.EXP, m.mul(x, a.input_scale))
    below = m.mul(m.mul(g, a.input_scale * a.alpha * a.scale), power)
    return (m.where(m(Op.LE, x, 0.0), below, m.mul(g, a.scale)),)


def _softplus(m: Maker, node: Node, g: Node) -> Parts:
    scaled = m.mul(node.inputs[0], node.attrs.beta)
    power = m(Op.EXP, scaled)
    below = m.div(m.mul(g, power), m.add(power, 1.0))
    return (m.where(m(Op.GT, scaled, node.attrs.threshold), g, below),)


def _threshold(m: Maker, node: Node, g: Node) -> Parts:
    return (m.where(m(Op.LE, node.inputs[0], node.attrs.threshold), 0.0, g),)


def _nan_to_num(m: Maker, node: Node, g: Node) -> Parts:
    return (m.where(m(Op.ISFINITE, node.inputs[0]), g, 0.0),)


def _cast(m: Maker, node: Node, g: Node) -> Parts:
    dtype = node.inputs[0].type.dtype
    return (g if dtype is g.type.dtype else m.cast(g, dtype),)


def _sub(m: Maker, g: Node, x: Node, y: Node) -> Parts:
    return g, m(Op.NEG, g)


def _mul(m: Maker, g: Node, x: Node, y: Node) -> Parts:
    return m.mul(g, y), m.mul(g, x)


def _div(m: Maker, g: Node, x: Node, y: Node) -> Parts:
    return m.div(g, y), m.mul(m(Op.NEG, g), m.div(m.div(x, y), y))


def _extreme(behind: Op) -> Row:
    """Of MAXIMUM and MINIMUM: equal ones have half of the gradient each."""

    def row(m: Maker, node: Node, g: Node) -> Parts:
        x, y = node.inputs
        half = m.where(m(Op.EQ, x, y), m.div(g, 2.0), g)
        return m.where(m(behind, x, y), 0.0, half), m.where(m(behind, y, x), 0.0, half)

    return row


def _clamp(within: Op) -> Row:
    """Of CLAMP_MIN and CLAMP_MAX: what equals the bound is inside."""

    def row(m: Maker, node: Node, g: Node) -> Parts:
        x, bound = node.inputs
        inside = m(within, x, bound)
        beyond = m(Op.LT if within is Op.GE else Op.GT, x, bound)
        return m.where(inside, g, 0.0), m.where(beyond, g, 0.0)

    return row


def _atan2(m: Maker, g: Node, y: Node, x: Node) -> Parts:
    scaled = m.div(g, m.add(m.square(y), m.square(x)))
    return m.mul(scaled, x), m.mul(scaled, m(Op.NEG, y))


def _hypot(m: Maker, node: Node, g: Node) -> Parts:
    x, y = node.inputs
    return m.mul(g, m.div(x, node)), m.mul(g, m.div(y, node))


def _prelu(m: Maker, g: Node, x: Node, slope: Node) -> Parts:
    above = m(Op.GT, x, 0.0)
    return m.where(above, g, m.mul(g, slope)), m.where(above, 0.0, m.mul(g, x))


def _where(m: Maker, node: Node, g: Node) -> Parts:
    test = node.inputs[0]
    return None, m.where(test, g, 0.0), m.where(test, 0.0, g)


def _lerp(m: Maker, node: Node, g: Node) -> Parts:
    start, end, weight = node.inputs
    difference = m.sub(end, start)
    return m.mul(g, m.sub(1.0, weight)), m.mul(g, weight), m.mul(g, difference)


def _addcmul(m: Maker, node: Node, g: Node) -> Parts:
    _, x, y = node.inputs
    return g, m.mul(g, y), m.mul(g, x)


def _zero(m: Maker, node: Node, g: Node) -> Parts:
    return (None,)


ROWS: Mapping[Op, Row] = {
    **dict.fromkeys((Op.SIGN, Op.FLOOR, Op.CEIL, Op.ROUND, Op.TRUNC), _zero),
    Op.NEG: _of_operand(lambda m, g, x: m(Op.NEG, g)),
    Op.ABS: _of_operand(lambda m, g, x: m.mul(g, m(Op.SIGN, x))),
    Op.RECIPROCAL: _of_result(lambda m, g, y: m.mul(m(Op.NEG, g), m.square(y))),
    Op.SQRT: _of_result(lambda m, g, y: m.div(g, m.mul(y, 2.0))),
    Op.RSQRT: _of_result(lambda m, g, y: m.mul(m.mul(g, -0.5), m.mul(m.square(y), y))),
    Op.EXP: _of_result(lambda m, g, y: m.mul(g, y)),
    Op.EXP2: _of_result(lambda m, g, y: m.mul(m.mul(g, y), math.log(2.0))),
    Op.EXPM1: _of_result(lambda m, g, y: m.mul(g, m.add(y, 1.0))),
    Op.LOG: _of_operand(lambda m, g, x: m.div(g, x)),
    Op.LOG2: _of_operand(lambda m, g, x: m.div(g, m.mul(x, math.log(2.0)))),
    Op.LOG10: _of_operand(lambda m, g, x: m.div(g, m.mul(x, math.log(10.0)))),
    Op.LOG1P: _of_operand(lambda m, g, x: m.div(g, m.add(x, 1.0))),
    Op.SIN: _of_operand(lambda m, g, x: m.mul(g, m(Op.COS, x))),
    Op.COS: _of_operand(lambda m, g, x: m.mul(g, m(Op.NEG, m(Op.SIN, x)))),
    Op.TAN: _of_result(lambda m, g, y: m.mul(g, m.add(m.square(y), 1.0))),
    Op.ASIN: _of_operand(lambda m, g, x: m.mul(g, m(Op.RSQRT, m.sub(1.0, m.square(x))))),
    Op.ACOS: _of_operand(lambda m, g, x: m.mul(m(Op.NEG, g), m(Op.RSQRT, m.sub(1.0, m.square(x))))),
    Op.ATAN: _of_operand(lambda m, g, x: m.div(g, m.add(m.square(x), 1.0))),
    Op.SINH: _of_operand(lambda m, g, x: m.mul(g, m(Op.COSH, x))),
    Op.COSH: _of_operand(lambda m, g, x: m.mul(g, m(Op.SINH, x))),
    Op.TANH: _of_result(lambda m, g, y: m.mul(g, m.sub(1.0, m.square(y)))),
    Op.ASINH: _of_operand(lambda m, g, x: m.mul(g, m(Op.RSQRT, m.add(m.square(x), 1.0)))),
    Op.ACOSH: _of_operand(lambda m, g, x: m.mul(g, m(Op.RSQRT, m.sub(m.square(x), 1.0)))),
    Op.ATANH: _of_operand(lambda m, g, x: m.div(g, m.sub(1.0, m.square(x)))),
    Op.ERF: _of_operand(
        lambda m, g, x: m.mul(m.mul(g, 2.0 / math.sqrt(math.pi)), m(Op.EXP, m(Op.NEG, m.square(x))))
    ),
    Op.ERFC: _of_operand(
        lambda m, g, x: m.mul(
            m.mul(g, -2.0 / math.sqrt(math.pi)), m(Op.EXP, m(Op.NEG, m.square(x)))
        )
    ),
    Op.SIGMOID: _of_result(lambda m, g, y: m.mul(m.mul(g, m.sub(1.0, y)), y)),
    Op.RELU: _of_result(lambda m, g, y: m.where(m(Op.LE, y, 0.0), 0.0, g)),
    Op.GELU: _of_operand(_gelu),
    Op.GELU_TANH: _of_operand(_gelu_tanh),
    Op.SILU: _of_operand(_silu),
    Op.MISH: _of_operand(_mish),
    Op.HARDSIGMOID: _of_operand(_hardsigmoid),
    Op.HARDSWISH: _of_operand(_hardswish),
    Op.LOGSIGMOID: _of_operand(lambda m, g, x: m.mul(g, m(Op.SIGMOID, m(Op.NEG, x)))),
    Op.FRAC: _of_operand(lambda m, g, x: g),
    Op.LEAKY_RELU: _leaky_relu,
    Op.ELU: _elu,
    Op.SOFTPLUS: _softplus,
    Op.THRESHOLD: _threshold,
    Op.HARDTANH: _hardtanh,
    Op.NAN_TO_NUM: _nan_to_num,
    Op.CAST: _cast,
    Op.ADD: _of_both(lambda m, g, x, y: (g, g)),
    Op.SUB: _of_both(_sub),
    Op.MUL: _of_both(_mul),
    Op.DIV: _of_both(_div),
    Op.MAXIMUM: _extreme(Op.LT),
    Op.MINIMUM: _extreme(Op.GT),
    Op.CLAMP_MIN: _clamp(Op.GE),
    Op.CLAMP_MAX: _clamp(Op.LE),
    Op.ATAN2: _of_both(_atan2),
    Op.HYPOT: _hypot,
    Op.PRELU: _of_both(_prelu),
    Op.WHERE: _where,
    Op.LERP: _lerp,
    Op.ADDCMUL: _addcmul,
}


def parts_of(m: Maker, node: Node, g: Node) -> Parts | None:
    """What reaches the operands of a pointwise operation; None where no row says."""
    row = ROWS.get(node.op) or binary.ROWS.get(node.op)
    return None if row is None or node.type.dtype.is_complex else row(m, node, g)
