"""Reductions of repeated elements, against PyTorch on the graphs before and after."""

from __future__ import annotations

import pytest
from tests.rules.linear_graphs import Maker
from tests.rules.rewritten import disagreeing, pair_of, require_same
from tests.unit.ir.graphs import BATCH

from opweld.ir.attrs import CallAttrs, Operand, ShapeAttrs
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import TensorType


def expand(m: Maker, x: Node, *shape) -> Node:
    return m.make(Op.EXPAND, x, attrs=ShapeAttrs(shape))


def reduced(m: Maker, op: str, x: Node, axes, shape, *more) -> Node:
    result = (TensorType(x.type.dtype, shape),)
    attrs = CallAttrs(f"aten.{op}", (Operand(0), axes, *more), (), result, "")
    return m.make(Op.MUL, m.arena.call((x,), attrs), m.number(2.0))


def mean_of_rows(m: Maker) -> Node:
    x = m.reshape(m.input("x", 4, 6), 4, 1, 6)
    return reduced(m, "mean.dim", expand(m, x, 4, 5, 6), (1,), (4, 6))


def sum_of_all(m: Maker) -> Node:
    x = m.reshape(m.input("x", 6), 1, 6, 1)
    return reduced(m, "sum.dim_IntList", expand(m, x, 4, 6, 3), (0, -1), (1, 6, 1), True)


def largest(m: Maker) -> Node:
    return reduced(m, "amax.default", expand(m, m.input("x", 6), 4, 6), (0,), (6,))


def least(m: Maker) -> Node:
    x = m.reshape(m.input("x", BATCH, 6), BATCH, 6, 1)
    return reduced(m, "amin.default", expand(m, x, BATCH, 6, 9), (-1,), (BATCH, 6))


FORMS = (mean_of_rows, sum_of_all, largest, least)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_one_element_is_enough(form):
    pair = pair_of(form)
    assert "repeated-elements" in pair.fired and pair.calls() == []
    require_same(pair)
    assert disagreeing(pair) == []


def of_others_too(m: Maker) -> Node:
    x = m.reshape(m.input("x", 4, 6), 4, 1, 6)
    return reduced(m, "mean.dim", expand(m, x, 4, 5, 6), (1, 2), (4,))


def of_any_number(m: Maker) -> Node:
    """Perhaps of none."""
    return reduced(m, "mean.dim", expand(m, m.input("x", 6), BATCH, 6), (0,), (6,))


def of_none(m: Maker) -> Node:
    """The mean is NaN."""
    return reduced(m, "mean.dim", expand(m, m.reshape(m.input("x", 6), 1, 6), 0, 6), (0,), (6,))


def of_another_view(m: Maker) -> Node:
    x = m.reshape(expand(m, m.input("x", 6), 4, 6), 24)
    return reduced(m, "mean.dim", x, (0,), ())


@pytest.mark.parametrize("form", [of_others_too, of_any_number, of_none, of_another_view])
def test_other_reductions_stay(form):
    assert "repeated-elements" not in pair_of(form).fired
