"""Emitted files of complex tensors: values, gradients, and operands that kernels cannot see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.emitted import Emitted, emit_module
from torch import nn


class Rotated(nn.Module):
    """A rotary embedding by complex numbers, as language models have it."""

    def __init__(self, length: int = 6, width: int = 8) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(length).float(), torch.rand(width // 2))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turned = torch.view_as_real(pairs * self.turns[: x.shape[1]])
        return turned.flatten(2).type_as(x) * 2


class Shrunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.randn(9, dtype=torch.cfloat))

    def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = z * self.gain + 0.5
        power = y.real**2 + y.imag**2
        return y * torch.relu(power - 0.1), power.mean(-1)


class Filtered(nn.Module):
    """A part of a spectrum, multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, 4, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x)
        kept = torch.zeros_like(spectrum)
        kept[..., :4] = torch.einsum("bil,iol->bol", spectrum[..., :4], self.weight)
        return nn.functional.gelu(torch.fft.irfft(kept, n=x.shape[-1]) + x)


MODELS: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "a rotary embedding": (Rotated(), torch.randn(3, 6, 8)),
    "complex operands": (Shrunk(), torch.randn(5, 9, dtype=torch.cfloat)),
    "a spectrum": (Filtered(), torch.randn(2, 3, 16)),
}


@pytest.fixture(scope="module", params=MODELS)
def emitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    module, x = MODELS[request.param]
    folder: Path = tmp_path_factory.mktemp("complexes")
    return emit_module(module, ((x,), {}), folder), x


def sum_of(result: Any) -> torch.Tensor:
    leaves = result if isinstance(result, tuple) else (result,)
    real = [torch.view_as_real(y.resolve_conj()) if y.is_complex() else y for y in leaves]
    return torch.stack([y.square().sum() for y in real]).sum()


@pytest.mark.parametrize("batch", [None, 1])
def test_values_and_gradients(emitted: tuple[Emitted, torch.Tensor], batch: int | None) -> None:
    made, x = emitted
    assert made.num_kernels
    found = []
    for model in (made.original, made.new):
        given = x[:batch].clone().requires_grad_()
        result = model(given)
        found.append((result, torch.autograd.grad(sum_of(result), [given, *model.parameters()])))
    torch.testing.assert_close(found[1], found[0])


def test_what_kernels_cannot_see(emitted: tuple[Emitted, torch.Tensor]) -> None:
    """A tensor that is conjugated when it is read, one of another type or another order."""
    made, x = emitted
    if not x.is_complex():
        pytest.skip("the operand is real")
    with torch.no_grad():
        for given in (x.conj(), x.to(torch.complex128), x.t().contiguous().t()):
            torch.testing.assert_close(made.new(given), made.original(given))
