"""Which convolutions become kernels, with which tail, and what the plan says of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.plan.convolving import (
    IMAGE,
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

from opweld.ir.attrs import CallAttrs, IotaAttrs, Operand
from opweld.ir.check import check
from opweld.ir.kernels.check import InvalidKernel
from opweld.ir.kernels.convolution import Convolving
from opweld.ir.kernels.product import Mode
from opweld.ir.plan import Conditions
from opweld.ir.text import to_text
from opweld.ir.types import DType, TensorType
from opweld.ir.views import behind_views
from opweld.lower import lower
from opweld.plan.products.choice import choose_products
from opweld.plan.products.windows import convolution_of, schedule_of
from opweld.target import CPU, SM_80, SM_90A, Target


class TestForms:
    @pytest.mark.parametrize(
        ("kernel", "given", "padding"),
        [
            ((1, 1), {}, (0, 0)),
            ((3, 3), {"padding": 1}, (1, 1)),
            ((3, 3), {"stride": (2, 2), "padding": (1, 1)}, (1, 1)),
            ((3, 3), {"dilation": [2], "padding": [2]}, (2, 2)),
            ((3, 5), {"padding": (0, 2)}, (0, 2)),
            ((3, 3), {"padding": "same"}, (1, 1)),
            ((2, 4), {"padding": "same", "dilation": 3}, (1, 4)),
            ((3, 3), {"padding": "valid"}, (0, 0)),
            ((8, 8), {"stride": 8}, (0, 0)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("by_place", [False, True])
    def test_a_kernel(
        self,
        kernel: tuple[int, int],
        given: dict[str, Any],
        padding: tuple[int, int],
        by_place: bool,
    ) -> None:
        m = Make()
        y = conv(m, m.x("x", *IMAGE), 128, kernel, by_place=by_place, **given)
        group = one(tail_of(m, y))
        made = group.convolution
        assert made is not None and made.padding == padding
        stride, dilation = given.get("stride", 1), given.get("dilation", 1)
        assert made.stride == (stride if isinstance(stride, tuple) else (stride,) * 2)
        assert made.dilation == ((dilation if isinstance(dilation, int) else dilation[0]),) * 2
        assert made.out == y.type.shape[2:]

    def test_its_input_is_read_in_place(self) -> None:
        m = Make()
        x = m.x("x", *IMAGE)
        group = one(tail_of(m, conv(m, x, 128, (3, 3))))
        made = group.convolution
        assert made is not None and made.x is x and made.axes == (0, 2, 3, 1)
        assert group.inputs[0] is x

    def test_through_permutes(self) -> None:
        m = Make()
        x = m.x("x", 56, 64, BATCH, 56)
        group = one(tail_of(m, conv(m, m.permute(x, 2, 1, 3, 0), 128, (3, 3))))
        made = group.convolution
        assert made is not None and made.x is x and made.axes == (2, 3, 0, 1)
        assert made.windows.batch == BATCH and made.windows.space == (56, 56)

    def test_a_slice_of_channels_is_one_in_memory(self) -> None:
        m = Make()
        x = m.x("x", BATCH, 128, 56, 56)
        made = one(tail_of(m, conv(m, m.slice(x, 1, 64, 64), 128, (3, 3)))).convolution
        assert made is not None and made.windows.channels == 64

    def test_sizes(self) -> None:
        m = Make()
        made = one(tail_of(m, conv(m, m.x("x", *IMAGE), 96, (3, 2), stride=2))).convolution
        assert made is not None
        windows = made.windows
        assert (windows.batch, windows.space, windows.channels) == (BATCH, (56, 56), 64)
        assert (windows.filters, windows.kernel, windows.out) == (96, (3, 2), (27, 28))
        assert windows.rows == BATCH * 27 * 28
        assert windows.flops == BATCH * 27 * 28 * 96 * 64 * 6 * 2

    @pytest.mark.parametrize("kernel", [(5,), (3, 1, 2)], ids=str)
    def test_of_one_axis_and_of_three_with_their_channels_last(
        self, kernel: tuple[int, ...]
    ) -> None:
        m = Make()
        space = (4096,) if len(kernel) == 1 else (16, 32, 32)
        y = conv(m, m.x("x", BATCH, *space, 64), 128, kernel, last=True, padding=2)
        made = one(m.relu(y)).convolution
        assert made is not None and made.axes == tuple(range(len(kernel) + 2))
        assert made.out == y.type.shape[1:-1]

    @pytest.mark.parametrize(
        ("filters", "columns", "lanes"),
        [(64, 64, 4), (48, 64, 4), (37, 64, 1), (65, 128, 1), (66, 128, 2), (512, 128, 4)],
    )
    def test_tiles(self, filters: int, columns: int, lanes: int) -> None:
        m = Make()
        made = convolution_of(conv(m, m.x("x", *IMAGE), filters, (3, 3)))
        expected = f"mode tf32, {columns} filters a tile, vector width {lanes}"
        assert str(schedule_of(made, Mode.TF32)) == expected

    @pytest.mark.parametrize(("kernel", "columns"), [((1, 1), 64), ((2, 3), 64), ((2, 4), 128)])
    def test_few_intervals_have_narrow_tiles(self, kernel: tuple[int, int], columns: int) -> None:
        m = Make()
        made = convolution_of(conv(m, m.x("x", *IMAGE), 256, kernel))
        assert schedule_of(made, Mode.TF32).columns == columns
        assert schedule_of(made, Mode.FAITHFUL).columns == (64 if kernel == (1, 1) else 128)


class TestTails:
    def test_what_follows_joins(self) -> None:
        """A bias and a residual, which is the first one's result in the same order."""
        m = Make()
        first = m.relu(conv(m, m.x("x", *IMAGE), 64, (3, 3), padding=1))
        second = conv(m, first, 64, (3, 3), padding=1, bias=True)
        groups = convolutions(planned(tail_of(m, m.add(second, first))))
        assert [operations(group) for group in groups] == [
            ["call", "relu"],
            ["call", "add", "add", "relu"],
        ]
        made, (kept,) = groups[1].convolution, groups[0].outputs
        assert made is not None and made.x is kept
        operand, weight, bias = groups[1].inputs
        assert operand is kept
        assert [behind_views(node).attrs.name for node in (weight, bias)] == [
            weight.attrs.name,
            "bias",
        ]

    def test_two_in_a_row_are_two_kernels(self) -> None:
        m = Make()
        first = m.relu(conv(m, m.x("x", *IMAGE), 64, (3, 3), padding=1))
        second = conv(m, first, 64, (3, 3), padding=1)
        with nothing_given_back():
            plan = planned(tail_of(m, second))
        assert [operations(group) for group in convolutions(plan)] == [["call", "relu"]] * 2
        first_made, second_made = (group.convolution for group in convolutions(plan))
        assert first_made and second_made and second_made.axes == (0, 1, 2, 3)
        assert second_made.x in convolutions(plan)[0].outputs

    @pytest.mark.parametrize(
        ("dims", "joins"), [((0, 1, 2, 3), True), ((0, 2, 1, 3), False), ((0, 3, 2, 1), False)]
    )
    def test_an_operand_of_another_order_does_not_join(
        self, dims: tuple[int, ...], joins: bool
    ) -> None:
        """Its epilogue reads vectors along the channels, a row of pixels after another."""
        m = Make()
        y = conv(m, m.x("x", BATCH, 64, 64, 64), 64, (3, 3), last=True, padding=1)
        other = m.permute(m.x("other", BATCH, 64, 64, 64), *dims)
        (group,) = convolutions(planned(m.add(m.relu(y), other)))
        assert operations(group) == ["call", "relu", *(["add"] if joins else [])]

    def test_an_index_does_not_join(self) -> None:
        """An index that the kernel would compute is no operand with strides."""
        m = Make()
        y = conv(m, m.x("x", BATCH, 64, 64, 64), 64, (3, 3), last=True, padding=1)
        places = m.arena.iota(IotaAttrs(0.0, 1.0, 64), DType.F32)
        (group,) = convolutions(planned(m.add(m.relu(y), places)))
        assert operations(group) == ["call", "relu"]

    def test_one_that_is_a_result_with_its_bias(self) -> None:
        """The result of the graph has its axes in the usual order."""
        m = Make()
        y = conv(m, m.x("x", *IMAGE), 64, (3, 3), bias=True)
        plan = planned(y)
        (group,) = convolutions(plan)
        assert operations(group)[:2] == ["call", "add"]
        assert plan.graph.outputs[0].type == y.type
        assert group.convolution is not None and group.convolution.out == y.type.shape[2:]


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"kernel": (32, 32)}, "its kernel has more than 64 positions along its axes"),
            ({"stride": 9}, "its windows or strides are out of the copy engine's range"),
            ({"padding": 129}, "its windows or strides are out of the copy engine's range"),
            ({"kernel": (1, 2), "dilation": 128, "padding": 100}, "its windows or strides"),
        ],
        ids=str,
    )
    def test_forms(self, given: dict[str, Any], reason: str) -> None:
        m = Make()
        rest = dict(given)
        kernel, channels = rest.pop("kernel", (3, 3)), rest.pop("channels", 64)
        x = m.x("x", BATCH, 150, 150, channels)
        y = conv(m, x, 128, kernel, last=True, **rest)
        assert refusal(m.relu(y)).startswith(LIBRARY + reason)

    @pytest.mark.parametrize(("padding", "taken"), [(127, True), (128, False)])
    def test_the_corner_of_the_last_window_is_in_range(self, padding: int, taken: bool) -> None:
        """Of one tap, so that it begins as far behind the image as the first before it."""
        m = Make()
        x = m.x("x", BATCH, 16, 150, 64)
        plan = planned(m.relu(conv(m, x, 128, (1, 1), last=True, padding=(0, padding))))
        assert bool(convolutions(plan)) == taken

    @pytest.mark.parametrize(("padding", "taken"), [(16, True), (17, False)])
    def test_three_axes_allow_less_padding(self, padding: int, taken: bool) -> None:
        m = Make()
        x = m.x("x", BATCH, 16, 32, 32, 64)
        plan = planned(m.relu(conv(m, x, 128, (3, 3, 3), last=True, padding=padding)))
        assert bool(convolutions(plan)) == taken

    @pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64])
    def test_other_types(self, dtype: DType) -> None:
        m = Make()
        x = m.x("x", BATCH, 56, 56, 64, dtype=dtype)
        y = conv(m, x, 128, (3, 3), last=True)
        assert refusal(m.relu(y)) == LIBRARY + "there is no kernel for its dtype yet"

    def test_autocast(self) -> None:
        m = Make()
        y = conv(m, m.x("x", BATCH, 56, 56, 64), 128, (3, 3), last=True)
        conditions = replace(TF32, autocast=True)
        assert refusal(m.relu(y), conditions=conditions) == LIBRARY + "autocast casts its operands"

    def test_a_bias_of_its_own(self) -> None:
        """Where no kernel reads the result, and adds it."""
        m = Make()
        call = conv(m, m.x("x", BATCH, 56, 56, 64), 128, (3, 3), last=True, bias=True)
        choice = choose_products(graph(m.relu(call)), SM_90A, TF32)
        assert choice.refused[call.serial] == LIBRARY + "it has a bias, which nothing reads"

    def test_no_batch(self) -> None:
        m = Make()
        x, weight = m.x("x", 64, 56, 56), m.w("weight", 128, 64, 3, 3)
        result = TensorType(DType.F32, (128, 54, 54))
        attrs = CallAttrs("aten.conv2d.default", (Operand(0), Operand(1)), (), (result,), "")
        with pytest.raises(Exception, match="its input has no batch"):
            convolution_of(m.arena.call((x, weight), attrs))

    @pytest.mark.parametrize("target", [SM_80, replace(SM_90A, products=frozenset())])
    def test_other_targets(self, target: Target) -> None:
        m = Make()
        y = conv(m, m.x("x", BATCH, 56, 56, 64), 128, (3, 3), last=True)
        plan = planned(m.relu(y), target=target)
        assert not convolutions(plan)

    def test_the_cpu(self) -> None:
        m = Make()
        plan = planned(tail_of(m, conv(m, m.x("x", *IMAGE), 128, (3, 3))), target=CPU)
        assert not convolutions(plan)

    def test_what_gains_nothing(self) -> None:
        """Few filters: a tile has room for 64."""
        m = Make()
        y = conv(m, m.x("x", BATCH, 256, 256, 32), 1, (2, 2), last=True)
        reason = refusal(m.relu(y), conditions=replace(TF32, sizes=(("s0", 64),)))
        assert reason.startswith("a convolution that gains nothing as a kernel of ours: about ")


