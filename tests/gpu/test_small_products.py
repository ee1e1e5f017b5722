"""Small float32 products by squares of multiply-adds on the device: errors beside eager's, sizes
round the edges of squares and stages, any layout, equal bits at each call.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.gpu.emitting import cuda_of, emitted_module
from tests.gpu.sanitizing import KERNELS_ALONE, needs_sanitizer, require_nothing_found
from torch import Tensor, nn

pytestmark = pytest.mark.gpu

RUNS = 200
# Linear layers of `widths` values, with a tail and without.
LAYERS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear({0}, {1})
        self.second = nn.Linear({1}, {2}, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))

def get_inputs():
    return [torch.randn({rows}, {0})]

def get_init_inputs():
    return []
"""
PAIR = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y)

def get_inputs():
    return [torch.randn({a}), torch.randn({b})]

def get_init_inputs():
    return []
"""
# One of floats that are copied four at a time, and one of others; one of larger squares at first.
WIDTHS = {
    "aligned": (64, 128, 40, 32),
    "odd": (75, 97, 33, 40),
    "large": (512, 512, 64, 1024),
}


@pytest.fixture(scope="module", params=WIDTHS)
def layers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    *widths, rows = WIDTHS[request.param]
    text = LAYERS.format(*widths, rows=rows)
    return built(emitted_module(tmp_path_factory.mktemp("layers"), "layers", text))


def built(module: ModuleType) -> ModuleType:
    assert module.ModelNew._opweld.devices, "the kernels were not built"
    assert "op::FmaTiles<float" in cuda_of(module), "the product is made otherwise"
    assert "op::SplitTiles" not in cuda_of(module), "the product is made otherwise"
    return module


def inner_of(model: nn.Module) -> int:
    return model.first.in_features


def exact(model: nn.Module, x: Tensor) -> Tensor:
    first, second = model.first, model.second
    h = torch.tanh(x.double() @ first.weight.double().mT + first.bias.double())
    return h @ second.weight.double().mT


def require_as_exact(found: Tensor, eager: Tensor, expected: Tensor) -> None:
    """Grade A (judge/numerics/grade.py): rms within 5 %, largest 1.5 times, plus some ulps."""
    ulp = expected.abs().max().item() * 2.0**-24
    for norm, times in ((lambda x: x.square().mean().sqrt(), 1.05), (torch.amax, 1.5)):
        ours, theirs = (norm((x.double() - expected).abs()).item() for x in (found, eager))
        assert ours <= times * theirs + 2 * ulp, (ours, theirs, ulp)


# Rows round the edges of squares; so many that the smaller squares are left for the larger ones.
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 63, 65, 257, 2560, 2561, 20000])
def test_any_number_of_rows_is_as_exact_as_eagers(layers: ModuleType, rows: int) -> None:
    torch.manual_seed(rows)
    model = layers.ModelNew().cuda()
    x = torch.randn(rows, inner_of(model), device="cuda")
    with torch.no_grad():
        eager = layers._Original.forward(model, x)
        require_as_exact(model(x), eager, exact(model, x))
        assert model(x[:0]).shape == eager[:0].shape


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan, 3e38, 1e-40, -0.0])
def test_odd_values_come_out_as_eagers(layers: ModuleType, odd: float) -> None:
    model = layers.ModelNew().cuda()
    x = torch.randn(70, inner_of(model), device="cuda")
    x[3, 5] = x[40, 7] = odd
    with torch.no_grad():
        found, eager = model(x), layers._Original.forward(model, x)
    torch.testing.assert_close(found, eager, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_strided_rows_and_other_addresses(layers: ModuleType) -> None:
    model = layers.ModelNew().cuda()
    inner = inner_of(model)
    whole = torch.randn(2 * 70, inner + 3, device="cuda")
    views = [whole[::2, :inner], whole[:70, 1 : inner + 1], whole.mT.contiguous().mT[:70, :inner]]
    with torch.no_grad():
        for x in views:
            require_as_exact(model(x), layers._Original.forward(model, x), exact(model, x))


def test_results_are_the_same_at_each_call_and_in_a_graph(layers: ModuleType) -> None:
    model = layers.ModelNew().cuda()
    x = torch.randn(96, inner_of(model), device="cuda")
    with torch.no_grad():
        first = model(x)
        for _ in range(RUNS):
            assert torch.equal(model(x), first)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = model(x)
        for _ in range(RUNS):
            replayed.fill_(math.nan)
            graph.replay()
            assert torch.equal(replayed, first)


def test_a_changed_weight_is_used_at_once(layers: ModuleType) -> None:
    """Nothing of it is kept."""
    model = layers.ModelNew().cuda()
    x = torch.randn(32, inner_of(model), device="cuda")
    with torch.no_grad():
        for _ in range(3):
            model.first.weight.data.normal_()
            require_as_exact(model(x), layers._Original.forward(model, x), exact(model, x))


@pytest.mark.parametrize(
    ("a", "b"),
    [((64, 100), (100, 72)), ((6, 40, 64), (6, 64, 48)), ((3, 5, 17, 36), (3, 5, 36, 50))],
    ids=str,
)
def test_products_of_two_inputs(a: tuple[int, ...], b: tuple[int, ...], tmp_path: Path) -> None:
    sizes = [", ".join(map(str, shape)) for shape in (a, b)]
    module = built(emitted_module(tmp_path, "pair", PAIR.format(a=sizes[0], b=sizes[1])))
    x, y = (torch.randn(shape, device="cuda") for shape in (a, b))
    with torch.no_grad():
        for other in (y, y.mT.contiguous().mT):
            found = module.ModelNew().cuda()(x, other)
            require_as_exact(found, x @ other, x.double() @ other.double())


@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found_by_the_sanitizer(tool: str, tmp_path: Path) -> None:
    emitted_module(tmp_path, "layers", LAYERS.format(64, 128, 40, rows=32))
    calls = f"""{KERNELS_ALONE}
model = emitted.ModelNew().cuda()
with torch.no_grad():
    for rows in (1, 33, 97, 12000):
        model(torch.randn(rows, 64, device="cuda"))
torch.cuda.synchronize()
"""
    require_nothing_found(tool, calls, tmp_path / "layers_new.py")
