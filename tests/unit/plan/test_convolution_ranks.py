"""Convolutions of one and three axes of space: which become kernels, and in which order of axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.plan.convolving import (
    LIBRARY,
    TF32,
    conv,
    convolutions,
    nothing_given_back,
    one,
    operations,
    planned,
    refusal,
    tail_of,
)
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CallAttrs, Operand
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.plan import NO_CONDITIONS, Conditions, Plan
from opweld.ir.types import DType, TensorType
from opweld.ir.views import behind_views, is_copy
from opweld.plan.convolutions import with_explicit_biases
from opweld.plan.layouts import channels_last, in_channels_last
from opweld.plan.products.windows import estimate_convolution, is_ours
from opweld.target import CPU, SM_80, SM_90A

LINE, VOLUME = (BATCH, 64, 4096), (BATCH, 64, 16, 32, 32)
SPACES = {1: LINE, 3: VOLUME}
each_rank = pytest.mark.parametrize("space", SPACES)


@pytest.fixture(autouse=True)
def in_their_order() -> Iterator[None]:
    """What convolutions give goes on in their order: other tests are of giving it back."""
    with nothing_given_back():
        yield


def taps(space: int, size: int = 3) -> tuple[int, ...]:
    return (size,) * space


@each_rank
@pytest.mark.parametrize(
    "given",
    [{}, {"padding": 1}, {"stride": 2}, {"dilation": 2, "padding": "same"}, {"padding": "valid"}],
    ids=str,
)
class TestForms:
    def test_a_kernel_reads_its_input_in_place(self, space: int, given: dict[str, Any]) -> None:
        m = Make()
        x = m.x("x", *SPACES[space])
        y = conv(m, x, 96, taps(space), **given)
        group = one(tail_of(m, y))
        made = group.convolution
        assert made is not None and made.x is x and group.inputs[0] is x
        assert made.axes == (0, *range(2, space + 2), 1) and made.out == y.type.shape[2:]
        assert made.stride == (given.get("stride", 1),) * space
        assert operations(group) == ["call", "relu"]


@each_rank
class TestTails:
    def test_a_bias_and_a_residual_join(self, space: int) -> None:
        m = Make()
        first = m.relu(conv(m, m.x("x", *SPACES[space]), 64, taps(space), padding=1))
        second = conv(m, first, 64, taps(space), padding=1, bias=True)
        groups = convolutions(planned(tail_of(m, m.add(second, first))))
        assert [operations(group) for group in groups] == [
            ["call", "relu"],
            ["call", "add", "add", "relu"],
        ]
        made, (kept,) = groups[1].convolution, groups[0].outputs
        assert made is not None and made.x is kept
        assert made.axes == tuple(range(space + 2))

    def test_a_bias_that_nothing_reads_is_an_addition(self, space: int) -> None:
        m = Make()
        y = conv(m, m.x("x", *SPACES[space]), 96, taps(space), bias=True)
        (result,) = with_explicit_biases(graph(y), SM_90A, TF32).outputs
        assert result.op is Op.ADD and result.type == y.type
        same = graph(y)
        assert with_explicit_biases(same, CPU, TF32) is same
        (kept,) = with_explicit_biases(same, SM_80, TF32).outputs
        assert kept is y, "no kernel makes it there"

    def test_what_is_reduced_over_space_or_channels(self, space: int) -> None:
        m = Make()
        y = m.relu(conv(m, m.x("x", *SPACES[space]), 96, taps(space)))
        over_space = m.reduced("sum", y, *range(2, space + 2))
        over_channels = m.reduced("amax", y, 1)
        found = in_channels_last(graph(over_space, over_channels), SM_90A, TF32)
        axes = {n.op: n.attrs.axes for n in found.nodes() if n.op in (Op.SUM, Op.AMAX)}
        assert axes == {Op.SUM: tuple(range(1, space + 1)), Op.AMAX: (space + 1,)}
        assert not any(map(is_copy, found.nodes()))
        assert [n.type for n in found.outputs] == [over_space.type, over_channels.type]

    def test_what_is_joined_pooled_and_padded_keeps_its_order(self, space: int) -> None:
        m = Make()
        first = m.relu(conv(m, m.x("x", *SPACES[space]), 64, taps(space), padding=1))
        windows = m.windows(m.flip(first, 2), *[(2, 2, 0, 1)] * space)
        (
            batch,
            *_,
        ) = first.type.shape
        halves = tuple(int(str(size)) // 2 for size in first.type.shape[2:])
        pooled = m.reduced("amax", windows, *range(space))
        pooled = m.reshape(pooled, batch, 64, *halves)
        joined = m.cat(1, pooled, m.tanh(pooled))
        around = (0, 0, *(1,) * space)
        second = conv(m, m.pad(joined, around, around), 64, taps(space))
        plan = planned(tail_of(m, second))
        assert len(convolutions(plan)) == 2
        assert not any(is_copy(node) for group in plan.groups for node in group.nodes)


@each_rank
class TestOrderOfResults:
    """Of results in memory: what a caller gets has its channels before its space, as in eager."""

    def returned(self, plan: Plan) -> list[Node]:
        return [behind_views(node) for node in plan.graph.outputs]

    def test_of_an_element(self, space: int) -> None:
        m = Make()
        y = m.relu(conv(m, m.x("x", *SPACES[space]), 64, taps(space), bias=True))
        plan = planned(y)
        assert len(convolutions(plan)) == 1
        *_, last = plan.groups
        assert last.outputs[0].type == y.type == self.returned(plan)[0].type

    def test_of_a_pool(self, space: int) -> None:
        m = Make()
        y = m.relu(conv(m, m.x("x", *SPACES[space]), 64, taps(space), padding=1))
        halves = tuple(int(str(size)) // 2 for size in y.type.shape[2:])
        pooled = m.reduced("amax", m.windows(y, *[(2, 2, 0, 1)] * space), *range(space))
        plan = planned(m.reshape(pooled, BATCH, 64, *halves))
        assert len(convolutions(plan)) == 1
        (result,) = plan.graph.outputs
        assert is_copy(result) and result.type.shape == (BATCH, 64, *halves)

    def test_what_a_user_permutes_is_not_copied(self, space: int) -> None:
        """As before a linear layer, and as an operand of another order."""
        m = Make()
        y = m.relu(conv(m, m.x("x", *SPACES[space]), 64, taps(space), padding=1))
        turned = m.permute(y, *channels_last(space + 2))
        other = m.x("other", *turned.type.shape)
        plan = planned(m.call(turned), m.add(m.tanh(turned), other))
        assert len(convolutions(plan)) == 1
        assert not any(is_copy(node) for group in plan.groups for node in group.nodes)


@each_rank
class TestRefusals:
    """They keep PyTorch's order."""

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"stride": 9}, "its windows or strides are out of the copy engine's range"),
        ],
        ids=str,
    )
    def test_forms(self, space: int, given: dict[str, Any], reason: str) -> None:
        m = Make()
        rest = dict(given)
        batch, _, *size = SPACES[space]
        x = m.x("x", batch, rest.pop("channels", 64), *size)
        found = tail_of(m, conv(m, x, 128, taps(space), **rest))
        assert refusal(found) == LIBRARY + reason
        same = graph(found)
        assert in_channels_last(same, SM_90A, TF32) is same

    def test_conditions(self, space: int) -> None:
        m = Make()
        found = tail_of(m, conv(m, m.x("x", *SPACES[space]), 128, taps(space)))
        reasons = {
            "autocast casts its operands": refusal(found, conditions=replace(TF32, autocast=True)),
            "there is no kernel for it on this target yet": refusal(found, target=SM_80),
        }
        assert all(LIBRARY + reason == text for reason, text in reasons.items())

    def test_no_batch(self, space: int) -> None:
        m = Make()
        x, weight = m.x("x", *SPACES[space][1:]), m.w("weight", 64, 64, *taps(space, 1))
        attrs = CallAttrs(
            f"aten.conv{space}d.default", (Operand(0), Operand(1)), (), (x.type,), "a call"
        )
        found = tail_of(m, m.arena.call((x, weight), attrs))
        assert refusal(found) == LIBRARY + "its input has no batch"

    @pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
    def test_16_bits(self, space: int, dtype: DType) -> None:
        m = Make()
        x = m.x("x", *SPACES[space], dtype=dtype)
        found = tail_of(m, conv(m, x, 128, taps(space)))
        assert refusal(found) == LIBRARY + "there is no kernel for its dtype yet"

    def test_what_copies_would_cost(self, space: int) -> None:
        """A convolution between calls that know nothing of the order."""
        m = Make()
        sizes = (BATCH, *(1 << 18 // space,) * space, 64)
        x = m.permute(m.x("x", *sizes), 0, space + 1, *range(1, space + 1))
        y = conv(m, x, 64, (3, 1, 1)[:space], groups=64)
        reason = refusal_of_convolution(planned(m.call(y), conditions=TF32))
        assert reason == LIBRARY + "by the estimate a kernel and copies into its order gain nothing"


def refusal_of_convolution(plan: Plan) -> str:
    (reason,) = (g.reason for g in plan.groups if g.name.startswith("conv"))
    return reason


@pytest.mark.parametrize(
    ("kernel", "taken"),
    [((5, 5, 5), True), ((31, 32), True), ((32, 32), False), ((62,), True), ((63,), False)],
)
def test_a_mask_has_a_bit_for_each_position_of_an_axis(
    kernel: tuple[int, ...], taken: bool
) -> None:
    m = Make()
    x = m.x("x", *VOLUME[:2], *(16, 64, 64)[-len(kernel) :])
    plan = planned(tail_of(m, conv(m, x, 64, kernel)))
    assert bool(convolutions(plan)) == taken


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"padding": 16}, True),
        ({"padding": 17}, False),
        ({"dilation": 7}, True),
        ({"dilation": 8}, False),
        ({"dilation": 7, "stride": 3}, True),
        ({"dilation": 7, "stride": 4}, False),  # the last window may begin 17 places before the end
        ({"dilation": 7, "stride": 4, "padding": 1}, True),
    ],
    ids=str,
)
def test_window_extents_of_three_axes(given: dict[str, int], taken: bool) -> None:
    m = Make()
    plan = planned(tail_of(m, conv(m, m.x("x", BATCH, 64, 40, 40, 40), 64, (3, 3, 3), **given)))
    assert bool(convolutions(plan)) == taken


