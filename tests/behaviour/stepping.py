"""A model that is trained by kernels on the CPU, and steps of it beside the original's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tests.behaviour.emitted import CountCalls, Pair, load_file
from torch import Tensor, nn

from opweld.driver import compile_file
from opweld.options import Options

SOURCE = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(12, 20)
        self.down = nn.Linear(20, 12, bias=False)
        self.norm = nn.LayerNorm(12)
        self.scale = nn.Parameter(torch.rand(12) + 0.5)

    def forward(self, x):
        h = F.gelu(self.up(x))
        z = torch.tanh(self.down(h) + x)
        return self.norm(z) * self.scale


def get_inputs():
    return [torch.randn(6, 12)]


def get_init_inputs():
    return []
"""


def trained_pair(folder: Path) -> Pair:
    """With kernels for gradients, and under either autocast."""
    path = folder / "stepping.py"
    original = load_file(path, SOURCE)
    asked = {"training": True, "autocast": ("bfloat16", "float16")}
    text = compile_file(path, Options(target="cpu", check=False, **asked)).text
    new = load_file(folder / "stepping_new.py", text)
    return Pair("stepping", SOURCE, text, 0, original, new)


def batch(model: nn.Module, number: int, rows: int = 6) -> Tensor:
    """The inputs of a step, of the model's own dtype, drawn by its number."""
    generator = torch.Generator().manual_seed(number)
    drawn = torch.randn(rows, 12, generator=generator)
    return drawn.to(next(model.parameters()).dtype)


def loss_of(results: Tensor, number: int = 0) -> Tensor:
    """The mean squared distance from targets, of unlike gradients for each element."""
    generator = torch.Generator().manual_seed(1000 + number)
    targets = torch.randn(results.shape, generator=generator).to(results.dtype)
    return (results - targets).square().mean()


def backward(model: nn.Module, number: int, rows: int = 6) -> Tensor:
    """A forward and its backward, into the gradients that there are."""
    loss = loss_of(model(batch(model, number, rows)), number)
    loss.backward()
    return loss.detach()


def sides(pair: Pair) -> tuple[nn.Module, nn.Module, nn.Module]:
    """ModelNew, the original, and that in float64: with the same parameters, in training."""
    original, new = (model.train() for model in pair.models())
    return new, original, copy.deepcopy(original).double()


def require_near(
    ours: Sequence[Tensor | None], eager: Sequence[Tensor | None], exact: Sequence[Tensor | None]
) -> None:
    """As near float64 as eager is, but for a few roundings."""
    for place, (mine, theirs, true) in enumerate(zip(ours, eager, exact, strict=True)):
        assert (mine is None) == (theirs is None) == (true is None), place
        if mine is None or theirs is None or true is None:
            continue
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        error, usual = (rms(each.double() - true) for each in (mine, theirs))
        assert error <= 2 * usual + 1e-6 * rms(true), (place, error, usual, rms(true))


def rms(t: Tensor) -> float:
    return float(t.detach().square().mean().sqrt())


def parameters(model: nn.Module) -> list[Tensor]:
    return [each.detach() for each in model.parameters()]


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [each.grad for each in model.parameters()]


def require_same(
    pair: Pair, use: Callable[[Any], Sequence[Tensor | None]], by_kernels: bool = True
) -> None:
    """What a use of a model leaves, such as its gradients, is as near float64 as eager's; and it
    runs kernels, in its backwards where these are to be `by_kernels`.
    """
    new, original, exact = sides(pair)
    with CountCalls() as count:
        ours = use(new)
    names = [str(function) for function, _ in count.ours]
    assert [name for name in names if "_of_k" not in name]
    assert bool([name for name in names if "_of_k" in name]) is by_kernels
    require_near(ours, use(original), use(exact))
