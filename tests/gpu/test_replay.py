"""Recorded calls on the device: bits and memory as of Python, on its stream, in CUDA graphs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.replaying import Watch, by_python, compiled

pytestmark = pytest.mark.gpu

SOURCE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.groups = nn.Conv2d(channels, channels, 3, padding=1, groups=4)
        self.last = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.last(torch.tanh(self.groups(y))) + x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(64) for _ in range(4)])
        self.head = nn.Linear(64, 100)

    def forward(self, x):
        return torch.softmax(self.head(self.blocks(x).mean((2, 3))), 1)


def get_inputs():
    return [torch.randn(8, 64, 28, 28)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("replay"), SOURCE, target="cuda", mode="eval")


@pytest.fixture
def net(file: ModuleType) -> Any:
    torch.manual_seed(0)
    return file.ModelNew().eval().cuda()


def images(batch: int = 8, seed: int = 1) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(batch, 64, 28, 28, device="cuda")


@torch.no_grad()
def test_equal_bits_every_time(file: ModuleType, net: Any) -> None:
    x = images()
    wanted = by_python(file, net, x)
    with Watch(file) as ways:
        results = [net(x) for _ in range(202)]
    assert ways[:3] == ["python", "recorded", "replayed"] and set(ways[3:]) == {"replayed"}
    assert all(torch.equal(each, wanted) for each in results)
    eager = type(net).__mro__[1].forward(net, x)
    torch.testing.assert_close(wanted, eager, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_in_a_graph_of_cuda(file: ModuleType, net: Any) -> None:
    x = images()
    for _ in range(3):
        net(x)
    graph = torch.cuda.CUDAGraph()
    with Watch(file) as ways, torch.cuda.graph(graph):
        result = net(x)
    assert ways == ["replayed"]
    for seed in range(3):
        x.copy_(images(seed=seed))
        graph.replay()
        assert torch.equal(result, by_python(file, net, x))


@torch.no_grad()
def test_on_the_stream_of_the_call(file: ModuleType, net: Any) -> None:
    """The input is made on the same stream, behind work that takes long."""
    other, x = torch.cuda.Stream(), images()
    for _ in range(3):
        net(x)
    wanted = by_python(file, net, x + 1)
    torch.cuda.synchronize()
    with torch.cuda.stream(other):
        y = torch.zeros_like(x)
        torch.cuda._sleep(50_000_000)
        y.add_(x).add_(1)
        with Watch(file) as ways:
            result = net(y)
    assert not other.query() and ways == ["replayed"]
    other.synchronize()
    assert torch.equal(result, wanted)


@torch.no_grad()
def test_memory_is_freed_as_the_forward_frees_it(file: ModuleType, net: Any) -> None:
    x = images(64)
    for _ in range(3):
        net(x)

    def peak(call: Any) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated()

    assert peak(lambda: net(x)) <= peak(lambda: by_python(file, net, x))


@torch.no_grad()
def test_without_memory_python_says_so(file: ModuleType, net: Any) -> None:
    x = images(64)
    wanted = [net(x) for _ in range(3)][-1]
    held = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((held + (4 << 20)) / total)
    try:
        with pytest.raises(RuntimeError, match="out of memory"):
            net(x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.equal(net(x), wanted)
