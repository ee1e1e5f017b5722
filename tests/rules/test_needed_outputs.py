"""Only what outputs need: regions of every operation, against PyTorch on the graphs before."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.rules.linear_graphs import Maker, as_tensors, feeds_of, gradients_of, values_of
from tests.unit.ir.graphs import BATCH, graph

from opweld.ir.attrs import (
    CatAttrs,
    FlipAttrs,
    GatherAttrs,
    IotaAttrs,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ScanAttrs,
    ShapeAttrs,
    SliceAttrs,
    WindowAttrs,
)
from opweld.ir.expr import symbol
from opweld.ir.graph import Arena, Graph, Node
from opweld.ir.ops import Kind, Op
from opweld.ir.rules.algebra import Algebra
from opweld.ir.types import DType
from opweld.simplify import simplify
from opweld.simplify.needed_outputs import demands
from opweld.simplify.needed_outputs.demands import Demand
from opweld.simplify.needed_outputs.only_needed import NAME, only_needed

B, T, D = 3, 10, 8


def cut(m: Maker, x: Node, axis: int, start, length=1, step: int = 1) -> Node:
    return m.make(Op.SLICE, x, attrs=SliceAttrs(axis, start, step, length))


def product(m: Maker) -> Node:
    """What is heavy: [B, T, D]."""
    return m.linear(m.input("x", B, T, 6), D)


def norm(m: Maker, x: Node) -> Node:
    attrs = ReduceAttrs((x.type.rank - 1,))
    middle = m.make(Op.MEAN, x, attrs=attrs)
    centred = m.make(Op.SUB, x, middle)
    spread = m.make(Op.MEAN, m.make(Op.MUL, centred, centred), attrs=attrs)
    return m.make(Op.MUL, centred, m.make(Op.RSQRT, m.make(Op.ADD, spread, m.number(1e-5))))


FORMS = {
    "a product": lambda m: cut(m, product(m), 1, 4),
    "features of a product": lambda m: cut(m, product(m), 2, 2, 3),
    "every second row": lambda m: cut(m, product(m), 1, 1, 2, 3),
    "pointwise": lambda m: cut(m, m.make(Op.ADD, product(m), m.weight("w", 1, D)), 1, 0),
    "a norm": lambda m: cut(m, norm(m, product(m)), 1, T - 1),
    "a residual": lambda m: cut(
        m, m.make(Op.ADD, m.input("x", B, T, D), norm(m, m.linear(m.input("x", B, T, D), D))), 1, 0
    ),
    "a scan": lambda m: cut(m, m.make(Op.CUMSUM, product(m), attrs=ScanAttrs(1)), 0, 1),
    "permute": lambda m: cut(
        m, m.make(Op.PERMUTE, product(m), attrs=PermuteAttrs((2, 0, 1))), 2, 3, 2
    ),
    "reshape": lambda m: cut(m, m.reshape(product(m), B, T, 2, 4), 1, 2),
    "reshape of what is cut": lambda m: cut(m, m.reshape(product(m), B, T, 2, 4), 2, 1),
    "expand": lambda m: cut(
        m,
        m.make(Op.EXPAND, m.reshape(product(m), B, 1, T, D), attrs=ShapeAttrs((B, 5, T, D))),
        2,
        7,
    ),
    "flip": lambda m: cut(m, m.make(Op.FLIP, product(m), attrs=FlipAttrs((1, 2))), 1, 2, 2),
    "cat": lambda m: cut(
        m, m.make(Op.CAT, product(m), m.input("y", B, T, 2), attrs=CatAttrs(2)), 1, 5
    ),
    "pad": lambda m: cut(
        m, m.make(Op.PAD, product(m), attrs=PadAttrs((0, 0, 1), (0, 0, 2), 0.5)), 1, 3
    ),
    "pad of what is cut": lambda m: cut(
        m, m.make(Op.PAD, product(m), attrs=PadAttrs((0, 1, 0), (0, 1, 0), 0.5)), 1, 0
    ),
    "a sum behind a reshape": lambda m: cut(m, m.sum(m.reshape(product(m), B, T, 2, 4), 3), 2, 1),
    "a sum behind a pad": lambda m: cut(
        m, m.sum(m.make(Op.PAD, product(m), attrs=PadAttrs((0, 1, 0), (0, 1, 0), 0.5)), 2), 1, 2
    ),
    "windows": lambda m: cut(m, m.make(Op.WINDOW, product(m), attrs=WindowAttrs(2, 3, 2, 3)), 1, 3),
    "a gather": lambda m: cut(m, gathered(m), 1, 3),
    "two parts": lambda m: m.make(
        Op.ADD, *(cut(m, m.make(Op.TANH, product_of_one(m)), 1, at) for at in (2, 4))
    ),
    "matmul": lambda m: cut(
        m, m.call("matmul.default", (B, T, 4), m.input("a", B, T, 5), m.input("b", 1, 5, 4)), 1, 6
    ),
    "columns of a matmul": lambda m: cut(
        m, m.call("matmul.default", (B, T, 4), m.input("a", B, T, 5), m.input("b", B, 5, 4)), 2, 1
    ),
    "attention": lambda m: cut(m, attention(m), 2, 0),
    "the last of any number": lambda m: cut(
        m, m.linear(m.input("x", B, BATCH, 6), D), 1, symbol("s0") - 1
    ),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
PARTS = {"reshape of what is cut", "pad of what is cut"}
"""Views that are needed whole along the axis that is cut."""
SUMS = {"a sum behind a reshape", "a sum behind a pad"}
"""Of such views: less is computed, but the product all the same."""


def product_of_one(m: Maker) -> Node:
    """The same node at each call."""
    weight = m.weight("once.weight", D, D)
    x = m.reshape(m.input("x", B, T, D), B, T, D, 1)
    return m.sum(m.make(Op.MUL, x, m.reshape(weight, 1, 1, D, D)), 2)


def gathered(m: Maker) -> Node:
    places = m.arena.iota(IotaAttrs(0, 1, 4), DType.I64)
    index = m.reshape(places, 1, 1, 4)
    return m.make(Op.GATHER, product(m), index, attrs=GatherAttrs(2))


def attention(m: Maker) -> Node:
    q, k, v = (m.input(name, 2, 3, T, D) for name in "qkv")
    return m.call("scaled_dot_product_attention.default", (2, 3, T, D), q, k, v)


def both(form) -> tuple[Graph, Graph, set[str]]:
    arena = Arena()
    before = graph(form(Maker(arena)))
    after = simplify(before, arena)
    return before, after.graph, {name for name, _, _ in after.fired}


def work(g: Graph) -> int:
    """The elements of all that is computed by reductions, scans and calls."""
    heavy = (Kind.REDUCTION, Kind.SCAN, Kind.OPAQUE)
    sizes = [n.type.num_elems for n in g.nodes() if n.kind in heavy]
    return sum(size if isinstance(size, int) else 10**6 for size in sizes)


@each_form
def test_values_and_gradients_are_the_original_s(form):
    before, after, fired = both(form)
    feeds = as_tensors(feeds_of(before, sizes={"s0": 7}))
    for expected, got in zip(values_of(before, feeds), values_of(after, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    expected, got = gradients_of(before, feeds), gradients_of(after, feeds)
    for name, gradient in expected.items():
        np.testing.assert_allclose(got[name], gradient, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", sorted(FORMS.keys() - PARTS - SUMS))
def test_less_is_computed(name):
    before, after, fired = both(FORMS[name])
    assert NAME in fired
    assert work(after) <= work(before) / 2


@pytest.mark.parametrize("name", sorted(PARTS))
def test_what_mixes_the_axis_is_needed_whole(name):
    before, after, fired = both(FORMS[name])
    assert NAME not in fired and work(after) == work(before)


@each_form
def test_nan_and_infinities_stay(form):
    before, after, _ = both(form)
    feeds = feeds_of(before, sizes={"s0": 7})
    rng = np.random.default_rng(3)
    for values in feeds.values():
        values[rng.random(values.shape) < 0.05] = rng.choice([np.nan, np.inf, -np.inf])
    tensors = as_tensors(feeds)
    for expected, got in zip(values_of(before, tensors), values_of(after, tensors), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


UNFIT = {
    "read whole, too": lambda m: (lambda y: (cut(m, y, 1, 0), m.make(Op.TANH, y)))(product(m)),
    "more than half": lambda m: (cut(m, product(m), 1, 1, T - 1),),
    "all of it by two": lambda m: (
        lambda y: (cut(m, y, 1, 0, 5), m.make(Op.NEG, cut(m, y, 1, 5, 5)))
    )(m.make(Op.TANH, product_of_one(m))),
    "along a sum": lambda m: (cut(m, m.sum(product(m), 1), 1, 0),),
    "along a scan": lambda m: (cut(m, m.make(Op.CUMSUM, product(m), attrs=ScanAttrs(1)), 1, 0),),
    "of nothing heavy": lambda m: (cut(m, m.make(Op.TANH, m.input("x", B, T)), 1, 0),),
    "of many of any number": lambda m: (
        cut(m, m.linear(m.input("x", B, BATCH, 6), D), 1, 0, symbol("s0") - 1),
    ),
}


@pytest.mark.parametrize("form", UNFIT.values(), ids=UNFIT.keys())
def test_what_is_needed_whole_stays(form):
    arena = Arena()
    before = graph(*form(Maker(arena)))
    after = simplify(before, arena)
    assert NAME not in {name for name, _, _ in after.fired}
    assert work(after.graph) == work(before)


def test_nothing_changes_without_leave():
    arena = Arena()
    before = graph(FORMS["a norm"](Maker(arena)))
    after = simplify(before, arena, algebra=Algebra.OFF)
    assert after.rewritten == () and work(after.graph) == work(before)


def test_calls_that_draw_keep_their_order():
    """A call that is made anew does not come behind later ones that draw."""
    arena = Arena()
    m = Maker(arena)
    cut_product = cut(m, product(m), 1, 0)
    first = m.call("dropout.default", (B, 1, D), cut_product)
    second = m.call("dropout.default", (B, T), m.input("z", B, T))
    after = only_needed(graph(first, second), arena).graph
    serials = [node.serial for node in after.outputs]
    assert serials == sorted(serials)


def test_an_empty_value_has_no_parts():
    arena = Arena()
    m = Maker(arena)
    empty = cut(m, m.make(Op.TANH, product(m)), 1, 0, 0)
    before = graph(m.make(Op.EXP, empty))
    feeds = as_tensors(feeds_of(before))
    after = simplify(before, arena).graph
    assert values_of(after, feeds)[0].shape == (B, 0, D)


def _one_further(node: Node, region):
    """What a wrong row would ask for."""
    (own,) = (demands._before_flip(node, region),)
    return tuple(tuple((max(0, start - 1), length) for start, length in part) for part in own)


@pytest.mark.parametrize(
    ("op", "name", "row"),
    [
        (Op.FLIP, "flip", Demand(_one_further)),
        (Op.FLIP, "flip", Demand(demands._alike)),
        (Op.PERMUTE, "permute", Demand(demands._alike)),
        (Op.RESHAPE, "a sum behind a reshape", Demand(demands._before_reshape)),
        (Op.PAD, "a sum behind a pad", Demand(demands._alike)),
    ],
)
def test_a_wrong_row_is_caught(monkeypatch, op, name, row):
    monkeypatch.setitem(demands._BY_OP, op, row)
    try:
        before, after, _ = both(FORMS[name])
        feeds = as_tensors(feeds_of(before))
        pairs = zip(values_of(before, feeds), values_of(after, feeds), strict=True)
        same = all(a.shape == b.shape and np.allclose(a, b) for a, b in pairs)
    except (ValueError, IndexError, RuntimeError, AssertionError):
        return
    assert not same


def test_a_scan_read_in_part_would_be_caught(monkeypatch):
    monkeypatch.setitem(demands._BY_KIND, Kind.SCAN, Demand(demands._alike))
    arena = Arena()
    m = Maker(arena)
    before = graph(cut(m, m.make(Op.CUMSUM, product(m), attrs=ScanAttrs(1)), 1, 4))
    after = simplify(before, arena).graph
    feeds = as_tensors(feeds_of(before))
    assert not np.allclose(values_of(after, feeds)[0], values_of(before, feeds)[0])


def test_it_is_effect():
    arena = Arena()
    after = simplify(graph(FORMS["a product"](Maker(arena))), arena)
    (effect,) = (each.effect for each in after.rewritten)
    assert effect.after == "linear(x, fc.weight, fc.bias)[:, 4, :], of which no more is read"
    assert (effect.flops_before, effect.flops_after) == (2 * 240 * 6, 2 * 24 * 6)
    assert torch.tensor(effect.bytes_saved) == 8 * (240 - 24)
