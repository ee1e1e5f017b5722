"""What a candidate does beside its numbers: each fault fails the check that is there for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.judge.pairs import LINEAR, POINTWISE, SAME, failing, judge_pair, named
from torch import nn

from opweld.judge.verify.other_weights import THROUGH
from opweld.judge.verify.weights import change_in_place, copy_state, shake_state

FAULTS = {
    "another parameter name": (
        POINTWISE,
        "def forward(self, y): return super().forward(y)",
        {"signature"},
    ),
    "a copy of what was a view": (
        POINTWISE.replace("torch.tanh(x) * x", "x[:, :5]"),
        "def forward(self, x): return super().forward(x).clone()",
        {"aliases"},
    ),
    "an input in the output": (
        POINTWISE.replace("torch.tanh(x) * x", "torch.tanh(x) * x, x * 1.0"),
        "def forward(self, x): return super().forward(x)[0], x",
        {"aliases"},
    ),
    "one memory for two outputs": (
        POINTWISE.replace("torch.tanh(x) * x", "torch.tanh(x), torch.tanh(x)"),
        "def forward(self, x): return (super().forward(x)[0],) * 2",
        {"aliases"},
    ),
    "a second call with the same tensor": (
        POINTWISE,
        "def forward(self, x):\n"
        "        again = getattr(self, 'last', None) is x\n"
        "        self.last = x\n"
        "        return super().forward(x) * (2 if again else 1)",
        {"the same tensors again"},
    ),
    "kept by value of the version": (
        LINEAR,
        "def forward(self, x):\n"
        "        key = (self.fc.weight.data_ptr(), self.fc.weight._version)\n"
        "        if getattr(self, 'key', None) != key:\n"
        "            self.key, self.w = key, self.fc.weight.detach().clone()\n"
        "        y = F.linear(x, self.w, self.fc.bias)\n"
        "        return torch.tanh(y * torch.sigmoid(y))",
        {"other weights, in place"},
    ),
    "the first model alone": (
        LINEAR,
        "built = 0\n"
        "    def __init__(self, width):\n"
        "        super().__init__(width)\n"
        "        ModelNew.built += 1\n"
        "        self.number = ModelNew.built\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) * self.number",
        {"other weights, re-drawn"},
    ),
    "a wrong run in ten": (
        POINTWISE,
        "def forward(self, x):\n"
        "        self.n = getattr(self, 'n', 0) + 1\n"
        "        return super().forward(x) * (1.001 if self.n % 7 == 0 else 1)",
        {"repeated runs"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_fails_its_check(fault: str, tmp_path: Path) -> None:
    model, body, expected = FAULTS[fault]
    judgement = judge_pair(tmp_path, model, f"class ModelNew(Base):\n    {body}\n")
    assert failing(judgement) >= expected, judgement.verdict.reason
    assert named(judgement, "own inputs").passed


def test_what_the_original_does_the_candidate_may_do(tmp_path: Path) -> None:
    model = POINTWISE.replace("torch.tanh(x) * x", "x[:, :5], torch.tanh(x).t()")
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed, judgement.verdict.reason
    other = "class ModelNew(Base):\n    def forward(self, x):\n"
    other += "        y, z = super().forward(x)\n        return y, z.contiguous()\n"
    judgement = judge_pair(tmp_path, model, other)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert "output[1] has strides (9, 1) instead of (1, 33)" in named(judgement, "aliases").detail


def test_runs_that_differ_within_rounding_are_noted(tmp_path: Path) -> None:
    new = """
    class ModelNew(Base):
        def forward(self, x):
            self.n = getattr(self, 'n', 0) + 1
            w = self.fc.weight
            y = F.linear(x.flip(1), w.flip(1), self.fc.bias) if self.n % 2 else self.fc(x)
            return torch.tanh(y * torch.sigmoid(y))
    """
    judgement = judge_pair(tmp_path, LINEAR, new)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert "runs differ in some bits" in named(judgement, "repeated runs").detail


def test_an_identity_is_said_to_be_one(tmp_path: Path) -> None:
    model = POINTWISE.replace("torch.tanh(x) * x", "x * 1.0")
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed and judgement.degenerate is None
    assert judgement.verdict.unjudged == ("output: a copy of input 0 would pass every check",)
    assert named(judgement, "own inputs, sharpened").passed
    plain = judge_pair(tmp_path, POINTWISE, SAME).verdict
    assert plain.unjudged == () and plain.precision == "float32-faithful"


def test_a_degenerate_model_is_reported_apart(tmp_path: Path) -> None:
    model = POINTWISE.replace(
        "return torch.tanh(x) * x", "y = x.sum(1, keepdim=True)\n        return torch.softmax(y, 1)"
    )
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed and judgement.degenerate is not None
    assert judgement.degenerate.startswith("output is the constant 1 for any inputs: _softmax at")
    assert judgement.verdict.unjudged == ("output: the mean would pass every check",)


@pytest.mark.parametrize("through", THROUGH)
def test_weights_change_in_place(through: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = {name: (t.data_ptr(), t._version) for name, t in model.named_parameters()}
    state = copy_state(model)
    other = shake_state(state, seed=3)
    change_in_place(model, other, through)
    for name, t in model.state_dict().items():
        assert torch.equal(t, other[name])
    assert not torch.equal(other["0.weight"], state["0.weight"])
    for name, t in model.named_parameters():
        pointer, version = before[name]
        assert t.data_ptr() == pointer
        assert (t._version > version) == (through == "copy_"), name
