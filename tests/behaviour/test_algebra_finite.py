"""Products in another order, without what is zero, and convolutions that are gone, as emitted
files: on the CPU, and as CUDA under emulation; and files of PyTorch's calls alone.
"""

from __future__ import annotations

import copy
from pathlib import Path
from unittest import mock

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, load_file
from tests.behaviour.products import every_product_is_ours, pair_of_texts

from opweld.driver import compile_file
from opweld.ir.rules.costs import Costs
from opweld.options import Options

SOURCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 8)
        self.norm = nn.BatchNorm1d(64)
        self.u, self.v = nn.Parameter(torch.randn(24, 2)), nn.Parameter(torch.randn(2, 16))
        self.scale = nn.Parameter(torch.randn(16))
        self.square = nn.Parameter(torch.randn(64, 64))
        self.conv = nn.Conv2d(4, 24, 3, padding=1)
        self.narrow = nn.Conv2d(24, 6, 1)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        rows = x[:, :16]
        chained = torch.relu(self.second(self.norm(self.first(rows))))
        low = torch.tanh(nn.functional.linear(rows, self.u @ self.v))
        scaled = rows @ torch.diag(self.scale) + 1.0
        triangle = x @ torch.tril(self.square) * 2.0
        image = x.view(x.shape[0], 4, 4, 4)
        averaged = self.conv(image).mean((2, 3)) + 1.0
        merged = torch.relu(self.narrow(self.conv(image)))
        pooled = torch.sigmoid(self.pool(self.conv(image)))
        return chained, low, scaled, triangle, averaged, merged, pooled


def get_inputs():
    return [torch.randn(6, 64)]


def get_init_inputs():
    return []
"""
CALLS_ALONE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 8)

    def forward(self, x):
        return self.second(self.first(x))


def get_inputs():
    return [torch.randn(6, 16)]


def get_init_inputs():
    return []
"""
RULES = {
    "diagonal-product-finite",
    "merged-layers-finite",
    "pooled-convolution-finite",
    "product-order-finite",
    "sum-of-convolution-finite",
    "triangular-product-finite",
}
SMALL = Costs(flops_per_s=1e9, bytes_per_s=1e15, own_products=True)  # sizes of a test pay


def compiled(source: str, folder: Path, target: str):
    path = folder / "finite.py"
    path.write_text(source, "utf-8")
    options = Options(target=target, check=False, mode="eval", algebra="finite")
    torch.manual_seed(0)
    with mock.patch("opweld.driver.costs_of", lambda *given: SMALL), every_product_is_ours("none"):
        return compile_file(path, options)


def pair_of(source: str, folder: Path, target: str) -> Pair:
    made = compiled(source, folder, target)
    if target != "cpu":
        return pair_of_texts("finite", source, made.text, 0, folder)
    original = load_file(folder / "finite.py", source)
    return Pair("finite", source, made.text, 0, original, load_file(folder / "new.py", made.text))


@pytest.fixture(scope="module", params=["cpu", "sm_90a"])
def pair(request, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return pair_of(SOURCE, tmp_path_factory.mktemp("finite"), request.param)


def models(pair: Pair, seed: int = 0):
    return [model.eval() for model in pair.models(seed=seed)]


def require_same(original, new, x: torch.Tensor) -> None:
    with torch.no_grad():
        wanted, found = copy.deepcopy(original).double()(x.double()), new(x)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for mine, theirs in pairs:
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=2e-5)


def test_all_rules_are_tried(tmp_path: Path) -> None:
    made = compiled(SOURCE, tmp_path, "cpu")
    assert {name for name, _ in made.rules} & RULES == RULES
    assert any("finite" in sentence for sentence in made.rewritten)


def test_results(pair: Pair) -> None:
    original, new = models(pair)
    for batch in (1, 6, 33):
        (x,) = pair.inputs(batch)
        require_same(original, new, x)
        assert kernels_in(lambda x=x: new(x)) > 3


def test_weights_and_statistics_may_change(pair: Pair) -> None:
    original, new = models(pair)
    (x,) = pair.inputs()
    require_same(original, new, x)
    with torch.no_grad():
        for change in (
            lambda m: m.first.weight.mul_(1.5),
            lambda m: m.second.bias.data.add_(1.0),
            lambda m: m.norm.running_var.mul_(4.0),
            lambda m: m.norm.running_mean.data.sub_(0.5),
            lambda m: m.u.data.mul_(-2.0),
            lambda m: m.scale.add_(1.0),
            lambda m: m.square.data.mul_(0.5),
            lambda m: m.conv.weight.data.mul_(2.0),
            lambda m: m.narrow.weight.sub_(0.25),
        ):
            change(original)
            change(new)
            require_same(original, new, x)
    other, _ = models(pair, seed=9)
    new.load_state_dict(other.state_dict())
    require_same(other, new, x)


def test_gradients_are_the_original_s(pair: Pair) -> None:
    original, new = models(pair)
    gradients = []
    for model in (original, new):
        leaf = pair.inputs(5)[0].requires_grad_()
        results = model(leaf)
        sum((each * each).sum() for each in results).backward()
        gradients.append([leaf.grad, *(p.grad for p in model.parameters())])
    for theirs, mine in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def test_calls_alone_are_run_as_they_were_rewritten(tmp_path: Path) -> None:
    """There is no kernel in the file, and no build."""
    pair = pair_of(CALLS_ALONE, tmp_path, "cpu")
    assert "ModelNew is the original" not in pair.text and "cpp_sources" not in pair.text
    original, new = models(pair)
    (x,) = pair.inputs()
    require_same(original, new, x)
    assert new._opweld_fits(x)
    with torch.no_grad():
        original.first.weight.mul_(3.0)
        new.first.weight.mul_(3.0)
    require_same(original, new, x)
    with mock.patch.object(type(original), "forward", side_effect=AssertionError):
        new(x)
