"""Emitted files that read by the numbers of an index: values, gradients, numbers of no element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.models.emitted import Emitted, emit_module
from torch import nn


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 16, padding_idx=3)
        self.norm = nn.LayerNorm(16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.table(ids) * 4.0)


class Chosen(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.gather(1, index).exp() + x[index[:, 0]][:, :3]


class Turned(nn.Module):
    """What is gathered is row-major, whatever it was gathered from."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.gather(0, index) * 2 + x


class Scored(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, y, label_smoothing=0.1)


def numbers(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


MODELS: dict[str, tuple[nn.Module, Any]] = {
    "an embedding": (Normalised(), (numbers(40, 6, 5),)),
    "a gather": (Chosen(), (torch.randn(7, 9), numbers(7, 7, 3))),
    "a gather of a transposed tensor": (Turned(), (torch.randn(9, 7).t(), numbers(7, 7, 9))),
    "classes": (Scored(), (torch.randn(8, 12), numbers(12, 8))),
}


@pytest.fixture(scope="module", params=MODELS)
def emitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    module, args = MODELS[request.param]
    folder: Path = tmp_path_factory.mktemp("picks")
    return emit_module(module, (args, {}), folder), args


def test_values_and_gradients(emitted: tuple[Emitted, Any]) -> None:
    made, args = emitted
    assert made.num_kernels
    given = [a.requires_grad_() if a.is_floating_point() else a for a in args]
    results = [model(*given) for model in (made.original, made.new)]
    torch.testing.assert_close(results[1], results[0], check_stride=True)
    found = [
        torch.autograd.grad(
            result.sum(), [*model.parameters(), *(a for a in given if a.requires_grad)]
        )
        for result, model in zip(results, (made.original, made.new), strict=True)
    ]
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("number", [50, -1, 2**40])
def test_a_number_of_no_element_is_an_error(emitted: tuple[Emitted, Any], number: int) -> None:
    made, args = emitted
    wrong = [a.detach().clone() for a in args]
    wrong[-1].view(-1)[-1] = number
    for model in (made.original, made.new):
        with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
            model(*wrong)
    torch.testing.assert_close(made.new(*args), made.original(*args))


def test_other_batches_and_none(emitted: tuple[Emitted, Any]) -> None:
    made, args = emitted
    for count in (1, 3, 0):
        cut = [
            a.detach()[:count].clamp(max=0) if not a.is_floating_point() else a[:count]
            for a in args
        ]
        torch.testing.assert_close(made.new(*cut), made.original(*cut), equal_nan=True)
