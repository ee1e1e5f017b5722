from __future__ import annotations

from opweld.ir.expr import evaluate
from opweld.ir.ops import OPS, Kind
from opweld.ir.types import DType
from opweld.plan.cost import OP_FLOPS
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


def test_weights_are_of_operations_that_compute():
    assert all(OPS[op].kind is Kind.POINTWISE for op in OP_FLOPS)
    assert all(flops > 1 for flops in OP_FLOPS.values())
