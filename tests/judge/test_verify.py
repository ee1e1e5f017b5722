"""Whole judgements of small pairs in this process: what passes, which check a fault fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.judge.pairs import LINEAR, POINTWISE, failing, judge_pair, named

from opweld.judge import reference, trial, verify

OWN = "own inputs"


def test_an_honest_rewrite_passes_with_its_figures(tmp_path: Path) -> None:
    new = """
    class ModelNew(Base):
        def forward(self, x):
            y = torch.addmm(self.fc.bias, x.flip(1), self.fc.weight.flip(1).t())
            return torch.tanh(F.silu(y))
    """
    judgement = judge_pair(tmp_path, LINEAR, new)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert judgement.exit_code == 0
    own = named(judgement, OWN)
    assert own.grade in ("A", "B") and own.dtype == "float32" and own.output == "output"
    assert own.error_vs_f64 is not None and own.eager_error_vs_f64 is not None
    assert 0 < own.error_vs_f64.rms <= own.error_vs_f64.max < 1e-5
    assert 0.3 < own.error_vs_f64.rms / own.eager_error_vs_f64.rms < 2.5
    assert own.max_ulp is not None and own.ulp_p50 is not None and own.max_ulp >= own.ulp_p50 > 0
    assert own.scale is not None and 0.05 < own.scale < 1
    tried = {check.name for check in judgement.verdict.checks if not check.skipped}
    assert tried >= {
        OWN,
        "normal values",
        "large values",
        "tiny values",
        "NaN, infinities, signed zeros",
        "batch of 0",
        "batch of 1",
        "batch of 3",
        "batch of 7",
        "transposed storage",
        "strided storage",
        "misaligned storage",
        "other weights by load_state_dict",
        "training mode",
        "an earlier result stays",
        "global settings of torch",
    }


FAULTS = {
    "wrong by a ten-thousandth": ("return super().forward(x) * 1.0001", {OWN}),
    "one wrong last element": (
        "y = super().forward(x).clone(); y.view(-1)[-1:] += 1e-3; return y",
        {OWN},
    ),
    "swapped rows": ("return super().forward(x).flip(0)", {OWN}),
    "zeros": ("return torch.zeros_like(super().forward(x))", {OWN}),
    "a nested value": ("return [super().forward(x)]", {OWN}),
    "another shape": ("return super().forward(x)[None]", {OWN}),
    "another dtype": ("return super().forward(x).double()", {OWN}),
    "no tensor": ("return None", {OWN}),
    "an exception": ("raise ValueError('no such luck')", {OWN}),
    "sys.exit": ("import sys; sys.exit(0)", {OWN}),
    "NaN dropped": (
        "return torch.nan_to_num(super().forward(x))",
        {"NaN, infinities, signed zeros"},
    ),
    "fixed batch": (
        "assert x.shape[0] == 9; return super().forward(x)",
        {"batch of 0", "batch of 1", "batch of 3", "batch of 10"},
    ),
    "strides ignored": (
        "return super().forward(torch.as_strided(x, x.shape, (x.shape[1], 1)))",
        {"transposed storage", "strided storage"},
    ),
    "a half-precision exponent range": (
        "return super().forward(x.clamp(-300, 300))",
        {"large values", "NaN, infinities, signed zeros"},
    ),
    "writes to its input": ("y = super().forward(x); x += 1; return y", {OWN}),
    "result in a kept buffer": (
        "self.kept = getattr(self, 'kept', super().forward(x) * 0)\n"
        "        if self.kept.shape != x.shape: return super().forward(x)\n"
        "        return self.kept.copy_(super().forward(x))",
        {"an earlier result stays"},
    ),
    "keyed on the pointer": (
        "self.memo = getattr(self, 'memo', {})\n"
        "        key = (x.data_ptr(), tuple(x.shape), x.stride())\n"
        "        if key not in self.memo:\n"
        "            self.memo[key] = (super().forward(x), x)\n"
        "        return self.memo[key][0].clone()",
        {"new values in the same memory"},
    ),
    "a gap left uninitialised": (
        "y = torch.empty_like(x); z = super().forward(x)\n"
        "        y[:-1] = z[:-1]; y[-1:].view(-1)[1:] = z[-1:].reshape(-1)[1:]; return y",
        {OWN, "uninitialised memory filled with NaN"},
    ),
    "wrong in training": (
        "y = super().forward(x); return y * 2 if self.training else y",
        {"training mode"},
    ),
    "a global setting": (
        "torch.set_float32_matmul_precision('high'); return super().forward(x)",
        {"global settings of torch"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_fails_its_check(fault: str, tmp_path: Path) -> None:
    body, expected = FAULTS[fault]
    precision = torch.get_float32_matmul_precision()
    try:
        new = f"class ModelNew(Base):\n    def forward(self, x):\n        {body}\n"
        judgement = judge_pair(tmp_path, POINTWISE, new)
    finally:
        torch.set_float32_matmul_precision(precision)
    assert not judgement.verdict.passed
    assert judgement.exit_code == 1
    assert failing(judgement) >= expected, judgement.verdict.reason
    if OWN not in expected:
        assert named(judgement, OWN).passed, "the fault is to be found by its own check"


def test_the_first_failure_is_the_last_check_where_not_all_are_asked_for(tmp_path: Path) -> None:
    new = "class ModelNew(Base):\n    def forward(self, x):\n        return x * 0\n"
    all_checks = judge_pair(tmp_path, POINTWISE, new).verdict.checks
    verdict = judge_pair(tmp_path, POINTWISE, new, thorough=False).verdict
    first = next(number for number, check in enumerate(all_checks) if not check.passed)
    assert not verdict.passed and len(verdict.failures) == 1
    assert [c.name for c in verdict.checks] == [c.name for c in all_checks[: first + 1]]
    assert len(verdict.checks) < len(all_checks)


def test_the_first_bad_index_is_named(tmp_path: Path) -> None:
    body = "y = super().forward(x).clone(); y[4, 5:6] += 0.5; y[6] = 0; return y"
    new = f"class ModelNew(Base):\n    def forward(self, x):\n        {body}\n"
    assert named(judge_pair(tmp_path, POINTWISE, new), OWN).first_bad_index == (4, 5)


def test_the_line_of_an_exception_is_named(tmp_path: Path) -> None:
    new = "class ModelNew(Base):\n    def forward(self, x):\n        raise ValueError('bad luck')\n"
    judgement = judge_pair(tmp_path, POINTWISE, new)
    lines = (tmp_path / "new.py").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "bad luck" in text)
    assert f"new.py:{line}: ModelNew raised ValueError: bad luck" in judgement.verdict.reason


PARAMETERS = {
    "another name": (
        "self.fc2 = self.fc; del self.fc",
        "return torch.tanh(self.fc2(x) * torch.sigmoid(self.fc2(x)))",
        "same parameters from the same seed",
    ),
    "another start": (
        "nn.init.ones_(self.fc.bias)",
        "return super().forward(x)",
        "same parameters from the same seed",
    ),
    "one more random number": (
        "torch.rand(1); self.fc = nn.Linear(width, 24)",
        "return super().forward(x)",
        "same parameters from the same seed",
    ),
    "weights baked in": (
        "self.packed = [self.fc.weight.detach().clone()]",
        "y = F.linear(x, self.packed[0], self.fc.bias); return torch.tanh(y * torch.sigmoid(y))",
        "other weights by load_state_dict",
    ),
}


@pytest.mark.parametrize("fault", PARAMETERS)
def test_parameters_are_the_originals(fault: str, tmp_path: Path) -> None:
    init, forward, check = PARAMETERS[fault]
    new = f"""