def test_flags_say_how_exact_it_is() -> None:
    m = Make()
    y = tail_of(m, conv(m, m.x("x", *IMAGE), 128, (3, 3)))
    modes = [
        one(y, conditions=Conditions(tf32_convolutions=flag)).schedule.mode  # type: ignore[union-attr]
        for flag in (True, False)
    ]
    assert modes == [Mode.TF32, Mode.FAITHFUL]


def test_the_flag_of_products_is_another() -> None:
    m = Make()
    y = tail_of(m, conv(m, m.x("x", *IMAGE), 128, (3, 3)))
    assert "mode faithful" in str(one(y, conditions=Conditions(tf32=True)).schedule)


class TestLowered:
    def lowered(self) -> Convolving:
        m = Make()
        x, shift = m.x("x", *IMAGE), m.w("shift", 96, 1, 1)
        y = conv(m, x, 96, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
        (convolving,) = (
            each
            for each in lower(planned(tail_of(m, m.add(y, shift))))
            if isinstance(each, Convolving)
        )
        return convolving

    def test_it_is_well_formed_and_prints(self) -> None:
        convolving = self.lowered()
        check(convolving)
        head, *rest = to_text(convolving).splitlines()
        assert head == (
            f"convolution {convolving.group} [s0, 28, 54, 96] mode tf32, 64 filters a tile"
        )
        assert rest[:3] == [
            "  x = inputs[0] along 0, 2, 3, 1",
            "  weight = inputs[1]",
            "  stride (2, 1) padding (1, 0) dilation (1, 2)",
        ]

    @pytest.mark.parametrize("fault", ["reads one of its results", "touches", "does not tell"])
    def test_what_is_wrong_is_found(self, fault: str) -> None:
        convolving = self.lowered()
        result = next(i for i, b in enumerate(convolving.buffers) if b.written)
        wrong = {
            "reads one of its results": replace(convolving, x=result),
            "touches": replace(convolving, buffers=convolving.buffers[:-1]),
            "does not tell": replace(convolving, axes=()),
        }
        with pytest.raises(InvalidKernel, match=fault):
            check(wrong[fault])
