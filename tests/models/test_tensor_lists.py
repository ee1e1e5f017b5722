"""Layers that read the results of all before them: kernels are shared whatever number these are."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from opweld.driver import compile_file, compile_module
from opweld.ir.original import Original
from opweld.options import Options

DENSENET = Path(__file__).parents[2] / "benchmarks/models/densenet121.py"


class Layer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, 8, 1)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        return self.conv(F.relu(self.norm(torch.cat(features, 1))))


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(64 + 8 * number) for number in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [F.max_pool2d(x, 2)]  # whose result is read in another shape
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


@cache
def emitted(mode: str) -> str:
    module = Dense()
    original = Original("dense.py", __name__, "Dense", None)
    options = Options(target="sm_90a", mode=mode)
    return compile_module(module, (torch.randn(2, 64, 8, 8),), {}, original, options).text


@pytest.mark.parametrize("mode", ["eval", "training"])
def test_layers_have_one_kernel_and_one_method(mode: str) -> None:
    """But for the first, which reads one tensor; another kernel gives the last list back."""
    text = emitted(mode)
    assert len(re.findall(r"op::(?:pointwise_of|reduce)_list<k", text)) == 2
    assert len(re.findall(r"=lambda op: _fused_over_list\(", text)) == 2
    assert len(re.findall(r"_kernels\.k\d+_copy\(\[", text)) == 1
    layers = re.findall(r"_Layer\.forward_?\d*\(layers\[\d\], \[", text)
    assert len(layers) == 4 and len({re.sub(r"\d\]", "", each) for each in layers}) == 1


@pytest.mark.parametrize("mode", ["eval", "training"])
def test_a_network_of_such_layers_is_short(mode: str) -> None:
    assert compile_file(DENSENET, Options(target="sm_90a", mode=mode)).text.count("\n") < 5000
