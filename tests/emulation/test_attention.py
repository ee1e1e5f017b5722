"""Attention as the compiler makes it, emulated, beside eager's in float32 and in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.emulation.attention import Compiled, attend, compiled
from tests.emulation.emulate import EmulationFault
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from torch import Tensor, nn
from torch.nn import functional as F

from opweld.target import SM_80, SM_90A, Target


class Function(nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.how)


class WrittenOut(nn.Module):
    """With a chain on the scores, and operations after them."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, gate: Tensor) -> Tensor:
        scores = (q @ k.transpose(-2, -1)) / 8.0
        scores = 30.0 * torch.tanh(scores / 30.0) + bias
        return torch.relu(torch.softmax(scores, dim=-1) @ v) * gate


class Packed(nn.Module):
    """q, k and v are parts of one tensor, and heads lie side by side in its rows."""

    def forward(self, x: Tensor) -> Tensor:
        rows, width = x.shape[1], x.shape[2] // 3
        q, k, v = (t.view(-1, rows, 2, width // 2).transpose(1, 2) for t in x.split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) * 0.125
        later = torch.triu(torch.ones(rows, rows, dtype=torch.bool), diagonal=1)
        return F.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ v


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def three(*shape: int) -> list[Tensor]:
    return [normal(*shape, seed=seed) for seed in range(3)]


def wide(inputs: list[Tensor]) -> list[Tensor]:
    return [x.double() if x.is_floating_point() else x for x in inputs]


def require_as_exact(made: Compiled, module: nn.Module, inputs: list[Tensor]) -> np.ndarray:
    """Root mean square within 5 % of eager's and the largest within 1.5 times, each plus half an
    ulp; NaN and infinities where float64 has them.
    """
    ours = attend(made, inputs)
    with torch.no_grad():
        eager, exact = module(*inputs).numpy(), module(*wide(inputs)).numpy()
    assert np.array_equal(np.isnan(ours), np.isnan(exact))
    finite = np.isfinite(exact)
    assert np.array_equal(ours[~finite], exact.astype(np.float32)[~finite], equal_nan=True)
    half_ulp = np.spacing(np.abs(exact[finite]).astype(np.float32)) / 2.0
    error, of_eager = (np.abs(x[finite] - exact[finite]) for x in (ours, eager))
    assert rms(error) <= 1.05 * rms(of_eager) + rms(half_ulp)
    assert error.max(initial=0) <= 1.5 * of_eager.max(initial=0) + half_ulp.max(initial=0)
    return ours


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0


SHAPE = (2, 2, 37, 64)
FAMILIES = {"sm90": SM_90A, "mma": SM_80}


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest) -> Compiled:
    made = compiled(Function(), *three(*SHAPE), target=FAMILIES[request.param])
    assert made.attending.family == request.param
    return made


class TestFunction:
    def test_operands_of_any_layout(self, made: Compiled) -> None:
        apart = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in three(*SHAPE)]
        turned = [x.mT.contiguous().mT for x in three(*SHAPE)]
        ours = [require_as_exact(made, Function(), x) for x in (apart, turned)]
        np.testing.assert_array_equal(*ours)

    @pytest.mark.parametrize("operand", [0, 1, 2])
    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30])
    def test_what_the_parts_do_not_hold(self, made: Compiled, operand: int, value: float) -> None:
        inputs = three(*SHAPE)
        inputs[operand][1, 1, 7, 3] = value
        require_as_exact(made, Function(), inputs)

    def test_one_value_far_above_its_row(self, made: Compiled) -> None:
        inputs = three(*SHAPE)
        inputs[1][..., 5] *= 1e8
        inputs[0][..., 5] = 0.0
        require_as_exact(made, Function(), inputs)

    def test_one_key_with_all_of_the_weight(self, made: Compiled) -> None:
        """Eager is exact there."""
        require_as_exact(made, Function(), [1e3 * x for x in three(*SHAPE)])

    def test_digits_that_large_values_drown(self, made: Compiled) -> None:
        """The key with all of the weight has a value of zero, so that the others' count."""
        q, k, v = three(*SHAPE)
        k[:, :, 9] = 4.0 * q.mean(2)
        q = q + 2.0 * k[:, :, 9:10]
        v[:, :, 9] = 0.0
        ours = attend(made, [q, k, v])
        with torch.no_grad():
            eager, exact = (Function()(*x).numpy() for x in ([q, k, v], wide([q, k, v])))
        relative, of_eager = (np.abs(x / exact - 1.0) for x in (ours, eager))
        assert np.quantile(relative, 0.9) <= 2.0 * np.quantile(of_eager, 0.9) + 2.0**-22


