from __future__ import annotations

from opweld.ir.attrs import IotaAttrs
from opweld.ir.plan import GroupKind
from opweld.ir.types import DType

from .plans import BATCH, Make, kernels_of, plan_of


def names(plan) -> list[str]:
    return [group.name for group in plan.groups]


def test_kernels_are_numbered_and_named_by_their_last_operations():
    m = Make()
    x = m.x("x", BATCH, 8)
    first = m.tanh(m.exp(m.neg(m.abs(x))))
    plan = plan_of(m.relu(m.call(first)))
    assert names(plan) == ["k1_neg_exp_tanh", "linear", "k2_relu"]
    assert (
        names(plan_of(m.relu(m.call(first)), suffix="_bfloat16"))[0] == "k1_neg_exp_tanh_bfloat16"
    )


def test_one_repeated_operation_names_a_kernel_once():
    m = Make()
    x = m.x("x", BATCH, 8)
    assert names(plan_of(m.add(m.add(m.exp(x), 1.0), 2.0))) == ["k1_exp_add"]


def test_groups_run_after_what_they_read_and_else_in_the_graph_s_order():
    m = Make()
    x, y = m.x("x", BATCH, 8), m.x("y", BATCH, 4)
    first, second = m.call(m.exp(x)), m.call(m.neg(y))
    plan = plan_of(m.tanh(second), m.abs(first))
    assert names(plan) == ["k1_neg", "linear", "k2_tanh", "k3_exp", "linear", "k4_abs"]


def test_calls_that_draw_random_numbers_keep_their_order_across_a_group():
    m = Make()
    x = m.x("x", BATCH, 8)
    y = m.relu(x)
    first, second = m.call(y, draws=True), m.call(m.neg(x), draws=True)
    # relu and mul together would need the second draw before they give the first its operand.
    plan = plan_of(m.mul(y, second), m.abs(first))
    places = {node: index for index, g in enumerate(plan.groups) for node in g.nodes}
    assert places[first] < places[second]


def test_a_kernel_waits_for_what_it_reads_through_a_view():
    """Its first operation stands before the call whose result its last one reads."""
    m = Make()
    x, z = m.x("x", BATCH, 8), m.x("z", 8, BATCH)
    plan = plan_of(m.add(m.exp(x), m.permute(m.call(z), 1, 0)))
    assert names(plan) == ["linear", "k1_exp_add"]


def test_a_kernel_does_not_wait_for_a_view_of_its_own_result():
    """The view is returned, and read inside the kernel that makes its base."""
    m = Make()
    y = m.exp(m.x("x", BATCH, 8))
    view = m.reshape(y, BATCH, 8)
    plan = plan_of(m.add(view, y), view)
    assert names(plan) == ["k1_exp_add", "reshape"]


def test_a_kernel_that_reads_no_tensor_is_left_to_pytorch():
    m = Make()
    position = m.arena.iota(IotaAttrs(0, 1, 8), DType.F32)
    (group,) = plan_of(m.exp(position)).groups
    assert group.kind is GroupKind.LIBRARY and "no input" in group.reason


def test_operands_stand_behind_views_in_order_of_first_use():
    m = Make()
    x, y, row = m.x("x", BATCH, 8), m.x("y", 8, BATCH), m.w("row", 8)
    (group,) = plan_of(m.add(m.mul(m.permute(y, 1, 0), row), x)).groups
    assert group.inputs == (y, row, x)
    assert [node.op.value for node in group.nodes] == ["permute", "mul", "add"]


def test_members_are_the_computed_nodes_and_the_views_and_constants_between():
    m = Make()
    x = m.x("x", BATCH, 8)
    inner = m.mul(m.exp(x), 2.0)
    (group,) = plan_of(m.neg(m.permute(inner, 1, 0))).groups
    assert [n.op.value for n in group.nodes] == ["exp", "const", "mul", "permute", "neg"]


def test_results_are_what_is_read_outside():
    m = Make()
    x = m.x("x", BATCH, 8)
    a = m.exp(x)
    b = m.neg(a)
    c = m.tanh(b)
    (group,) = plan_of(a, c).groups
    assert group.outputs == (a, c)
    assert "2 results" in group.reason and "3 operations" in group.reason


