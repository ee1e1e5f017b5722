"""Up to which sizes the original runs where gradients are asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from opweld.driver import compile_module
from opweld.emission import piece
from opweld.emission.host_bound import FEW
from opweld.ir.original import Original
from opweld.options import Options

MOST = FEW["cpu"]


class Called(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


class Wide(nn.Module):
    """In training its kernel has so many times the elements of its argument, in eval three."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, x):
        times = self.times if self.training else 3
        return torch.tanh(x.reshape(-1, 16, 1).expand(-1, 16, times)) * 2


def text_of(function: Callable[..., Any], *rows: int, width: int = 16) -> str:
    module = Called(function)
    original = Original("called.py", __name__, "Called", None)
    inputs = tuple(torch.randn(count, width) for count in rows)
    return compile_module(module, inputs, {}, original, Options(target="cpu")).text


def sizes_in(text: str) -> list[int]:
    found = re.search(r"host_bound=_host_bound\((.*)\)", text)
    return [*map(int, found[1].split(", "))] if found else []


def alike(x, y):
    return torch.tanh(x) * 2, torch.exp(y) + 1


def five_times_as_wide(x, y):
    return torch.tanh(x.reshape(-1, 16, 1).expand(-1, 16, 5)) * 2, y


def outer(x, y):
    return torch.tanh(x.sum(dim=1, keepdim=True) + y.sum(dim=1)) * 2


def between_products(x, y):
    """Two kernels, of which the second has three times the elements of the first."""
    return torch.tanh((torch.exp(x * 2) + 1) @ y) * 2


def test_what_kernels_read_and_write_counts() -> None:
    assert sizes_in(text_of(alike, 6, 6)) == [MOST, MOST]
    assert sizes_in(text_of(five_times_as_wide, 6, 6))[0] == MOST // 5 // 16 * 16


def test_kernels_have_few_elements_on_average() -> None:
    text = text_of(between_products, 6, 16, width=16)
    assert len(re.findall("=lambda op: _(?!replaying)", text)) == 2
    assert sizes_in(text)[0] == MOST


def test_sizes_that_are_fixed_stay() -> None:
    """Three kernels: over x, over y, and over their sums."""
    rows = (3 * MOST - 8 * 16) // (16 + 8)
    assert sizes_in(text_of(outer, 4, 8)) == [rows * 16, 8 * 16]


@pytest.mark.parametrize(("width", "few"), [(MOST // 4, True), (MOST, False)])
def test_fixed_sizes_are_few_or_not(width: int, few: bool) -> None:
    text = text_of(lambda x, y: torch.tanh(x.reshape(4, -1)) * y.reshape(-1)[:1], 4, 1, width=width)
    assert sizes_in(text) == ([4 * width, width] if few else [])
    assert ("_kernels.host_bound(" in text) is few


@pytest.mark.parametrize(("times", "most"), [(6, [MOST // 6 // 16 * 16]), (MOST, [])])
def test_the_state_with_most_elements_decides(times: int, most: list[int]) -> None:
    """None is host-bound where one has too many at any size."""
    original = Original("wide.py", __name__, "Wide", None)
    options = Options(target="cpu", mode="both")
    text = compile_module(Wide(times), (torch.randn(5, 16),), {}, original, options).text
    assert text.count("=lambda op:") == 2
    assert sizes_in(text) == most


def test_a_parameter_at_any_depth_asks_for_a_gradient() -> None:
    names: dict[str, Any] = {"torch": torch}
    exec(piece("asks"), names)
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2, bias=False)), nn.ReLU())
    model.add_module("none", None)
    assert names["_asks"](model)
    model.requires_grad_(False)
    assert not names["_asks"](model)
