"""Errors that torch's flags allow in convolutions: as large as those of TF32, and no larger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.judge.pairs import failing, judge_pair

from opweld.judge.numerics.effective import CONVOLUTIONS, allowed_in
from opweld.judge.numerics.lowered import larger_error
from opweld.judge.numerics.reference import Block
from opweld.judge.verify import gradients, trial
from opweld.judge.verify.run import Run

MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1, groups=GROUPS)

    def forward(self, x):
        return torch.tanh(self.conv(x)) * SCALE

def get_inputs():
    return [torch.randn(4, 16, 9, 7)]

def get_init_inputs():
    return []
"""
NEW = """
class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        bits = x.contiguous().view(torch.int32)
        rounded = ((bits + (1 << KEPT - 1)) & -(1 << KEPT)).view(torch.float32)
        return torch.where(rounded.isfinite(), rounded, x)

    @staticmethod
    def backward(ctx, g):
        return g

class ModelNew(Base):
    def forward(self, x):
        weight = _Rounded.apply(self.conv.weight)
        y = F.conv2d(_Rounded.apply(x), weight, self.conv.bias, padding=1, groups=GROUPS)
        return torch.tanh(y) * SCALE
"""
TF32, BFLOAT16 = 13, 16  # bits that are rounded away


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, by default."""
    for module in (trial, gradients):
        monkeypatch.setattr(module, "allowed_in", lambda device: CONVOLUTIONS)


def judged(folder: Path, kept: int, groups: int = 1) -> set[str]:
    names = {"GROUPS": str(groups), "KEPT": str(kept), "SCALE": "2.0"}
    model, new = MODEL, NEW
    for name, value in names.items():
        model, new = model.replace(name, value), new.replace(name, value)
    return failing(judge_pair(folder, model, new))


def test_as_inexact_as_tf32_is_allowed(tmp_path: Path, allowed: None) -> None:
    assert not judged(tmp_path, TF32)


def test_no_less_exact_than_that(tmp_path: Path, allowed: None) -> None:
    assert "own inputs" in judged(tmp_path, BFLOAT16)


def test_convolutions_of_one_channel_a_group_are_exact(tmp_path: Path, allowed: None) -> None:
    assert "own inputs" in judged(tmp_path, TF32, groups=16)


def test_nothing_is_allowed_without_the_flag(tmp_path: Path) -> None:
    assert "own inputs" in judged(tmp_path, TF32)
    assert allowed_in(torch.device("cpu")) is None
    assert allowed_in(torch.device("cuda")) is CONVOLUTIONS
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert allowed_in(torch.device("cuda")) is None


def test_nothing_is_allowed_beside_convolutions(tmp_path: Path, allowed: None) -> None:
    model = MODEL.replace("SCALE", "2.0").replace(
        "nn.Conv2d(16, 16, 3, padding=1, groups=GROUPS)", "nn.Linear(7, 7)"
    )
    new = (
        NEW.replace("KEPT", str(TF32))
        .replace("SCALE", "2.0")
        .replace(
            "F.conv2d(_Rounded.apply(x), weight, self.conv.bias, padding=1, groups=GROUPS)",
            "F.linear(_Rounded.apply(x), weight, self.conv.bias)",
        )
    )
    assert "own inputs" in failing(judge_pair(tmp_path, model, new))


def test_models_that_change_their_state(tmp_path: Path, allowed: None) -> None:
    """What a norm in training leaves in its buffers is compared as well."""
    names = {"GROUPS": "1", "KEPT": str(TF32), "SCALE": "2.0", "torch.tanh(": "self.norm("}
    model, new = (
        MODEL.replace("groups=GROUPS)", "groups=1)\n        self.norm = nn.BatchNorm2d(16)"),
        NEW,
    )
    for name, value in names.items():
        model, new = model.replace(name, value), new.replace(name, value)
    assert not failing(judge_pair(tmp_path, model, new))


@pytest.mark.parametrize(("far", "worse"), [(3.0, True), (0.5, False), (float("inf"), False)])
def test_the_larger_error_counts_where_it_is_finite(far: float, worse: bool) -> None:
    run = Run(("output",), [torch.ones(4)], [])
    other = replace(run, leaves=[torch.tensor([1.0, 1.0, 1.0, far])])
    exact = Block(None, [torch.full((4,), 0.7, dtype=torch.float64)])
    found = larger_error(run, other, exact)
    assert found.leaves[0] is (other if worse else run).leaves[0]


def test_what_is_not_finite_in_eager_either_does_not_count() -> None:
    """A norm of a sample that overflows has NaN, with or without rounding."""
    run = Run(("output",), [torch.tensor([1.0, 1.0, float("nan")])], [])
    other = replace(run, leaves=[torch.tensor([1.0, 3.0, float("nan")])])
    exact = Block(None, [torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64)])
    assert larger_error(run, other, exact).leaves[0] is other.leaves[0]
    assert larger_error(other, run, exact).leaves[0] is other.leaves[0]