class ModelNew(Base):
    def __init__(self, width):
        super().__init__(width)
        {init}

    def forward(self, x):
        {forward}
"""
    assert check in failing(judge_pair(tmp_path, LINEAR, new))


NESTED = """
from dataclasses import dataclass

@dataclass
class Out:
    hidden: torch.Tensor
    parts: list

class Model(nn.Module):
    def forward(self, x, indices, options):
        y = x * options["scale"]
        parts = [(y > 0), indices + 1, {"k": y.sum(1), "none": None}]
        return Out(y, parts), 3, float(y[0, 0]) if y.numel() else 0.0

def get_inputs():
    return [torch.randn(8, 12), torch.arange(8), {"scale": 1.5}]

def get_init_inputs():
    return [[], {}]
"""


def test_nested_outputs_and_integers_pass_and_are_compared(tmp_path: Path) -> None:
    same = """
    class ModelNew(Base):
        def forward(self, x, indices, options):
            out, three, first = super().forward(x, indices, options)
            return out, three, first
    """
    judgement = judge_pair(tmp_path, NESTED, same)
    assert judgement.verdict.passed, judgement.verdict.reason
    wrong = same.replace("return out", "out.parts[1][5:6] += 1; return out")
    failed = named(judge_pair(tmp_path, NESTED, wrong), OWN)
    assert not failed.passed
    assert failed.output == "output[0].parts[1]" and failed.first_bad_index == (5,)
    wrong = same.replace("return out, three", "return out, 4")
    assert not judge_pair(tmp_path, NESTED, wrong).verdict.passed
    wrong = same.replace("return out", "out.parts[2].pop('none'); return out")
    assert "a tuple of 6 values where" in judge_pair(tmp_path, NESTED, wrong).verdict.reason


DROPOUT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(12)

    def forward(self, x):
        return self.DROP(self.norm(x))

def get_inputs():
    return [torch.randn(20, 12)]

def get_init_inputs():
    return []
"""
SAME = "class ModelNew(Base):\n    pass\n"


