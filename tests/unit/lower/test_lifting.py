"""Text grows with distinct computations: blocks that differ in widths add no kernel."""

from __future__ import annotations

import re

import torch
from tests.unit.ir.test_shared import compiled
from torch import nn

# A line for each: an entry of a kernel, a host operator, what it is in PyTorch, and a fake.
COUNTED = (r'^extern "C" int \w+\($|^extern "C" int \w+\(.*\{', r"^  m\.def\(")
COUNTED += (r"^def _\w+_reference\(", r"^def _\w+_fake\(")


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


def text_of(*shapes: tuple[int, int, int], target: str = "sm_90a") -> str:
    images = (torch.randn(2, *shape) for shape in shapes)
    return compiled(Blocks(*(shape[0] for shape in shapes)), *images, target=target).text


def counts(text: str) -> list[int]:
    return [len(re.findall(pattern, text, re.MULTILINE)) for pattern in COUNTED]


def kernel_lines(text: str) -> int:
    """Lines of CUDA, host code, references and fakes: all before what ModelNew uses."""
    return len(text.partition("class _Weld:")[0].split("\n"))


def test_blocks_of_other_widths_add_no_kernel() -> None:
    one = text_of((64, 16, 16))
    two = text_of((64, 16, 16), (128, 8, 8))
    four = text_of((64, 16, 16), (128, 8, 8), (96, 24, 24), (256, 6, 6))
    assert all(counts(one)) and counts(one) == counts(two) == counts(four)
    assert kernel_lines(two) == kernel_lines(four)


def test_a_block_alone_keeps_its_numbers() -> None:
    assert "% 64u" in text_of((64, 16, 16)) and "% 64u" not in text_of((64, 16, 16), (128, 8, 8))


def test_widths_that_allow_no_packets_are_another_kernel() -> None:
    whole, mixed = text_of((64, 8, 8), (32, 16, 16)), text_of((64, 8, 8), (64, 7, 7))
    assert counts(mixed)[0] > counts(whole)[0]
