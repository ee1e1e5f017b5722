"""Transposed convolutions: their phases, which become kernels, and what the plan says of others."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
from tests.capturing import assert_agrees, exported
from tests.gpu.emitting import all_convolutions_ours
from tests.unit.plan.convolving import (
    LIBRARY,
    TF32,
    conv,
    convolutions,
    one,
    operations,
    planned,
    refusal,
    tail_of,
    transposed,
)
from tests.unit.plan.plans import BATCH, Make, graph
from torch import Tensor, nn

from opweld.ir.attrs import CallAttrs, Operand
from opweld.ir.check import check
from opweld.ir.expr import Size
from opweld.ir.graph import Tracking
from opweld.ir.kernels.convolution import Convolving, phases_along
from opweld.ir.kernels.product import Mode
from opweld.ir.ops import Op
from opweld.ir.plan import NO_CONDITIONS, ConvolutionSchedule, GroupKind
from opweld.ir.text import to_text
from opweld.ir.types import DType, TensorType
from opweld.ir.views import is_copy
from opweld.lower import lower
from opweld.plan.convolutions import with_explicit_biases
from opweld.plan.layouts import in_channels_last
from opweld.plan.products.windows import convolution_of, estimate_convolution, schedule_of
from opweld.target import CPU, SM_80, SM_90A

SPACES: dict[int, tuple[Size, ...]] = {
    1: (BATCH, 128, 2048),
    2: (BATCH, 128, 28, 28),
    3: (BATCH, 128, 8, 14, 14),
}
each_rank = pytest.mark.parametrize("space", SPACES)


class TestPhases:
    @pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
    @pytest.mark.parametrize("stride", [1, 2, 3, 4, 6])
    def test_they_bring_what_all_taps_do(self, kernel: int, stride: int) -> None:
        """Pixels to output pixels by taps, as the definition has it."""
        size = 6
        for padding, dilation in product((0, 1, 2, 5), (1, 2, 3, 4)):
            pixels = range((size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1)
            brought = {
                (i, i * stride - padding + k * dilation) for i in range(size) for k in range(kernel)
            }
            phases = phases_along(kernel, stride, padding, dilation)
            assert [phase.first for phase in phases] == list(range(stride))
            assert sum(phase.taps for phase in phases) == kernel
            found = {
                (place // stride - phase.padding + tap * phase.dilation, place)
                for phase in phases
                for place in pixels[phase.first :: stride]
                for tap in range(phase.taps)
            }
            assert {pair for pair in brought if pair[1] in pixels} == {
                pair for pair in found if pair[0] in range(size)
            }


@each_rank
class TestForms:
    @pytest.mark.parametrize("by_keyword", [False, True])
    @pytest.mark.parametrize(
        "given",
        [
            {"stride": 2},
            {"stride": 2, "padding": 1, "output_padding": 1},
            {"padding": 1},
            {"stride": 3, "dilation": 2},
        ],
        ids=str,
    )
    def test_a_kernel_reads_its_input_in_place(
        self, space: int, given: dict[str, Any], by_keyword: bool
    ) -> None:
        m = Make()
        x = m.x("x", *SPACES[space])
        y = transposed(m, x, 96, (3,) * space, by_keyword=by_keyword, **given)
        group = one(tail_of(m, y))
        made = group.convolution
        assert made is not None and made.transposed and made.x is x and group.inputs[0] is x
        assert made.axes == (0, *range(2, space + 2), 1) and made.out == y.type.shape[2:]
        assert made.stride == (given.get("stride", 1),) * space
        assert made.padding == (given.get("padding", 0),) * space
        assert made.dilation == (given.get("dilation", 1),) * space
        assert operations(group) == ["call", "relu"]

    def test_sizes(self, space: int) -> None:
        m = Make()
        x = m.x("x", *SPACES[space])
        made = one(tail_of(m, transposed(m, x, 96, (4,) * space, stride=2))).convolution
        assert made is not None
        windows = made.windows
        assert (windows.channels, windows.filters) == (128, 96)
        assert windows.kernel == (4,) * space
        assert windows.flops == x.type.num_elems * 96 * 4**space * 2

    def test_what_follows_joins_a_kernel_in_the_same_order(self, space: int) -> None:
        m = Make()
        first = m.relu(transposed(m, m.x("x", *SPACES[space]), 64, (2,) * space, stride=2))
        second = m.add(transposed(m, first, 64, (3,) * space, padding=1, bias=True), first)
        third = conv(m, second, 64, (3,) * space)
        groups = convolutions(planned(tail_of(m, third)))
        assert [operations(group) for group in groups] == [
            ["call", "relu"],
            ["call", "add", "add"],
            ["call", "relu"],
        ]

    def test_a_bias_that_nothing_reads_is_an_addition(self, space: int) -> None:
        m = Make()
        y = transposed(m, m.x("x", *SPACES[space]), 96, (4,) * space, stride=2, bias=True)
        (result,) = with_explicit_biases(graph(y), SM_90A, TF32).outputs
        assert result.op is Op.ADD and result.type == y.type
        (kept,) = with_explicit_biases(graph(y), SM_80, TF32).outputs
        assert kept is y, "no kernel makes it there"
        step = replace(TF32, library_convolutions=True)
        assert with_explicit_biases(graph(y), SM_90A, step).outputs == (y,)

    def test_a_result_is_put_into_eagers_order(self, space: int) -> None:
        m = Make()
        y = m.relu(transposed(m, m.x("x", *SPACES[space]), 64, (4,) * space, stride=2))
        plan = planned(m.reduced("mean", y, 1), m.tanh(y))
        assert len(convolutions(plan)) == 1
        copies = [node for group in plan.groups for node in group.nodes if is_copy(node)]
        assert len(copies) == 1 and plan.graph.outputs[1].type == y.type

    def test_the_librarys_keep_their_order(self, space: int) -> None:
        """On another target, too, where plain ones of two axes are moved."""
        m = Make()
        x = m.x("x", *SPACES[space])
        same = graph(m.relu(transposed(m, x, 64, (4,) * space, stride=2, groups=2)))
        assert in_channels_last(same, SM_90A, TF32) is same
        assert in_channels_last(same, SM_80, TF32) is same
        assert in_channels_last(same, CPU, TF32) is same

    def test_few_channels(self, space: int) -> None:
        m = Make()
        x = m.x("x", BATCH, 16, *SPACES[space][2:])
        assert one(tail_of(m, transposed(m, x, 64, (4,) * space, stride=2))).convolution


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"groups": 2}, "it is transposed and has groups"),
            ({"output_padding": 1}, "PyTorch refuses its output_padding"),
            ({"stride": 3, "dilation": 2, "output_padding": 3}, "PyTorch refuses its output"),
            ({"stride": (2, 1), "output_padding": (1, 1)}, "PyTorch refuses its output_padding"),
            ({"stride": 6}, "its strides have more than 32 phases"),
            ({"kernel": (5, 59)}, "its phases have more than 64 positions of its kernel along"),
            ({"kernel": (1, 2), "dilation": 128}, "its windows are out of the copy engine's range"),
            (
                {"kernel": (1, 2), "padding": (0, 129)},
                "its windows are out of the copy engine's range",
            ),
        ],
        ids=str,
    )
    def test_forms(self, given: dict[str, Any], reason: str) -> None:
        m = Make()
        rest = dict(given)
        kernel, channels = rest.pop("kernel", (3, 3)), rest.pop("channels", 64)
        y = transposed(m, m.x("x", BATCH, 16, 300, channels), 128, kernel, last=True, **rest)
        assert refusal(m.relu(y)).startswith(LIBRARY + reason)

    @pytest.mark.parametrize(("padding", "taken"), [(128, True), (129, False)])
    def test_the_corner_of_the_last_window_is_in_range(self, padding: int, taken: bool) -> None:
        m = Make()
        x = m.x("x", BATCH, 16, 300, 64)
        how: dict[str, Any] = {"padding": (0, padding), "dilation": (1, 127)}
        y = transposed(m, x, 128, (1, 2), last=True, **how)
        assert bool(convolutions(planned(m.relu(y)))) == taken

    def test_many_positions_in_few_at_a_stride(self) -> None:
        m = Make()
        x = m.x("x", BATCH, 32, 32, 64)
        y = transposed(m, x, 128, (12, 12), last=True, stride=4, padding=4)
        assert one(m.relu(y)).convolution is not None

    def test_other_types(self) -> None:
        m = Make()
        x = m.x("x", BATCH, 28, 28, 64, dtype=DType.F16)
        y = transposed(m, x, 64, (4, 4), last=True, stride=2)
        assert refusal(m.relu(y)) == LIBRARY + "there is no kernel for its dtype yet"

    def test_no_batch(self) -> None:
        m = Make()
        x, weight = m.x("x", 64, 28, 28), m.w("weight", 64, 128, 2, 2)
        result = TensorType(DType.F32, (128, 29, 29))
        attrs = CallAttrs(
            "aten.conv_transpose2d.input", (Operand(0), Operand(1)), (), (result,), ""
        )
        with pytest.raises(Exception, match="its input has no batch"):
            convolution_of(m.arena.call((x, weight), attrs))

    def test_what_gains_nothing(self) -> None:
        """Few filters of one tap: a tile has room for 64."""
        m = Make()
        y = transposed(m, m.x("x", 64, 64, 64, 33), 1, (2, 2), last=True, stride=2)
        reason = refusal(m.relu(y))
        assert reason.startswith("a convolution that gains nothing as a kernel of ours: as 4 of")


class TestPhaseColumns:
    def columns(self, stride: int, kernel: int, filters: int, first: bool, **more: Any) -> int:
        m = Make()
        x = m.x("x", BATCH, 64, 32, 32)
        made = convolution_of(transposed(m, x, filters, (kernel, kernel), stride=stride, **more))
        return schedule_of(made, Mode.TF32, channels_first=first).phase_columns

    @pytest.mark.parametrize(("stride", "columns"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8)])
    def test_results_with_their_channels_first(self, stride: int, columns: int) -> None:
        assert self.columns(stride, stride + 1, 48, True) == columns

    def test_of_many_filters_with_their_channels_last(self) -> None:
        """Nothing is written apart, and of three positions each phase has two."""
        assert self.columns(2, 4, 128, False, padding=1) == 1
        assert self.columns(2, 4, 32, False, padding=1) == 2

    def test_taps_that_are_not_neighbours(self) -> None:
        assert self.columns(2, 3, 48, True, dilation=3) == 1
        assert self.columns(2, 3, 48, True, dilation=2) == 2

    def test_positions_that_no_mask_has(self) -> None:
        assert self.columns(2, 62, 48, True) == 2
        assert self.columns(2, 63, 48, True) == 1

    def test_a_kernel_that_writes_eagers_order(self) -> None:
        m = Make()
        y = transposed(m, m.x("x", *SPACES[2]), 48, (4, 4), stride=2)
        group = one(m.relu(y))
        assert isinstance(group.schedule, ConvolutionSchedule)
        assert group.schedule.phase_columns == 2
        assert str(group.schedule).startswith(
            "mode tf32, 64 filters a tile, 2 phases of each beside each other"
        )


class TestEstimates:
    def times(self, stride: int, kernel: int, size: int) -> float:
        m = Make()
        x = m.x("x", 32, size, size, 128)
        y = transposed(m, x, 128, (kernel, kernel), last=True, stride=stride)
        made = convolution_of(y)
        return estimate_convolution(y, made, (y,), SM_90A, NO_CONDITIONS, Mode.TF32).ours

    def test_the_library_is_slow_at_many_taps_of_three_axes(self) -> None:
        """For which its windows are looked up."""

        def library(kernel: int) -> float:
            m = Make()
            x = m.x("x", 8, 16, 32, 32, 32)
            y = transposed(m, x, 64, (kernel,) * 3, last=True)
            made = convolution_of(y)
            return estimate_convolution(y, made, (), SM_90A, NO_CONDITIONS, Mode.TF32).library

        assert library(4) / library(3) > 10 * (4 / 3) ** 3

    def test_the_sums_are_those_of_all_phases(self) -> None:
        """As many terms take as long in one phase as in four, but for what is packed."""
        one_phase, four = self.times(1, 3, 56), self.times(2, 6, 56)
        assert 3 * one_phase < four < 5 * one_phase


def test_it_prints_and_lowers() -> None:
    m = Make()
    x, shift = m.x("x", *SPACES[2]), m.w("shift", 96, 1, 1)
    y = transposed(m, x, 96, (4, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
    plan = planned(tail_of(m, m.add(y, shift)))
    (group,) = convolutions(plan)
    assert group.reason.startswith("a convolution with the 2 operations after it: as 2 of stride 1")
    (convolving,) = (each for each in lower(plan) if isinstance(each, Convolving))
    check(convolving)
    head, *rest = to_text(convolving).splitlines()
    assert head == f"convolution {convolving.group} [s0, 56, 32, 96] mode tf32, 128 filters a tile"
    assert rest[2] == "  transposed stride (2, 1) padding (1, 0) dilation (1, 2)"


def test_for_a_training_step_the_library_makes_it() -> None:
    m = Make()
    y = transposed(m, m.x("x", *SPACES[2]), 96, (4, 4), stride=2)
    plain = graph(tail_of(m, y))
    statistics = Tracking("mean", "variance", None, 0.1, (0, 0))
    tracked, step = replace(plain, tracked=(statistics,)), replace(TF32, library_convolutions=True)
    assert in_channels_last(tracked, SM_90A, step).outputs == plain.outputs
    assert in_channels_last(tracked, SM_90A, TF32).outputs != plain.outputs
    assert GroupKind.LIBRARY in [g.kind for g in planned(tail_of(m, y), target=SM_80).groups]


LAYERS = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


class Model(nn.Module):
    """A transposed convolution of drawn numbers between two operations, and a second one."""

    def __init__(self, seed: int, space: int) -> None:
        super().__init__()
        draw = random.Random(seed)

        def each(*values: int) -> tuple[int, ...]:
            return tuple(draw.choice(values) for _ in range(space))

        stride, dilation = each(1, 2, 3), each(1, 1, 2)
        numbers = (each(2, 3, 4), stride, each(0, 1), tuple(s - 1 for s in stride), 1)
        self.first = LAYERS[space](33, 36, *numbers, draw.random() < 0.5, dilation)
        self.second = LAYERS[space](36, 32, 2, 2, bias=draw.random() < 0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = torch.relu(self.first(x.tanh()))
        z = torch.sigmoid(self.second(y))
        return z, y.amax(1), z.mean(tuple(range(2, z.dim())))


@each_rank
@pytest.mark.parametrize("seed", range(6))
def test_graphs_with_channels_last_compute_what_modules_do(space: int, seed: int) -> None:
    torch.manual_seed(seed)
    module = Model(seed, space).eval()
    x = torch.randn(2, 33, *(6, 5, 4)[:space])
    variant = exported(module, x)
    with (
        all_convolutions_ours(),
        mock.patch("opweld.plan.layouts.choice._is_worth_it", return_value=True),
    ):
        moved = with_explicit_biases(variant.graph, SM_90A, TF32)
        moved = in_channels_last(moved, SM_90A, TF32)
    calls = [node for node in moved.nodes() if node.op is Op.CALL and "conv" in node.attrs.target]
    assert len(calls) == 2 and all(call.attrs.channels_last for call in calls)
    assert_agrees(replace(variant, graph=moved), module, x)
