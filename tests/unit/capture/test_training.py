"""Training as a variant of its own: running statistics, dropouts, and what stays the original."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.capturing import (
    _Calls,
    captured,
    environment,
    ops_of,
    to_numpy,
    tolerance,
)
from torch import nn
from torch.nn import functional as F

from opweld.capture import capture
from opweld.ir.check import InvalidGraph, check
from opweld.ir.contract import Capture, Needs, Variant
from opweld.ir.numpy.interpret import bind_sizes, interpret_outputs, interpret_tracked
from opweld.ir.text import to_text


def trained(module: nn.Module, *args: Any) -> Variant:
    """The variant of training without autocast, at fixed sizes."""
    found = [v for v in captured(module, *args, batch=False).variants if v.training]
    assert found, "training has no variant of its own"
    return found[0]


def assert_trains(module: nn.Module, *args: Any, calls: int = 3) -> Variant:
    """Results and buffers of several calls are eager's. Returns the variant."""
    variant = trained(module, *args)
    graph = variant.graph
    check(graph)
    module.train()
    names = environment(module, args, {})
    sources = (*graph.inputs, *graph.weights)
    feeds = {n.attrs.access: to_numpy(eval(n.attrs.access, names)).copy() for n in sources}
    caller = _Calls(graph, names, bind_sizes(graph, feeds, {}), None)
    for _ in range(calls):
        torch.manual_seed(3)
        outputs = interpret_outputs(graph, feeds, {}, caller)
        feeds |= interpret_tracked(graph, feeds, outputs)
        torch.manual_seed(3)
        with torch.no_grad():
            expected = module(*args)
        limits = tolerance(expected.dtype)
        result = torch.from_numpy(outputs[0]).to(expected.dtype)
        torch.testing.assert_close(result, expected, **limits)
        for access in (name for each in graph.tracked for name in each.buffers):
            held = eval(access, names)
            ours = torch.from_numpy(feeds[access]).to(held.dtype)
            torch.testing.assert_close(ours, held, **tolerance(held.dtype))
    return variant


NORMS = {
    "1d": (nn.BatchNorm1d(6), (8, 6)),
    "1d with places": (nn.BatchNorm1d(6, eps=1e-3), (4, 6, 5)),
    "2d": (nn.BatchNorm2d(6, momentum=0.3), (4, 6, 3, 5)),
    "2d without affine": (nn.BatchNorm2d(6, affine=False), (4, 6, 3, 5)),
    "3d": (nn.BatchNorm3d(3, momentum=1.0), (2, 3, 4, 2, 3)),
    "average": (nn.BatchNorm2d(6, momentum=None), (4, 6, 3, 5)),
    "instance": (nn.InstanceNorm2d(6, track_running_stats=True), (4, 6, 3, 5)),
    "affine instance": (nn.InstanceNorm1d(6, affine=True, track_running_stats=True), (4, 6, 5)),
}


@pytest.mark.parametrize("name", NORMS)
def test_running_statistics_move_as_eagers(name: str) -> None:
    norm, shape = NORMS[name]
    torch.manual_seed(1)
    x = torch.randn(shape) * 3 + 1
    variant = assert_trains(nn.Sequential(copy.deepcopy(norm), nn.ReLU()), x)
    (tracking,) = variant.graph.tracked
    assert tracking.momentum == norm.momentum
    counts = isinstance(norm, nn.modules.batchnorm._BatchNorm)
    assert tracking.count == ("self[0].num_batches_tracked" if counts else None)
    assert not any(op.startswith("aten") for op in ops_of(variant.graph))


def test_bfloat16_statistics() -> None:
    assert_trains(nn.BatchNorm2d(4).bfloat16(), torch.randn(4, 4, 3, 3).bfloat16())


def test_float32_statistics_of_bfloat16() -> None:
    assert_trains(nn.BatchNorm2d(4), torch.randn(4, 4, 3, 3).bfloat16())


class Twice(nn.Module):
    """One norm, called twice: the second call starts from what the first one left."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        return self.norm(self.norm(x).exp())


def test_a_norm_that_is_called_twice_moves_twice() -> None:
    variant = assert_trains(Twice(), torch.randn(7, 5))
    assert [each.mean for each in variant.graph.tracked] == ["self.norm.running_mean"] * 2


class Frozen(nn.Module):
    """Keeps one of its norms in eval, as detectors do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.BatchNorm1d(5), nn.BatchNorm1d(5)
        self.first.running_mean += 1

    def train(self, mode=True):
        super().train(mode)
        self.first.eval()
        return self

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def test_training_is_what_the_models_own_train_makes_of_it() -> None:
    variant = assert_trains(Frozen(), torch.randn(7, 5))
    assert [each.mean for each in variant.graph.tracked] == ["self.second.running_mean"]
    modes = {fact.path: fact.mode for fact in variant.contract.modules}
    assert (modes["first"], modes["second"]) == (False, True)


