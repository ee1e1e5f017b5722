"""One element of an axis is read as a user writes it."""

from __future__ import annotations

import re

import torch
from torch import nn

from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options


class Read(nn.Module):
    """Two places of an axis before a product, and one that something else reads, too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, y):
        part = y[:, 1:2]
        last = self.fc(x[:, :, -1]) + self.fc(part.reshape(-1, 6))
        return torch.tanh(self.fc(x[:, 2]) * 2) + last, self.fc(part)


def test_a_slice_and_a_reshape_are_one_view() -> None:
    original = Original("read.py", __name__, "Read", None)
    inputs = (torch.randn(3, 6, 6), torch.randn(3, 4, 6))
    text = compile_module(Read().eval(), inputs, {}, original, Options(target="cpu")).text
    forward = text[text.index("class ModelNew") :]
    assert re.search(r"= x\[:, 2\]$", forward, re.MULTILINE)
    assert re.search(r"= x\[:, :, 5\]$", forward, re.MULTILINE)
    (shared,) = re.findall(r"^ +(\w+) = y\[:, 1:2\]$", forward, re.MULTILINE)
    assert f"{shared}.reshape(" in forward
