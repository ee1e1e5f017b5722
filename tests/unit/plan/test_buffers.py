from __future__ import annotations

import pytest

from opweld.ir.attrs import CopyAttrs
from opweld.ir.ops import Op
from opweld.ir.types import DType

from .plans import BATCH, Make, kernels_of, plan_of


def reused(*outputs, **options) -> list[str | None]:
    """What each kernel overwrites: the operation that made it."""
    kernels = kernels_of(plan_of(*outputs, **options))
    return [None if g.reuse is None else str(g.inputs[g.reuse].op.value) for g in kernels]


def test_the_result_of_a_product_is_overwritten():
    m = Make()
    assert reused(m.relu(m.call(m.x("x", BATCH, 8)))) == ["call"]


def test_inputs_and_weights_are_never_overwritten():
    m = Make()
    x, w = m.x("x", BATCH, 8), m.w("w", BATCH, 8)
    assert reused(m.relu(x)) == [None]
    assert reused(m.relu(w)) == [None]
    assert reused(m.add(x, w)) == [None]


def test_a_result_of_the_graph_is_never_overwritten():
    m = Make()
    y = m.call(m.x("x", BATCH, 8))
    assert reused(m.relu(y), y) == [None]
    assert reused(m.relu(y), m.permute(y, 1, 0)) == [None]
    assert reused(m.relu(y), m.slice(m.permute(y, 1, 0), 0, 0, 2)) == [None]


def test_a_result_in_the_inputs_format_may_lie_otherwise():
    m = Make()
    y = m.relu(m.call(m.x("x", BATCH, 8, 4, 4)))
    assert reused(y) == ["call"]
    assert reused(m.arena.make(Op.CAST, y, attrs=CopyAttrs(DType.F32))) == [None]


def test_what_another_group_reads_is_not_overwritten():
    m = Make()
    y = m.call(m.x("x", BATCH, 8))
    assert reused(m.relu(y), m.call(y)) == [None]
    assert reused(m.relu(y), m.call(m.permute(y, 1, 0))) == [None]
    other = m.exp(m.permute(y, 1, 0))
    assert reused(m.call(m.relu(y)), m.call(other)) == [None, None]


def test_a_call_that_may_give_a_view_is_not_overwritten():
    m = Make()
    assert reused(m.relu(m.call(m.x("x", BATCH, 8), target="diagonal"))) == [None]


def test_the_base_of_a_view_is_not_overwritten():
    """The call may return a view of its operand: nothing that a call reads is overwritten."""
    m = Make()
    y = m.call(m.x("x", BATCH, 8))
    alias = m.call(y, target="as_strided")
    assert reused(m.relu(y), m.tanh(alias))[0] is None


def test_another_shape_or_dtype_does_not_fit():
    m = Make()
    x = m.x("x", BATCH, 8)
    row = m.call(m.x("row", 8))
    assert reused(m.add(x, row)) == [None]
    y = m.call(x)
    assert reused(m.gt(y, 0.0)) == [None]
    assert reused(m.relu(m.slice(y, 1, 0, 4))) == [None]


@pytest.mark.parametrize(
    "elsewhere",
    [
        lambda m, y: m.permute(y, 1, 0),
        lambda m, y: m.flip(y, 0),
        lambda m, y: m.permute(m.exp(y), 1, 0),
        lambda m, y: m.flip(m.exp(y), 1),
        lambda m, y: m.cat(0, m.slice(y, 0, 1, 7), m.slice(y, 0, 0, 1)),
        lambda m, y: m.expand(m.slice(m.exp(y), 0, 0, 1), 8, 8),
        lambda m, y: m.slice(m.exp(y), 0, 0, 1),
    ],
)
def test_what_is_read_at_another_element_is_not_overwritten(elsewhere):
    """Even where the operation that reads it has its shape: what comes after may look elsewhere."""
    m = Make()
    y = m.call(m.x("x", 8, 8))
    assert reused(m.add(y, elsewhere(m, y))) == [None]
    assert reused(m.add(y, m.exp(y))) == ["call"]


def test_the_result_of_an_earlier_kernel_is_overwritten():
    m = Make()
    x = m.x("x", BATCH, 8)
    y = m.exp(m.call(x))
    gate = m.call(m.x("z", BATCH, 8))
    for _ in range(100):
        y = m.tanh(y)
    assert reused(m.add(y, gate)) == ["call", "tanh"]


def test_a_second_operand_can_be_the_one():
    m = Make()
    x, y = m.x("x", BATCH, 8), m.call(m.x("z", BATCH, 8))
    (group,) = kernels_of(plan_of(m.add(x, y)))
    assert group.reuse == 1


def test_only_the_first_result_counts():
    m = Make()
    y = m.call(m.x("x", BATCH, 8))
    assert reused(m.gt(y, 0.0), m.relu(y)) == [None]
    narrow = m.call(m.x("w", BATCH, 8, dtype=DType.F16))
    assert reused(m.abs(narrow)) == ["call"]
