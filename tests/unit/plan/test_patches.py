"""Convolutions of patches, which become matrix products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.plan.convolving import conv
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CallAttrs
from opweld.ir.check import check
from opweld.ir.graph import Node
from opweld.ir.numpy.interpret import interpret
from opweld.ir.plan import NO_CONDITIONS, Conditions, GroupKind, Plan
from opweld.ir.types import DType
from opweld.plan import make_plan
from opweld.plan.products.patches import as_product, gain_of_patches
from opweld.target import CPU, SM_80, SM_90A, Target

IMAGE = (3, 224, 224)


def patches(
    m: Make,
    channels: tuple[int, ...] = IMAGE,
    kernel: tuple[int, ...] = (16, 16),
    dtype: DType = DType.F32,
    bias: bool = True,
    **given: Any,
) -> Node:
    """A convolution into 768 channels."""
    x = m.x("x", BATCH, *channels, dtype=dtype)
    return conv(m, x, 768, kernel, bias=bias, by_place=True, **{"stride": kernel} | given)


def saves(call: Node, target: Target = SM_80, conditions: Conditions = NO_CONDITIONS) -> bool:
    return gain_of_patches(call, target, conditions) > 0.0


def planned(*outputs: Node, conditions: Conditions = NO_CONDITIONS) -> Plan:
    plan = make_plan(graph(*outputs), SM_80, conditions=conditions)
    check(plan)
    return plan


def kinds(plan: Plan) -> list[GroupKind]:
    return [group.kind for group in plan.groups if group.kind is not GroupKind.VIEW]


def test_one_kernel_makes_them_with_what_follows() -> None:
    """Tokens are what the product gives: nothing moves them."""
    m = Make()
    tokens = m.permute(m.reshape(patches(m), BATCH, 768, 196), 0, 2, 1)
    mean = m.reduced("mean", m.gelu(tokens), 1)
    plan = planned(mean)
    assert kinds(plan) == [GroupKind.CONTRACTION, GroupKind.REDUCTION]
    first, *_ = (group for group in plan.groups if group.fused)
    assert first.prologue is not None, "the patches are packed where they lie in the image"
    assert first.outputs[0].type.shape == (BATCH, 14, 14, 768)


@pytest.mark.parametrize("space", [1, 3])
def test_patches_of_one_and_three_axes(space: int) -> None:
    """Of which the library's calls keep their order."""
    m = Make()
    call = patches(m, (4, *(96,) * space) if space == 3 else (4, 65536), (16,) * space)
    plan = planned(m.reduced("mean", m.gelu(call), *range(2, 2 + space)))
    assert kinds(plan) == [GroupKind.CONTRACTION, GroupKind.REDUCTION]


def test_a_result_has_the_order_of_eager() -> None:
    m = Make()
    plan = planned(patches(m, bias=False))
    assert plan.graph.outputs[0].type.shape == (BATCH, 768, 14, 14)
    assert kinds(plan) == [GroupKind.CONTRACTION, GroupKind.POINTWISE]
    assert plan.groups[-1].only_moves


@pytest.mark.parametrize(
    "given",
    [
        {"stride": (8, 8)},
        {"stride": (16, 17)},
        {"padding": 1},
        {"groups": 3},
        {"kernel": (1, 1)},
        {"channels": (64, 224, 224), "kernel": (2, 2)},  # of which the library is fast
    ],
)
def test_others_stay_convolutions(given: dict[str, Any]) -> None:
    m = Make()
    assert saves(patches(m))
    assert not saves(patches(Make(), **given))


def test_few_images_stay_convolutions() -> None:
    """The host takes longer than all of it."""
    few = replace(NO_CONDITIONS, sizes=(("s0", 1),))
    assert not saves(patches(Make()), SM_80, few)


def test_other_targets_and_autocast_keep_convolutions() -> None:
    m = Make()
    call = patches(m)
    assert not saves(call, CPU, NO_CONDITIONS)
    assert not saves(call, SM_90A, NO_CONDITIONS), "it has kernels of convolutions"
    deep = patches(Make(), (1, 96, 96, 96), (16, 16, 16))
    assert saves(deep, SM_90A, NO_CONDITIONS), "its strides are out of the copy engine's range"
    assert not saves(call, SM_80, replace(NO_CONDITIONS, autocast=True))
    assert not saves(patches(Make(), dtype=DType.F16))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("channels", "kernel"),
    [
        ((3, 7, 9), (2, 4)),  # one row and one column are left over
        ((2, 12), (3,)),
        ((2, 5, 6, 4), (2, 3, 4)),
        ((5, 6, 6), (6, 1)),
    ],
)
def test_the_product_has_the_values_of_the_convolution(
    channels: tuple[int, ...], kernel: tuple[int, ...], bias: bool
) -> None:
    m = Make()
    call = patches(m, channels, kernel, bias=bias)
    product = as_product(m.arena, call, *call.inputs)
    draw = np.random.default_rng(len(kernel))
    shapes = {"x": (2, *channels), "weight0": (768, channels[0], *kernel), "bias": (768,)}
    feeds = {name: draw.standard_normal(shape) for name, shape in shapes.items()}

    def linear(attrs: CallAttrs, operands: list[np.ndarray]) -> list[np.ndarray]:
        assert attrs.target == "aten.linear.default"
        x, weight, *rest = map(np.asarray, operands)
        return [x @ weight.T + (rest[0] if rest else 0.0)]

    found = interpret(graph(product), feeds, {"s0": 2}, linear, "float64")
    convolve = getattr(torch.nn.functional, f"conv{len(kernel)}d")
    x, weight, added = (torch.from_numpy(feeds[name]) for name in ("x", "weight0", "bias"))
    expected = convolve(x, weight, added if bias else None, stride=kernel).movedim(1, -1)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-12)
    assert product.type.shape == (BATCH, *expected.shape[1:])
