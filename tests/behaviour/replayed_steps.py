"""A model whose steps of training are replayed, and the gradients of one."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from tests.behaviour.replaying import Watch, only_python
from torch import Tensor

# What its file is asked for.
STEPS = {"target": "cpu", "mode": "training", "training": True}
# Residuals, whose gradients are added; attention and a table of PyTorch's; a part of a weight, one
# with two uses, one without any; a result without gradients.
SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, width // 2).unbind(2)
        y = F.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)))
        x = x + y.transpose(1, 2).reshape(batch, length, width)
        return x + self.down(F.gelu(self.up(x)) * 0.5)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(11, 16), nn.Embedding(9, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(3))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, tokens, x):
        y = self.table(tokens) + self.places.weight[2:7] + x
        for block in self.blocks:
            y = block(y)
        return {"scores": torch.tanh(F.linear(y, self.table.weight)) * 2, "of": (y.detach() > 0)}


def get_inputs():
    return [torch.randint(11, (2, 5)), torch.randn(2, 5, 16)]


def get_init_inputs():
    return []
"""


# Attention has no second derivatives there.
TWICE = SOURCE.replace(
    "F.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)))",
    "(q * torch.sigmoid(k) + v).transpose(1, 2)",
)


def inputs(seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randint(11, (2, 5)), torch.randn(2, 5, 16)]


def model(file: ModuleType) -> Any:
    torch.manual_seed(0)
    return file.ModelNew()


def ready(file: ModuleType) -> Any:
    """A model of which a step has been recorded."""
    net = model(file)
    with Watch(file) as ways:
        for _ in range(3):
            net(*inputs())
    assert ways == ["python", "recorded", "replayed"]
    return net


def weighted(scores: Tensor) -> Tensor:
    return (scores * torch.cos(torch.arange(scores.numel()).reshape(scores.shape).float())).sum()


def gradients(net: Any, given: list[Tensor], loss: Callable[[Tensor], Tensor] = weighted) -> Any:
    """By the names of weights, "x" for the input's, where it asks for one."""
    net.zero_grad(set_to_none=True)
    given = [x.detach().clone().requires_grad_(x.requires_grad) for x in given]
    loss(net(*given)["scores"]).backward()
    return {"x": given[1].grad, **{name: p.grad for name, p in net.named_parameters()}}


def by_python_s(file: ModuleType, *args: Any, **kwargs: Any) -> Any:
    with only_python(file):
        return gradients(*args, **kwargs)


def check_equal(found: Any, wanted: Any) -> None:
    assert [*found] == [*wanted]
    for name, grad in found.items():
        if wanted[name] is None:
            assert grad is None, name
        else:
            assert torch.equal(grad, wanted[name]) and grad.stride() == wanted[name].stride(), name
