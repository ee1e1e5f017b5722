"""What tests of `torch.compile(backend="opweld")` share, on the CPU and on the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from opweld.dynamo import backend
from opweld.dynamo.backend import OpweldWarning


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No graph is compiled yet, and none may run as PyTorch has it with a warning."""
    torch._dynamo.reset()
    backend._COMPILED.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", OpweldWarning)
        yield


class Tail(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 16)
        self.register_buffer("scale", torch.full((16,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(F.silu(self.fc(x)) * self.scale)


class Branches(nn.Module):
    """Control flow on values, and a print: three graphs a call."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(x) * x
        if y.sum() > 0:
            y = torch.tanh(y) * 2
        else:
            y = torch.exp(y) - 1
        print("between")
        return y.softmax(-1) * 0.5
