"""Torch against itself, its reductions in another order: no check of the numbers may fail.

A judgement with a false alarm in a thousand is of no use. Each pair below is one computation in two
orders of summation, judged by `Trial` on every kind of values; 4 seeds here, OPWELD_MANY of them
where a number is given there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from opweld.judge.inputs.kinds import Kind, value_kinds
from opweld.judge.load import Call, Pair
from opweld.judge.process.protocol import How
from opweld.judge.verify.run import Run, run
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.trial import Trial

NUM_SEEDS = int(os.environ.get("OPWELD_MANY", "4"))
Rule = Callable[..., Any]


class Model(nn.Module):
    """A function as a module; `order` permutes what it sums over."""

    def __init__(self, rule: Rule, order: Tensor) -> None:
        super().__init__()
        self.rule, self.order = rule, order

    def forward(self, *inputs: Tensor) -> Any:
        return self.rule(self.order, *inputs)


@dataclass
class InProcess:
    """The side of ModelNew, as far as `Trial` asks it."""

    model: nn.Module

    def run(self, call: Call, how: How, like: Run | None = None, lazy: bool = False) -> Run:
        return run(self.model, call, how.seed, how.grad, like, how.watch_state)


def softmax(p: Tensor, x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y[:, p] = x[:, p].softmax(1)
    return y


def normed(p: Tensor, x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y[:, p] = F.layer_norm(x[:, p], x.shape[1:])
    return y


def mlp(p: Tensor, x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.gelu(x[:, p] @ w[p]) @ v


def entropy(p: Tensor, x: Tensor) -> Tensor:
    target = torch.arange(x.shape[0], device=x.device) % x.shape[1]
    order = p[p < x.shape[0]]
    return F.cross_entropy(x[order], target[order])


def largest(p: Tensor, x: Tensor) -> Tensor:
    """Of a constant row less its mean, rounding alone decides."""
    return (x - x[:, p].sum(1, keepdim=True) * (1 / x.shape[1])).argmax(1)


def chunked_variance(p: Tensor, x: Tensor) -> Tensor:
    """Two passes, the sums in chunks where the order is another one."""
    if is_original(p):
        mean = x.mean(1, keepdim=True)
        return (x - mean).square().mean(1)
    mean = sum(part.sum(1, keepdim=True) for part in x.split(13, 1)) / x.shape[1]
    return sum(part.sum(1) for part in (x - mean).square().split(13, 1)) / x.shape[1]


def is_original(p: Tensor) -> bool:
    return torch.equal(p, p.sort().values)


def written_out(p: Tensor, x: Tensor) -> Tensor:
    """Of few rows, and spread so that one element may be near 1: few elements decide the errors."""
    if is_original(p):
        return x.softmax(1)
    y = (x - x.amax(1, keepdim=True)).exp()
    return y / y.sum(1, keepdim=True)


def distributed(p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return x * y + y if is_original(p) else (x + 1) * y


SHAPE, FEW = (24, 120), (8, 33)
PAIRS: dict[str, tuple[Rule, tuple[tuple[int, ...], ...], torch.dtype]] = {
    "product": (lambda p, x, w: x[:, p] @ w[p], (SHAPE, (120, 30)), torch.float32),
    "two products": (mlp, (SHAPE, (120, 40), (40, 20)), torch.float32),
    "two products in bfloat16": (mlp, (SHAPE, (120, 40), (40, 20)), torch.bfloat16),
    "row sums": (lambda p, x: x[:, p].sum(1), (SHAPE,), torch.float32),
    "one sum": (lambda p, x: x[:, p].t().contiguous().sum(), (SHAPE,), torch.float32),
    "one mean of squares": (lambda p, x: x[:, p].square().mean(), (SHAPE,), torch.float32),
    "over the norm of all": (lambda p, x: x / x[:, p].norm(), (SHAPE,), torch.float32),
    "over the sum of all": (lambda p, x: x / x.abs()[:, p].sum(), (SHAPE,), torch.float32),
    "softmax": (softmax, (SHAPE,), torch.float32),
    "softmax written out": (written_out, (FEW,), torch.float32),
    "product distributed": (distributed, (FEW, FEW), torch.float32),
    "softmax in float16": (softmax, (SHAPE,), torch.float16),
    "log of a sum of exponentials": (lambda p, x: x[:, p].logsumexp(1), (SHAPE,), torch.float32),
    "layer norm": (normed, (SHAPE,), torch.float32),
    "variance": (lambda p, x: x[:, p].var(1), (SHAPE,), torch.float32),
    "variance in chunks": (chunked_variance, (SHAPE,), torch.float32),
    "place of the largest": (largest, (SHAPE,), torch.float32),
    "cross entropy": (entropy, (SHAPE,), torch.float32),
    "norm in float64": (lambda p, x: x / x[:, p].norm(), (SHAPE,), torch.float64),
}


def alarms(name: str, seed: int) -> list[str]:
    """The checks that fail for one pair and seed."""
    rule, shapes, dtype = PAIRS[name]

    def own(draw: int) -> Call:
        generator = torch.Generator().manual_seed(stream(seed, name, draw))
        return Call(tuple(torch.randn(s, generator=generator).to(dtype) for s in shapes), {})

    width = SHAPE[1]
    order = torch.randperm(width, generator=torch.Generator().manual_seed(seed))
    original, new = Model(rule, torch.arange(width)), InProcess(Model(rule, order))
    device, nowhere = torch.device("cpu"), Path("nowhere")
    pair = Pair(original, new, ModuleType("none"), nowhere, nowhere, device, None)
    trial = Trial(pair, seed, lambda who, what: None)
    kinds = (Kind("own inputs", own), *value_kinds(own, seed))
    checks = [trial.compare(kind) for kind in kinds]
    return [f"{name}, seed {seed}, {c.name}: {c.detail}" for c in checks if not c.passed]


@pytest.mark.parametrize("name", PAIRS)
def test_another_order_of_summation_never_fails(name: str) -> None:
    found = [alarm for seed in range(NUM_SEEDS) for alarm in alarms(name, seed)]
    assert not found, f"{len(found)} of {NUM_SEEDS}: " + "; ".join(found[:5])
