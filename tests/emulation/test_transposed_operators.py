"""Transposed convolutions from the graph to the operator: planned, lowered, and called on the CPU
with their kernels emulated; beside float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from tests.emulation.operators import emulated_kernels, load_operators
from tests.emulation.test_convolution_operators import (
    LAYOUTS,
    Layer,
    channels_first,
    channels_last,
    forms,
    misaligned,
    plan_of,
    require_clean_build,
)
from tests.nvcc import needs_nvcc
from tests.unit.plan.convolving import transposed
from tests.unit.plan.plans import BATCH, Make
from torch import Tensor
from torch.nn import functional as F

from opweld.ir.graph import Node
from opweld.ir.kernels.shared import fused_groups_of, kernels_of, sharing
from opweld.ir.original import Part
from opweld.ir.plan import GroupKind
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.render import render
from opweld.render.host.texts import host


def layers(m: Make) -> tuple[Node, ...]:
    """With their channels last: two of other sizes that share a kernel; one of many filters with
    what joins it; one along one axis.
    """
    how: dict[str, Any] = {"last": True, "padding": (1, 0), "stride": (2, 3)}
    plain = transposed(m, m.x("a", BATCH, 4, 3, 40), 12, (3, 2), **how)
    twin = transposed(m, m.x("b", BATCH, 3, 5, 35), 20, (4, 3), **how)
    wide = transposed(m, m.x("c", BATCH, 4, 3, 33), 70, (4, 4), last=True, stride=2, padding=1)
    shift, residual = m.w("shift", 70), m.x("residual", BATCH, 8, 6, 70)
    wide = m.mul(m.relu(m.add(wide, shift)), residual)
    line = transposed(m, m.x("d", BATCH, 9, 33), 9, (7,), last=True, stride=3, dilation=2)
    return m.tanh(plain), m.tanh(twin), wide, m.relu(line)


def plain(x: Tensor, weight: Tensor) -> Tensor:
    made = F.conv_transpose2d(channels_first(x), weight, stride=(2, 3), padding=(1, 0))
    return torch.tanh(channels_last(made))


def wide(x: Tensor, weight: Tensor, shift: Tensor, residual: Tensor) -> Tensor:
    made = channels_last(F.conv_transpose2d(channels_first(x), weight, stride=2, padding=1))
    return torch.relu(made + shift) * residual


def line(x: Tensor, weight: Tensor) -> Tensor:
    made = F.conv_transpose1d(channels_first(x), weight, stride=3, dilation=2)
    return torch.relu(channels_last(made))


SHARED = "k1_conv_transpose2d_tanh"
WIDE = "k3_conv_transpose2d_add_relu_mul"
LAYERS = {
    "plain": Layer(SHARED, plain, ((4, 3, 40), (40, 12, 3, 2)), (7, 8)),
    "twin": Layer(SHARED, plain, ((3, 5, 35), (35, 20, 4, 3)), (6, 15)),
    "wide": Layer(WIDE, wide, ((4, 3, 33), (33, 70, 4, 4), (70,), (0, 8, 6, 70))),
    "line": Layer("k4_conv_transpose1d_relu", line, ((9, 33), (33, 9, 7))),
}


@cache
def operators() -> Any:
    plan = plan_of(layers)
    assert [g.kind for g in plan.groups] == [GroupKind.CONVOLUTION] * 4
    parts = sharing(lifting((Part(None, plan, lower(plan)),), "cuda"))  # type: ignore[arg-type]
    assert len(fused_groups_of(parts)) == 3, "two layers share a kernel"
    text = render("operator", kernels_of(parts), "cuda").text
    return load_operators(emulated_kernels(text), host(parts, "cuda").text)[0]


@pytest.fixture(autouse=True)
def multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "4")


def require(layer: Layer, operands: list[Tensor]) -> None:
    found = getattr(operators(), layer.operator)(*operands, *layer.numbers)
    assert found.is_contiguous() and found.dtype == torch.float32
    torch.testing.assert_close(found.double(), layer.exact(operands), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_any_batch(layer: str, batch: int) -> None:
    require(LAYERS[layer], LAYERS[layer].operands(batch))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layer", ["wide", "line"])
def test_operands_of_any_layout(layer: str, layout: Callable[[Tensor], Tensor]) -> None:
    given = LAYERS[layer].operands(2)
    for place, operand in enumerate(given):
        if operand.dim() == 1 and layout is not misaligned:
            continue
        require(LAYERS[layer], [*given[:place], layout(operand), *given[place + 1 :]])


def test_what_does_not_fit_is_refused() -> None:
    x, weight = LAYERS["line"].operands(2)
    with pytest.raises(RuntimeError, match="operand 2 does not fit"):
        operators().k4_conv_transpose1d_relu(x, weight[1:])
    with pytest.raises(RuntimeError, match="operand 1 does not fit"):
        operators().k4_conv_transpose1d_relu(x.half(), weight)


def of_form(filters: int, space: tuple[int, ...]) -> Callable[[Make], tuple[Node, ...]]:
    def made(m: Make) -> tuple[Node, ...]:
        x = m.x("x", BATCH, *space, 64)
        y = transposed(m, x, filters, (4,) * len(space), last=True, stride=2, padding=1)
        y = m.add(m.add(y, m.w("bias", filters)), m.x("residual", *y.type.shape))
        return (m.gelu(y),)

    return made


@needs_nvcc
@pytest.mark.parametrize(("filters", "space", "tf32"), forms(96))
def test_kernels_compile(filters: int, space: tuple[int, ...], tf32: bool) -> None:
    require_clean_build(of_form(filters, space), tf32)
