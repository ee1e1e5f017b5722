"""Fused attention on the device: its values beside eager's and float64's, its layouts, its masks.

python3 -m pytest -m gpu tests/gpu/test_attention.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.gpu.emitting import emitted_module
from torch import Tensor

from opweld.judge.numerics.compare import ErrorSums
from opweld.judge.numerics.grade import grade

pytestmark = pytest.mark.gpu

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def forward(self, q, k, v{more}):
        return {result}

def get_inputs():
    return [torch.randn({q}), torch.randn({k}), torch.randn({k}){inputs}]

def get_init_inputs():
    return []
"""
FUNCTION = "F.scaled_dot_product_attention(q, k, v{})"
WRITTEN_OUT = "torch.softmax((q @ k.transpose(-2, -1)) / 8.0 + m, dim=-1) @ v"


@pytest.fixture
def emitted(tmp_path: Path) -> Callable[..., ModuleType]:
    def emit(result: str, q: tuple[int, ...], k: tuple[int, ...], mask: str = "") -> ModuleType:
        more, inputs = (", m", f", {mask}") if mask else ("", "")
        text = TEXT.format(result=result, q=q, k=k, more=more, inputs=inputs)
        return emitted_module(tmp_path, "attention", text)

    return emit


def results(module: ModuleType, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ours, eager's, and float64's."""
    model, original = module.ModelNew(), module.Model()
    with torch.no_grad():
        assert kernels_in(lambda: model(*inputs)) > 0, "the original ran"
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        return model(*inputs), original(*inputs), original(*wide)


def require_as_exact(ours: Tensor, eager: Tensor, exact: Tensor) -> None:
    """Grade A, with half an ulp of the largest elements for chance."""
    assert torch.equal(ours.isnan(), exact.isnan())
    half_ulp = exact.abs().nan_to_num().pow(2).mean().sqrt().item() * 2.0**-24
    errors = [(x.double() - exact).nan_to_num() for x in (ours, eager)]
    rms, eager_rms = (e.pow(2).mean().sqrt().item() for e in errors)
    most, eager_most = (e.abs().max().item() for e in errors)
    print(f"rms {rms:.3g}, eager {eager_rms:.3g}; largest {most:.3g}, eager {eager_most:.3g}")
    assert rms <= 1.05 * eager_rms + half_ulp
    assert most <= 1.5 * eager_most + exact.abs().nan_to_num().max().item() * 2.0**-24


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128, 256])
@pytest.mark.parametrize("length", [512, 2048])
def test_32_heads(
    emitted: Callable[..., ModuleType], length: int, depth: int, causal: bool
) -> None:
    shape = (4, 8, length, depth)
    torch.manual_seed(0)
    module = emitted(FUNCTION.format(f", is_causal={causal}"), shape, shape)
    require_as_exact(*results(module, normal(*shape), normal(*shape), normal(*shape)))


# By both families on Hopper: 24 and 200 by mma.sync, the others by wgmma.
@pytest.mark.parametrize("depth", [24, 40, 64, 80, 128, 200])
@pytest.mark.parametrize(("rows", "keys"), [(16, 1), (77, 129), (130, 31), (257, 1000)])
def test_odd_sizes(emitted: Callable[..., ModuleType], rows: int, keys: int, depth: int) -> None:
    q, k = (2, 3, rows, depth), (2, 3, keys, depth)
    torch.manual_seed(1)
    module = emitted(FUNCTION.format(""), q, k)
    require_as_exact(*results(module, normal(*q), normal(*k), normal(*k)))


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize(("rows", "keys"), [(77, 300), (300, 77)])
def test_causal_rows_of_odd_counts(
    emitted: Callable[..., ModuleType], rows: int, keys: int, depth: int
) -> None:
    """The warpgroups of a block see different numbers of tiles."""
    q, k = (2, 3, rows, depth), (2, 3, keys, depth)
    torch.manual_seed(2)
    module = emitted(FUNCTION.format(", is_causal=True"), q, k)
    require_as_exact(*results(module, normal(*q), normal(*k), normal(*k)))


def test_heads_apart_in_memory(emitted: Callable[..., ModuleType]) -> None:
    """What view(B, T, H, D).transpose(1, 2) shows is read in place."""
    shape = (2, 8, 300, 64)
    module = emitted(FUNCTION.format(""), shape, shape)
    q, k, v = (normal(2, 300, 8, 64).transpose(1, 2) for _ in range(3))
    require_as_exact(*results(module, q, k, v))


def test_shared_heads(emitted: Callable[..., ModuleType]) -> None:
    q, k = (2, 8, 200, 64), (2, 2, 333, 64)
    module = emitted(FUNCTION.format(", enable_gqa=True"), q, k)
    require_as_exact(*results(module, normal(*q), normal(*k), normal(*k)))


def test_a_row_without_keys_is_zeros(emitted: Callable[..., ModuleType]) -> None:
    shape = (2, 4, 200, 64)
    mask = "torch.randint(2, (2, 1, 200, 200), dtype=torch.bool)"
    module = emitted(FUNCTION.format(", attn_mask=m"), shape, shape, mask)
    allowed = torch.rand(2, 1, 200, 200, device="cuda") > 0.5
    allowed[1, :, 17] = False
    ours, eager, exact = results(module, *(normal(*shape) for _ in range(3)), allowed)
    assert ours[1, :, 17].abs().max() == 0
    require_as_exact(ours, eager, exact)


def test_written_out(emitted: Callable[..., ModuleType]) -> None:
    """A row without keys is NaN there."""
    shape = (2, 4, 200, 64)
    module = emitted(WRITTEN_OUT, shape, shape, "torch.randn(200, 200)")
    bias = normal(200, 200)
    bias[bias > 1] = float("-inf")
    bias[31] = float("-inf")
    ours, eager, exact = results(module, *(normal(*shape) for _ in range(3)), bias)
    assert bool(ours[:, :, 31].isnan().all())
    require_as_exact(ours, eager, exact)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_what_the_parts_do_not_hold(
    emitted: Callable[..., ModuleType], operand: int, value: float
) -> None:
    shape = (2, 4, 200, 64)
    module = emitted(FUNCTION.format(""), shape, shape)
    inputs = [normal(*shape) for _ in range(3)]
    inputs[operand][1, 2, 77, 5] = value
    ours, eager, exact = results(module, *inputs)
    # Eager spreads an infinite key or value over all rows as NaN, where float64 has numbers.
    wanted = torch.where(eager.isfinite(), eager, exact.float())
    torch.testing.assert_close(ours, wanted, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("more", ["", ", is_causal=True", ", attn_mask=m"])
@pytest.mark.parametrize("length", [520, 1024])
def test_rows_longer_than_a_tile(
    emitted: Callable[..., ModuleType], length: int, more: str
) -> None:
    """Two products and a softmax."""
    shape = (2, 4, length, 1000)
    mask = f"torch.randint(2, ({length}, {length}), dtype=torch.bool)" if "mask" in more else ""
    module = emitted(FUNCTION.format(more), shape, shape, mask)
    inputs = [normal(*shape) for _ in range(3)]
    if mask:
        inputs.append(torch.rand(length, length, device="cuda") > 0.5)
        inputs[-1][17] = False
    ours, eager, exact = results(module, *inputs)
    require_as_exact(ours, eager, exact)
    if mask:
        assert ours[:, :, 17].abs().max() == 0


@pytest.mark.parametrize(("rows", "depth"), [(100, 64), (520, 1000)])
def test_gradients(emitted: Callable[..., ModuleType], rows: int, depth: int) -> None:
    shape = (2, 4, rows, depth)
    module = emitted(FUNCTION.format(", is_causal=True"), shape, shape)
    sums = [ErrorSums(torch.float32) for _ in range(3)]
    for _ in range(4):  # the first rows' few gradients are so large that one draw decides by chance
        inputs = [normal(*shape).requires_grad_() for _ in range(3)]
        copies = [x.detach().clone().requires_grad_() for x in inputs]
        module.ModelNew()(*inputs).square().sum().backward()
        module.Model()(*copies).square().sum().backward()
        wide = [x.detach().double().requires_grad_() for x in inputs]
        module.Model()(*wide).square().sum().backward()
        for own, ours, eager, exact in zip(sums, inputs, copies, wide, strict=True):
            own.add(ours.grad, eager.grad, exact.grad)
    for own in sums:
        assert grade(own.figures()) in "ABC", own.figures()


def test_replays_and_operands_that_were_just_written(emitted: Callable[..., ModuleType]) -> None:
    """The kernel starts while keys are split: what both read was written right before."""
    shape = (2, 4, 500, 64)
    module = emitted(FUNCTION.format(""), shape, shape)
    model, original = module.ModelNew(), module.Model()
    inputs, sources = ([normal(*shape) for _ in range(3)] for _ in range(2))

    def scaled() -> list[Tensor]:
        return [x * factor for x, factor in zip(inputs, (1.5, 0.5, 2.0), strict=True)]

    with torch.no_grad():
        model(*scaled())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = model(*scaled())
        for turn in range(20):
            for x, source in zip(inputs, sources, strict=True):
                x.copy_(source * (turn + 1))
            graph.replay()
            called, eager = model(*scaled()), original(*scaled())
            assert torch.equal(replayed, called)
            require_as_exact(called, eager, original(*(x.double() for x in scaled())))
