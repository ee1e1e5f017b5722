"""Which products are rounded before anything is added to them: those that meet their own fold."""

from __future__ import annotations

import pytest
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.lower.rounding import rounded_products


def ancestors(node: Node) -> list[Node]:
    return [node, *(found for each in node.inputs for found in ancestors(each))]


def rounded(node: Node) -> frozenset[int]:
    return rounded_products(ancestors(node))


@pytest.mark.parametrize("op", [Op.AMAX, Op.AMIN])
def test_a_product_that_meets_its_own_extreme(op: Op) -> None:
    m = Make()
    product = m.mul(m.x("x", BATCH, 30), 0.3)
    extreme = m.reduced(op.value, product, 1)
    assert rounded(m.sub(product, extreme)) == {product.serial}
    assert rounded(m.sub(extreme, product)) == {product.serial}


def test_behind_signs_views_and_choices() -> None:
    m = Make()
    product = m.mul(m.x("x", BATCH, 30), m.x("y", BATCH, 30))
    negative = m.arena.make(Op.NEG, product)
    largest = m.reduced("amax", negative, 1)
    chosen = m.arena.make(Op.WHERE, m.arena.make(Op.ISINF, largest), m.const(0.0), largest)
    assert rounded(m.sub(negative, chosen)) == {product.serial}


def test_a_product_that_meets_its_own_mean() -> None:
    m = Make()
    product = m.div(m.x("x", BATCH, 30), 3.0)
    total = m.reduced("sum", product, 1)
    for mean in (m.div(total, 30.0), m.mul(total, 1 / 30)):
        assert rounded(m.sub(product, mean)) == {product.serial}


def test_others_may_be_contracted() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 30), m.x("y", BATCH, 30)
    product = m.mul(x, 0.3)
    assert not rounded(m.sub(product, m.reduced("sum", m.relu(product), 1)))
    assert not rounded(m.sub(product, m.reduced("amax", m.mul(y, 0.3), 1)))
    assert not rounded(m.sub(m.relu(product), m.reduced("amax", m.relu(product), 1)))
    assert not rounded(m.sub(x, m.reduced("amax", x, 1)))
    assert not rounded(m.sub(product, m.mul(y, 0.5)))
    assert not rounded(m.add(m.mul(x, y), m.mul(y, y)))


def test_the_difference_of_two_products() -> None:
    m = Make()
    x, y, z = (m.x(name, BATCH, 30) for name in "xyz")
    one, other = m.mul(x, y), m.mul(x, z)
    assert rounded(m.sub(one, other)) == {one.serial, other.serial}
    logarithm = m.arena.make(Op.XLOGY, x, x)
    assert rounded(m.sub(logarithm, one)) == {one.serial}
