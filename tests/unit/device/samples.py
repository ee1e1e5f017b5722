"""Values that the device functions are tried on, and what counts as near."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tests.unit.device.functions import Function

HARD = (
    *(float("nan"), float("inf"), -float("inf"), 0.0, -0.0),
    *(1e-45, -1e-45, 1e-40, -1e-39, 1.1754944e-38, 3.4028235e38, -3.4028235e38),
    *(0.25, -0.25, 0.5, -0.5, 1.0, -1.0, 1.5, 2.0, -2.0, 2.5, -2.5, 3.0, -3.0, 3.5, 6.0, 7.0, -7.0),
    *(0.49999997, 12.0, 20.0, -20.0, 50.0, 88.0, -88.0, 89.0, -89.0, 104.0, -104.0, 127.0, 128.0),
    *(-126.0, -149.0, -150.0, 1e-8, -1e-8, 1e8, -1e8, 16777217.0, -16777219.0),
    *(1e20, -1e20, 1e-20, -1e-20),
)
# The last step subtracts numbers that are nearly equal, in eager PyTorch as well.
CANCELLING = ("gelu", "gelu_tanh", "tanhshrink", "logaddexp", "lerp", "addcmul", "frac")


def hard(function: Function, dtype: torch.dtype) -> list[torch.Tensor]:
    """NaN, infinities, zeros, subnormal and huge numbers, in all combinations that it takes."""
    values = grid(torch.tensor(HARD, dtype=dtype), function.num_values)
    if function.name == "ratio":
        taken = ~(values[1] < 1)
        values = [v[taken] for v in values]
    return values


def grid(values: torch.Tensor, count: int) -> list[torch.Tensor]:
    axes = torch.meshgrid(*[values] * count, indexing="ij")
    return [axis.reshape(-1).contiguous() for axis in axes]


def dense(function: Function, dtype: torch.dtype, count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    width = function.high - function.low
    return [
        (torch.rand(count, generator=generator, dtype=torch.float64) * width + function.low).to(
            dtype
        )
        for _ in range(function.num_values)
    ]


def scale(function: Function, values: Sequence[torch.Tensor], exact: torch.Tensor) -> torch.Tensor:
    """What an error is measured against: the result, or what cancels on the way to it."""
    if function.name not in CANCELLING:
        return exact.abs()
    return torch.stack([exact.abs(), *(v.double().abs() for v in values[:2])]).amax(0)


def near(result: torch.Tensor, want: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    equal = (result == want) | (result.isnan() & want.isnan())
    return equal | (torch.isfinite(want) & ((result - want).abs() <= allowed))


def rms(error: torch.Tensor) -> float:
    return float(error.square().mean().sqrt())


def show(values: Sequence[torch.Tensor], result: torch.Tensor, want: torch.Tensor, at) -> str:
    first = at.nonzero().flatten()[:5].tolist()
    rows = [f"{[v[i].item() for v in values]}: {result[i]} for {want[i]}" for i in first]
    return f"{int(at.sum())} differ: " + "; ".join(rows)
