"""Products of two new operands that one kernel splits and multiplies: which, and what is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ir.kernels.product import Mode
from opweld.ir.plan import GroupKind
from opweld.plan.products.forms import splits_in_kernel
from opweld.plan.products.recognised import product_of
from opweld.target import SM_90A

from .plans import Make, plan_of


@pytest.mark.parametrize(
    ("sizes", "fits"),
    [
        ((256, 256, 524288), True),
        ((512, 512, 1024), True),
        ((512, 512, 1020), False),
        ((512, 512, 1026), False),
    ]
    + [((768, 768, 65536), False), ((16, 256, 65536), False), ((17, 8192, 65536), True)],
)
def test_few_results_of_long_sums(sizes: tuple[int, int, int], fits: bool):
    rows, columns, terms = sizes
    m = Make()
    operands = m.x("x", rows, terms), m.x("y", terms, columns)
    product = product_of(m.product("mm", *operands, shape=(rows, columns)))
    assert splits_in_kernel(product, Mode.FAITHFUL, ()) is fits
    assert not splits_in_kernel(replace(product, held=True), Mode.FAITHFUL, ())
    assert not splits_in_kernel(product, Mode.TF32, ())


def test_the_plan_says_so():
    m = Make()
    y = m.product("mm", m.x("x", 320, 131072), m.x("y", 131072, 320), shape=(320, 320))
    (group,) = plan_of(y, target=SM_90A).groups
    assert group.kind is GroupKind.CONTRACTION
    assert group.reason.endswith("; both operands are split as they are multiplied")


def test_a_weight_is_split_once_for_all_calls():
    m = Make()
    y = m.product("mm", m.x("x", 320, 131072), m.w("w", 131072, 320), shape=(320, 320))
    (group,) = plan_of(y, target=SM_90A).groups
    assert "split again only where it changed" in group.reason
