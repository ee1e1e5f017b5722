"""Replayed steps of training on the device: the bits, the memory and the random numbers of Python's
calls, on its stream, and as a CUDA graph.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.replaying import Watch, compiled, only_python
from torch import Tensor

pytestmark = pytest.mark.gpu

DEVICE, RUNS = "cuda", 200

SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, width // 4).unbind(2)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=DROPOUT if self.training else 0.0)
        y = self.project(y.transpose(1, 2).reshape(batch, length, width))
        x = x + F.dropout(y, DROPOUT, self.training)
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(1000, 256), nn.Embedding(128, 256)
        self.blocks = nn.ModuleList(Block(256) for _ in range(4))

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.table(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return torch.tanh(F.linear(x, self.table.weight)) * 3


def get_inputs():
    return [torch.randint(1000, (4, 96))]


def get_init_inputs():
    return []
"""


STEPS = {"target": "cuda", "mode": "training", "training": True}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("steps"), SOURCE.replace("DROPOUT", "0.0"), **STEPS)


@pytest.fixture(scope="module")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("drawing"), SOURCE.replace("DROPOUT", "0.2"), **STEPS)


def tokens(seed: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.randint(1000, (4, 96), device=DEVICE)


def ready(file: ModuleType) -> Any:
    """A model of which a step has been recorded."""
    torch.manual_seed(0)
    net = file.ModelNew().to(DEVICE)
    with Watch(file) as ways:
        for _ in range(3):
            net(tokens(0))
    assert ways == ["python", "recorded", "replayed"]
    return net


def step(net: Any, seed: int) -> dict[str, Tensor]:
    """The gradients of all weights, with random numbers from a seed."""
    given = tokens(seed)
    torch.manual_seed(seed + 1)
    scores = net(given)
    place = torch.arange(scores.numel(), device=DEVICE).reshape(scores.shape)
    total = (scores * torch.cos(place.float())).sum()
    names, weights = zip(*net.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(total, weights), strict=True))


# Gradients of a table and of attention are added up by atomics of PyTorch's.
def check_near(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    for name, grad in found.items():
        distance = (grad - wanted[name]).norm() / wanted[name].norm()
        assert distance < 1e-5, (name, float(distance))


def check_steps(file: ModuleType, net: Any) -> None:
    for seed in range(3):
        with Watch(file) as ways:
            found = step(net, seed)
        assert ways == ["replayed"]
        with only_python(file):
            check_near(found, step(net, seed))


def test_gradients_are_those_of_python(file: ModuleType) -> None:
    check_steps(file, ready(file))


def test_the_same_numbers_are_drawn(drawing: ModuleType) -> None:
    net, given = ready(drawing), tokens(0)
    check_steps(drawing, net)
    assert not torch.equal(net(given), net(given))


def test_each_run_gives_the_same_bits(file: ModuleType) -> None:
    net = ready(file)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        wanted = step(net, 0)
        for _ in range(RUNS):
            for name, grad in step(net, 0).items():
                assert torch.equal(grad, wanted[name]), name
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_step_has_no_more_memory_than_python_s(file: ModuleType) -> None:
    def most() -> int:
        step(net, 0)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step(net, 0)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    net = ready(file)
    replayed = most()
    with only_python(file):
        assert replayed <= 1.05 * most()


def test_a_step_on_another_stream(file: ModuleType) -> None:
    net, stream = ready(file), torch.cuda.Stream()
    wanted = step(net, 4)
    with torch.cuda.stream(stream):
        stream.wait_stream(torch.cuda.default_stream())
        found = step(net, 4)
    stream.synchronize()
    check_near(found, wanted)


def test_a_step_in_a_graph(file: ModuleType) -> None:
    """Python makes the calls that are captured."""
    net, given = ready(file), tokens(0)
    weights = [*net.parameters()]
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(net(given).sum(), weights)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph), Watch(file) as ways:
        found = torch.autograd.grad(net(given).sum(), weights)
    assert ways == ["python"]
    graph.replay()
    wanted = torch.autograd.grad(net(given).sum(), weights)
    names = [name for name, _ in net.named_parameters()]
    check_near(*(dict(zip(names, each, strict=True)) for each in (found, wanted)))
