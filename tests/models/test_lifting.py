"""Blocks of different widths share kernels for any sizes, which give the same bits as their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.models.emitted import Emitted, emit_module
from torch import nn

from opweld import driver
from opweld.ir.original import Part

SHAPES = ((4, 3, 48), (6, 3, 64), (5, 3, 35))


class Block(nn.Module):
    """Channels, a broadcast row, what is shifted along an axis, and a sum over channels."""

    def __init__(self, channels: int, columns: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.columns = nn.Parameter(torch.randn(columns))
        self.layers = nn.LayerNorm(columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sort(torch.relu(self.norm(x)), dim=2)[0]
        x = torch.sort(x.flip(1) * self.columns + x.transpose(1, 2).transpose(1, 2), dim=2)[0]
        return torch.sort(torch.cat([x.sin(), x], 1), dim=2)[0]


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(shape[0], shape[2]) for shape in SHAPES)

    def forward(self, *images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(block(x) for block, x in zip(self.blocks, images, strict=True))


def images(batch: int = 3) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(3)
    return tuple(torch.randn(batch, *shape) for shape in SHAPES)


def emitted(folder: Path) -> Emitted:
    torch.manual_seed(1)
    return emit_module(Blocks().eval(), (images(), {}), folder, mode="both")


@pytest.fixture(scope="module")
def lifted(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return emitted(tmp_path_factory.mktemp("lifted"))


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """The same with a kernel for each size."""

    def as_they_are(parts: tuple[Part, ...], *_: object) -> tuple[Part, ...]:
        return parts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "lifting", as_they_are)
        return emitted(tmp_path_factory.mktemp("numbered"))


def names(made: Emitted, state: str = "") -> list[str]:
    fused = made.compiled.fused
    return [row.name for row in made.compiled.plan_rows if row in fused and row.variant == state]


def test_blocks_share_their_kernels(lifted: Emitted, numbered: Emitted) -> None:
    assert len(set(names(numbered))) == len(names(numbered)) == len(names(lifted))
    assert len(set(names(lifted))) * len(SHAPES) == len(names(lifted))
    training = names(lifted, "training")
    assert 0 < len(set(training)) < len(training) == len(set(names(numbered, "training")))


def every_second(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, dim=3)[..., ::2]


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


LAYOUTS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    torch.Tensor.contiguous,
    every_second,
    channels_last,
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_the_bits_are_those_of_kernels_for_one_size(
    lifted: Emitted,
    numbered: Emitted,
    batch: int,
    layout: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    given = [layout(x) for x in images(batch)]
    with torch.no_grad():
        pairs = zip(lifted.new(*given), numbered.new(*given), strict=True)
    for ours, theirs in pairs:
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_is_the_same_to_the_bit(
    lifted: Emitted, numbered: Emitted, layout: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    models = [copy.deepcopy(made.new).train() for made in (lifted, numbered)]
    for model in models:
        results = model(*map(layout, images()))
        sum((each * each).sum() for each in results).backward()
    first, second = models
    for own, other in zip(first.parameters(), second.parameters(), strict=True):
        assert (own.grad is None) == (other.grad is None)
        assert own.grad is None or torch.equal(own.grad, other.grad)
    for own, other in zip(first.buffers(), second.buffers(), strict=True):
        assert torch.equal(own, other)
