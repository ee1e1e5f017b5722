"""Reductions of one element, and what a value less itself becomes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.rules.torch_ops import run_torch
from tests.unit.ir.graphs import graph, tensor

from opweld.ir.attrs import NanToNumAttrs, ReduceAttrs, ShapeAttrs, WindowAttrs
from opweld.ir.graph import Arena, Node
from opweld.ir.ops import Op
from opweld.ir.types import DType
from opweld.simplify import simplify
from opweld.simplify.rules import RULES
from opweld.simplify.sizes import SIZES

HARD = np.array([1.5, -0.0, np.inf, -np.inf, np.nan], np.float32)


def ops_of(*outputs: Node, arena: Arena) -> list[Op]:
    """The operations of the simplified graph."""
    return [n.op for n in simplify(graph(*outputs), arena).graph.nodes() if n.inputs]


def softmax(arena: Arena, x: Node, axis: int) -> Node:
    attrs = ReduceAttrs((axis,))
    powers = arena.make(Op.EXP, arena.make(Op.SUB, x, arena.make(Op.AMAX, x, attrs=attrs)))
    return arena.make(Op.DIV, powers, arena.make(Op.SUM, powers, attrs=attrs))


def logsumexp(arena: Arena, x: Node, axis: int) -> Node:
    attrs = ReduceAttrs((axis,))
    largest = arena.make(Op.AMAX, x, attrs=attrs)
    zero = arena.const(0.0, x.type.dtype)
    shift = arena.make(Op.WHERE, arena.make(Op.ISINF, largest), zero, largest)
    powers = arena.make(Op.EXP, arena.make(Op.SUB, x, shift))
    total = arena.make(Op.SUM, powers, attrs=attrs)
    return arena.make(Op.ADD, arena.make(Op.LOG, total), shift)


def column(arena: Arena) -> Node:
    """What has one element a row, and is computed."""
    return arena.make(Op.NEG, tensor(arena, "x", len(HARD), 1))


@pytest.mark.parametrize(
    "op", [Op.SUM, Op.PROD, Op.MEAN, Op.AMAX, Op.AMIN], ids=lambda op: op.value
)
@pytest.mark.parametrize(("shape", "goes"), [((4, 1), True), ((4, 2), False), ((1, 2), False)])
def test_a_reduction_goes_where_it_has_one_element(op, shape, goes):
    arena = Arena()
    x = arena.make(Op.NEG, tensor(arena, "x", *shape))
    reduced = arena.make(Op.RELU, arena.make(op, x, attrs=ReduceAttrs((1,))))
    assert (op not in ops_of(reduced, arena=arena)) is goes


def test_several_axes_of_one_element_go_together():
    arena = Arena()
    x = arena.make(Op.NEG, tensor(arena, "x", 4, 1, 1))
    some = arena.make(Op.NEG, tensor(arena, "y", 4, 1, 2))
    sums = [arena.make(Op.SUM, node, attrs=ReduceAttrs((1, 2))) for node in (x, some)]
    ops = ops_of(*(arena.make(Op.EXP, each) for each in sums), arena=arena)
    assert ops.count(Op.SUM) == 1


@pytest.mark.parametrize("form", [softmax, logsumexp])
def test_softmax_and_logsumexp_of_one_element(form):
    """The original's result, NaN and infinities included, without its functions."""
    arena = Arena()
    before = graph(arena.make(Op.ABS, form(arena, column(arena), 1)))
    after = simplify(before, arena).graph
    ops = {node.op for node in after.nodes()}
    assert not ops & {Op.EXP, Op.LOG, Op.DIV, Op.SUM, Op.AMAX}
    feeds = {"x": torch.from_numpy(HARD.reshape(-1, 1))}
    torch.testing.assert_close(run_torch(after, feeds), run_torch(before, feeds), equal_nan=True)


@pytest.mark.parametrize("form", [softmax, logsumexp])
def test_they_stay_where_there_are_more(form):
    arena = Arena()
    x = arena.make(Op.NEG, tensor(arena, "x", 4, 2))
    assert Op.EXP in ops_of(form(arena, x, 1), arena=arena)


def test_a_centred_value_is_zero_only_where_it_is_finite():
    arena = Arena()
    bounded = arena.make(Op.CLAMP_MAX, tensor(arena, "x", 4), arena.const(1.0, DType.F32))
    never_nan = arena.make(Op.NAN_TO_NUM, bounded, attrs=NanToNumAttrs(0.0, 1.0, -1.0))
    differences = [arena.make(Op.SUB, node, node) for node in (bounded, never_nan)]
    after = simplify(graph(*differences), arena).graph
    assert after.outputs[0].op is Op.SUB
    assert after.outputs[1].op is Op.EXPAND and after.outputs[1].inputs[0].attrs.value == 0.0


def test_a_window_of_one_element_is_a_slice():
    arena = Arena()
    x = arena.make(Op.NEG, tensor(arena, "x", 4, 6))
    windows = [WindowAttrs(1, 3, 2, 1), WindowAttrs(1, 3, 2, 2)]
    pools = [
        arena.make(
            Op.RELU,
            arena.make(Op.AMAX, arena.make(Op.WINDOW, x, attrs=each), attrs=ReduceAttrs((2,))),
        )
        for each in windows
    ]
    ops = ops_of(pools[0], arena=arena)
    assert Op.SLICE in ops and not {Op.AMAX, Op.WINDOW} & {*ops}
    assert Op.AMAX in ops_of(pools[1], arena=arena)


def test_relu_applies_to_the_maximum_only():
    arena = Arena()
    x = tensor(arena, "x", 4, 6)
    of_relu = arena.make(Op.AMAX, arena.make(Op.RELU, x), attrs=ReduceAttrs((1,)))
    after = simplify(graph(of_relu), arena).graph
    assert (after.outputs[0].op, after.outputs[0].inputs[0].op) == (Op.RELU, Op.AMAX)
    of_tanh = arena.make(Op.AMAX, arena.make(Op.TANH, x), attrs=ReduceAttrs((1,)))
    assert simplify(graph(of_tanh), arena).graph.outputs == (of_tanh,)


def test_all_rules_are_tried():
    assert {rule.name for rule in SIZES} <= {rule.name for rule in RULES}


def test_shapes_are_those_before():
    arena = Arena()
    x = arena.make(Op.NEG, tensor(arena, "x", 1, 4, 1))
    total = arena.make(Op.SUM, x, attrs=ReduceAttrs((0, 2)))
    flat = arena.make(Op.RESHAPE, total, attrs=ShapeAttrs((4,)))
    before = graph(arena.make(Op.EXP, flat))
    after = simplify(before, arena).graph
    assert after.outputs[0].type == before.outputs[0].type
