"""Text grows with distinct computations: blocks that differ in widths add no kernel."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options

# A line for each: an entry of a kernel, a host operator, what it is in PyTorch.
COUNTED = (r'^extern "C" int \w+\($|^extern "C" int \w+\(.*\{', r"^OPWELD_OPERATOR\(")
COUNTED += (r"^def _\w+_reference\(",)


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(torch.relu(self.norm(x)))[0]


class Blocks(nn.Module):
    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(map(Block, widths))

    def forward(self, *images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(block(x) for block, x in zip(self.blocks, images, strict=True))


def text_of(*shapes: tuple[int, int, int], mode: str = "eval") -> str:
    images = tuple(torch.randn(2, *shape) for shape in shapes)
    original = Original("blocks.py", "blocks", "Blocks", None)
    options = Options(target="sm_90a", mode=mode)
    model = Blocks(*(shape[0] for shape in shapes)).eval()
    return compile_module(model, images, {}, original, options).text


def counts(text: str) -> list[int]:
    return [len(re.findall(pattern, text, re.MULTILINE)) for pattern in COUNTED]


def kernel_lines(text: str) -> int:
    """Lines of CUDA, host code and references: all before ModelNew."""
    return len(text.partition("class ModelNew(")[0].split("\n"))


@pytest.mark.parametrize("mode", ["eval", "training"])
def test_blocks_of_other_widths_add_no_kernel(mode: str) -> None:
    one = text_of((64, 16, 16), mode=mode)
    two = text_of((64, 16, 16), (128, 8, 8), mode=mode)
    four = text_of((64, 16, 16), (128, 8, 8), (96, 24, 24), (256, 6, 6), mode=mode)
    assert all(counts(one)) and counts(one) == counts(two) == counts(four)
    assert kernel_lines(two) == kernel_lines(four)


def test_widths_that_allow_no_packets_are_another_kernel() -> None:
    whole, mixed = text_of((64, 8, 8), (32, 16, 16)), text_of((64, 8, 8), (64, 7, 7))
    assert counts(mixed)[0] > counts(whole)[0]
