"""Products whose operand is computed while it is split, host code and kernels, against float64."""

from __future__ import annotations

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, leaves
from tests.behaviour.products import pair_of_texts, text_of

SOURCE = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(40, 24)
        self.odd = nn.Linear(37, 18, bias=False)
        self.gain = nn.Parameter(torch.randn(40))

    def forward(self, x, y, z):
        h = F.gelu(x.half().float() * self.gain + x)
        first, second = torch.relu(self.fc(h)), F.linear(h, self.fc.weight)
        third = self.odd(torch.tanh(y) + y[:, :, :1])
        across = torch.bmm(torch.exp(-z).mT, y)
        return first, second, third, across


def get_inputs():
    return [torch.randn(20, 40), torch.randn(20, 34, 37), torch.randn(20, 34, 20)]


def get_init_inputs():
    return []
"""
# Two products of h; one of odd rows; one whose operand lies across, and whose other operand is new
# at each call.
NUM_KERNELS = 4


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    text = text_of("prologues", SOURCE, tensor_cores="mma")
    assert text.count("op::contract_computed<") == 4
    folder = tmp_path_factory.mktemp("prologues")
    return pair_of_texts("prologues", SOURCE, text, NUM_KERNELS, folder)


def require_near(found: object, exact: object) -> None:
    for mine, theirs in zip(leaves(found), leaves(exact), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5, equal_nan=True)


def exactly(model: torch.nn.Module, inputs: list[torch.Tensor]) -> object:
    """In float64, but for the values that float32 rounds to 16 bits."""
    x, y, z = (value.double() for value in inputs)
    rounded = inputs[0].half().double()
    with torch.no_grad():
        model = model.double()
        h = torch.nn.functional.gelu(rounded * model.gain + x)
        first, second = torch.relu(model.fc(h)), h @ model.fc.weight.mT
        third = model.odd(torch.tanh(y) + y[:, :, :1])
        return first, second, third, torch.bmm(torch.exp(-z).mT, y)


@pytest.mark.parametrize("batch", [20, pytest.param(70, marks=pytest.mark.slow), 3, 1, 0])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    inputs = pair.inputs(batch)
    with torch.no_grad():
        found = new(*inputs)
    require_near(found, exactly(original, inputs))
    with torch.no_grad():
        assert kernels_in(lambda: new(*inputs)) == pair.num_kernels


def test_inputs_may_have_any_strides(pair: Pair) -> None:
    original, new = pair.models()
    inputs = [x.permute(*reversed(range(x.dim()))) for x in pair.inputs(18)]
    inputs = [x.contiguous().permute(*reversed(range(x.dim()))) for x in inputs]
    assert not any(x.is_contiguous() for x in inputs)
    with torch.no_grad():
        require_near(new(*inputs), exactly(original, inputs))


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 3e38])
def test_the_second_path_computes_the_same_operand(pair: Pair, odd: float) -> None:
    original, new = pair.models()
    inputs = pair.inputs(20)
    inputs[0][3, 5] = odd if odd != 3e38 else 6e4
    inputs[1][2, 7, 36] = odd
    inputs[2][1, 4, 6] = -80.0  # exp: beyond what the split form takes
    with torch.no_grad():
        found, exact = leaves(new(*inputs)), leaves(exactly(original, inputs))
    for mine, theirs in zip(found, exact, strict=True):
        finite = theirs.abs() < 1e30
        torch.testing.assert_close(mine.double()[finite], theirs[finite], rtol=1e-4, atol=1e-4)
        assert not mine[theirs.isnan()].isfinite().any()


def test_gradients_reach_what_the_operand_is_computed_of(pair: Pair) -> None:
    original, new = pair.models()
    inputs = [x.requires_grad_() for x in pair.inputs(5)]
    for model in (original, new):
        sum(result.square().sum() for result in model(*inputs)).backward()
    for mine, theirs in zip(new.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)
