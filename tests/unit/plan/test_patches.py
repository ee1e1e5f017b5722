"""Convolutions of patches, which become matrix products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CallAttrs, Operand
from opweld.ir.check import check
from opweld.ir.graph import Node
from opweld.ir.numpy.interpret import interpret
from opweld.ir.plan import NO_CONDITIONS, Conditions, GroupKind, Plan
from opweld.ir.types import DType, TensorType
from opweld.plan import make_plan
from opweld.plan.products.patches import as_product, is_of_patches
from opweld.target import CPU, SM_80, SM_90A

IMAGE = (3, 224, 224)


def patches(
    m: Make,
    channels: tuple[int, ...] = IMAGE,
    kernel: tuple[int, ...] = (16, 16),
    stride: tuple[int, ...] | None = None,
    padding: int = 0,
    groups: int = 1,
    dtype: DType = DType.F32,
    bias: bool = True,
) -> Node:
    """A convolution into 768 channels."""
    depth, *space = channels
    x = m.x("x", BATCH, *channels, dtype=dtype)
    weight = m.w("weight", 768, depth // groups, *kernel)
    operands = (x, weight, *((m.w("bias", 768),) if bias else ()))
    steps = stride or kernel
    pairs = zip(space, kernel, steps, strict=True)
    out = tuple((n + 2 * padding - k) // s + 1 for n, k, s in pairs)
    arguments: tuple[Any, ...] = (*map(Operand, range(len(operands))),)
    arguments += () if bias else (None,)
    arguments += (steps, (padding,) * len(kernel), (1,) * len(kernel), groups)
    result = TensorType(dtype, (BATCH, 768, *out))
    target = f"aten.conv{len(kernel)}d.default"
    return m.arena.call(operands, CallAttrs(target, arguments, (), (result,), "a convolution"))


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
    assert is_of_patches(patches(m), SM_80, NO_CONDITIONS)
    assert not is_of_patches(patches(Make(), **given), SM_80, NO_CONDITIONS)


def test_few_images_stay_convolutions() -> None:
    """The host takes longer than all of it."""
    few = replace(NO_CONDITIONS, sizes=(("s0", 1),))
    assert not is_of_patches(patches(Make()), SM_80, few)


def test_other_targets_and_autocast_keep_convolutions() -> None:
    m = Make()
    call = patches(m)
    assert not is_of_patches(call, CPU, NO_CONDITIONS)
    assert not is_of_patches(call, SM_90A, NO_CONDITIONS), "it has kernels of convolutions"
    assert not is_of_patches(call, SM_80, replace(NO_CONDITIONS, autocast=True))
    assert not is_of_patches(patches(Make(), dtype=DType.F16), SM_80, NO_CONDITIONS)


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
    shapes = {"x": (2, *channels), "weight": (768, channels[0], *kernel), "bias": (768,)}
    feeds = {name: draw.standard_normal(shape) for name, shape in shapes.items()}

    def linear(attrs: CallAttrs, operands: list[np.ndarray]) -> list[np.ndarray]:
        assert attrs.target == "aten.linear.default"
        x, weight, *rest = map(np.asarray, operands)
        return [x @ weight.T + (rest[0] if rest else 0.0)]

    found = interpret(graph(product), feeds, {"s0": 2}, linear, "float64")
    convolve = getattr(torch.nn.functional, f"conv{len(kernel)}d")
    x, weight, added = (torch.from_numpy(feeds[name]) for name in ("x", "weight", "bias"))
    expected = convolve(x, weight, added if bias else None, stride=kernel).movedim(1, -1)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-12)
    assert product.type.shape == (BATCH, *expected.shape[1:])
