"""Which states are captured: the mode that a module is in, and no more than is asked for."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from opweld.capture import capture, task
from opweld.capture.exporting.seeding import refusing_seeds
from opweld.errors import CaptureError, OriginalKept
from opweld.ir.contract import Capture, Needs

X = torch.randn(6, 5)
TWO = ("bfloat16", "float16")


def made(module: nn.Module, *args: Any, **needs: Any) -> tuple[Capture, int]:
    """The capture at fixed sizes, and how many exports it took."""
    with mock.patch.object(task, "export_graph", side_effect=task.export_graph) as exports:
        found = capture(module, args or (X,), {}, name="m", batch=False, needs=Needs(**needs))
    return found, exports.call_count


def flags(found: Capture, index: int = 0) -> dict[str, bool | None]:
    return {fact.path: fact.mode for fact in found.variants[index].contract.modules}


def norm() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(5), nn.ReLU())


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_the_modules_own(training: bool) -> None:
    found, num_exports = made(norm().train(training))
    (variant,) = found.variants
    assert (variant.training, variant.state, variant.suffix) == (training, "", "")
    assert bool(variant.graph.tracked) == training
    assert flags(found)["0"] is training and num_exports == 1


@pytest.mark.parametrize(("mode", "training"), [("eval", False), ("training", True)])
def test_another_mode_can_be_asked_for(mode: str, training: bool) -> None:
    module = norm().train(not training)
    found, _ = made(module, mode=mode)
    assert [v.training for v in found.variants] == [training]
    assert module.training is not training


@pytest.mark.parametrize(("training", "other"), [(True, "eval"), (False, "training")])
def test_both_begin_with_the_modules_own(training: bool, other: str) -> None:
    found, _ = made(norm().train(training), mode="both")
    assert [v.state for v in found.variants] == ["", other]
    assert [v.training for v in found.variants] == [training, not training]
    assert [flags(found, index)["0"] for index in (0, 1)] == [training, not training]


class Reads(nn.Module):
    """Reads its mode and does the same in both, but for what it takes the factor from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = 2.0, 2.0

    def forward(self, x):
        return torch.tanh(x) * (self.first if self.training else self.second)


@pytest.mark.parametrize("mode", ["own", "eval", "training", "both"])
def test_modes_that_are_one_computation_have_one_variant(mode: str) -> None:
    """Which is right in either, as long as what either of them reads is as it was."""
    found, _ = made(Reads(), mode=mode)
    (variant,) = found.variants
    (fact,) = variant.contract.modules
    assert fact.mode is None and not found.kept
    assert dict(fact.attributes) == {"first": 2.0, "second": 2.0}


def test_without_a_reader_of_the_mode_there_is_one_export() -> None:
    assert made(nn.Sequential(nn.Linear(5, 5), nn.ReLU()))[1] == 1


