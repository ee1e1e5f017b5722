"""Ops that assert on a device are found, and values that they refuse are found on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from opweld.judge.load import Call
from opweld.judge.verify import ranges


class Entropy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(x, x)


def call(*tensors: torch.Tensor) -> Call:
    return Call(tensors, {})


def test_asserting_ops_are_seen_through_the_model() -> None:
    assert ranges.asserts_on_device(Entropy(), call(torch.rand(4)))
    assert ranges.asserts_on_device(nn.Embedding(5, 3), call(torch.tensor([1, 2])))
    assert not ranges.asserts_on_device(nn.GELU(), call(torch.rand(4)))


def test_refused_values_are_told_without_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranges.refusal_on_cpu(Entropy(), call(torch.rand(4))) is None
    refusal = ranges.refusal_on_cpu(Entropy(), call(torch.full((4,), 2.0)))
    assert refusal and "between 0 and 1" in refusal
    monkeypatch.setattr(ranges, "MAX_CPU_ELEMS", 3)
    refusal = ranges.refusal_on_cpu(Entropy(), call(torch.rand(4)))
    assert refusal and "too large" in refusal
