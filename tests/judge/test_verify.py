"""Whole judgements of small pairs in this process: what passes, which check a fault fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.judge.pairs import LINEAR, OWN, POINTWISE, SAME, failing, judge_pair, named

from opweld.judge import session
from opweld.judge.levels import DEFAULT


def test_an_honest_rewrite_passes_with_its_figures(tmp_path: Path) -> None:
    new = """
    class ModelNew(Base):
        def forward(this, x):
            y = torch.addmm(this.fc.bias, x.flip(1), this.fc.weight.flip(1).t())
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
        {"uninitialised memory filled with NaN"},
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

# What lies in uninitialised memory may be right by chance.
SEEN_BY_CHANCE = {"a gap left uninitialised"}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_fails_its_check(fault: str, tmp_path: Path) -> None:
    body, expected = FAULTS[fault]
    precision = torch.get_float32_matmul_precision()
    try:
        new = f"class ModelNew(Base):\n    def forward(self, x):\n        {body}\n"
        judgement = judge_pair(tmp_path, POINTWISE, new, mode="eval")
    finally:
        torch.set_float32_matmul_precision(precision)
    assert not judgement.verdict.passed
    assert judgement.exit_code == 1
    assert failing(judgement) >= expected, judgement.verdict.reason
    if OWN not in expected and fault not in SEEN_BY_CHANCE:
        assert named(judgement, OWN).passed, "the fault is to be found by its own check"


def test_the_first_failure_is_the_last_check_where_not_all_are_asked_for(tmp_path: Path) -> None:
    new = "class ModelNew(Base):\n    def forward(self, x):\n        return x * 0\n"
    all_checks = judge_pair(tmp_path, POINTWISE, new).verdict.checks
    verdict = judge_pair(tmp_path, POINTWISE, new, stop_at_first=True).verdict
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


def test_trivial_candidates_that_would_pass_are_named(tmp_path: Path) -> None:
    model = POINTWISE.replace("torch.tanh(x) * x", "torch.relu(x) - torch.relu(x)")
    own = named(judge_pair(tmp_path, model, SAME), OWN)
    assert own.passed and "zeros for output" in own.detail
    model = POINTWISE.replace("torch.tanh(x) * x", "x * 1.0")
    assert "a copy of input 0" in named(judge_pair(tmp_path, model, SAME), OWN).detail
    assert "weak" not in named(judge_pair(tmp_path, POINTWISE, SAME), OWN).detail


def test_what_the_original_refuses_is_skipped_with_the_reason(tmp_path: Path) -> None:
    model = POINTWISE.replace("return torch", "assert x.shape[0] == 9\n        return torch")
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed
    skipped = named(judgement, "batch of 3")
    assert skipped.skipped and "the original refuses: AssertionError" in skipped.detail


def test_large_models_are_tried_on_all_rows_once_and_on_fewer_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "level_of", lambda _: replace(DEFAULT, max_elems={"cpu": 400}))
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
    monkeypatch.setattr(session, "level_of", lambda _: replace(DEFAULT, max_flops={"cpu": 100}))
    judgement = judge_pair(tmp_path, LINEAR, SAME)
    assert "on 5 of 6 rows" in named(judgement, "normal values").detail


def test_the_order_and_number_of_calls_follow_from_the_seed(tmp_path: Path) -> None:
    """A candidate that counts its calls learns nothing; the same seed gives the same ones."""
    log = tmp_path / "calls"
    new = f"""
    class ModelNew(Base):
        def forward(self, x):
            with open({str(log)!r}, "a") as file:
                file.write("x")
            return super().forward(x)
    """
    orders, counts = [], []
    for seed in (1, 1, 2):
        judgement = judge_pair(tmp_path, POINTWISE, new, seed=seed)
        assert judgement.verdict.passed, judgement.verdict.reason
        drawn = ("batch of", "inner size")
        names = [check.name for check in judgement.verdict.checks]
        orders.append([name for name in names if not name.startswith(drawn)])
        counts.append(len(log.read_text()))
        log.unlink()
    assert orders[0] == orders[1] and counts[0] == counts[1]
    assert orders[0] != orders[2] and sorted(orders[0]) == sorted(orders[2])
    assert counts[0] != counts[2]


def test_a_thorough_judgement_repeats_more_and_draws_more_batches(tmp_path: Path) -> None:
    def counts(thorough: bool) -> tuple[int, int]:
        judgement = judge_pair(tmp_path, POINTWISE, SAME, thorough=thorough)
        assert judgement.verdict.passed, judgement.verdict.reason
        batches = [c for c in judgement.verdict.checks if c.name.startswith("batch of")]
        return int(named(judgement, "repeated runs").detail.split()[0]), len(batches)

    repeats, batches = counts(thorough=False)
    assert 8 <= repeats <= 13 and batches <= 7
    more_repeats, more_batches = counts(thorough=True)
    assert 200 <= more_repeats <= 220 and more_batches > batches