class Frozen(nn.Module):
    """A norm that its own train() leaves in eval."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(5), nn.Dropout(0.0)
        self.train()

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.drop(torch.relu(self.norm(x)))


def test_a_part_that_is_in_eval_in_both_modes_must_stay_there() -> None:
    found, _ = made(Frozen())
    assert len(found.variants) == 1
    assert flags(found) == {"": None, "norm": False, "drop": None}


def test_parts_in_another_mode_are_captured_as_they_are() -> None:
    module = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5))
    module[0].eval()
    found, _ = made(module)
    (variant,) = found.variants
    assert variant.training and not variant.graph.tracked
    assert flags(found) == {"": None, "0": False, "1": True}


class Assigns(nn.Module):
    """In training no graph holds it."""

    def forward(self, x):
        if self.training:
            self.last = x
        return torch.exp(x)


def test_where_only_eval_can_be_captured_the_error_says_so() -> None:
    with pytest.raises(OriginalKept, match="assigns to self.last; opweld optimize --mode eval"):
        made(Assigns())
    (variant,) = made(Assigns(), mode="eval")[0].variants
    assert not variant.training and flags(made(Assigns(), mode="eval")[0])[""] is False
    found, _ = made(Assigns(), mode="both")
    assert [v.training for v in found.variants] == [False]
    assert [state for state, _ in found.kept] == ["training"]


class Splits(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def test_what_no_mode_can_capture_has_no_such_advice() -> None:
    with pytest.raises(CaptureError) as refused:
        made(Splits())
    assert "--mode" not in str(refused.value)


def test_autocast_is_captured_where_it_is_asked_for() -> None:
    module = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
    found, num_exports = made(module)
    assert [(v.autocast, v.also) for v in found.variants] == [(None, ())] and num_exports == 1
    found, num_exports = made(module, autocast=("bfloat16",))
    assert [v.state for v in found.variants] == ["", "autocast bfloat16"] and num_exports == 2
    assert [v.autocast for v in made(module, autocast=TWO)[0].variants] == [None, *TWO]


@pytest.mark.parametrize(
    ("module", "num_exports"),
    [
        (nn.GELU(), 1),  # nothing that autocast has a rule for
        (nn.Sequential(nn.Linear(5, 5), nn.ReLU()).bfloat16(), 3),
    ],
)
def test_autocast_that_changes_nothing_is_free(module: nn.Module, num_exports: int) -> None:
    x = X.to(next((p.dtype for p in module.parameters()), torch.float32))
    found, count = made(module.eval(), x)
    (variant,) = found.variants
    wanted = TWO if num_exports == 1 else ("bfloat16",)
    assert set(variant.also) == set(wanted) and count == num_exports


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_call_that_autocast_leaves_alone_does_not_count(device: str) -> None:
    from opweld.capture.exporting.autocast import autocast_acts

    class Sorts(nn.Module):
        def forward(self, x):
            return torch.sort(torch.sin(x), dim=1, stable=True)[0]

    class Multiplies(nn.Module):
        def forward(self, x):
            return torch.sin(x) @ x.t()

    graphs = [made(each())[0].variants[0].graph for each in (Sorts, Multiplies)]
    assert [autocast_acts(graph, device) for graph in graphs] == [False, True]


def test_other_dtypes_are_captured_where_they_are_asked_for() -> None:
    module = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
    found, num_exports = made(module, dtypes=("float16", "float32", "float64"))
    assert [v.state for v in found.variants] == ["", "float16", "float64"]  # float32 is its own
    assert [v.suffix for v in found.variants] == ["", "_in_float16", "_in_float64"]
    types = [{w.type.dtype.value for w in v.contract.weights} for v in found.variants]
    assert types == [{"f32"}, {"f16"}, {"f64"}]
    assert next(module.parameters()).dtype is torch.float32


def test_a_dtype_in_which_the_model_fails_stays_the_originals() -> None:
    class Single(nn.Module):
        def forward(self, x):
            if x.dtype is not torch.float32:
                raise TypeError("single precision alone")
            return torch.relu(x)

    found, _ = made(Single(), dtypes=("float64",))
    assert len(found.variants) == 1 and [state for state, _ in found.kept] == ["float64"]


class Seeds(nn.Module):
    def __init__(self, by: Any) -> None:
        super().__init__()
        self.by = by

    def forward(self, x):
        self.by.manual_seed(3)
        return x + torch.randn(5)


@pytest.mark.parametrize("by", [torch, torch.random])
def test_a_forward_that_seeds_stays_the_original(by: Any) -> None:
    """In a graph its numbers would be drawn from where the generator stands."""
    before = torch.get_rng_state()
    with pytest.raises(OriginalKept, match="seeds the random numbers"):
        made(Seeds(by))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(3)  # as ever outside of a capture
    assert torch.initial_seed() == 3


def test_other_threads_seed_while_one_captures() -> None:
    with refusing_seeds():
        other = threading.Thread(target=torch.manual_seed, args=(5,))
        other.start()
        other.join()
    assert torch.initial_seed() == 5


class Generates(nn.Module):
    def forward(self, x):
        return x + torch.rand(5, generator=torch.Generator().manual_seed(1))


def test_a_forward_with_a_generator_of_its_own_stays_the_original() -> None:
    with pytest.raises(OriginalKept, match=r"test_states.py:\d+ .*no graph holds, a "):
        made(Generates())
