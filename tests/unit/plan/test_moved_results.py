"""Results of convolutions that their kernels write in another order of the axes."""

from __future__ import annotations

from tests.unit.plan.convolving import IMAGE, TF32, conv, convolutions, one, planned
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.attrs import CastAttrs
from opweld.ir.graph import Node
from opweld.ir.kernels.convolution import Convolving
from opweld.ir.kernels.lifted import lifted
from opweld.ir.ops import Op
from opweld.ir.plan import GroupKind, Plan
from opweld.ir.text import to_text
from opweld.ir.views import is_copy
from opweld.lower import lower
from opweld.render.cuda.texts import cuda_text

LAST = (BATCH, 56, 56, 64)


def copied(m: Make, y: Node) -> Node:
    """With its channels second, in memory of its own."""
    first = m.permute(y, 0, 3, 1, 2)
    return m.arena.make(Op.CAST, first, attrs=CastAttrs(first.type.dtype))


def kinds(plan: Plan) -> list[GroupKind]:
    return [group.kind for group in plan.groups if group.kind is not GroupKind.VIEW]


def test_outputs_are_written_with_eager_strides() -> None:
    m = Make()
    plan = planned(m.relu(conv(m, m.x("x", *IMAGE), 64, (3, 3))))
    assert kinds(plan) == [GroupKind.CONVOLUTION]
    (group,) = convolutions(plan)
    assert is_copy(group.outputs[0]) and group.outputs[0].type.shape[1] == 64
    assert group.reason.endswith("written in the order of the result: 1528.8 MB less to move")
    (made,) = lower(plan)
    assert isinstance(made, Convolving) and made.order == (0, 2, 3, 1)
    assert made.shape == (BATCH, 54, 54, 64)
    assert "written along 0, 2, 3, 1" in to_text(made)
    assert "op::Permuted<0, 2, 3, 1>(operands[" in cuda_text((made,))
    lifting = lifted(group)
    assert lifting is not None and is_copy(lifting.group.outputs[0])


def test_what_stays_in_order_is_not_permuted() -> None:
    m = Make()
    group = one(m.reduced("mean", m.relu(conv(m, m.x("x", *LAST), 64, (3, 3), last=True)), 1, 2))
    plan = Plan(planned(m.x("x", *LAST)).graph, "sm_90a", (group,))
    (made,) = lower(plan)
    assert isinstance(made, Convolving) and made.order == (0, 1, 2, 3)
    assert "written along" not in to_text(made)
    assert "Permuted" not in cuda_text((made,))


def test_two_orders_are_a_result_and_a_copy() -> None:
    m = Make()
    y = m.relu(conv(m, m.x("x", *LAST), 64, (3, 3), last=True))
    assert kinds(planned(copied(m, y), m.reduced("mean", y, 1, 2))) == [
        GroupKind.CONVOLUTION,
        GroupKind.POINTWISE,
        GroupKind.REDUCTION,
    ]
    m = Make()
    y = m.relu(conv(m, m.x("x", *LAST), 64, (3, 3), last=True))
    assert kinds(planned(copied(m, y), y)) == [GroupKind.CONVOLUTION, GroupKind.POINTWISE]


def test_each_channel_by_itself_is_copied() -> None:
    m = Make()
    y = conv(m, m.x("x", *LAST), 64, (3, 3), last=True, groups=64, padding=1)
    plan = planned(copied(m, m.relu(y)), conditions=TF32)
    assert kinds(plan) == [GroupKind.CONVOLUTION, GroupKind.POINTWISE]


def test_a_consumer_of_the_copy_is_not_fused() -> None:
    """It reads another tensor in that order."""
    m = Make()
    y = m.relu(conv(m, m.x("x", *LAST), 64, (3, 3), last=True))
    other = m.x("other", BATCH, 64, 54, 54)
    plan = planned(m.add(m.permute(y, 0, 3, 1, 2), other))
    assert kinds(plan) == [GroupKind.CONVOLUTION, GroupKind.POINTWISE]


def test_what_lies_as_the_result_is_not_copied() -> None:
    """Of a residual and the input itself."""
    m = Make()
    x, other = m.x("x", *IMAGE), m.x("other", *IMAGE)
    y = conv(m, x, 64, (3, 3), padding=1)
    plan = planned(m.relu(m.add(m.add(y, other), x)))
    assert kinds(plan) == [GroupKind.CONVOLUTION]
    (group,) = convolutions(plan)
    assert {node.serial for node in group.inputs} >= {x.serial, other.serial}
    (made,) = lower(plan)
    text = cuda_text((made,))
    assert text.count("op::Along<const float, 0, 3, 1, 2>") == 2


def test_a_copy_that_others_read_is_made_once() -> None:
    m = Make()
    x = m.x("x", *IMAGE)
    copy = m.arena.make(Op.CAST, m.permute(x, 0, 2, 3, 1), attrs=CastAttrs(x.type.dtype))
    y = m.relu(m.add(conv(m, copy, 64, (3, 3), last=True, padding=1), copy))
    assert kinds(planned(copied(m, y), copy)) == [GroupKind.POINTWISE, GroupKind.CONVOLUTION]


def test_a_copy_that_two_kernels_read_stays() -> None:
    m = Make()
    x, other = m.x("x", *LAST), m.x("other", *IMAGE)
    copy = m.arena.make(Op.CAST, m.permute(other, 0, 2, 3, 1), attrs=CastAttrs(x.type.dtype))
    first = conv(m, x, 64, (3, 3), last=True, padding=1)
    second = conv(m, m.relu(x), 64, (3, 3), last=True, padding=1)
    plan = planned(copied(m, m.add(first, copy)), copied(m, m.add(second, copy)))
    copies = [group for group in plan.groups if group.outputs == (copy,)]
    assert len(copies) == 1 and len(convolutions(plan)) == 2
    assert all(copy in group.inputs for group in convolutions(plan))


def test_a_copy_in_another_order_stays() -> None:
    m = Make()
    y = conv(m, m.x("x", *LAST), 64, (3, 3), last=True, padding=1)
    turned = m.permute(m.x("other", BATCH, 56, 64, 56), 0, 3, 1, 2)
    copy = m.arena.make(Op.CAST, turned, attrs=CastAttrs(y.type.dtype))
    plan = planned(copied(m, m.add(y, copy)))
    assert kinds(plan) == [GroupKind.POINTWISE, GroupKind.CONVOLUTION]
