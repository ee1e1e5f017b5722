from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.ir.graphs import BATCH, graph, tensor

from opweld.ir.attrs import (
    CallAttrs,
    CastAttrs,
    CatAttrs,
    FlipAttrs,
    Operand,
    PadAttrs,
    PermuteAttrs,
    ShapeAttrs,
    SliceAttrs,
)
from opweld.ir.check import check
from opweld.ir.graph import Arena
from opweld.ir.numpy.interpret import interpret
from opweld.ir.ops import Op
from opweld.ir.rules.rewrite import Numerics
from opweld.ir.text import to_text
from opweld.ir.types import DType
from opweld.simplify import simplify
from opweld.simplify.rules import RULES


class Expression:
    """Builds graphs: `e.make(Op.MUL, e.x, 2.0)`."""

    def __init__(self, *shape, dtype: DType = DType.F32):
        self.arena = Arena()
        self.x = tensor(self.arena, "x", *(shape or (BATCH,)), dtype=dtype)

    def make(self, op: Op, *operands, attrs=None):
        nodes = [
            self.arena.const(o, self.x.type.dtype) if isinstance(o, (int, float)) else o
            for o in operands
        ]
        return self.arena.make(op, *nodes, **({} if attrs is None else {"attrs": attrs}))

    def simplified(self, node, enabled=None):
        result = simplify(graph(node), self.arena, enabled)
        check(result.graph)
        return result

    def text(self, node) -> str:
        """What is left of `node`, without the input and the return."""
        lines = to_text(self.simplified(node).graph).splitlines()[2:]
        return "; ".join(line.split(" = ")[1] if " = " in line else line for line in lines)


def test_parts_of_a_tensor_do_not_become_one_tensor():
    """Who writes to the one would write to the other."""
    e = Expression(4, 3)
    y = e.make(Op.NEG, e.x)
    both = e.make(Op.CAT, y, e.x, y, attrs=CatAttrs(1))
    parts = [e.make(Op.SLICE, both, attrs=SliceAttrs(1, 3 * n, 1, 3)) for n in (0, 2)]
    first, second = simplify(graph(*parts), e.arena).graph.outputs
    assert first is not second and second is parts[1]
    halves = [e.make(Op.SLICE, y, attrs=SliceAttrs(0, 2 * n, 1, 2)) for n in range(2)]
    kept = simplify(graph(*halves), e.arena).graph.outputs
    assert [node.inputs[0] for node in kept] == [y, y], "parts of one stay parts of one"


def test_the_tail_of_a_linear_becomes_canonical():
    e = Expression()
    swish = e.make(Op.MUL, e.x, e.make(Op.SIGMOID, e.x))
    clamped = e.make(Op.CLAMP_MAX, e.make(Op.CLAMP_MIN, e.make(Op.DIV, swish, 2.0), -1.0), 1.0)
    node = e.make(Op.CLAMP_MAX, e.make(Op.CLAMP_MIN, e.make(Op.TANH, clamped), -1.0), 1.0)
    assert e.text(node) == (
        "sigmoid %0; mul %0 %1; mul %2 0.5; clamp_min %3 -1.0; clamp_max %4 1.0; tanh %5; return %6"
    )
    assert e.simplified(node).fired == (
        ("div-power-of-two", Numerics.EXACT, 1),
        ("fold", Numerics.EXACT, 1),
        ("clamp-min-idle", Numerics.EXACT, 1),
        ("clamp-max-idle", Numerics.EXACT, 1),
    )


def test_hand_written_gelu_keeps_its_formula():
    e = Expression()
    cube = e.make(Op.POW, e.x, 3.0)
    inner = e.make(Op.ADD, e.x, e.make(Op.MUL, cube, 0.044715))
    tanh = e.make(Op.TANH, e.make(Op.MUL, inner, math.sqrt(2 / math.pi)))
    node = e.make(Op.MUL, e.make(Op.MUL, e.x, 0.5), e.make(Op.ADD, tanh, 1.0))
    assert e.text(node) == (
        "mul %0 0.5; mul %0 %0; mul %2 %0; mul %3 0.044715; add %0 %4;"
        " mul %5 0.7978845608028654; tanh %6; add %7 1.0; mul %1 %8; return %9"
    )


def unary(e, *ops):
    node = e.x
    for op in ops:
        node = e.make(op, node)
    return node


