"""Nodes that gradients are made of."""

from __future__ import annotations

import functools

import numpy as np
from tests.unit.plan.plans import Make, graph

from opweld.differentiate.maker import Maker, _factors
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.ops import Op


def test_what_is_the_same_along_axes_is_multiplied_once() -> None:
    m = Make()
    x, y = m.x("x", 3, 4), m.x("y", 3, 1)
    maker = Maker(m.arena)
    product = maker(Op.NEG, maker.mul(maker.mul(x, y), x))
    total = maker.summed(product, (1,))
    given = np.random.default_rng(0).normal(size=(3, 4)), np.full((3, 1), 3.0)
    (found,) = interpret_outputs(graph(total), dict(zip(("x", "y"), given, strict=True)))
    np.testing.assert_allclose(found, -(given[0] ** 2 * 3.0).sum(1, keepdims=True), rtol=1e-6)
    assert total.op is Op.NEG and total.inputs[0].op is Op.MUL


def test_squares_of_squares_have_a_bounded_number_of_factors() -> None:
    """Each would double it; what stays together is a factor."""
    m = Make()
    maker = Maker(m.arena)
    x = m.x("x", 3, 4)
    for _ in range(16):
        x = maker.square(x)
    factors, sign = _factors(maker(Op.NEG, x))
    assert 2 <= len(factors) <= 64 and sign == -1
    given = {"x": np.full((3, 4), 1.0001)}
    product = functools.reduce(maker.mul, factors)
    (found,) = interpret_outputs(graph(product), given)
    np.testing.assert_allclose(found, given["x"] ** 2**16, rtol=1e-2)
