"""Convolutions from the graph to the operator: planned, lowered, and called on the CPU with their
kernels emulated; beside float64.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from tests.emulation.distributions import rounded
from tests.emulation.operators import emulated_kernels, load_operators
from tests.gpu.emitting import all_convolutions_ours
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.plan.convolving import conv
from tests.unit.plan.plans import BATCH, Make, graph
from torch import Tensor
from torch.nn import functional as F

from opweld.ir.attrs import CastAttrs
from opweld.ir.graph import Node
from opweld.ir.kernels.shared import fused_groups_of, kernels_of, sharing
from opweld.ir.ops import Op
from opweld.ir.original import Part
from opweld.ir.plan import Conditions, GroupKind, Plan
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.host.texts import host
from opweld.target import SM_90A


def plan_of(make: Callable[[Make], tuple[Node, ...]], tf32: bool = True) -> Plan:
    with all_convolutions_ours():
        conditions = Conditions(tf32_convolutions=tf32)
        return make_plan(graph(*make(Make())), SM_90A, conditions=conditions)


def layers(m: Make) -> tuple[Node, ...]:
    """With their channels last: two of other sizes that share a kernel; one of many filters with
    what joins it; one along one axis, which is a result itself; one of each channel by itself; one
    whose result is wanted with its channels second. Two of each channel by itself with their
    channels before their space, of which one, along one axis, has several filters for each.
    """
    how: dict[str, Any] = {"last": True, "padding": (1, 0), "stride": (2, 1)}
    plain = conv(m, m.x("a", BATCH, 7, 6, 40), 12, (3, 2), **how)
    twin = conv(m, m.x("b", BATCH, 5, 9, 35), 20, (3, 2), **how)
    wide = conv(m, m.x("c", BATCH, 4, 5, 33), 70, (2, 2), last=True, dilation=(1, 2))
    shift, residual = m.w("shift", 70), m.x("residual", BATCH, 3, 3, 70)
    wide = m.mul(m.relu(m.add(wide, shift)), residual)
    line = conv(m, m.x("d", BATCH, 30, 33), 9, (5,), last=True, padding="same")
    depthwise = conv(m, m.x("e", BATCH, 6, 9, 34), 34, (3, 3), last=True, groups=34, padding=1)
    moved = conv(m, m.x("f", BATCH, 9, 7, 35), 70, (2, 3), last=True)
    moved = m.permute(m.relu(m.add(moved, m.w("bias", 70))), 0, 3, 1, 2)
    first = m.arena.make(Op.CAST, moved, attrs=CastAttrs(DType.F32))
    planes = conv(m, m.x("g", BATCH, 34, 6, 8), 34, (3, 3), groups=34, padding=1)
    planes = m.relu(m.add(planes, m.reshape(m.w("shift of planes", 34), 34, 1, 1)))
    planes = m.mul(planes, m.x("beside", BATCH, 34, 6, 8))
    filters = conv(m, m.x("h", BATCH, 5, 30), 10, (4,), groups=5, padding=3, stride=2)
    return m.tanh(plain), m.tanh(twin), wide, line, m.relu(depthwise), first, planes, filters


def channels_first(x: Tensor) -> Tensor:
    return x.movedim(-1, 1)


def channels_last(x: Tensor) -> Tensor:
    return x.movedim(1, -1)


def plain(x: Tensor, weight: Tensor) -> Tensor:
    made = F.conv2d(channels_first(x), weight, padding=(1, 0), stride=(2, 1))
    return torch.tanh(channels_last(made))


def wide(x: Tensor, weight: Tensor, shift: Tensor, residual: Tensor) -> Tensor:
    made = channels_last(F.conv2d(channels_first(x), weight, dilation=(1, 2)))
    return torch.relu(made + shift) * residual


def line(x: Tensor, weight: Tensor) -> Tensor:
    return channels_last(F.conv1d(channels_first(x), weight, padding="same"))


def depthwise(x: Tensor, weight: Tensor) -> Tensor:
    made = F.conv2d(channels_first(x), weight, padding=1, groups=34)
    return torch.relu(channels_last(made))


def planes(x: Tensor, weight: Tensor, shift: Tensor, beside: Tensor) -> Tensor:
    made = F.conv2d(x, weight, padding=1, groups=34)
    return torch.relu(made + shift[:, None, None]) * beside


def filters(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv1d(x, weight, padding=3, stride=2, groups=5)


def moved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(F.conv2d(channels_first(x), weight, bias))


@dataclass(frozen=True, slots=True)
class Layer:
    """An operator: what it computes, the sizes of its operands behind the batch of the first and
    the last, and the numbers that it is given; whether tensor cores multiply.
    """

    operator: str
    computed: Callable[..., Tensor]
    sizes: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...] = ()
    is_rounded: bool = True

    def operands(self, batch: int) -> list[Tensor]:
        torch.manual_seed(batch)
        first, *rest = self.sizes
        return [torch.randn(batch, *first), *(torch.randn(s[0] or batch, *s[1:]) for s in rest)]

    def exact(self, operands: list[Tensor]) -> Tensor:
        """In float64, of what tensor cores multiply rounded to 11 bits."""
        exact = [each.double() for each in operands]
        if self.is_rounded:
            exact[:2] = (torch.from_numpy(rounded(each.numpy())) for each in operands[:2])
        return self.computed(*exact)


LAYERS = {
    "plain": Layer("k1_conv2d_tanh", plain, ((7, 6, 40), (12, 40, 3, 2)), (4, 5)),
    "twin": Layer("k1_conv2d_tanh", plain, ((5, 9, 35), (20, 35, 3, 2)), (3, 8)),
    "wide": Layer(
        "k3_conv2d_add_relu_mul", wide, ((4, 5, 33), (70, 33, 2, 2), (70,), (0, 3, 3, 70))
    ),
    "line": Layer("k4_conv1d", line, ((30, 33), (9, 33, 5))),
    "depthwise": Layer("k5_conv2d_relu", depthwise, ((6, 9, 34), (34, 1, 3, 3)), (), False),
    "moved": Layer("k6_conv2d_add_relu", moved, ((9, 7, 35), (70, 35, 2, 3), (70,))),
    "planes": Layer(
        "k8_conv2d_add_relu_mul",
        planes,
        ((34, 6, 8), (34, 1, 3, 3), (34,), (0, 34, 6, 8)),
        (0,),
        False,
    ),
    "filters": Layer("k9_conv1d", filters, ((5, 30), (10, 1, 4)), (), False),
}


@cache
def loaded() -> tuple[Any, ctypes.CDLL]:
    """The operators, and the library with the functions beside them."""
    plan = plan_of(layers)
    assert [g.kind for g in plan.groups] == [GroupKind.CONVOLUTION] * 8
    parts = sharing(lifting((Part(None, plan, lower(plan)),), "cuda"))  # type: ignore[arg-type]
    assert len(fused_groups_of(parts)) == 7, "two layers share a kernel"
    text = render("operator", kernels_of(parts), "cuda").text
    return load_operators(emulated_kernels(text), host(parts, "cuda").text)


def operators() -> Any:
    return loaded()[0]


@pytest.fixture(autouse=True)
def multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "4")


def require(layer: Layer, operands: list[Tensor]) -> Tensor:
    found = getattr(operators(), layer.operator)(*operands, *layer.numbers)
    exact = layer.exact(operands)
    assert found.is_contiguous() and found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=2e-5, atol=2e-5)
    return found


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_any_batch(layer: str, batch: int) -> None:
    require(LAYERS[layer], LAYERS[layer].operands(batch))


def permuted(x: Tensor) -> Tensor:
    """Its last axis first in memory."""
    return x.movedim(-1, 1).contiguous().movedim(1, -1)


def every_second(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, dim=-1)[..., ::2]


def in_a_frame(x: Tensor) -> Tensor:
    """Its pixels are not evenly spaced."""
    return F.pad(x, (0, 0, 1, 2))[..., 1:-2, :]


def transposed(x: Tensor) -> Tensor:
    return x.transpose(0, -2).contiguous().transpose(0, -2)


def misaligned(x: Tensor) -> Tensor:
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)


def repeated(x: Tensor) -> Tensor:
    return x[:1].expand_as(x)


LAYOUTS = (permuted, every_second, in_a_frame, transposed, misaligned, repeated)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layer", ["wide", "line", "depthwise", "moved", "planes", "filters"])
def test_operands_of_any_layout(layer: str, layout: Callable[[Tensor], Tensor]) -> None:
    given = LAYERS[layer].operands(2)
    for place, operand in enumerate(given):
        if operand.dim() == 1 and layout is not misaligned:
            continue
        operands = [*given[:place], layout(operand), *given[place + 1 :]]
        require(LAYERS[layer], operands)


def test_an_image_of_planes_with_its_channels_last() -> None:
    layer = LAYERS["planes"]
    x, *others = (
        each.contiguous(memory_format=torch.channels_last) if each.dim() == 4 else each
        for each in layer.operands(2)
    )
    found = getattr(operators(), layer.operator)(x, *others, 1)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found.double(), layer.exact([x, *others]), rtol=2e-5, atol=2e-5)


class View(ctypes.Structure):
    """As device/host/tensor_view.h has it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )

    @staticmethod
    def of(x: Tensor) -> View:
        numbers = ctypes.c_int64 * x.dim()
        return View(x.data_ptr(), 6, x.dim(), numbers(*x.shape), numbers(*x.stride()))


