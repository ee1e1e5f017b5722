"""Tensors of more than 2^31 elements: 64-bit positions, in every access form."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.gpu.emitting import emitted_module

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PAST = 2**31 + 17
PIECE = 2**28

POINTWISE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

def get_inputs():
    return [torch.ones(64, dtype=torch.int8)]

def get_init_inputs():
    return []
"""

BROADCAST = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, row, column):
        return x * row - column

def get_inputs():
    return [torch.ones(4, 1000), torch.ones(1000), torch.ones(4, 1)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def pointwise(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return emitted_module(tmp_path_factory.mktemp("large"), "large_pointwise", POINTWISE)


@pytest.fixture(scope="module")
def broadcast(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return emitted_module(tmp_path_factory.mktemp("large"), "large_broadcast", BROADCAST)


def assert_equal_in_pieces(
    result: torch.Tensor, wanted: Callable[[slice], torch.Tensor], size: int
) -> None:
    for start in range(0, size, PIECE):
        piece = slice(start, min(start + PIECE, size))
        assert torch.equal(result[piece], wanted(piece)), f"elements from {start} on differ"


def test_contiguous(pointwise: ModuleType) -> None:
    x = torch.randint(-100, 100, (PAST,), dtype=torch.int8, device="cuda")
    model = pointwise.ModelNew()
    with torch.no_grad():
        assert_equal_in_pieces(model(x), lambda piece: torch.relu(x[piece]) + 1, PAST)
        assert kernels_in(lambda: model(x)) == 1


def test_misaligned(pointwise: ModuleType) -> None:
    x = torch.randint(-100, 100, (PAST + 1,), dtype=torch.int8, device="cuda")[1:]
    with torch.no_grad():
        result = pointwise.ModelNew()(x)
    assert_equal_in_pieces(result, lambda piece: torch.relu(x[piece]) + 1, PAST)


def test_every_second_element(pointwise: ModuleType) -> None:
    """Few elements, but offsets past 2^31."""
    x = torch.randint(-100, 100, (PAST + 1,), dtype=torch.int8, device="cuda")[::2]
    with torch.no_grad():
        result = pointwise.ModelNew()(x)
    assert_equal_in_pieces(result, lambda piece: torch.relu(x[piece]) + 1, x.shape[0])


def test_rows_and_columns(broadcast: ModuleType) -> None:
    rows = PAST // 1000 + 1
    x = torch.empty(rows, 1000, device="cuda").uniform_(-1, 1)
    row, column = torch.randn(1000, device="cuda"), torch.randn(rows, 1, device="cuda")
    model = broadcast.ModelNew()
    with torch.no_grad():
        result = model(x, row, column)
        assert kernels_in(lambda: model(x, row, column)) == 1
    for start in range(0, rows, 2**18):
        piece = slice(start, start + 2**18)
        wanted = x[piece].double() * row.double() - column[piece].double()
        assert (result[piece].double() - wanted).abs().max() < 1e-6