def test_layers_of_two_ranks_read_each_other() -> None:
    """An axis of size 1 is added to the order, or left out."""
    m = Make()
    line = m.relu(conv(m, m.x("x", *LINE), 64, (3,), padding=1))
    plane = m.relu(conv(m, m.reshape(line, BATCH, 64, 1, 4096), 64, (1, 3), padding=(0, 1)))
    again = conv(m, m.reshape(plane, BATCH, 64, 4096), 64, (3,))
    plan = planned(tail_of(m, again))
    assert [group.convolution.axes for group in convolutions(plan)[1:] if group.convolution] == [
        (0, 1, 2, 3),
        (0, 1, 2),
    ]
    assert not any(is_copy(node) for group in plan.groups for node in group.nodes)


# ms on an H200 (TF32 allowed, 2026-11-24)
MEASURED = {
    "16 x 64 x 65536, 7 taps": ((16, 64, 65536), 128, (7,), {"padding": 3}, 1.24),
    "dilated": ((16, 64, 65536), 64, (3,), {"padding": 8, "dilation": 8}, 0.718),
    "768 channels": ((32, 768, 1024), 768, (3,), {"padding": 1}, 0.52),
    "16 x 96 x 96": ((8, 32, 16, 96, 96), 64, (3, 3, 3), {"padding": 1}, 1.2),
    "of stride 2": ((4, 32, 96, 96, 96), 64, (3, 3, 3), {"padding": 1, "stride": 2}, 0.732),
}


@pytest.mark.parametrize("name", MEASURED)
def test_the_estimate_of_the_library_is_near_what_it_took(name: str) -> None:
    shape, filters, kernel, given, measured_ms = MEASURED[name]
    m = Make()
    call = conv(m, m.x("x", *shape), filters, kernel, **given)
    conditions = Conditions(tf32_convolutions=True)
    assert is_ours(call, SM_90A, conditions, followed=False)
    (made,) = (g.convolution for g in convolutions(planned(tail_of(m, call))))
    assert made is not None
    times = estimate_convolution(call, made, (), SM_90A, NO_CONDITIONS)
    assert 0.65 < times.library / 1000 / measured_ms < 1.45


def test_results_are_of_types_without_a_batch_in_two_axes() -> None:
    """Of rank 3, as one axis with a batch: what tells them apart is the operator."""
    m = Make()
    x, weight = m.x("x", 64, 56, 56), m.w("weight", 64, 64, 1, 1)
    result = TensorType(DType.F32, (64, 56, 56))
    attrs = CallAttrs("aten.conv2d.default", (Operand(0), Operand(1)), (), (result,), "a call")
    same = graph(tail_of(m, m.arena.call((x, weight), attrs)))
    assert in_channels_last(same, SM_90A, TF32) is same