def scratch_bytes(layer: Layer, *operands: Tensor) -> int:
    entry = getattr(loaded()[1], f"{layer.operator}_scratch")
    entry.restype = ctypes.c_int64
    result = layer.computed(*operands).contiguous()
    tensors = [View.of(each) for each in (*operands, result)]
    return int(entry((View * len(tensors))(*tensors)))


@pytest.mark.parametrize("layer", ["wide", "depthwise"])
def test_only_what_has_gaps_is_copied(layer: str) -> None:
    """Packed halves take memory in any case; a copy of x takes more."""
    x, *others = LAYERS[layer].operands(2)
    dense, gaps = (scratch_bytes(LAYERS[layer], each, *others) for each in (x, in_a_frame(x)))
    assert gaps >= dense + x.nbytes


def test_what_does_not_fit_is_refused() -> None:
    x, weight = LAYERS["line"].operands(2)
    with pytest.raises(RuntimeError, match="operand 2 does not fit"):
        operators().k4_conv1d(x, weight[:, 1:])
    with pytest.raises(RuntimeError, match="operand 1 does not fit"):
        operators().k4_conv1d(x.half(), weight)


def test_inf_and_nan_propagate_as_in_eager() -> None:
    x, weight = LAYERS["line"].operands(2)
    x[1, 3, 4] = torch.nan
    found = operators().k4_conv1d(x, weight)
    missing = torch.zeros(2, 30, 9, dtype=torch.bool)
    missing[1, 1:6] = True
    assert torch.equal(found.isnan(), missing)
    exact, deviation = (line(x.double() ** n, weight.double() ** n) for n in (1, 2))
    wrong, of_11_bits = (found.double() - exact).abs(), 2.0**-12 * deviation.sqrt()
    assert (wrong <= 6 * of_11_bits)[~missing].all()


