"""`torch.compile(model, backend="opweld")` on the device."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.models.through_dynamo import Branches, Tail, forgotten  # noqa: F401
from torch import nn

import opweld
from opweld.dynamo import backend

pytestmark = pytest.mark.gpu


def test_graphs_run_their_kernels_on_the_device() -> None:
    for model in (Branches(), Tail()):
        model = model.cuda().eval()
        made = torch.compile(model, backend=backend.opweld)
        for rows in (1000, 33, 4097):
            x = torch.randn(rows, 8, device="cuda")
            with torch.no_grad():
                torch.testing.assert_close(made(x), model(x))
    assert all(graph.kernels for graph in opweld.graphs())


def test_training_and_autocast_on_the_device() -> None:
    torch.manual_seed(3)
    eager = nn.Sequential(Tail(), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 1))
    eager = eager.cuda().train()
    other = copy.deepcopy(eager)
    made = torch.compile(other, backend=backend.opweld)
    losses = []
    for model, run in ((eager, eager), (other, made)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        torch.manual_seed(4)
        for _ in range(8):
            x = torch.randn(4096, 8, device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = (run(x).float() - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[8:] == pytest.approx(losses[:8], rel=2e-2)
    assert any(graph.kernels for graph in opweld.graphs())
    assert other[1].num_batches_tracked == 8


def test_cuda_graphs_hold_compiled_models() -> None:
    model = Tail().cuda().eval()
    made = torch.compile(model, backend=backend.opweld)
    x = torch.randn(256, 8, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            made(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = made(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(y, model(x))