CASES = {
    "cascaded clamps": (
        lambda e: e.make(
            Op.CLAMP_MAX,
            e.make(Op.CLAMP_MIN, e.make(Op.CLAMP_MAX, e.make(Op.CLAMP_MIN, e.x, -2.0), 3.0), -1.0),
            5.0,
        ),
        "clamp_min %0 -1.0; clamp_max %1 3.0; return %2",
    ),
    "clamp that acts": (
        lambda e: e.make(Op.CLAMP_MAX, e.make(Op.TANH, e.x), 0.5),
        "tanh %0; clamp_max %1 0.5; return %2",
    ),
    "sigmoid is not negative": (lambda e: unary(e, Op.SIGMOID, Op.RELU), "sigmoid %0; return %1"),
    "abs of exp": (lambda e: unary(e, Op.EXP, Op.ABS), "exp %0; return %1"),
    "relu of sqrt has another derivative at zero": (
        lambda e: unary(e, Op.SQRT, Op.RELU),
        "sqrt %0; relu %1; return %2",
    ),
    "double negation": (lambda e: unary(e, Op.NEG, Op.NEG, Op.NEG), "neg %0; return %1"),
    "division by three stays": (lambda e: e.make(Op.DIV, e.x, 3.0), "div %0 3.0; return %1"),
    "division by a negative power": (
        lambda e: e.make(Op.DIV, e.x, -0.25),
        "mul %0 -4.0; return %1",
    ),
    "division whose reciprocal overflows": (
        lambda e: e.make(Op.DIV, e.x, 2.0**-140),
        f"div %0 {2.0**-140!r}; return %1",
    ),
    "adding zero to what may be -0.0": (
        lambda e: e.make(Op.ADD, e.x, 0.0),
        "add %0 0.0; return %1",
    ),
    "adding zero to what is not": (
        lambda e: e.make(Op.ADD, e.make(Op.EXP, e.x), 0.0),
        "exp %0; return %1",
    ),
    "times zero stays": (lambda e: e.make(Op.MUL, e.x, 0.0), "mul %0 0.0; return %1"),
    "constants meet": (
        lambda e: e.make(Op.MUL, e.make(Op.MUL, 0.5, e.x), 0.25),
        "mul %0 0.125; return %1",
    ),
    "constants that would overflow do not meet": (
        lambda e: e.make(Op.MUL, e.make(Op.MUL, e.x, 2.0**100), 2.0**-100),
        f"mul %0 {2.0**100!r}; mul %1 {2.0**-100!r}; return %2",
    ),
    "constants whose product rounds do not meet": (
        lambda e: e.make(Op.MUL, e.make(Op.MUL, e.x, 0.1), 0.3),
        "mul %0 0.1; mul %1 0.3; return %2",
    ),
    "common subexpressions": (
        lambda e: e.make(Op.ADD, e.make(Op.TANH, e.make(Op.MUL, e.x, 1.0)), e.make(Op.TANH, e.x)),
        "tanh %0; mul %1 2.0; return %2",
    ),
    "pow four": (
        lambda e: e.make(Op.POW, e.x, 4.0),
        "mul %0 %0; mul %1 %0; mul %2 %0; return %3",
    ),
    "pow five of float32 stays": (lambda e: e.make(Op.POW, e.x, 5.0), "pow %0 5.0; return %1"),
    "pow by a fraction stays": (lambda e: e.make(Op.POW, e.x, 1.5), "pow %0 1.5; return %1"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case):
    build, expected = CASES[case]
    e = Expression()
    assert e.text(build(e)) == expected


def test_power_eight_of_sixteen_bits_squares():
    e = Expression(dtype=DType.BF16)
    assert e.text(e.make(Op.POW, e.x, 8.0)) == "mul %0 %0; mul %1 %1; mul %2 %2; return %3"


def test_folding_rounds_as_kernels_do():
    e = Expression()
    tenth, third = (e.arena.const(v, DType.F32) for v in (0.1, 0.3))
    node = e.make(Op.MUL, e.x, e.make(Op.ADD, tenth, third))
    constant = e.simplified(node).graph.outputs[0].inputs[1]
    assert constant.attrs.value == float(np.float32(0.1) + np.float32(0.3))
    h = Expression(dtype=DType.F16)
    total = h.make(Op.ADD, h.arena.const(0.1, DType.F16), h.arena.const(0.3, DType.F16))
    kept = h.simplified(h.make(Op.MUL, h.x, total)).graph.outputs[0].inputs[1]
    assert kept.attrs.value == float(np.float32(0.1) + np.float32(0.3))
    rounded = h.make(Op.CAST, total, attrs=CastAttrs(DType.F32))
    narrow = h.make(Op.CAST, rounded, attrs=CastAttrs(DType.F16))
    folded = h.simplified(h.make(Op.MUL, h.x, narrow)).graph.outputs[0].inputs[1]
    assert folded.attrs.value == float(np.float16(np.float32(0.1) + np.float32(0.3)))


def test_folding_leaves_sizes_alone():
    e = Expression()
    node = e.make(Op.MUL, e.x, e.make(Op.ADD, e.arena.const(BATCH, DType.F32), 1.0))
    assert e.text(node) == "add s0:f32 1.0:f32; mul %0 %1; return %2"


def test_one_rule_can_be_switched_off():
    e = Expression()
    inner = e.make(Op.EXP, e.x)
    node = e.make(Op.NEG, e.make(Op.NEG, inner))
    names = frozenset(rule.name for rule in RULES)
    assert e.simplified(node, names).graph.outputs == (inner,)
    assert e.simplified(node, names - {"neg-neg"}).graph.outputs == (node,)
    assert e.simplified(node, frozenset()).fired == ()
    with pytest.raises(KeyError, match="no rule is named neg-negg"):
        e.simplified(node, frozenset({"neg-negg"}))


def test_every_fired_rule_is_within_the_default_policy():
    assert max(rule.numerics for rule in RULES) <= Numerics.REORDER


def view_chain(e, *steps, of=None):
    node = of or e.x
    for op, attrs in steps:
        node = e.make(op, node, attrs=attrs)
    return node


VIEW_CASES = {
    "permute and back": (
        [(Op.PERMUTE, PermuteAttrs((1, 2, 0))), (Op.PERMUTE, PermuteAttrs((2, 0, 1)))],
        "return %0",
    ),
    "two permutes": (
        [(Op.PERMUTE, PermuteAttrs((1, 2, 0))), (Op.PERMUTE, PermuteAttrs((1, 2, 0)))],
        "permute %0 dims=[2, 0, 1]; return %1",
    ),
    "reshapes": (
        [(Op.RESHAPE, ShapeAttrs((BATCH * 2, 4))), (Op.RESHAPE, ShapeAttrs((2, BATCH, 4)))],
        "reshape %0 shape=[2, s0, 4]; return %1",
    ),
    "reshape and back": (
        [(Op.RESHAPE, ShapeAttrs((BATCH * 8,))), (Op.RESHAPE, ShapeAttrs((BATCH, 2, 4)))],
        "return %0",
    ),
    "slices": (
        [(Op.SLICE, SliceAttrs(2, 1, 1, 3)), (Op.SLICE, SliceAttrs(2, 0, 2, 2))],
        "slice %0 dim=2 start=1 step=2 length=2; return %1",
    ),
    "slices of two axes": (
        [(Op.SLICE, SliceAttrs(2, 1, 1, 3)), (Op.SLICE, SliceAttrs(1, 1, 1, 1))],
        "slice %0 dim=2 start=1 step=1 length=3; slice %1 dim=1 start=1 step=1 length=1; return %2",
    ),
    "flips": (
        [(Op.FLIP, FlipAttrs((0, 2))), (Op.FLIP, FlipAttrs((0, 1)))],
        "flip %0 dims=[1, 2]; return %1",
    ),
    "whole slice, no padding, one part": (
        [
            (Op.SLICE, SliceAttrs(0, 0, 1, BATCH)),
            (Op.PAD, PadAttrs((0, 0, 0), (0, 0, 0), 1.0)),
            (Op.CAT, CatAttrs(0)),
            (Op.CAST, CastAttrs(DType.F64)),
        ],
        "cast %0 f64; return %1",
    ),
    "permute of an axis of one": (
        [(Op.RESHAPE, ShapeAttrs((1, BATCH, 8))), (Op.PERMUTE, PermuteAttrs((1, 0, 2)))],
        "reshape %0 shape=[s0, 1, 8]; return %1",
    ),
}


@pytest.mark.parametrize("case", VIEW_CASES, ids=str)
def test_views(case):
    steps, expected = VIEW_CASES[case]
    e = Expression(BATCH, 2, 4)
    node = view_chain(e, *steps)
    assert e.text(node) == expected
    feed = {"x": np.arange(24, dtype=np.float32).reshape(3, 2, 4)}
    before, after = (interpret(g, feed) for g in (graph(node), e.simplified(node).graph))
    assert np.array_equal(before, after)


JOINED = (Op.RESHAPE, ShapeAttrs((BATCH, 8)))
RESHAPED_CASES = {
    "axes that are joined": (
        lambda e, x: e.make(Op.EXP, view_chain(e, JOINED, of=e.make(Op.TANH, x))),
        "tanh %0; exp %1; reshape %2 shape=[s0, 8]; return %3",
    ),
    "with a number": (
        lambda e, x: e.make(Op.MUL, 3.0, view_chain(e, JOINED, of=e.make(Op.EXP, x))),
        "exp %0; mul 3.0 %1; reshape %2 shape=[s0, 8]; return %3",
    ),
    "of an input": (
        lambda e, x: e.make(Op.RELU, view_chain(e, JOINED, of=x)),
        "reshape %0 shape=[s0, 8]; relu %1; return %2",
    ),
    "of two tensors": (
        lambda e, x: e.make(
            Op.ADD, *(view_chain(e, JOINED, of=e.make(op, x)) for op in (Op.EXP, Op.RELU))
        ),
        "exp %0; reshape %1 shape=[s0, 8]; relu %0; reshape %3 shape=[s0, 8]; add %2 %4; return %5",
    ),
    "an axis of one": (
        lambda e, x: e.make(
            Op.EXP, view_chain(e, (Op.RESHAPE, ShapeAttrs((1, BATCH, 2, 4))), of=e.make(Op.TANH, x))
        ),
        "tanh %0; reshape %1 shape=[1, s0, 2, 4]; exp %2; return %3",
    ),
}


@pytest.mark.parametrize("case", RESHAPED_CASES)
def test_elements_are_computed_before_a_reshape_of_what_is_computed(case):
    make, expected = RESHAPED_CASES[case]
    e = Expression(BATCH, 2, 4)
    node = make(e, e.x)
    assert e.text(node) == expected
    feed = {"x": np.linspace(-3, 3, 24, dtype=np.float32).reshape(3, 2, 4)}
    before, after = (interpret(g, feed) for g in (graph(node), e.simplified(node).graph))
    assert np.array_equal(before, after)


def test_what_was_computed_does_not_become_an_input():
    e = Expression(BATCH, 4)
    ones = e.make(Op.MUL, e.x, 1.0)
    flat = e.make(Op.RESHAPE, ones, attrs=ShapeAttrs((BATCH * 4,)))
    for node in (ones, flat, e.make(Op.NEG, e.make(Op.NEG, e.x))):
        assert e.simplified(node).graph.outputs == (node,)
    view = e.make(Op.RESHAPE, e.x, attrs=ShapeAttrs((BATCH * 4,)))
    both = e.make(Op.RESHAPE, view, attrs=ShapeAttrs((BATCH, 4)))
    assert e.simplified(both).graph.outputs == (e.x,)


def test_kept_outputs_keep_their_origins():
    e = Expression()
    node = e.make(Op.MUL, e.x, 1.0)
    origins = ((node.serial, ("m.py:3", "x * 1.0")),)
    result = simplify(graph(node, origins=origins), e.arena).graph
    assert to_text(result).splitlines()[2] == "%1 f32[s0] = mul %0 1.0  # m.py:3"


def test_chunks_of_a_symbolic_cat():
    e = Expression(BATCH, 4)
    joined = e.make(Op.CAT, e.x, e.make(Op.NEG, e.x), attrs=CatAttrs(0))
    second = e.make(Op.SLICE, joined, attrs=SliceAttrs(0, BATCH, 1, BATCH))
    assert e.text(second) == "neg %0; return %1"
    across = e.make(Op.SLICE, joined, attrs=SliceAttrs(0, 1, 1, BATCH))
    assert e.text(across).endswith("slice %2 dim=0 start=1 step=1 length=s0; return %3")


def test_softmax_is_known_to_be_bounded():
    e = Expression()
    attrs = CallAttrs("aten._softmax.default", (Operand(0), -1, False), (), (e.x.type,), "")
    item = e.arena.item(e.arena.call((e.x,), attrs), 0, e.x.type)
    node = e.make(Op.CLAMP_MAX, e.make(Op.CLAMP_MIN, item, 0.0), 1.0)
    assert [n.op for n in e.simplified(node).graph.nodes()] == [Op.INPUT, Op.CALL, Op.ITEM]
