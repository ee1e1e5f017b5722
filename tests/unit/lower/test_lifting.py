"""Text grows with distinct computations: blocks that differ in widths add no kernel."""

from __future__ import annotations

import re

import pytest
import torch
from tests.unit.plan.plans import BATCH, Make, graph
from torch import nn

from opweld.driver import compile_module
from opweld.ir.kernels.shared import kernels_of, sharing
from opweld.ir.original import Original, Part
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.options import Options
from opweld.plan import make_plan
from opweld.target import SM_90A

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
    """The first block is an attribute of its own, `first`."""

    def __init__(self, first: str, *widths: int) -> None:
        super().__init__()
        self.first = first
        setattr(self, first, Block(widths[0]))
        self.blocks = nn.ModuleList(map(Block, widths[1:]))

    def forward(self, *images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        blocks = [getattr(self, self.first), *self.blocks]
        return tuple(block(x) for block, x in zip(blocks, images, strict=True))


def text_of(*shapes: tuple[int, int, int], mode: str = "eval", first: str = "z") -> str:
    images = tuple(torch.randn(2, *shape) for shape in shapes)
    original = Original("blocks.py", "blocks", "Blocks", None)
    options = Options(target="sm_90a", mode=mode)
    model = Blocks(first, *(shape[0] for shape in shapes)).eval()
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


@pytest.mark.parametrize("mode", ["eval", "training"])
def test_widths_that_allow_no_packets_have_the_same_kernel(mode: str) -> None:
    """In training with instances of their own, which are those of a kernel for them alone."""
    whole = text_of((64, 8, 8), (32, 16, 16), mode=mode)
    mixed = text_of((64, 8, 8), (64, 7, 7), mode=mode)
    alone = text_of((64, 7, 7), mode=mode)
    assert counts(mixed) == counts(whole) == counts(alone)
    teams = re.compile(r"  using (?:Singles|Teams) = (op::Types<[^;]*>);")
    found = [[" ".join(each.split()) for each in teams.findall(t)] for t in (whole, alone, mixed)]
    assert found[2] == found[0] + found[1]
    assert len(found[2]) == (2 if mode == "training" else 0)


def test_what_no_skeleton_runs_has_a_kernel_for_packets_and_another_one() -> None:
    m = Make()
    results = (m.softmax(m.x(f"x{n}", BATCH, 3, n, n), 3) for n in (8, 7))
    wholes = [m.div(x, m.reduced("sum", x, 0, 2, 3)) for x in results]
    plan = make_plan(graph(*wholes), SM_90A)
    part = Part(None, plan, lower(plan))  # type: ignore[arg-type]

    def num_kernels(by_skeleton: bool) -> int:
        return len(kernels_of(sharing(lifting((part,), "cuda", lambda lowered: by_skeleton))))

    assert num_kernels(True) < num_kernels(False)


def test_names_of_operands_do_not_tell_kernels_apart() -> None:
    """Factors are sorted by names: `i1 * x_stride0` is `bias_stride0 * i1` under another name."""
    text = text_of((64, 16, 16), (128, 8, 8))
    renamed = text_of((64, 16, 16), (128, 8, 8), first="a")
    assert counts(renamed) == counts(text)
