"""Models whose mathematics changes, as emitted files: on the CPU, and as CUDA under emulation."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, load_file, text_made_of
from tests.behaviour.products import pair_of_texts, text_of

SOURCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.whole = nn.Linear(512, 520)
        self.grouped = nn.Linear(64, 40, bias=False)
        self.tokens = nn.Linear(32, 24)

    def forward(self, x):
        scaled = (self.whole(x) - 0.5) / 4.0
        parts = self.grouped(x[:, :64]).view(x.shape[0], 5, 8)
        pooled = torch.relu(self.tokens(x.view(x.shape[0], 16, 32)).mean(1))
        return torch.tanh(scaled.mean(1)), parts.sum(2) * 2.0, pooled


def get_inputs():
    return [torch.randn(6, 512)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def pair(request, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("algebra")
    if request.param == "cuda":
        text = text_of("algebra", SOURCE)
        assert "op::KeptRows<" in text
        return pair_of_texts("algebra", SOURCE, text, 0, folder)
    text = text_made_of(SOURCE, "cpu", "algebra")
    original = load_file(folder / "algebra.py", SOURCE)
    return Pair("algebra", SOURCE, text, 0, original, load_file(folder / "algebra_new.py", text))


def require_same(pair: Pair, original, new, x: torch.Tensor) -> None:
    with torch.no_grad():
        wanted = copy.deepcopy(original).double()(x.double())
        for mine, theirs in zip(new(x), wanted, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_results(pair: Pair) -> None:
    original, new = pair.models()
    for batch in (1, 6, 33):
        (x,) = pair.inputs(batch)
        require_same(pair, original, new, x)
        assert kernels_in(lambda x=x: new(x)) > 2


def test_nan_and_infinities(pair: Pair) -> None:
    """Columns of one sign, of both, with zeros; inputs and weights that are not finite."""
    rng = torch.Generator().manual_seed(4)
    for round_idx in range(8):
        original, new = pair.models(seed=round_idx)
        with torch.no_grad():
            for layer in (original.whole, original.grouped, original.tokens):
                weight = layer.weight
                weight[:, ::2] = weight[:, ::2].abs()
                weight[3, 4] = 0.0
                if round_idx % 4 == 3:
                    weight[5, 8] = float("inf") if round_idx < 4 else float("nan")
        new.load_state_dict(original.state_dict())
        (x,) = pair.inputs(12, seed=round_idx)
        for value in (float("inf"), -float("inf"), float("nan")):
            rows = torch.randint(1, 12, (3,), generator=rng)
            x[rows, torch.randint(0, 64, (3,), generator=rng)] = value
        x[0] = 0.0
        x[1, ::2] = float("inf")
        x[1, 1::2] = 1.0
        require_same(pair, original, new, x)


def test_weights_may_change(pair: Pair) -> None:
    original, new = pair.models()
    (x,) = pair.inputs()
    require_same(pair, original, new, x)
    with torch.no_grad():
        for change in (
            lambda m: m.whole.weight.mul_(1.5),
            lambda m: m.whole.weight.data.mul_(-0.5),
            lambda m: m.whole.bias.add_(1.0),
            lambda m: m.grouped.weight.data.sub_(0.25),
        ):
            change(original)
            change(new)
            require_same(pair, original, new, x)
    other, _ = pair.models(seed=9)
    new.load_state_dict(other.state_dict())
    require_same(pair, other, new, x)


def test_training_steps_are_the_original_s(pair: Pair) -> None:
    """Gradients, and what an optimizer makes of them, over some steps."""
    original, new = pair.models()
    new.load_state_dict(original.state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (original, new)]
    for step in range(3):
        (x,) = pair.inputs(5, seed=step)
        gradients = []
        for model, optimizer in zip((original, new), optimizers, strict=True):
            leaf = x.clone().requires_grad_()
            optimizer.zero_grad()
            first, second, third = model(leaf)
            (first.square().sum() + (second * 0.1).sum() + third.sum()).backward()
            optimizer.step()
            gradients.append([leaf.grad, *(p.grad for p in model.parameters())])
        for theirs, mine in zip(*gradients, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
