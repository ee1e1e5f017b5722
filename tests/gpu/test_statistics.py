"""Statistics of columns that are cut in pieces, by how many columns there are, and the norms and
convolutions around them.

    python3 -m pytest -m gpu tests/gpu/test_statistics.py
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.gpu.emitting import (
    all_convolutions_ours,
    cuda_of,
    emitted_module,
    model_text,
    write_pair,
)
from tests.gpu.sanitizing import KERNELS_ALONE, needs_sanitizer, require_nothing_found
from torch import Tensor

pytestmark = pytest.mark.gpu

RUNS = 200
ROWS = 100352
# Sixteen strips and more, and eight; one number at a time where columns are odd.
COLUMNS = (3, 16, 64, 100, 128, 129, 384)


def norm_text(columns: int) -> str:
    held = f"self.norm = nn.BatchNorm1d({columns})"
    return model_text(held, "torch.relu(self.norm(x))", f"torch.randn({ROWS}, {columns})")


@pytest.fixture(scope="module", params=COLUMNS)
def norm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    columns = request.param
    folder = tmp_path_factory.mktemp(f"columns{columns}")
    module = emitted_module(folder, f"norm_{columns}", norm_text(columns))
    assert "op::AcrossRows" in cuda_of(module) and "op::CutRows<" in cuda_of(module)
    return module.ModelNew().cuda().train()


def eager(model: Any) -> Any:
    return type(model).__mro__[1]


def beside(model: Any, x: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The result and the statistics of ours, of eager, and in float64, from the same state."""
    found = []
    for dtype, forward in ((x.dtype, None), (x.dtype, eager(model)), (torch.float64, eager(model))):
        own = copy.deepcopy(model).to(dtype)
        with torch.no_grad():
            result = own(x) if forward is None else forward.forward(own, x.to(dtype))
        found.append([result, own.norm.running_mean, own.norm.running_var])
    ours, theirs, exact = found
    return ours, theirs, exact


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize("rows", [2, 127, 128, 129, 4095, ROWS, 401408])
def test_of_any_length(norm: Any, rows: int, mean: float) -> None:
    x = torch.randn(rows, norm.norm.num_features, device="cuda") + mean
    ours, theirs, exact = beside(norm, x)
    for mine, its, right in zip(ours, theirs, exact, strict=True):
        error, eagers = ((each.double() - right).abs().max() for each in (mine, its))
        assert error <= 1.5 * eagers + right.abs().max() * 2.0**-23


def test_runs_are_equal(norm: Any) -> None:
    x = torch.randn(ROWS, norm.norm.num_features, device="cuda")
    with torch.no_grad():
        first = norm(x)
        assert kernels_in(lambda: norm(x)) == 3  # one of them moves the running statistics
        assert sum(not torch.equal(norm(x), first) for _ in range(RUNS)) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38, 1e-40])
def test_a_hard_value_affects_its_column_only(norm: Any, value: float) -> None:
    """Eager's mean of a column with an infinity is NaN where its sum is the infinity."""
    x = torch.randn(ROWS, norm.norm.num_features, device="cuda")
    x[ROWS // 2, 1] = value
    own = copy.deepcopy(norm)
    before = own.norm.running_mean.double()  # of the calls of other tests
    with torch.no_grad():
        result = own(x)
    mean = 0.9 * before + 0.1 * x.double().mean(0)
    found = own.norm.running_mean.double()
    torch.testing.assert_close(found, mean, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert result[:, 2:].isfinite().all() and result[:, 0].isfinite().all()
    assert result[ROWS // 2, 1].isfinite() == math.isfinite(value)


@needs_sanitizer
@pytest.mark.parametrize("columns", [16, 128, 384])
def test_racecheck_finds_nothing(columns: int, tmp_path: Path) -> None:
    _, new = write_pair(tmp_path, f"norm_{columns}", norm_text(columns))
    calls = f"""{KERNELS_ALONE}
model = emitted.ModelNew().cuda().train()
with torch.no_grad():
    for rows in (2, 1000, 30000):
        model(torch.randn(rows, {columns}, device="cuda"))
torch.cuda.synchronize()
"""
    require_nothing_found("racecheck", calls, new)


NETWORK = model_text(
    "self.conv, self.norm, self.last, self.after = nn.Conv2d(64, 128, 3, padding=1), "
    "nn.BatchNorm2d(128), nn.Conv2d(128, 64, 3, stride=2), nn.BatchNorm2d(64)",
    "F.silu(self.after(self.last(torch.relu(self.norm(self.conv(x))))))",
    "torch.randn(16, 64, 30, 30)",
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    with all_convolutions_ours():
        return emitted_module(tmp_path_factory.mktemp("network"), "network", NETWORK)


def test_convolutions_before_them(network: ModuleType) -> None:
    model = network.ModelNew().cuda().train()
    x = torch.randn(16, 64, 30, 30, device="cuda")
    state = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        assert kernels_in(lambda: model(x)) == 6
        model.load_state_dict(state)
        found = model(x)
        after = copy.deepcopy(model.state_dict())
        model.load_state_dict(state)
        theirs = eager(model).forward(model, x)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(after[name], value, rtol=2e-3, atol=2e-3)
        assert found.stride() == theirs.stride()
        torch.testing.assert_close(found, theirs, rtol=2e-2, atol=2e-2)
        assert all(torch.equal(model(x), found) for _ in range(RUNS))
    with torch.random.fork_rng(devices=[0]):
        wanted = torch.autograd.grad(eager(model).forward(model, x).sum(), model.conv.weight)
        ours = torch.autograd.grad(model(x).sum(), model.conv.weight)
    torch.testing.assert_close(ours, wanted)