def test_the_reason_of_a_single_operation():
    m = Make()
    (group,) = plan_of(m.exp(m.x("x", 8))).groups
    assert group.reason == "one operation, one read and one write of memory"


def test_a_call_is_visible_with_its_reason():
    m = Make()
    x = m.x("x", BATCH, 8)
    (group,) = plan_of(m.call(x, target="softmax")).groups
    assert (group.kind, group.name, group.reason) == (GroupKind.LIBRARY, "softmax", "a product")
    assert group.schedule is None


def test_a_view_that_is_needed_as_a_tensor_is_a_group():
    m = Make()
    x = m.x("x", BATCH, 8)
    turned = m.permute(x, 1, 0)
    plan = plan_of(turned)
    assert [group.kind for group in plan.groups] == [GroupKind.VIEW]
    plan = plan_of(m.call(turned))
    assert [group.kind for group in plan.groups] == [GroupKind.VIEW, GroupKind.LIBRARY]
    plan = plan_of(m.exp(turned))
    assert [group.kind for group in plan.groups] == [GroupKind.POINTWISE]


def test_views_of_views_are_all_there():
    m = Make()
    x = m.x("x", BATCH, 8)
    flat = m.reshape(m.permute(m.exp(x), 1, 0), BATCH * 8)
    plan = plan_of(flat)
    assert names(plan) == ["k1_exp", "permute", "reshape"]


def test_constants_and_positions_that_are_read_whole_are_tensors():
    m = Make()
    position = m.arena.iota(IotaAttrs(0, 1, 8), DType.F32)
    x = m.x("x", BATCH, 8)
    plan = plan_of(m.call(position), m.const(2.0))
    assert names(plan) == ["iota", "linear", "const"]
    assert names(plan_of(m.add(x, position))) == ["k1_add"]


def test_moved_data_without_arithmetic_is_left_to_pytorch():
    m = Make()
    x = m.x("x", BATCH, 8)
    (group,) = plan_of(m.cat(1, x, x)).groups
    assert (group.kind, group.name) == (GroupKind.LIBRARY, "cat")


def test_moved_data_through_views_names_what_it_reads():
    """The views between are members, so that nothing is read that no group writes."""
    m = Make()
    x = m.x("x", BATCH, 8)
    padded = m.pad(m.permute(m.cat(1, x, m.slice(x, 1, 0, 3)), 1, 0), (1, 0), (0, 0))
    (group,) = plan_of(padded).groups
    assert group.inputs == (x,) and group.outputs == (padded,)
    assert [n.op.value for n in group.nodes] == ["slice", "cat", "permute", "pad"]
    position = m.arena.iota(IotaAttrs(0, 1, 8), DType.F32)
    (group,) = plan_of(m.flip(position, 0)).groups
    assert group.inputs == ()


def test_an_excluded_group_becomes_pytorch_calls_of_the_same_name():
    m = Make()
    x, y = m.x("x", BATCH, 8), m.x("y", 8, BATCH)
    result = m.tanh(m.call(m.add(m.permute(m.exp(x), 1, 0), y)))
    fused = plan_of(result)
    given_back = plan_of(result, excluded=frozenset({"k1_exp_add"}))
    assert names(fused) == names(given_back) == ["k1_exp_add", "linear", "k2_tanh"]
    first, again = fused.groups[0], given_back.groups[0]
    assert again.kind is GroupKind.LIBRARY and "slower" in again.reason
    assert (again.nodes, again.inputs, again.outputs) == (first.nodes, first.inputs, first.outputs)
    assert len(kernels_of(given_back)) == 1


def test_a_graph_that_returns_its_input_needs_no_group():
    m = Make()
    assert plan_of(m.x("x", 4)).groups == ()


def test_no_two_kernels_have_one_name():
    m = Make()
    value = m.x("x", BATCH, 8)
    for _ in range(12):
        value = m.exp(m.call(value))
    kernels = names(plan_of(value))[1::2]
    assert len(set(kernels)) == 12