@pytest.mark.parametrize(
    ("rows", "keys", "depth", "columns", "causal", "target"),
    [
        (33, 1, 24, 40, False, SM_90A),
        (33, 100, 24, 24, False, SM_90A),
        (70, 65, 80, 80, True, SM_90A),
        (150, 200, 64, 128, True, SM_90A),
        (130, 31, 64, 64, True, SM_90A),
        (130, 31, 64, 64, True, SM_80),
        (20, 45, 256, 200, False, SM_90A),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_sizes(
    rows: int, keys: int, depth: int, columns: int, causal: bool, target: Target
) -> None:
    module = Function(is_causal=causal)
    q, k, v = normal(2, rows, depth), normal(2, keys, depth, seed=1), normal(2, keys, columns)
    require_as_exact(compiled(module, q, k, v, target=target), module, [q, k, v])


def test_warpgroups_agree_in_any_order() -> None:
    """More tiles than the ring holds, and one more for the second warpgroup than for the first."""
    module = Function(is_causal=True)
    inputs = [normal(1, 300, 80, seed=seed) for seed in range(3)]
    made = compiled(module, *inputs)
    first = require_as_exact(made, module, inputs)
    for options in ({"order": "reverse"}, {"order": "seeded", "seed": 1}):
        np.testing.assert_array_equal(attend(made, inputs, **options), first)


FAULTS = {
    "keys are not waited for": ("memory.keys[ring.stage].wait(ring.parity);", ";"),
    "values are not waited for": ("memory.values[now.stage].wait(now.parity);", ""),
    "products are not waited for": ("wgmma_wait<int(kStarts) + int(kStartsRest)>();", ""),
    "a stage is not given back": ("memory.no_keys[now.stage].arrive();", ""),
    "a stage is given back early": (
        "turns.wait(tile);",
        "turns.wait(tile); memory.no_values[now.stage].arrive();",
    ),
    "a turn does not end": ("turns.end(tile);", ";"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_kernel_shows(fault: str) -> None:
    module = Function()
    inputs = [normal(1, 300, 80, seed=seed) for seed in range(3)]
    made = compiled(module, *inputs)
    sound, broken = FAULTS[fault]
    assert sound in made.text
    text = made.text.replace(sound, broken)
    with pytest.raises((EmulationFault, AssertionError)):
        require_as_exact(replace(made, text=text), module, inputs)


def test_no_keys() -> None:
    module = Function()
    inputs = [normal(2, 20, 64), normal(2, 0, 64), normal(2, 0, 64)]
    ours = attend(compiled(module, *inputs), inputs)
    assert not ours.any() and ours.shape == (2, 20, 64)


def test_a_row_without_keys_is_zeros() -> None:
    module, shape = Function(), (2, 2, 37, 64)
    allowed = torch.rand(2, 1, 37, 37) > 0.5
    allowed[1, 0, 5] = False
    inputs = [*three(*shape), allowed]
    ours = require_as_exact(compiled(module, *inputs), module, inputs)
    assert not ours[1, :, 5].any()


def test_shared_heads_and_a_mask_of_numbers() -> None:
    module = Function(enable_gqa=True, scale=0.3)
    q, k, v = normal(2, 4, 20, 64), normal(2, 2, 33, 64), normal(2, 2, 33, 64, seed=1)
    inputs = [q, k, v, normal(2, 1, 1, 33)]
    require_as_exact(compiled(module, *inputs), module, inputs)


def test_written_out() -> None:
    """A row without keys is NaN, and rows of the least number only are means."""
    module = WrittenOut()
    bias = normal(37, 37)
    bias[3], bias[4], bias[:, 36] = float("-inf"), torch.finfo(torch.float32).min, float("-inf")
    inputs = [*three(2, 2, 37, 64), bias, normal(64)]
    ours = require_as_exact(compiled(module, *inputs), module, inputs)
    assert np.isnan(ours[:, :, 3]).all() and np.isfinite(ours[:, :, 4]).all()


def test_parts_of_one_tensor() -> None:
    module, x = Packed(), normal(2, 40, 384)
    made = compiled(module, x)
    assert len(made.group.inputs) == 1, "nothing is copied"
    require_as_exact(made, module, [x])


SLOW = pytest.mark.slow
COMPILED = [
    (Function(is_causal=True), 128, SM_90A),
    pytest.param(Function(is_causal=True), 64, SM_90A, marks=SLOW),
    pytest.param(Function(), 128, SM_90A, marks=SLOW),
    pytest.param(Function(), 40, SM_90A, marks=SLOW),
    pytest.param(WrittenOut(), 128, SM_90A, marks=SLOW),
    pytest.param(Function(is_causal=True), 64, SM_80, marks=SLOW),
]


@needs_nvcc
@pytest.mark.parametrize(("module", "depth", "target"), COMPILED)
def test_the_kernels_compile_without_warnings_and_spills(
    module: nn.Module, depth: int, target: Target
) -> None:
    more = [normal(100, 100), normal(depth)] if isinstance(module, WrittenOut) else []
    made = compiled(module, *three(2, 2, 100, depth), *more, target=target)
    require_no_spills(compile_cuda(made.text, target.arch))
