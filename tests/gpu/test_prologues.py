"""Products on the device whose operand is computed while it is split: errors beside eager's."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from tests.gpu.emitting import all_products_ours, cuda_of, emitted_module
from torch import Tensor

pytestmark = pytest.mark.gpu

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(1000, 768), nn.Linear(1000, 512, bias=False)
        self.gain = nn.Parameter(torch.rand(1000) + 0.5)

    def forward(self, x, residual, y):
        h = F.gelu(x.float() * self.gain) + residual
        turned = torch.exp(y * 0.25)
        return torch.relu(self.first(h)), self.second(h), turned.mT @ residual

def get_inputs():
    x, residual = torch.randn(384, 1000), torch.randn(384, 1000)
    return [x.bfloat16(), residual, torch.randn(384, 300)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Whatever the plan expects of products of these sizes."""
    with all_products_ours():
        found = emitted_module(tmp_path_factory.mktemp("prologues"), "prologues", MODEL)
        assert found.ModelNew._opweld.devices, "the kernels were not built"
        assert cuda_of(found).count("op::contract_computed<") == 3
        yield found


def models(module: ModuleType) -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    new = module.ModelNew().cuda().eval()
    eager = type(new).__mro__[1]().cuda().eval()
    eager.load_state_dict(new.state_dict())
    return eager, new


def inputs(rows: int = 384) -> list[Tensor]:
    x, residual = (torch.randn(rows, 1000, device="cuda") for _ in range(2))
    return [x.bfloat16(), residual, torch.randn(rows, 300, device="cuda")]


def exactly(eager: torch.nn.Module, given: list[Tensor]) -> list[Tensor]:
    x, residual, y = (each.double() for each in given)
    h = torch.nn.functional.gelu(x * eager.gain.double()) + residual
    first = h @ eager.first.weight.double().mT + eager.first.bias.double()
    second = h @ eager.second.weight.double().mT
    return [first.relu(), second, torch.exp(y * 0.25).mT @ residual]


@pytest.mark.parametrize("rows", [384, 129, 16, 1])
def test_errors_are_no_larger_than_eagers(module: ModuleType, rows: int) -> None:
    eager, new = models(module)
    given = inputs(rows)
    with torch.no_grad():
        found, theirs, exact = new(*given), eager(*given), exactly(eager, given)
    for mine, other, true in zip(found, theirs, exact, strict=True):
        off, of_eager = ((each.double() - true).square().mean().sqrt() for each in (mine, other))
        assert off <= 1.05 * of_eager + 1e-7


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 1e30])
def test_the_second_path_computes_the_same_operand(module: ModuleType, odd: float) -> None:
    eager, new = models(module)
    given = inputs()
    given[1][5, 7] = odd
    with torch.no_grad():
        found, theirs = new(*given), eager(*given)
    for mine, other in zip(found, theirs, strict=True):
        assert (mine.isnan() == other.isnan()).all() and (mine.isinf() == other.isinf()).all()
        plain = other.isfinite()
        torch.testing.assert_close(mine[plain], other[plain], rtol=1e-3, atol=1e-3)


def test_misaligned_operands(module: ModuleType) -> None:
    eager, new = models(module)
    given = [
        torch.randn(384 * each.shape[1] + 1, device="cuda").to(each.dtype) for each in inputs()
    ]
    given = [each[1:].view(384, -1) for each in given]
    with torch.no_grad():
        found, exact = new(*given), exactly(eager, given)
    for mine, true in zip(found, exact, strict=True):
        torch.testing.assert_close(mine.double(), true, rtol=1e-4, atol=1e-4)
