"""Files with kernels for gradients on the device: near float64, the same in each run, in graphs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import CountCalls
from tests.gpu.building import SideBySide, built_side_by_side
from tests.gpu.emitting import model_text
from torch import Tensor, nn

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
RUNS = 200

LAYERS = "self.up, self.down = nn.Linear(512, 1024), nn.Linear(1024, 512)"
MODELS = {
    name: model_text(held, result, f"torch.randn({shape})")
    for name, held, result, shape in (
        # What a leaky ReLU keeps are bits, of a gelu the product.
        ("mask", LAYERS, "self.down(F.leaky_relu(self.up(x), 0.2)) * 2.0", "1024, 512"),
        ("product", LAYERS, "F.gelu(self.down(F.gelu(self.up(x))))", "1024, 512"),
        ("layer_norm", "self.norm = nn.LayerNorm(4096)", "torch.tanh(self.norm(x))", "512, 4096"),
        ("long_rows", "self.norm = nn.LayerNorm(100003)", "self.norm(x).sin()", "8, 100003"),
        ("columns", "self.scale = nn.Parameter(torch.rand(256) + 0.5)",
         "torch.tanh(x * self.scale / (x.square().mean(1, keepdim=True) + 1e-5).sqrt())",
         "70000, 256"),
        ("softmax", "self.bias = nn.Parameter(torch.rand(1024))",
         "torch.softmax(x * 0.5 + self.bias, -1) * x", "2048, 1024"),
        ("loss", "self.weight = nn.Parameter(torch.rand(1000))",
         "F.cross_entropy(x * self.weight, torch.arange(x.shape[0], device=x.device) % 1000)",
         "512, 1000"),
    )
}  # fmt: skip


@pytest.fixture(scope="module", params=[1.0, 0.0], ids=["kept", "again"])
def built(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    """With what takes the least time kept, and with products computed again."""
    sources = {name: f"# {request.param}\n{text}" for name, text in MODELS.items()}
    asked = {"training": True, "memory_budget": request.param}
    with built_side_by_side(sources, tmp_path_factory, **asked) as modules:
        yield modules


def both(module: ModuleType) -> tuple[nn.Module, nn.Module, Tensor]:
    """The new model and the original with the same parameters, and an input."""
    torch.manual_seed(1)
    original = module._Original().to(DEVICE)
    (x,) = module._original.get_inputs()
    return module.ModelNew.adopt(copy.deepcopy(original)), original, x.to(DEVICE)


def step(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The gradients of the input and of the parameters.

    The result's has no period: sums of one cancel in some orders and not in others.
    """
    x = x.detach().clone().requires_grad_()
    leaves = {"x": x, **dict(model.named_parameters())}
    result = model(x)
    drawn = torch.Generator(DEVICE).manual_seed(2)
    factors = torch.randn(result.shape, device=DEVICE, generator=drawn)
    total = (result * factors.to(result)).sum()
    return dict(zip(leaves, torch.autograd.grad(total, [*leaves.values()]), strict=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [None, 3, 1])
def test_gradients_are_near_float64(built: SideBySide, name: str, batch: int | None) -> None:
    new, original, x = both(built[name])
    x = x[:batch]
    exact = step(copy.deepcopy(original).double(), x.double())
    with CountCalls() as counted:
        ours = step(new, x)
    eager = step(original, x)
    assert any("_of_k" in str(function) for function, _ in counted.ours)
    for leaf, value in exact.items():
        error, usual = ((each[leaf].double() - value).abs().max() for each in (ours, eager))
        assert error <= 2 * usual + 1e-6 * value.abs().max(), leaf


@pytest.mark.parametrize("name", MODELS)
def test_each_run_gives_the_same_bits(built: SideBySide, name: str) -> None:
    new, _, x = both(built[name])
    first = step(new, x)
    for _ in range(RUNS):
        for leaf, value in step(new, x).items():
            assert torch.equal(value, first[leaf]), leaf


@pytest.mark.parametrize("name", ["mask", "layer_norm"])
def test_a_step_in_a_graph(built: SideBySide, name: str) -> None:
    new, _, x = both(built[name])
    wanted = step(new, x)
    graphed: Any = torch.cuda.make_graphed_callables(new, (x.clone().requires_grad_(),))
    for leaf, value in step(graphed, x).items():
        torch.testing.assert_close(value, wanted[leaf], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["mask", "product"])
def test_steps_with_a_scaler(built: SideBySide, name: str) -> None:
    """Under autocast the original runs, or its reference; weights end where eager's do."""
    new, original, x = both(built[name])
    for model in (new, original):
        scaler = torch.amp.GradScaler(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast(DEVICE, torch.float16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    for ours, theirs in zip(new.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
