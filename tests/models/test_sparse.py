"""Sparse tensors: PyTorch's calls multiply them, and kernels take what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models.emitted import emit_module
from torch import nn

NODES, FEATURES = 24, 8
X = torch.randn(NODES, FEATURES)


def ring() -> torch.Tensor:
    return torch.roll(torch.eye(NODES), 1, 0) * 0.5


class OfBuffer(nn.Module):
    """A graph convolution."""

    def __init__(self, adjacency: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("adjacency", adjacency)
        self.linear = nn.Linear(FEATURES, FEATURES)

    def forward(self, x):
        return torch.tanh(torch.sparse.mm(self.adjacency, self.linear(x)) * 2.0)


class Scaled(nn.Module):
    """Operators on what is sparse are none of a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("adjacency", ring().to_sparse())

    def forward(self, x):
        half = self.adjacency * 0.5
        return torch.tanh(torch.sparse.mm(half + half, x) * 2.0)


class MakesZeros(nn.Module):
    """What is made sparse is none of a kernel either."""

    def forward(self, x):
        table = torch.zeros(NODES, NODES, layout=torch.sparse_coo)
        return torch.tanh(torch.sparse.mm(table, x) * 2.0)


class MadeSparse(nn.Module):
    def forward(self, x):
        return torch.sigmoid((x.to_sparse() * 3.0).to_dense()) * 2.0 - 1.0


@pytest.fixture(scope="module", params=["sparse_coo", "sparse_csr", "sparse_csc"])
def emitted(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    adjacency = ring().to_sparse(layout=getattr(torch, request.param))
    folder = tmp_path_factory.mktemp("sparse")
    return emit_module(OfBuffer(adjacency).eval(), ((X,), {}), folder)


def test_kernels_run_behind_a_sparse_buffer(emitted: Any) -> None:
    with torch.no_grad():
        for _ in range(4):
            assert kernels_in(lambda: emitted.new(X)) == 1
            torch.testing.assert_close(emitted.new(X), emitted.original(X))


def test_gradients_are_the_originals(emitted: Any) -> None:
    found = []
    for model in (emitted.new, emitted.original):
        x = X.clone().requires_grad_()
        for _ in range(4):
            found.append(torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()]))
    for each in found[:4]:
        for ours, theirs in zip(each, found[-1], strict=True):
            torch.testing.assert_close(ours, theirs)


def test_another_layout_has_the_original_run(emitted: Any) -> None:
    new = type(emitted.new).adopt(emitted.original)
    kept = emitted.original.adjacency
    try:
        with torch.no_grad():
            assert kernels_in(lambda: new(X)) == 1
            for other in (kept.to_dense(), kept.to(torch.float64).to(torch.float32) * 2):
                new.adjacency = other
                assert kernels_in(lambda: new(X)) == (other.layout is kept.layout)
                torch.testing.assert_close(new(X), super(type(new), new).forward(X))
    finally:
        emitted.original.adjacency = kept


@pytest.mark.parametrize(
    "model", [Scaled, MakesZeros, MadeSparse], ids=lambda model: model.__name__
)
def test_operators_on_sparse_tensors_are_pytorchs(model: type[nn.Module], tmp_path: Path) -> None:
    emitted = emit_module(model().eval(), ((X,), {}), tmp_path)
    with torch.no_grad():
        assert kernels_in(lambda: emitted.new(X)) == 1
        torch.testing.assert_close(emitted.new(X), emitted.original(X))
