"""Without a more precise run: other orders of summation pass, wrong results do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.judge.pairs import failing, judge_pair

from opweld.judge.load import Call
from opweld.judge.numerics.noise import FLOAT32_TO_FLOAT64, NoiseSums
from opweld.judge.numerics.precision import FLOAT32, FLOAT64, NoReference

Rule = Callable[[torch.Tensor], torch.Tensor]

ORDER = torch.randperm(400, generator=torch.Generator().manual_seed(0))
REWRITES: dict[str, tuple[Rule, Rule]] = {
    "sum": (lambda x: x.sum(1), lambda x: x[:, ORDER].sum(1)),
    "mean": (lambda x: x.mean(), lambda x: x.t().contiguous().sum() / x.numel()),
    "variance": (lambda x: x.var(1), lambda x: x[:, ORDER].var(1)),
    "product": (lambda x: x @ x.t(), lambda x: x[:, ORDER] @ x[:, ORDER].t()),
    "swish": (lambda x: x * torch.sigmoid(x), lambda x: x / (1 + torch.exp(-x))),
}


def noise_of(first: Rule, second: Rule, seed: int) -> NoiseSums:
    """A float64 candidate against a float64 original, whose error its float32 run shows."""
    x = torch.randn(30, 400, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    sums = NoiseSums.of(first(x), x.numel())
    sums.add(second(x), first(x), first(x.float()), FLOAT32_TO_FLOAT64)
    return sums


@pytest.mark.parametrize("name", REWRITES)
@pytest.mark.parametrize("seed", range(4))
def test_rewrites_stay_within_the_noise(name: str, seed: int) -> None:
    assert noise_of(*REWRITES[name], seed).fits


@pytest.mark.parametrize("name", REWRITES)
def test_errors_beyond_the_noise_do_not_fit(name: str) -> None:
    first, second = REWRITES[name]
    assert not noise_of(first, lambda x: second(x) * (1 + 1e-11), seed=0).fits


def test_patterns_and_bits_are_told() -> None:
    value = torch.tensor([1.0, float("nan")])
    sums = NoiseSums.of(value)
    sums.add(value, value, value, 1.0)
    assert sums.fits and sums.is_exact and sums.count == 1
    sums.add(torch.tensor([1.0, 2.0]), value, value, 1.0)
    assert not sums.fits


def test_precisions_convert_what_the_code_names() -> None:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(3))
            self.constant = torch.rand(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = (x.half() * self.weight).to(torch.bfloat16) + self.constant
            return y * torch.full((3,), 0.1, dtype=torch.float32) + torch.tensor(0.1)

    model, x = Mixed(), torch.rand(3)
    wide = FLOAT64.run(FLOAT64.model(model), Call((x.double(),), {}), seed=0)
    exact = x.double() * model.weight.detach().double() + model.constant.double()
    assert wide.dtype is torch.float64
    assert torch.allclose(wide, exact * 0.1 + 0.1, rtol=1e-14)
    assert torch.get_default_dtype() is torch.float32
    narrow = FLOAT32.run(FLOAT32.model(model.double()), Call((x,), {}), seed=0)
    assert narrow.dtype is torch.float32
    with pytest.raises(NoReference, match="does not run in float64"):
        FLOAT64.run(torch.nn.Linear(2, 2).half(), Call((x.double(),), {}), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["torch.float64", "torch.float32"])
def test_reductions_in_another_order_are_equivalent(dtype: str, tmp_path: Path) -> None:
    """No check of the whole list is tighter than the order of a sum allows."""
    model = f"""
class Model(nn.Module):
    def forward(self, x, w):
        return x @ w, x.sum(1), (x * x).mean()

def get_inputs():
    return [torch.randn(20, 150, dtype={dtype}), torch.randn(150, 30, dtype={dtype})]

def get_init_inputs():
    return []
"""
    new = """
    class ModelNew(Base):
        def forward(self, x, w):
            p = torch.arange(x.shape[1] - 1, -1, -1)
            return x[:, p] @ w[p], x[:, p].sum(1), (x * x).t().contiguous().sum() / x.numel()
    """
    judgement = judge_pair(tmp_path, model, new)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert failing(judge_pair(tmp_path, model, new.replace("x[:, p].sum", "x[:, p[1:]].sum")))