def of_form(filters: int, space: tuple[int, ...]) -> Callable[[Make], tuple[Node, ...]]:
    def made(m: Make) -> tuple[Node, ...]:
        y = conv(m, m.x("x", BATCH, *space, 64), filters, (3,) * len(space), last=True, padding=1)
        return (m.gelu(m.add(y, m.w("bias", filters))),)

    return made


FORMS = {"plane": (8, 9), "space": (4, 5, 6)}


def forms(first: int) -> list[Any]:
    """(filters, axes of space, whether TF32 is allowed); all but one of so many are slow tests."""
    return [
        pytest.param(
            filters,
            FORMS[form],
            tf32,
            id=f"{filters}-{form}-{tf32}",
            marks=[] if (filters, form, tf32) == (first, "plane", True) else pytest.mark.slow,
        )
        for filters in (64, 96)
        for form in FORMS
        for tf32 in (True, False)
    ]


def require_clean_build(make: Callable[[Make], tuple[Node, ...]], tf32: bool) -> None:
    """Of one convolution's kernels, without warnings and spills."""
    plan = plan_of(make, tf32)
    assert [g.kind for g in plan.groups] == [GroupKind.CONVOLUTION]
    uses = compile_cuda(render("forms", lower(plan), "cuda").text)
    require_no_spills(uses)
    assert len([use for use in uses if "contract_sm90" in use.name]) == 1


@needs_nvcc
@pytest.mark.parametrize(("filters", "space", "tf32"), forms(64))
def test_kernels_compile(filters: int, space: tuple[int, ...], tf32: bool) -> None:
    require_clean_build(of_form(filters, space), tf32)
