"""Convolutions of each channel by itself whose channels come before their space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.plan.convolving import LIBRARY, TF32, conv, convolutions, operations, planned
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CallAttrs, CopyAttrs, Operand, TorchLiteral
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.plan import Group, Plan
from opweld.ir.text import to_text
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.plan.layouts import in_channels_last
from opweld.plan.layouts.planes import with_formats
from opweld.plan.products.choice import choose_products
from opweld.plan.products.depthwise import estimate_depthwise
from opweld.plan.products.windows import convolution_of
from opweld.render.cuda.texts import cuda_text
from opweld.target import SM_80, SM_90A, Target

IMAGE = (BATCH, 96, 56, 56)
SPACES = {1: (BATCH, 96, 4096), 2: IMAGE, 3: (BATCH, 96, 12, 24, 24)}


def each(m: Make, x: Node, taps: int = 3, **given: Any) -> Node:
    """A filter for each channel, around each place."""
    channels, space = int(str(x.type.shape[1])), x.type.rank - 2
    how = {"padding": taps // 2, "groups": channels} | given
    return conv(m, x, channels, (taps,) * space, **how)


def in_planes(plan: Plan) -> list[bool]:
    return [group.convolution.in_planes for group in convolutions(plan) if group.convolution]


def alone(plan: Plan) -> Group:
    (group,) = plan.groups
    assert group.convolution is not None and group.convolution.in_planes
    return group


@pytest.mark.parametrize("target", [SM_90A, SM_80])
@pytest.mark.parametrize("space", SPACES)
def test_they_are_one_kernel_with_what_is_behind(space: int, target: Target) -> None:
    m = Make()
    x, residual = m.x("x", *SPACES[space]), m.x("residual", *SPACES[space])
    y = m.mul(m.relu(each(m, x, bias=True)), residual)
    group = alone(planned(y, target=target))
    computed = [name for name in operations(group) if name != "cast"]
    assert computed == ["call", "add", "relu", "mul"] and group.inputs[0] is x
    assert str(group.schedule) == "mode faithful, each channel by itself, vector width 4"
    assert "as planes, its channels before its space, about" in group.reason


def test_an_image_has_the_format_that_eager_gives_it() -> None:
    m = Make()
    group = alone(planned(m.relu(each(m, m.x("x", *IMAGE)))))
    assert isinstance(group.outputs[0].attrs, CopyAttrs) and not group.outputs[0].attrs.always
    m = Make()
    first = m.relu(each(m, m.x("x", *IMAGE)))
    inner, outer = convolutions(planned(each(m, first)))
    assert operations(inner) == ["call", "relu"], "what nobody sees has no format"
    assert operations(outer) == ["call", "cast"]
    m = Make()
    line = alone(planned(each(m, m.x("x", *SPACES[1]))))
    assert operations(line) == ["call"]


def test_long_chains_are_walked_once() -> None:
    """Of forty steps that each read the one before twice there are 2^40 ways back."""
    m = Make()
    image = m.x("x", *IMAGE)
    behind, apart = each(m, image), m.x("y", *IMAGE)
    for _ in range(40):
        behind, apart = (m.mul(node, m.tanh(node)) for node in (behind, apart))
    made, other = with_formats(graph(behind, apart), SM_90A, TF32).outputs
    assert isinstance(made.attrs, CopyAttrs) and other.op is Op.MUL


def test_what_is_of_another_shape_has_no_say_in_a_format() -> None:
    m = Make()
    one = each(m, m.x("one", 1, 96, 56, 56))
    (made,) = with_formats(graph(m.add(one, m.x("x", 32, 96, 56, 56))), SM_90A, TF32).outputs
    assert made.op is Op.ADD


def test_what_is_not_elementwise_is_not_of_planes() -> None:
    m = Make()
    made = each(m, m.x("x", *IMAGE))
    (last,) = with_formats(graph(m.call(made)), SM_90A, TF32).outputs
    assert last.op is Op.CALL


def test_times_are_those_of_planes() -> None:
    m = Make()
    call = each(m, m.x("x", *IMAGE))
    made = convolution_of(call)
    ours, library = estimate_depthwise(call, made, False, SM_90A, ())
    own, eagers = estimate_depthwise(call, replace(made, in_planes=True), False, SM_90A, ())
    assert ours < own < eagers and library < eagers


def test_a_result_that_is_read_besides_is_written_once() -> None:
    m = Make()
    first = m.relu(each(m, m.x("x", *IMAGE)))
    group = alone(planned(first, m.tanh(first)))
    assert len(group.outputs) == 2
    assert all(isinstance(node.attrs, CopyAttrs) for node in group.outputs)


@pytest.mark.parametrize(("width", "lanes"), [(56, 4), (58, 2), (57, 1)])
def test_as_many_neighbours_at_once_as_a_row_has(width: int, lanes: int) -> None:
    m = Make()
    group = alone(planned(m.relu(each(m, m.x("x", BATCH, 96, 56, width)))))
    assert str(group.schedule).endswith(f"vector width {lanes}")


def one_by_one(m: Make, x: Node) -> Node:
    return m.relu(conv(m, x, 96, (1, 1)))


def average(m: Make, x: Node) -> Node:
    return m.reduced("mean", m.relu(x), 2, 3)


def max_pool(m: Make, x: Node) -> Node:
    batch, channels, high, wide = x.type.shape
    pooled = m.reduced("amax", m.windows(x, *((2, 2, 0, 1),) * 2), 0, 1)
    return m.reshape(pooled, batch, channels, int(str(high)) // 2, int(str(wide)) // 2)


def asked(m: Make, x: Node) -> Node:
    """As x.to(memory_format=torch.channels_last) has it."""
    form = (("memory_format", TorchLiteral("torch.channels_last")),)
    attrs = CallAttrs("aten.clone.default", (Operand(0),), form, (x.type,), "")
    return m.arena.call((x,), attrs)


STRETCHES: dict[str, tuple[Callable[[Make, Node], Node], list[bool]]] = {
    "alone": (lambda m, x: m.relu(each(m, x)), [True]),
    "two": (lambda m, x: m.relu(each(m, m.relu(each(m, x)))), [True, True]),
    "mean": (lambda m, x: average(m, each(m, x)), [True]),
    "max pool": (lambda m, x: max_pool(m, m.relu(each(m, x))), [True]),
    "layer norm": (lambda m, x: m.standardised(each(m, x), 1, 2, 3), [True]),
    "MobileNet": (
        lambda m, x: average(m, one_by_one(m, m.relu(each(m, one_by_one(m, x))))),
        [False] * 3,
    ),
    "before": (lambda m, x: average(m, one_by_one(m, m.relu(each(m, x)))), [True, False]),
    "before a pool": (
        lambda m, x: average(m, one_by_one(m, max_pool(m, m.tanh(each(m, x))))),
        [True, False],
    ),
    "beside": (lambda m, x: average(m, m.add(each(m, x), one_by_one(m, m.tanh(x)))), [False] * 2),
    "two of one input": (
        lambda m, x: m.add(average(m, each(m, x)), average(m, one_by_one(m, m.tanh(x)))),
        [True, False],
    ),
    "mean of channels": (lambda m, x: m.reduced("mean", m.relu(each(m, x, 7)), 1), [False]),
    "norm of channels": (
        lambda m, x: m.standardised(m.permute(m.relu(each(m, x)), 0, 2, 3, 1), 3),
        [False],
    ),
    "asked": (lambda m, x: average(m, each(m, asked(m, x))), [False]),
}


@pytest.mark.parametrize("stretch", STRETCHES)
def test_others_of_a_stretch_want_their_channels_last(stretch: str) -> None:
    make, expected = STRETCHES[stretch]
    m = Make()
    plan = planned(make(m, m.x("x", 32, 96, 56, 56)))
    assert sorted(in_planes(plan)) == sorted(expected)


def test_of_an_input_with_its_channels_last_in_memory() -> None:
    m = Make()
    x = m.permute(m.x("x", 32, 56, 56, 96), 0, 3, 1, 2)
    assert in_planes(planned(average(m, each(m, x)))) == [False]
    m = Make()
    x = m.permute(m.x("x", 96, 32, 56, 56), 1, 0, 2, 3)
    assert in_planes(planned(average(m, each(m, x)))) == [True], "of another order of planes"


def test_of_an_input_that_the_user_gives_its_channels_last() -> None:
    """What eager gives has them last, too."""
    m = Make()
    plan = planned(m.relu(each(m, asked(m, m.x("x", 32, 96, 56, 56)))))
    (attrs,) = (n.attrs for n in plan.graph.nodes() if isinstance(n.attrs, CopyAttrs))
    assert in_planes(plan) == [False] and attrs.always


def test_padding_is_that_of_the_convolution() -> None:
    m = Make()
    x = m.x("x", *IMAGE)
    padded = m.pad(x, (0, 0, 2, 1), (0, 0, 0, 1))
    made = alone(planned(m.relu(each(m, padded, padding=0)))).convolution
    assert made is not None and made.x is x and made.padding == (2, 1)


def test_in_16_bits_they_are_the_librarys() -> None:
    m = Make()
    plan = planned(m.relu(each(m, m.x("x", *IMAGE, dtype=DType.F16))))
    assert not convolutions(plan)


@pytest.mark.parametrize(
    ("kernel", "filters", "given", "form"),
    [
        ((31,), 96, {"padding": 15}, "PlaneTiles<1, 1, 31, 1, 1, 1, 1, 15>"),
        ((3, 3, 3), 96, {"stride": 2}, "PlaneTiles<3, 3, 3, 2, 2, 1, 1, 0>"),
        ((3, 3, 3), 96, {"dilation": (1, 1, 2)}, "PlaneTiles<3, 3, 3, 1, 1, 1, 2, 0>"),
        ((7, 7), 96, {"padding": (3, 2)}, "PlaneTiles<1, 7, 7, 1, 1, 1, 1, 2>"),
        ((3, 3), 192, {}, "PlaneTiles<1, 3, 3, 1, 1, 1, 1, 0>"),
        ((1, 61), 96, {"padding": (0, 30)}, "PlaneTiles<1, 1, 61, 1, 1, 1, 1, 30>"),
        ((1, 62), 96, {"padding": (0, 31)}, "AnyPlanes"),
        ((50, 50), 96, {}, "AnyPlanes"),
    ],
    ids=str,
)
def test_tiles_are_made_for_the_taps(
    kernel: tuple[int, ...], filters: int, given: dict[str, Any], form: str
) -> None:
    m = Make()
    x = m.x("x", BATCH, 96, *(56,) * len(kernel))
    plan = make_plan(graph(m.relu(conv(m, x, filters, kernel, groups=96, **given))), SM_90A)
    (lowered,) = lower(plan)
    assert f"op::{form}>(" in cuda_text((lowered,))
    assert "its channels before its space" in to_text(lowered)


def test_for_training_steps_they_are_the_librarys() -> None:
    """Where norms take statistics; its backward is PyTorch's, too."""
    m = Make()
    plain = graph(m.relu(each(m, m.x("x", *IMAGE))))
    assert not choose_products(plain, SM_90A, TF32).refused
    step = replace(TF32, library_convolutions=True)
    (reason,) = choose_products(plain, SM_90A, step).refused.values()
    assert reason == LIBRARY + "norms take statistics here, for a training step"


def test_for_training_steps_others_beside_them_stay_as_they_lie() -> None:
    m = Make()
    step = replace(TF32, library_convolutions=True)
    whole = graph(m.relu(one_by_one(m, m.relu(each(m, one_by_one(m, m.x("x", *IMAGE)))))))
    assert in_channels_last(whole, SM_90A, step) is whole
    assert in_channels_last(whole, SM_90A, TF32) is not whole
