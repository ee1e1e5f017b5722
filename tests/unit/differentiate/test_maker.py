"""Nodes that gradients are made of."""

from __future__ import annotations

import numpy as np
from tests.calls import calls_at_most
from tests.unit.plan.plans import Make, graph

from opweld.differentiate.maker import Maker
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


def test_squares_of_squares_are_summed_in_time_that_grows_with_their_number() -> None:
    m = Make()
    maker = Maker(m.arena)
    x = m.x("x", 3, 4)
    for _ in range(60):
        x = maker.square(x)
    with calls_at_most(100_000):
        maker.summed(x, (1,))
