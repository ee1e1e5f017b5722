"""Training mode on the device: values, statistics, gradients, and what dropouts draw."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import ModuleType

import pytest
import torch
from tests.behaviour.emitted import CountCalls
from tests.gpu.building import SideBySide, built_side_by_side
from tests.gpu.emitting import model_text
from tests.models.comparing import (
    assert_close,
    assert_delivered,
    assert_graded,
    assert_same_gradients,
    run,
)
from torch import Tensor, nn

from opweld.judge.numerics.effective import CONVOLUTIONS, Lowered

pytestmark = pytest.mark.gpu

DEVICE = "cuda"

IMAGES = "torch.randn(16, 3, 32, 32)"
MODELS = {
    "convolution": model_text(
        "self.conv, self.norm = nn.Conv2d(3, 64, 3, bias=False), nn.BatchNorm2d(64)",
        "F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)",
        IMAGES,
    ),
    "product": model_text(
        "self.fc, self.norm = nn.Linear(512, 1024, bias=False), nn.BatchNorm1d(1024, momentum=0.3)",
        "F.gelu(self.norm(self.fc(x)))",
        "torch.randn(4096, 512)",
    ),
    "residual": model_text(
        "self.norm, self.last = nn.BatchNorm2d(48), nn.BatchNorm2d(48, momentum=None)",
        "torch.relu(self.last(torch.relu(self.norm(x)) + x))",
        "torch.randn(8, 48, 28, 28) + 2",
    ),
    "half": model_text(
        "self.norm = nn.BatchNorm2d(24).half()",
        "F.silu(self.norm(x))",
        "torch.randn(8, 24, 30, 30).half() * 3",
    ),
    "dropout": model_text(
        "self.norm, self.drop = nn.BatchNorm1d(96), nn.Dropout(0.4)",
        "torch.tanh(self.drop(F.gelu(self.norm(x)))) + F.dropout(x, 0.1, self.training)",
        "torch.randn(1000, 96)",
    ),
}
# Kernels of ours a call: one for the statistics and one for the rest, or one for both; one for a
# convolution before, and one that puts its image into another order.
ASKED = {"mode": "both", "autocast": ("float16",)}
MOST_KERNELS = {"convolution": 4, "product": 3, "residual": 4, "half": 2, "dropout": 4}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    with built_side_by_side(MODELS, tmp_path_factory, **ASKED) as modules:
        yield modules


def both(module: ModuleType) -> tuple[nn.Module, nn.Module]:
    """The new model and the original, in training, with the same parameters."""
    torch.manual_seed(1)
    original = module._Original().to(DEVICE)
    return module.ModelNew.adopt(copy.deepcopy(original)).train(), original.train()


def inputs(module: ModuleType, seed: int = 2) -> Tensor:
    torch.manual_seed(seed)
    (x,) = module._original.get_inputs()
    return x.to(DEVICE)


def forms(x: Tensor) -> Iterator[Tensor]:
    """Another batch, and where there are images, channels that lie last."""
    yield x
    yield x[:-3].contiguous()
    if x.dim() == 4:
        yield x.contiguous(memory_format=torch.channels_last)


def assert_same_buffers(new: nn.Module, old: nn.Module, coarse: bool = False) -> None:
    for ours, theirs in zip(new.buffers(), old.buffers(), strict=True):
        assert_close(ours, theirs, coarse)


def drawn(call: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What a call gives from a seed, and what is drawn after it."""
    torch.manual_seed(7)
    return call(), torch.rand(4, device=DEVICE)


@pytest.mark.parametrize("name", MODELS)
def test_values_statistics_and_draws(built: SideBySide, name: str) -> None:
    module = built[name]
    new, old = both(module)
    for x in forms(inputs(module)):
        with torch.no_grad(), CountCalls() as counted:
            ours, our_next = drawn(lambda x=x: new(x))
        # cuDNN may compute in float32 what it is allowed to round to TF32.
        marks = Lowered(CONVOLUTIONS) if name == "convolution" else nullcontext()
        with torch.no_grad(), marks:
            theirs, their_next = drawn(lambda x=x: old(x))
        if name == "dropout":
            assert_close(ours, theirs)
        else:
            assert_graded(ours, theirs, copy.deepcopy(old), (x,), {})
        assert torch.equal(our_next, their_next)
        assert_same_buffers(new, old, coarse=name == "convolution")  # of TF32 in another order
        assert 1 <= len(counted.ours) <= MOST_KERNELS[name], counted.ours
        assert not any("batch_norm" in other for other in counted.others), counted.others


@pytest.mark.parametrize("name", MODELS)
def test_gradients_in_training(built: SideBySide, name: str) -> None:
    module = built[name]
    new, old = both(module)
    x = inputs(module)
    assert_same_gradients(new, old, (x,), {}, coarse=x.dtype is torch.float16)
    before = [buffer.clone() for buffer in new.buffers()]
    x.requires_grad_()
    result = new(x)
    moved = [buffer.clone() for buffer in new.buffers()]
    result.float().sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(moved, new.buffers(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(before, moved, strict=True))


@pytest.mark.parametrize("name", ["product", "residual"])
def test_statistics_are_as_exact_as_eagers(built: SideBySide, name: str) -> None:
    """Of the first norm, where the mean is far from zero."""
    module = built[name]
    new, old = both(module)
    exact = copy.deepcopy(old).double()
    x = inputs(module) + 3
    with torch.no_grad():
        for model, value in ((new, x), (old, x), (exact, x.double())):
            model(value)
    for which in ("running_mean", "running_var"):
        ours, theirs, truth = (getattr(model.norm, which) for model in (new, old, exact))
        assert_delivered(ours, theirs, truth)


def test_modes_take_turns(built: SideBySide) -> None:
    module = built["convolution"]
    new, old = both(module)
    x = inputs(module)
    for training in (True, False, True):
        for model in (new, old):
            model.train(training)
        # both convolutions are in TF32, which torch's flags allow, and round in their own order
        assert_close(run(new, (x,), {}), run(old, (x,), {}), coarse=True)
        assert_same_buffers(new, old, coarse=True)


def test_a_part_in_another_mode_runs_the_original(built: SideBySide) -> None:
    module = built["dropout"]
    new, old = both(module)
    x = inputs(module)
    for model in (new, old):
        model.norm.eval()
    with CountCalls() as counted:
        assert_close(run(new, (x,), {}), run(old, (x,), {}))
    assert not counted.ours
    assert_same_buffers(new, old)


def test_under_autocast(built: SideBySide) -> None:
    module = built["convolution"]
    new, old = both(module)
    x = inputs(module)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.float16):
        with CountCalls() as counted:
            ours = run(new, (x,), {})
        assert_close(ours, run(old, (x,), {}), coarse=True)
    assert counted.ours
    for mine, theirs in zip(new.buffers(), old.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2**-9, atol=2**-9)


def test_a_replayed_graph_moves_the_statistics(built: SideBySide) -> None:
    """Those with a momentum and those that are averages; the original reads the count of these."""
    module = built["residual"]
    new, old = both(module)
    x = inputs(module)
    with torch.no_grad():
        new(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = new(x)
        for _ in range(2):
            graph.replay()
        for _ in range(3):
            expected = old(x)
    assert_close(held, expected)
    assert_same_buffers(new, old)