def test_training_is_skipped_where_the_original_is_random(tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, DROPOUT.replace("DROP", "drop"), SAME)
    assert judgement.verdict.passed, judgement.verdict.reason
    training = named(judgement, "training mode")
    assert training.skipped and "random" in training.detail


def test_training_compares_what_batch_norm_keeps(tmp_path: Path) -> None:
    model = DROPOUT.replace("self.DROP", "F.relu")
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed and not named(judgement, "training mode").skipped
    new = """
    class ModelNew(Base):
        def forward(self, x):
            if not self.training:
                return super().forward(x)
            n = self.norm
            return F.relu(F.batch_norm(x, None, None, n.weight, n.bias, True))
    """
    judgement = judge_pair(tmp_path, model, new)
    assert failing(judgement) == {"training mode"}
    assert "state norm.num_batches_tracked: " in named(judgement, "training mode").detail


def test_a_random_forward_is_compared_with_eager_from_the_same_seed(tmp_path: Path) -> None:
    model = POINTWISE.replace("torch.tanh(x) * x", "torch.tanh(x) * torch.rand_like(x)")
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert "random" in named(judgement, OWN).detail
    other = "class ModelNew(Base):\n    def forward(self, x):\n        torch.rand(1)\n"
    other += "        return super().forward(x)\n"
    assert not judge_pair(tmp_path, model, other).verdict.passed


def test_a_model_that_writes_to_its_input_is_held_to_the_same_write(tmp_path: Path) -> None:
    model = POINTWISE.replace("return torch.tanh(x) * x", "return x.mul_(2).tanh()")
    assert judge_pair(tmp_path, model, SAME).verdict.passed
    new = "class ModelNew(Base):\n    def forward(self, x):\n        return (x * 2).tanh()\n"
    judgement = judge_pair(tmp_path, model, new)
    assert not judgement.verdict.passed and "input 0 afterwards" in judgement.verdict.reason


