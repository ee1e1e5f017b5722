"""Convolutions that give what they compute back at once, with its channels first."""

from __future__ import annotations

import pytest
from tests.unit.plan.convolving import TF32, conv, convolutions, operations, planned
from tests.unit.plan.plans import Make, graph

from opweld.ir.attrs import CopyAttrs, GivenBackAttrs
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.plan import GroupKind, Plan
from opweld.ir.views import behind_views
from opweld.plan.layouts import in_channels_last
from opweld.plan.layouts.choice import _Estimates
from opweld.plan.layouts.moved import Moved
from opweld.target import SM_90A

IMAGES = (32, 64, 64, 64)


def convolved(m: Make, x: Node, filters: int = 64) -> Node:
    return conv(m, x, filters, (3, 3), padding=1)


def kernels(plan: Plan) -> list[str]:
    alone = (GroupKind.VIEW, GroupKind.LIBRARY)
    return [" ".join(operations(group)) for group in plan.groups if group.kind not in alone]


def test_a_norm_of_each_channel_is_one_kernel_of_rows() -> None:
    """With its channels last it would take three, of which the last moves the result."""
    m = Make()
    y = convolved(m, m.x("x", *IMAGES))
    plan = planned(m.relu(m.standardised(y, 2, 3)))
    (made,) = convolutions(plan)
    assert operations(made) == ["call", "cast"], "its copy is written by its kernel"
    assert len(kernels(plan)) == 2
    assert plan.groups[-1].outputs[0].type.shape == IMAGES


def test_what_is_computed_of_elements_is_given_back_with_them() -> None:
    m = Make()
    y = m.tanh(m.relu(convolved(m, m.x("x", *IMAGES))))
    plan = planned(m.standardised(y, 2, 3))
    (made,) = convolutions(plan)
    assert operations(made) == ["call", "relu", "tanh", "cast"]


def test_a_pool_gives_images_in_their_format_itself() -> None:
    m = Make()
    y = convolved(m, m.x("x", *IMAGES))
    windows = m.windows(y, (2, 2, 0, 1), (2, 2, 0, 1))
    plan = planned(m.reshape(m.reduced("amax", windows, 0, 1), 32, 64, 32, 32))
    assert len(kernels(plan)) == 2, "no kernel moves what the pool's has computed"


def test_two_readers_of_elements_read_what_is_given_back() -> None:
    """The halves of a gate: the kernel that joins them reads them in order."""
    m = Make()
    y = convolved(m, m.x("x", *IMAGES), 128)
    halves = (m.slice(y, 1, start, 64) for start in (0, 64))
    gate, value = halves
    plan = planned(m.add(m.mul(m.sigmoid(gate), value), m.x("x", *IMAGES)))
    assert [operations(group) for group in convolutions(plan)] == [["call", "cast"]]
    (rest,) = (g for g in plan.groups if g.kind is GroupKind.POINTWISE)
    assert not any(node.op is Op.PERMUTE for node in rest.nodes)


def test_where_convolutions_follow_each_other_with_residuals_nothing_is_given_back() -> None:
    """An epilogue would read the residual of each element across. Without it halos, which are
    faster with channels first, have the results given back.
    """
    m = Make()
    x = m.x("x", 32, 64, 128, 128)
    first = m.relu(convolved(m, x))
    second = m.relu(m.add(convolved(m, first), first))
    third = convolved(m, second)
    found = in_channels_last(graph(m.reduced("mean", third, 2, 3)), SM_90A, TF32)
    assert not any(isinstance(node.attrs, GivenBackAttrs) for node in found.nodes())
    plain = convolved(m, m.relu(convolved(m, m.relu(convolved(m, x)))))
    found = in_channels_last(graph(m.reduced("mean", plain, 2, 3)), SM_90A, TF32)
    assert any(isinstance(node.attrs, GivenBackAttrs) for node in found.nodes())


def moved(*outputs: Node, back: bool) -> Moved:
    whole = graph(*outputs)
    calls = frozenset(node.serial for node in whole.nodes() if node.op is Op.CALL)
    plain = Moved.of(whole, calls, calls, frozenset())
    if not back:
        return plain
    return Moved.of(whole, calls, calls, frozenset(), calls, frozenset(plain.given))


@pytest.mark.parametrize("back", [False, True])
def test_results_keep_the_order_that_they_have_in_eager(back: bool) -> None:
    """Images are given in the inputs' format, whatever was moved before them."""
    m = Make()
    y = convolved(m, m.x("x", *IMAGES))
    made = moved(m.relu(m.add(y, m.reduced("amax", y, 1))), m.tanh(y), back=back)
    assert all(type(node.attrs) is CopyAttrs for node in made.graph.outputs)


def test_operands_that_a_tail_reads_across() -> None:
    """Not what is of each channel, nor the elements of the convolution itself."""
    m = Make()
    x = m.x("x", *IMAGES)
    y = m.add(convolved(m, x), m.w("shift", 64, 1, 1))
    other = convolved(m, m.tanh(x))
    gated = m.mul(y, m.sigmoid(y))
    joined = m.add(gated, m.add(x, other))
    whole = graph(m.reduced("mean", joined, 2, 3))
    calls = frozenset(node.serial for node in whole.nodes() if node.op is Op.CALL)
    across = Moved.of(whole, calls, calls, frozenset(), calls).read_across(whole)
    assert {node.serial for node in across} == {x.serial, gated.serial}


def test_a_value_that_a_view_shows_ends_its_tail() -> None:
    m = Make()
    y = m.relu(convolved(m, m.x("x", *IMAGES)))
    found = moved(m.reshape(m.tanh(m.reshape(y, 32, 8, 8, 4096)), *IMAGES), back=True)
    copies = [n for n in found.graph.nodes() if isinstance(n.attrs, GivenBackAttrs)]
    assert [behind_views(copy.inputs[0]).op for copy in copies] == [Op.RELU]


def costs(result: Node, lost: float = 0.0) -> tuple[float, float]:
    """Microseconds with results that go on in their order, and with those given back."""
    found = []
    for back in (False, True):
        made = moved(result, back=back)
        estimates = _Estimates(graph(result), {}, dict.fromkeys(made.chosen, lost), SM_90A, TF32)
        found.append(estimates.cost(made))
    return found[0], found[1]


class TestCosts:
    """Where no copy is left, since all of an image is reduced to one value."""

    def test_of_a_kernel_that_is_slower_with_channels_last(self) -> None:
        m = Make()
        y = convolved(m, m.x("x", *IMAGES))
        assert costs(m.reduced("amax", y, 1, 2, 3), lost=7.0) == (7.0, 0.0)

    def test_of_reductions_over_space_with_a_second_read(self) -> None:
        m = Make()
        y = convolved(m, m.x("x", *IMAGES))
        centred = m.sub(y, m.reduced("mean", y, 2, 3))
        on, back = costs(m.reduced("amax", centred, 1, 2, 3))
        assert on > 10.0 and back == 0.0

    def test_of_operands_that_are_read_across(self) -> None:
        m = Make()
        y = convolved(m, m.x("x", *IMAGES))
        shifted = m.reduced("amax", m.add(y, m.tanh(m.x("z", *IMAGES))), 1, 2, 3)
        on, back = costs(shifted)
        _, of_bias = costs(m.reduced("amax", m.add(y, m.w("w", 64, 1, 1)), 1, 2, 3))
        assert back - on > 10.0 and of_bias == 0.0
