"""Replayed calls of norms in training: running statistics move as they do in Python's calls."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.replayed_steps import STEPS
from tests.behaviour.replaying import Watch, compiled, only_python
from torch import Tensor, nn

SOURCE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)) + x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8, momentum=None)
        self.blocks = nn.Sequential(*[Block(8) for _ in range(3)])
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.tanh(self.norm(self.stem(x)))
        return self.head(self.blocks(x).mean((2, 3)))


def get_inputs():
    return [torch.randn(4, 3, 12, 12)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def file(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("statistics"), SOURCE, **STEPS)


def image(seed: int) -> Tensor:
    return torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


def two(file: ModuleType) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = file.ModelNew()
    return net, copy.deepcopy(net)


def step(net: Any, seed: int) -> list[Tensor]:
    return [*torch.autograd.grad(net(image(seed)).square().sum(), [*net.parameters()])]


def both(file: ModuleType, net: Any, other: Any, seed: int) -> None:
    """A step of each, of the other by Python's calls."""
    step(net, seed)
    with only_python(file):
        step(other, seed)


def check_alike(net: nn.Module, other: nn.Module) -> None:
    for (name, x), y in zip(net.named_buffers(), other.buffers(), strict=True):
        assert torch.equal(x, y), name


@pytest.mark.parametrize("gradients", [True, False])
def test_statistics_are_those_of_python(file: ModuleType, gradients: bool) -> None:
    net, other = two(file)
    with torch.set_grad_enabled(gradients), Watch(file) as ways:
        for seed in range(5):
            call = step if gradients else lambda net, seed: [net(image(seed))]
            found = call(net, seed)
            with only_python(file):
                wanted = call(other, seed)
            assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
            check_alike(net, other)
    assert ways == ["python", "recorded", "replayed", "replayed", "replayed"]
    assert net.norm.num_batches_tracked == 5


@pytest.mark.parametrize("change", ["in place", "assigned", "reset"])
def test_buffers_are_looked_up_in_each_call(file: ModuleType, change: str) -> None:
    net, other = two(file)
    for seed in range(3):
        both(file, net, other, seed)
    before = net.norm.running_mean
    for each in (net, other):
        if change == "assigned":
            each.norm.running_mean = torch.full((8,), 2.0)
        elif change == "in place":
            each.norm.running_mean.fill_(2.0)
        else:
            each.norm.reset_running_stats()
    kept = before.clone()
    for seed in range(3, 7):
        both(file, net, other, seed)
        check_alike(net, other)
    assert torch.equal(before, kept) is (change == "assigned")


def test_while_a_call_is_recorded_others_track_for_themselves(file: ModuleType) -> None:
    nets = [two(file) for _ in range(4)]

    def run(place: int) -> None:
        for seed in range(12):
            step(nets[place][0], seed)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with only_python(file):
        for seed in range(12):
            step(nets[0][1], seed)
    for net, _ in nets:
        check_alike(net, nets[0][1])


# The two kernels behind the norm have one gradient, and one result, which comes in no tuple.
LEAST = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(12)
        self.shift = nn.Parameter(torch.randn(5, 1))

    def forward(self, x):
        y = self.norm(x).tanh()
        return y, y.amin(1) + self.shift


def get_inputs():
    return [torch.randn(7, 12)]


def get_init_inputs():
    return []
"""


def test_a_reduction_behind_a_norm_and_its_only_reader_have_a_whole_result(
    build_folder: Path, tmp_path: Path
) -> None:
    file = compiled(tmp_path, LEAST, target="cpu")
    assert hasattr(file, "_k2_k3_add_together")
    net, x = file.ModelNew(), torch.randn(9, 12)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(net(x), file.Model.forward(net, x))