class Deploys(nn.Module):
    """Its train() does more than to set modes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.factor = nn.BatchNorm1d(5), 2

    def train(self, mode=True):
        self.factor = 3 if mode else 2
        return super().train(mode)

    def forward(self, x):
        return self.norm(x) * self.factor


class ReadsStatistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        return self.norm(x) + self.norm.running_mean


class CountsMore(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return self.norm(x)


class ReturnsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        return self.norm(x), self.norm.num_batches_tracked


class Averages(Twice):
    def __init__(self) -> None:
        super().__init__()
        self.norm.momentum = None


class Assigns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(5), None

    def forward(self, x):
        y = self.norm(x)
        if self.training:
            self.last = 1
        return y


class DropsTurned(nn.Module):
    """What is dropped would lie in memory by another axis than eager's."""

    def forward(self, x):
        return F.dropout(torch.exp(x.t()), 0.5, self.training)


class DropsCopied(nn.Module):
    def forward(self, x):
        return F.dropout(torch.exp(x).t().contiguous(), 0.5, self.training)


class DropsViewed(nn.Module):
    """A view of a call's result is eager's."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x):
        return torch.exp(F.dropout(self.fc(x).t(), 0.5, self.training))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Deploys, "train() of the module changes more"),
        (ReadsStatistics, "changes the buffer norm.running_mean"),
        (ReturnsBuffer, "returns the buffer norm.num_batches_tracked"),
        (Averages, "averages norm.running_mean over more"),
        (Assigns, "assigns to self.last"),
        (lambda: nn.SyncBatchNorm(5), "over processes"),
        (DropsTurned, "lie otherwise in memory"),
        (DropsCopied, "lie otherwise in memory"),
    ],
)
def test_what_no_graph_holds_stays_the_originals_in_training_alone(model: Any, words: str) -> None:
    module, x = model().eval(), torch.randn(6, 5)
    state = copy.deepcopy(module.state_dict())
    result: Capture = capture(module, (x,), {}, name="model", batch=False, needs=Needs(mode="both"))
    assert [v.training for v in result.variants] == [False] * len(result.variants)
    ((kept, reason),) = result.kept
    assert kept == "training" and words in reason
    facts = result.variants[0].contract.modules
    assert any(fact.mode is False for fact in facts)
    assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    assert not module.training


def test_one_value_a_channel_stays_the_originals() -> None:
    assert _least_sizes(nn.BatchNorm1d(5), 6, 5) == {False: 0, True: 2}
    assert _least_sizes(nn.BatchNorm2d(5), 6, 5, 2, 2) == {False: 0, True: 1}


def _least_sizes(module: nn.Module, *shape: int) -> dict[bool, int]:
    """The smallest batch in eval and in training: none has no statistics."""
    variants = captured(module, torch.randn(shape)).variants
    return {variant.training: variant.contract.symbols[0].lower for variant in variants}


class Drops(nn.Module):
    """Every kind of dropout between work that can be fused."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.alpha = nn.Dropout(0.3), nn.AlphaDropout(0.2)
        self.planes, self.nothing = nn.Dropout2d(0.4), nn.Dropout(0.0)

    def forward(self, x):
        x = self.plain(torch.exp(x))
        x = self.alpha(x * 2)
        x = self.planes(x - 1)
        return torch.relu(self.nothing(F.dropout(x + 1, 0.1, self.training)))


def test_dropouts_draw_what_eager_draws() -> None:
    variant = assert_trains(Drops(), torch.randn(4, 3, 5, 5))
    assert not variant.graph.tracked
    whole = [op for op in ops_of(variant.graph) if op == "aten.dropout.default"]
    assert len(whole) == 2


def test_numbers_are_drawn_in_the_order_of_memory() -> None:
    variants = captured(DropsViewed(), torch.randn(6, 5), batch=False).variants
    assert all(variant.contract.row_major == variant.training for variant in variants)
    assert any(variant.training for variant in variants)


def test_a_mode_that_makes_no_difference_has_no_variant() -> None:
    idle = nn.Sequential(nn.Dropout(0.0), nn.ReLU())
    result = captured(idle, torch.randn(4, 4), batch=False)
    assert len(result.variants) == 1 and not result.kept
    assert all(fact.mode is None for fact in result.variants[0].contract.modules)


def test_autocast_in_training() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.ReLU())
    variants = captured(model, torch.randn(6, 5), batch=False).variants
    assert [v.state for v in variants] == [
        "",
        "autocast bfloat16",
        "autocast float16",
        "training",
        "training, autocast bfloat16",
        "training, autocast float16",
    ]
    assert len({v.suffix for v in variants}) == 6


def test_text_tells_what_is_tracked_and_check_refuses_what_cannot_be() -> None:
    graph = trained(nn.BatchNorm1d(5), torch.randn(6, 5)).graph
    (line,) = [line for line in to_text(graph).splitlines() if line.startswith("track ")]
    assert line.startswith("track self.running_mean self.running_var towards %")
    assert line.endswith("momentum 0.1 count self.num_batches_tracked")
    (right,) = graph.tracked

    def refused(**changed: Any) -> Any:
        return replace(graph, tracked=(replace(right, **changed),))

    for changed, words in (
        ({"mean": "self.other"}, "no weight"),
        ({"momentum": None, "count": None}, "nothing counts"),
        ({"mean": "self.num_batches_tracked"}, "differ in size"),
    ):
        with pytest.raises(InvalidGraph, match=words):
            check(refused(**changed))
