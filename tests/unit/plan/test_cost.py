from __future__ import annotations

import pytest

from opweld.ir.expr import evaluate
from opweld.ir.ops import OPS, Kind
from opweld.ir.types import DType
from opweld.plan.cost import OP_FLOPS, estimate_product, replaced_copies
from opweld.target import CPU, SM_90A

from .plans import BATCH, Make, kernels_of, plan_of


def estimate_of(*outputs, target=SM_90A):
    (group,) = kernels_of(plan_of(*outputs, target=target))
    return group.estimate


def test_every_operand_is_read_once_and_every_result_written_once():
    m = Make()
    x, y = m.x("x", BATCH, 8), m.x("y", BATCH, 8, dtype=DType.F16)
    wide = m.add(m.mul(x, x), 1.0)
    assert estimate_of(wide).bytes == BATCH * 8 * (4 + 4)
    assert estimate_of(m.exp(x), m.gt(x, 0.0)).bytes == BATCH * 8 * (4 + 4 + 1)
    assert estimate_of(m.neg(y)).bytes == BATCH * 8 * (2 + 2)


def test_a_broadcast_operand_is_read_once():
    m = Make()
    x, row, column = m.x("x", BATCH, 8), m.x("row", 8), m.x("column", BATCH, 1)
    result = m.mul(m.add(x, row), column)
    assert estimate_of(result).bytes == BATCH * 64 + 32 + BATCH * 4


def test_of_a_slice_only_the_slice_is_read():
    m = Make()
    x = m.x("x", BATCH, 64)
    assert estimate_of(m.neg(m.slice(x, 1, 0, 8))).bytes == BATCH * 8 * (4 + 4)


def test_halves_are_read_both_and_what_is_walked_over_twice_counts_once():
    m = Make()
    x = m.x("x", BATCH, 1000)
    first, second = m.slice(x, 1, 0, 16), m.slice(x, 1, 16, 16)
    assert estimate_of(m.mul(first, m.sigmoid(second))).bytes == BATCH * 4 * (16 + 16 + 16)
    (group,) = plan_of(m.softmax(first, 1)).groups
    assert group.estimate.bytes == BATCH * 4 * (16 + 16)
    wide = m.x("wide", BATCH, 24)
    assert estimate_of(m.add(m.slice(wide, 1, 0, 20), m.slice(wide, 1, 4, 20))).bytes == (
        BATCH * 4 * (24 + 20)
    )


def test_operations_are_counted_by_weight():
    m = Make()
    x = m.x("x", BATCH, 8)
    result = m.add(m.tanh(x), x)
    assert estimate_of(result).flops == BATCH * 8 * (OP_FLOPS[m.tanh(x).op] + 1)


def test_the_limit_is_the_slower_of_the_two():
    m = Make()
    x = m.x("x", BATCH, 1024)
    assert estimate_of(m.neg(x)).limit == "memory"
    value = x
    for _ in range(30):
        value = m.tanh(m.erfc(value))
    assert estimate_of(value).limit == "compute"


def test_the_estimate_of_a_large_relu_is_its_copy():
    m = Make()
    x = m.x("x", BATCH, 393216)
    estimate = estimate_of(m.relu(x), target=CPU)
    assert evaluate(estimate.bytes, {"s0": 4096}) == 2 * 4 * 4096 * 393216


SIZES = (("s0", 1024),)


def replaced(*outputs):
    (group,) = (group for group in plan_of(*outputs).groups if group.fused)
    return group, replaced_copies(group, SM_90A, SIZES)


def test_a_kernel_replaces_one_pass_for_each_operation():
    m = Make()
    x, row = m.x("x", BATCH, 4096), m.w("row", 4096)
    assert replaced(m.relu(x))[1] == pytest.approx(1.0)
    assert replaced(m.tanh(m.mul(m.relu(x), 0.5)))[1] == pytest.approx(3.0)
    assert replaced(m.tanh(m.add(x, row)))[1] == pytest.approx(2.0, rel=1e-3)
    half = m.slice(m.x("wide", BATCH, 8192), 1, 0, 4096)
    assert replaced(m.relu(half))[1] == pytest.approx(1.0)
    assert replaced(m.mul(x, m.relu(x)))[1] == pytest.approx((3 + 2) / 2)


def test_a_product_replaces_the_librarys_call_and_a_pass_for_each_operation_after_it():
    m = Make()
    x, w, bias = m.x("x", BATCH, 4096), m.w("w", 4096, 4096), m.w("bias", 4096)
    y = m.product("linear", x, w, bias, shape=(BATCH, 4096))
    group, alone = replaced(y)
    sizes = (group.anchor, group.product, group.schedule.mode, (), SM_90A, SIZES)
    library_us = estimate_product(*sizes).library
    copy_us = evaluate(group.estimate.bytes, dict(SIZES)) / SM_90A.copy_bytes_per_s * 1e6
    assert alone == pytest.approx(library_us / copy_us) and alone > 20
    pass_us = 2 * 4 * 1024 * 4096 / SM_90A.copy_bytes_per_s * 1e6
    after, both = replaced(m.tanh(m.relu(y)))
    assert after.estimate.bytes == group.estimate.bytes
    assert both == pytest.approx(alone + 2 * pass_us / copy_us)


def test_weights_are_of_operations_that_compute():
    assert all(OPS[op].kind is Kind.POINTWISE for op in OP_FLOPS)
    assert all(flops > 1 for flops in OP_FLOPS.values())
