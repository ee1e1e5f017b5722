"""What is computed behind convolutions, in the order of channels last."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CallAttrs, CopyAttrs, Operand, ReduceAttrs, TorchLiteral
from opweld.ir.graph import Graph, Node
from opweld.ir.ops import Kind, Op
from opweld.ir.plan import NO_CONDITIONS, Group, GroupKind
from opweld.ir.types import DType, TensorType
from opweld.ir.views import behind_views, is_copy
from opweld.plan import make_plan
from opweld.plan.layouts import in_channels_last
from opweld.plan.products.choice import choose_products
from opweld.target import CPU, SM_80, SM_90A


def convolution(m: Make, x: Node, channels: int) -> Node:
    batch, depth, height, width = x.type.shape
    weight = m.w(f"weight{x.serial}", channels, depth, 1, 1)
    result = TensorType(DType.F32, (batch, channels, height, width))
    attrs = CallAttrs("aten.conv2d.default", (Operand(0), Operand(1)), (), (result,), "")
    return m.arena.call((x, weight), attrs)


def two(m: Make) -> Node:
    """Of (batch, 16, 6, 5)."""
    return convolution(m, m.relu(convolution(m, m.x("x", BATCH, 24, 6, 5), 16)), 16)


def condensed(found: Graph, op: Op) -> list[tuple[int, ...]]:
    return [node.attrs.axes for node in found.nodes() if node.op is op]


def moved(*outputs: Node) -> Graph:
    return in_channels_last(graph(*outputs), SM_80, NO_CONDITIONS)


def test_what_is_between_convolutions_is_in_their_order() -> None:
    m = Make()
    mean = m.reduced("mean", two(m), 2, 3)
    found = moved(mean)
    relu, *_ = (node for node in found.nodes() if node.op is Op.RELU)
    assert relu.type.shape == (BATCH, 6, 5, 16)
    assert condensed(found, Op.MEAN) == [(1, 2)]
    assert found.outputs[0].type == mean.type
    same = graph(mean)
    assert in_channels_last(same, CPU, NO_CONDITIONS) is same


def test_for_a_training_step_the_librarys_are_in_their_order_too() -> None:
    """As the gradients of what is between them are."""
    m = Make()
    step = replace(NO_CONDITIONS, library_convolutions=True)
    found = in_channels_last(graph(m.reduced("mean", two(m), 2, 3)), SM_90A, step)
    calls = [node for node in found.nodes() if node.op is Op.CALL]
    assert len(calls) == 2 and all(call.attrs.channels_last for call in calls)
    assert not choose_products(found, SM_90A, step).products


@pytest.mark.parametrize(("op", "axes"), [("argmax", (1, 2)), ("sum", (1, 3))])
def test_places_are_counted_in_the_users_order(op: str, axes: tuple[int, ...]) -> None:
    """Sums may be taken in any: where channels come last the axes (1, 2) are (3, 1)."""
    m = Make()
    found = moved(m.reduced(op, two(m), 1, 2))
    assert condensed(found, Op(op)) == [axes]


def test_the_first_of_equal_elements_stays_the_first() -> None:
    m = Make()
    largest = m.arena.make(Op.AMAX, two(m), attrs=ReduceAttrs((1, 2), first=True))
    assert condensed(moved(largest), Op.AMAX) == [(1, 2)]


def copies(found: Graph) -> list[Node]:
    return [node for node in found.nodes() if is_copy(node)]


def groups(*outputs: Node) -> tuple[Group, ...]:
    return make_plan(graph(*outputs), SM_80).groups


def test_what_computes_a_result_moves_it() -> None:
    """The first tensor has a copy, and nothing else is between the convolutions and the result."""
    m = Make()
    result = m.sigmoid(two(m))
    assert [is_copy(node) for node in moved(result).outputs] == [True]
    first, *rest = groups(result)
    assert first.only_moves
    *_, last = rest
    assert [node.op for node in last.nodes if node.kind is Kind.POINTWISE] == [Op.SIGMOID, Op.CAST]
    assert last.outputs[0].type == result.type
    assert sum(map(is_copy, (n for g in rest for n in g.nodes))) == 1


def pooled(m: Make, y: Node) -> Node:
    """Windows of 2 by 2, whose last operation is a view of what is reduced."""
    batch, channels, height, width = y.type.shape
    found = m.reduced("amax", m.windows(y, (2, 2, 0, 1), (2, 2, 0, 1)), 0, 1)
    halves = (int(str(size)) // 2 for size in (height, width))
    return m.reshape(found, batch, channels, *halves)


def test_what_a_pool_gives_lies_as_in_eager() -> None:
    m = Make()
    y = m.relu(two(m))
    result = pooled(m, m.relu(convolution(m, m.relu(convolution(m, y, 64)), 16)))
    found = moved(result)
    (shown,) = found.outputs
    assert is_copy(shown) and shown.type == result.type


def test_views_among_outputs_have_eager_strides() -> None:
    m = Make()
    y = m.relu(convolution(m, m.relu(convolution(m, two(m), 64)), 16))
    part = m.slice(y, 1, 2, 8)
    found = moved(y, part, m.reshape(part, BATCH, 8, 30))
    whole, *views = found.outputs
    assert is_copy(whole) and [view.op for view in views] == [Op.SLICE, Op.RESHAPE]
    assert all(behind_views(view) is whole for view in views)


def test_a_pool_is_a_view_of_its_reduction_that_is_an_output() -> None:
    m = Make()
    y = m.relu(convolution(m, m.relu(convolution(m, two(m), 64)), 16))
    result = pooled(m, y)
    (reduced,) = result.inputs
    whole, view = moved(reduced, result).outputs
    assert view.op is Op.RESHAPE and behind_views(view) is behind_views(whole)


def test_a_reshape_into_more_axes_shows_a_copy() -> None:
    m = Make()
    y = m.relu(convolution(m, m.relu(convolution(m, two(m), 64)), 16))
    (view,) = moved(m.reshape(y, BATCH, 4, 4, 6, 5)).outputs
    assert view.op is Op.RESHAPE and is_copy(view.inputs[0])


def test_a_call_gets_a_copy_of_what_a_view_shows_in_another_order() -> None:
    """The reshape is no view of what lies in that order, as a slice is."""
    m = Make()
    y = m.reshape(m.relu(two(m)), BATCH, 96, 5)
    unknown = CallAttrs("aten.some.default", (Operand(0),), (), (y.type,), "")
    found = moved(m.reduced("mean", two(m), 2, 3), m.arena.call((y,), unknown))
    (call,) = (n for n in found.nodes() if n.op is Op.CALL and n.attrs.target == unknown.target)
    assert is_copy(call.inputs[0])


def test_what_is_permuted_back_is_not_copied_for_a_call() -> None:
    """As images are before a linear layer; nor is another operand in that order."""
    m = Make()
    y = m.permute(m.relu(two(m)), 0, 2, 3, 1)
    found = moved(m.call(y), m.add(y, m.x("other", BATCH, 6, 5, 16)))
    assert len(copies(found)) == 1, "of what the first convolution reads"


def test_a_chain_is_copied_once() -> None:
    m = Make()
    x = m.x("x", BATCH, 24, 6, 5)
    y = convolution(m, x, 24)
    for _ in range(4):
        y = convolution(m, m.relu(m.add(y, x)), 24)
    found = moved(m.reduced("sum", y, 2, 3))
    assert len(copies(found)) == 1, "what is added is read as it was copied for the first"


def test_images_are_moved_by_pytorch() -> None:
    m = Make()
    y = convolution(m, m.x("x", BATCH, 3, 6, 5), 16)
    found = moved(m.reduced("sum", convolution(m, m.relu(y), 16), 2, 3))
    calls = [node.attrs.target for node in found.nodes() if node.op is Op.CALL]
    assert not copies(found) and calls.count("aten.contiguous.default") == 1


def test_what_a_user_puts_into_that_order_is_not_copied() -> None:
    m = Make()
    x = m.x("x", BATCH, 24, 6, 5)
    asked = (("memory_format", TorchLiteral("torch.channels_last")),)
    attrs = CallAttrs("aten.clone.default", (Operand(0),), asked, (x.type,), "")
    found = moved(m.reduced("mean", m.relu(convolution(m, m.arena.call((x,), attrs), 16)), 1))
    assert not copies(found)
    lying, *_ = (node for node in found.nodes() if node.op is Op.PERMUTE)
    assert lying.inputs[0].attrs == attrs and lying.attrs.dims == (0, 2, 3, 1)


@pytest.mark.parametrize("always", [True, False])
def test_a_result_of_what_a_user_puts_into_that_order_keeps_it(always: bool) -> None:
    """Also where the input of the forward lies otherwise."""
    m = Make()
    x = m.x("x", BATCH, 24, 6, 5)
    asked = (("memory_format", TorchLiteral("torch.channels_last")),)
    attrs = CallAttrs("aten.clone.default", (Operand(0),), asked, (x.type,), "")
    image = m.arena.call((x,), attrs)
    beside = image if always else x
    both = m.add(convolution(m, image, 24), beside)
    (copy,) = (n.attrs for n in moved(m.relu(both)).nodes() if isinstance(n.attrs, CopyAttrs))
    assert copy.always is always
    assert str(copy).endswith("with channels last" if always else "in the inputs' format")


def test_what_is_joined_keeps_its_order() -> None:
    m = Make()
    first = two(m)
    joined = m.cat(1, first, m.relu(convolution(m, first, 8)))
    found = moved(m.reduced("mean", convolution(m, m.flip(joined, 3), 4), 2, 3))
    (cat,) = (node for node in found.nodes() if node.op is Op.CAT)
    assert cat.type.shape == (BATCH, 6, 5, 24) and cat.attrs.dim == 3
    (flip,) = (node for node in found.nodes() if node.op is Op.FLIP)
    assert flip.attrs.dims == (2,)
    assert len(copies(found)) == 1


def test_what_is_upsampled_keeps_its_order() -> None:
    m = Make()
    result = TensorType(DType.F32, (BATCH, 16, 12, 10))
    attrs = CallAttrs(
        "aten.upsample_nearest2d.vec", (Operand(0), None, (2.0, 2.0)), (), (result,), ""
    )
    up = m.arena.call((two(m),), attrs)
    found = moved(m.reduced("mean", convolution(m, up, 4), 2, 3))
    assert len(copies(found)) == 1
    calls = [node for node in found.nodes() if node.op is Op.CALL]
    assert [node.attrs.channels_last for node in calls] == 4 * [True]


def test_calls_that_know_nothing_of_it_get_the_usual_order() -> None:
    m = Make()
    unknown = CallAttrs("aten.some.default", (Operand(0),), (), (two(m).type,), "")
    called = m.arena.call((m.relu(two(m)),), unknown)
    found = moved(m.reduced("mean", two(m), 2, 3), called)
    (call,) = (n for n in found.nodes() if n.op is Op.CALL and n.attrs.target == unknown.target)
    assert is_copy(call.inputs[0]) and call.inputs[0].type.shape == (BATCH, 16, 6, 5)


def test_rows_are_not_read_across_for_a_copy() -> None:
    """What computes a softmax of channels does not transpose it, too."""
    m = Make()
    found = groups(m.softmax(convolution(m, m.relu(two(m)), 64), 1))
    rows = [group for group in found if group.kind is GroupKind.REDUCTION]
    assert rows and not any(is_copy(node) for group in rows for node in group.nodes)
    assert [group.only_moves for group in found].count(True) == 2, "of the first and of the result"


def test_where_copies_cost_more_nothing_is_moved() -> None:
    """One convolution whose result rows are computed from: it would be copied, as its operand."""
    m = Make()
    result = m.softmax(convolution(m, m.x("x", BATCH, 16, 6, 5), 16), 1)
    same = graph(result)
    assert in_channels_last(same, SM_80, NO_CONDITIONS) is same


def test_vectors_and_numbers_beside_convolutions_are_read_as_they_are() -> None:
    """Neither put into another order nor given axes of size 1."""
    m = Make()
    of_channels = m.w("of_channels", 16)
    scaled = m.mul(two(m), 2.0)
    shifted = m.add(scaled, m.reshape(of_channels, 1, 16, 1, 1))
    found = moved(m.reduced("mean", m.add(shifted, m.w("of_one", 1, 1)), 2, 3))
    seconds = [node.inputs[1] for node in found.nodes() if node.op in (Op.MUL, Op.ADD)]
    number, vector, one = seconds
    assert number.op is Op.CONST
    assert vector.kind is Kind.SOURCE and vector.type == of_channels.type
    assert one.type.shape == (1,)


def test_a_step_hands_the_library_tensors_with_their_channels_last() -> None:
    """Of large ones, too, which outside a step kernels of ours read as they lie."""
    m = Make()
    first = convolution(m, m.x("x", 64, 256, 56, 56), 256)
    result = m.reduced("mean", convolution(m, m.relu(first), 256), 2, 3)
    step = replace(NO_CONDITIONS, library_convolutions=True)
    copied = []
    for conditions in (NO_CONDITIONS, step):
        found = in_channels_last(graph(result), SM_90A, conditions)
        called = next(node for node in found.nodes() if node.op is Op.CALL)
        copied.append(is_copy(called.inputs[0]))
    assert copied == [False, True]


def test_a_factor_of_each_channel_is_what_was_computed_of_them() -> None:
    """No view of it: as it is in their order already."""
    m = Make()
    y = two(m)
    factor = m.sigmoid(m.reduced("mean", y, 2, 3))
    found = moved(m.reduced("sum", m.mul(y, factor), 2, 3))
    (scaled,) = (node for node in found.nodes() if node.op is Op.MUL)
    assert [node.op for node in scaled.inputs] == [Op.CALL, Op.SIGMOID]