def test_a_model_that_counts_its_calls_starts_each_from_the_same_state(tmp_path: Path) -> None:
    model = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return torch.tanh(x) * self.calls

    def get_inputs():
        return [torch.randn(9, 33)]

    def get_init_inputs():
        return []
    """
    model = "\n".join(line[4:] for line in model.splitlines())
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed, judgement.verdict.reason
    twice = "class ModelNew(Base):\n    def forward(self, x):\n        self.calls += 1\n"
    twice += "        self.calls -= 1\n        return super().forward(x) + 0 * self.calls\n"
    assert judge_pair(tmp_path, model, twice).verdict.passed
    frozen = "class ModelNew(Base):\n    def forward(self, x):\n"
    frozen += "        return torch.tanh(x) * (self.calls + 1)\n"
    assert not judge_pair(tmp_path, model, frozen).verdict.passed


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


def test_trivial_candidates_that_would_pass_are_named(tmp_path: Path) -> None:
    model = POINTWISE.replace("torch.tanh(x) * x", "torch.relu(x) - torch.relu(x)")
    own = named(judge_pair(tmp_path, model, SAME), OWN)
    assert own.passed and "zeros for output" in own.detail
    model = POINTWISE.replace("torch.tanh(x) * x", "x * 1.0")
    assert "a copy of input 0" in named(judge_pair(tmp_path, model, SAME), OWN).detail
    assert "weak" not in named(judge_pair(tmp_path, POINTWISE, SAME), OWN).detail


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


def test_what_the_original_refuses_is_skipped_with_the_reason(tmp_path: Path) -> None:
    model = POINTWISE.replace("return torch", "assert x.shape[0] == 9\n        return torch")
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed
    skipped = named(judgement, "batch of 3")
    assert skipped.skipped and "the original refuses: AssertionError" in skipped.detail


TWO = """
class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x) * x

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        t = torch.tanh(x)
        return g * (FACTOR * t + x * (1 - t * t))

class ModelNew(Base):
    def forward(self, x):
        return _Tanh.apply(x)
"""


def test_gradients_are_compared_where_there_are_any(tmp_path: Path) -> None:
    right = judge_pair(tmp_path, POINTWISE, TWO.replace("FACTOR", "1.0"))
    check = named(right, "gradients")
    assert check.passed and not check.skipped and check.grade in ("A", "B")
    wrong = judge_pair(tmp_path, POINTWISE, TWO.replace("FACTOR", "1.01"))
    assert failing(wrong) == {"gradients"}
    assert "gradient of input 0: error" in named(wrong, "gradients").detail
    double = POINTWISE.replace("torch.randn(9, 33)", "torch.randn(9, 33, dtype=torch.float64)")
    for factor, passes in (("1.0", True), ("1.01", False)):
        judgement = judge_pair(tmp_path, double, TWO.replace("FACTOR", factor))
        assert named(judgement, "gradients").passed is passes


def test_parameters_have_gradients_too(tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, LINEAR, SAME)
    assert "bit-equal" in named(judgement, "gradients").detail
    new = """
    class ModelNew(Base):
        def forward(self, x):
            y = F.linear(x, self.fc.weight, self.fc.bias.detach())
            return torch.tanh(y * torch.sigmoid(y))
    """
    failed = named(judge_pair(tmp_path, LINEAR, new), "gradients")
    assert not failed.passed and failed.output == "gradient of fc.bias"


def test_a_candidate_for_inference_only_says_so(tmp_path: Path) -> None:
    new = "class ModelNew(Base):\n    def forward(self, x):\n"
    new += "        return super().forward(x.detach())\n"
    judgement = judge_pair(tmp_path, POINTWISE, new)
    assert judgement.verdict.passed
    check = named(judgement, "gradients")
    assert check.skipped and "for inference only" in check.detail


def test_large_models_are_tried_on_all_rows_once_and_on_fewer_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "MAX_ELEMS", {"cpu": 400})
    judgement = judge_pair(tmp_path, POINTWISE, SAME)
    assert judgement.verdict.passed
    assert "rows" not in named(judgement, OWN).detail
    assert "on 7 of 9 rows" in named(judgement, "normal values").detail
    assert "batch of 8" in {check.name for check in judgement.verdict.checks}
    wrong = "class ModelNew(Base):\n    def forward(self, x):\n"
    wrong += "        y = super().forward(x).clone(); y[8:] += 0.1; return y\n"
    assert OWN in failing(judge_pair(tmp_path, POINTWISE, wrong)), "the main check takes all rows"


def test_expensive_models_are_tried_on_fewer_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "MAX_FLOPS", {"cpu": 100})
    judgement = judge_pair(tmp_path, LINEAR, SAME)
    assert "on 5 of 6 rows" in named(judgement, "normal values").detail
