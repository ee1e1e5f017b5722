"""Judgements against the float64 run, and where it is none or does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.judge.pairs import OWN, POINTWISE, SAME, judge_pair, named

from opweld.judge.numerics import reference
from opweld.judge.verify import trial


def test_float64_is_held_to_the_noise_of_the_original(tmp_path: Path) -> None:
    model = POINTWISE.replace("torch.randn(9, 33)", "torch.randn(9, 33, dtype=torch.float64)")
    new = "class ModelNew(Base):\n    def forward(self, x):\n"
    close = new + "        e = torch.exp(2 * x); return (e - 1) / (e + 1) * x.clamp(-300, 300)\n"
    own = named(judge_pair(tmp_path, model, close), OWN)
    assert own.passed and own.grade == "C" and "float64 is not more precise" in own.detail
    equal = named(judge_pair(tmp_path, model, SAME), OWN)
    assert equal.passed and equal.grade == "A"
    rounded = new + "        return super().forward(x.float()).double()\n"
    assert not named(judge_pair(tmp_path, model, rounded), OWN).passed


def test_a_float64_result_of_narrower_steps_is_judged_against_float64(tmp_path: Path) -> None:
    """More exact than eager, and far from it; digits that eager keeps must be kept."""
    model = POINTWISE.replace("torch.randn(9, 33)", "torch.randn(9, 33).bfloat16()")
    model = model.replace("return torch.tanh(x) * x", "return (torch.tanh(x) * x).double() + 1")
    new = "class ModelNew(Base):\n    def forward(self, x):\n"
    exact = new + "        x = x.double(); return torch.tanh(x) * x + 1\n"
    own = named(judge_pair(tmp_path, model, exact), OWN)
    assert own.passed and own.grade == "A" and own.error_vs_f64 is not None
    coarse = new + "        return (super().forward(x) * 32).round() / 32\n"
    assert not named(judge_pair(tmp_path, model, coarse), OWN).passed


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16"])
def test_sixteen_bit_models_are_judged_against_float64(tmp_path: Path, dtype: str) -> None:
    model = POINTWISE.replace("torch.randn(9, 33)", f"torch.randn(9, 33).to({dtype})")
    new = "class ModelNew(Base):\n    def forward(self, x):\n"
    inside = new + "        return (torch.tanh(x.float()) * x).to(x.dtype)\n"
    judgement = judge_pair(tmp_path, model, inside)
    assert judgement.verdict.passed, judgement.verdict.reason
    own = named(judgement, OWN)
    assert own.error_vs_f64 and own.eager_error_vs_f64
    assert own.error_vs_f64.rms < own.eager_error_vs_f64.rms, "one rounding against two"
    coarse = new + "        return (torch.tanh(x) * x * (1 + 2 ** -6)).to(x.dtype)\n"
    assert not judge_pair(tmp_path, model, coarse).verdict.passed


def test_casts_inside_the_original_do_not_round_the_reference(tmp_path: Path) -> None:
    model = POINTWISE.replace(
        "torch.tanh(x) * x", "torch.tanh(x.to(torch.float32)).float() * torch.full((), 0.1)"
    )
    own = named(judge_pair(tmp_path, model, SAME), OWN)
    assert own.passed and own.error_vs_f64 and 0 < own.error_vs_f64.rms < 1e-8


def test_without_memory_for_all_the_float64_run_goes_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "available_bytes", lambda device: 4000)
    judgement = judge_pair(tmp_path, POINTWISE, SAME)
    assert judgement.verdict.passed
    own = named(judgement, OWN)
    assert "by blocks of rows" in own.detail and own.error_vs_f64
    monkeypatch.undo()
    again = named(judge_pair(tmp_path, POINTWISE, SAME), OWN)
    assert again.error_vs_f64 and again.error_vs_f64.max == own.error_vs_f64.max
    assert again.error_vs_f64.rms == pytest.approx(own.error_vs_f64.rms, rel=1e-12)
    wrong = "class ModelNew(Base):\n    def forward(self, x):\n"
    wrong += "        y = super().forward(x).clone(); y[-1:, -1:] += 0.1; return y\n"
    monkeypatch.setattr(reference, "available_bytes", lambda device: 4000)
    assert named(judge_pair(tmp_path, POINTWISE, wrong), OWN).first_bad_index == (8, 32)


def test_rows_that_depend_on_each_other_are_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "available_bytes", lambda device: 4000)
    model = POINTWISE.replace("torch.tanh(x) * x", "torch.softmax(x, 0)")
    own = named(judge_pair(tmp_path, model, SAME), OWN)
    assert own.passed and "does not fit" in own.detail and own.error_vs_f64 is None


def test_small_outputs_are_pooled_over_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = POINTWISE.replace("torch.tanh(x) * x", "(torch.tanh(x) * x).mean()")
    new = "class ModelNew(Base):\n    def forward(self, x):\n"
    new += "        return (torch.tanh(x) * x).t().contiguous().sum() / x.numel()\n"
    own = named(judge_pair(tmp_path, model, new), OWN)
    assert own.passed, own.detail
    monkeypatch.setattr(trial, "MAX_DRAWS", 1)
    single = named(judge_pair(tmp_path, model, new), OWN)
    assert single.error_vs_f64 != own.error_vs_f64
