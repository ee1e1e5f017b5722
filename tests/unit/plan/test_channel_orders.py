"""Graphs whose convolutions have their channels last compute what their modules do: random windows
in one, two and three axes of space, and what may stand behind them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pytest
import torch
from tests.capturing import assert_agrees, exported
from tests.gpu.emitting import all_convolutions_ours
from torch import Tensor, nn
from torch.nn import functional as F

from opweld.ir.graph import Graph
from opweld.ir.ops import Op
from opweld.ir.plan import Conditions
from opweld.plan.convolutions import with_explicit_biases
from opweld.plan.layouts import in_channels_last
from opweld.target import SM_90A

KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def padded(y: Tensor, mode: str) -> Tensor:
    return F.pad(y, (1, 2) * (y.dim() - 2), mode=mode)


def joined(y: Tensor) -> Tensor:
    return torch.cat((y, y.flip(2).tanh()), 1)[:, ::2]


def back_and_forth(y: Tensor) -> Tensor:
    """As around a linear layer."""
    y = y.movedim(1, -1)
    return (y * torch.linspace(-1, 1, y.shape[-1])).movedim(-1, 1)


BEHIND: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda y: MAX_POOLS[y.dim() - 2](y, 2, 1),
    lambda y: AVERAGE_POOLS[y.dim() - 2](y, 2, 1, count_include_pad=False),
    lambda y: padded(y, "constant"),
    lambda y: padded(y, "circular"),
    lambda y: padded(y, "replicate"),
    lambda y: y - y.mean(tuple(range(2, y.dim())), keepdim=True),
    lambda y: torch.softmax(y, 1),
    lambda y: F.interpolate(y, scale_factor=2),
    joined,
    back_and_forth,
)


@dataclass(frozen=True, slots=True)
class Windows:
    """Numbers of a convolution, one for each axis of space."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]

    @staticmethod
    def drawn(draw: random.Random, space: int) -> Windows:
        def each(*values: int) -> tuple[int, ...]:
            return tuple(draw.choice(values) for _ in range(space))

        kernel, dilation = each(1, 2, 3, 4), each(1, 1, 2)
        form = draw.choice(("numbers", "numbers", "same", "valid"))
        if form == "same":
            return Windows(kernel, each(1), form, dilation)
        padding = tuple(draw.randint(0, (k - 1) * d) for k, d in zip(kernel, dilation, strict=True))
        return Windows(kernel, each(1, 2, 3), padding if form == "numbers" else form, dilation)

    def layer(self, space: int, inner: int, outer: int, **given: Any) -> nn.Module:
        numbers = (self.kernel, self.stride, self.padding, self.dilation)
        return KINDS[space](inner, outer, *numbers, **given)


class Model(nn.Module):
    """Two convolutions with something between them; a third, of each channel by itself, in some."""

    def __init__(self, seed: int, space: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.behind = draw.choice(BEHIND)
        self.first = Windows.drawn(draw, space).layer(space, 33, 36, bias=draw.random() < 0.5)
        self.norm = NORMS[space](36)
        windows = replace(Windows.drawn(draw, space), stride=(1,) * space)
        self.second = windows.layer(space, 36, 32)
        same = replace(windows, padding="same")
        self.each = same.layer(space, 36, 36, groups=36) if draw.random() < 0.4 else nn.Identity()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.behind(torch.relu(self.norm(self.first(x))))
        z = torch.tanh(self.second(self.each(y)))
        return z.mean(tuple(range(2, z.dim()))), y.amax(1), z, AVERAGE_POOLS[z.dim() - 2](z, 1, 2)


@pytest.mark.parametrize("space", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_any_windows(space: int, seed: int) -> None:
    torch.manual_seed(seed)
    module = Model(seed, space).eval()
    x = torch.randn(2, 33, *(14, 11, 9)[:space])
    if space == 1:
        x = torch.randn(2, 33, 40)
    variant = exported(module, x)
    conditions = Conditions(tf32_convolutions=True)
    whole = with_explicit_biases(variant.graph, SM_90A, conditions)
    graphs = in_all_ways(whole, conditions)
    calls = [n for n in graphs[0].nodes() if n.op is Op.CALL and "conv" in n.attrs.target]
    assert len(calls) in (2, 3) and all(call.attrs.channels_last for call in calls)
    assert len(graphs) > 1
    for graph in graphs:
        assert_agrees(replace(variant, graph=graph), module, x)


def in_all_ways(graph: Graph, conditions: Conditions) -> list[Graph]:
    """With each choice of what convolutions give back at once."""
    found: list[Graph] = []
    choosing = "opweld.plan.layouts.choice"
    while True:
        # The least of the ways, at 0, is the next one.
        measured = mock.Mock(side_effect=(abs(at - len(found)) for at in itertools.count()))
        with (
            all_convolutions_ours(),
            mock.patch(f"{choosing}._is_worth_it", return_value=True),
            mock.patch(f"{choosing}._Estimates.cost", measured),
        ):
            made = in_channels_last(graph, SM_90A, conditions)
        if measured.call_count <= len(found):
            return found
        found.append(made)
