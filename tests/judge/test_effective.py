"""The precision is named by measurement, and `--precision` accepts the one that it names."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tests.judge.pairs import LINEAR, judge_pair, named
from torch import Tensor

from opweld.judge.load import Call
from opweld.judge.numerics.effective import (
    APPROXIMATE,
    LOWERINGS,
    Lowered,
    Lowering,
    Observation,
    faithful,
    name_of,
    narrower,
    round_tf32,
    run_lowered,
)
from opweld.judge.verify import trial

NEW = """
from opweld.judge.numerics.effective import round_tf32

def low(t):
    return t + (ROUND - t).detach()

class ModelNew(Base):
    def forward(self, x):
        y = F.linear(low(x), low(self.fc.weight), self.fc.bias)
        return torch.tanh(y * torch.sigmoid(y))
"""
# A bias would hide what is lost of tiny inputs.
PRODUCT = LINEAR.replace("nn.Linear(width, 24)", "nn.Linear(width, 24, bias=False)")
ROUNDED = {
    "TF32-like": "round_tf32(t)",
    "float16-like": "t.half().float()",
    "bfloat16-like": "t.bfloat16().float()",
}


@pytest.mark.parametrize("name", ROUNDED)
def test_the_format_of_a_product_is_named(name: str, tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, PRODUCT, NEW.replace("ROUND", ROUNDED[name]))
    assert not judgement.verdict.passed
    assert judgement.verdict.precision == name


def test_the_format_of_what_is_too_large_to_be_run_again_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "MAX_EXTRA_ELEMS", 10)
    judgement = judge_pair(tmp_path, PRODUCT, NEW.replace("ROUND", ROUNDED["TF32-like"]))
    assert not judgement.verdict.passed and judgement.verdict.precision is None
    new = NEW.replace("ROUND", "t")
    assert judge_pair(tmp_path, LINEAR, new).verdict.precision == "float32-faithful"


def test_faithful_results_are_named_so(tmp_path: Path) -> None:
    new = NEW.replace("ROUND", "t")
    assert judge_pair(tmp_path, LINEAR, new).verdict.precision == "float32-faithful"


# Products as a device makes them where TF32 is allowed: of float32 operands, and of no others.
TF32_PRODUCT = """
from opweld.judge.numerics.effective import round_tf32

def low(t):
    return t + (round_tf32(t) - t).detach() if t.dtype is torch.float32 else t
""" + PRODUCT.replace("y = self.fc(x)", "y = F.linear(low(x), low(self.fc.weight))")


def test_an_original_in_tf32_makes_no_result_faithful(tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, TF32_PRODUCT, "class ModelNew(Base):\n    pass\n")
    assert judgement.verdict.passed
    assert judgement.verdict.precision == "TF32-like"


def test_a_result_more_exact_than_an_original_in_tf32_is_faithful(tmp_path: Path) -> None:
    judgement = judge_pair(
        tmp_path, TF32_PRODUCT, NEW.replace("ROUND", "t").replace(", self.fc.bias", "")
    )
    assert named(judgement, "own inputs").passed
    assert judgement.verdict.precision == "float32-faithful"


CANCELLING = """
class Model(nn.Module):
    def forward(self, x):
        y = x + 1000.0
        return (y * y - 1000000.0) - 2000.0 * x

def get_inputs():
    return [torch.randn(9, 33)]

def get_init_inputs():
    return []
"""
CANCELLING_PRODUCT = CANCELLING.replace("y = x + 1000.0", "y = x @ torch.eye(33) + 1000.0")


@pytest.mark.parametrize("model", [CANCELLING, CANCELLING_PRODUCT], ids=["pointwise", "product"])
def test_digits_that_an_original_loses_in_float32_are_no_lower_format(
    model: str, tmp_path: Path
) -> None:
    judgement = judge_pair(tmp_path, model, "class ModelNew(Base):\n    pass\n")
    assert judgement.verdict.precision == "float32-faithful"


def test_an_error_is_named_by_what_rounding_gives() -> None:
    marks = {"TF32": (3e-4,), "bfloat16": (2e-3,)}
    assert not Observation(3e-4, marks, eager_rms=3e-4, rounded_rms=1e-8).is_faithful
    assert Observation(1e-6, marks, eager_rms=1e-6, rounded_rms=1e-8).is_faithful
    assert Observation(3e-4, marks, eager_rms=3e-4, rounded_rms=2e-4).is_faithful
    assert not Observation(1e-5, marks, eager_rms=1e-6, rounded_rms=1e-6).is_faithful


@pytest.mark.parametrize(
    ("accepted", "rounded", "passes"),
    [
        ("tf32", "TF32-like", True),
        ("tf32", "bfloat16-like", False),
        ("bf16", "bfloat16-like", True),
        ("match", "TF32-like", False),
    ],
)
def test_a_precision_is_accepted_up_to_its_own_error(
    accepted: str, rounded: str, passes: bool, tmp_path: Path
) -> None:
    new = NEW.replace("ROUND", ROUNDED[rounded])
    judgement = judge_pair(tmp_path, LINEAR, new, precision=accepted)
    assert named(judgement, "own inputs").passed is passes
    assert named(judgement, "normal values").passed is passes
    assert named(judgement, "gradients").passed is passes
    assert judgement.verdict.precision == rounded, "what is accepted changes no name"


ROUNDED_INPUT = """
class Model(nn.Module):
    def forward(self, x):
        return torch.sin(x * 3.0)

def get_inputs():
    return [torch.randn(9, 33)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("model", "old", "new"),
    [
        (PRODUCT, "self.fc(x)", "F.linear(low(x), low(self.fc.weight), self.fc.bias)"),
        (ROUNDED_INPUT, "x * 3.0", "low(x) * 3.0"),
    ],
    ids=["product", "sin"],
)
def test_rounding_what_comes_in_is_accepted(model: str, old: str, new: str, tmp_path: Path) -> None:
    """And no more: of other numbers than the format's nothing is."""
    assert old in model
    for low, passes in (("t.bfloat16().float()", True), ("t.to(torch.float8_e5m2).float()", False)):
        head = f"def low(t):\n    return {low} if t.dtype is torch.float32 else t\n"
        text = head + model.replace(old, new)
        candidate = text.replace("class Model(", "class ModelNew(")
        judgement = judge_pair(tmp_path, model, candidate, precision="bf16")
        assert judgement.verdict.passed is passes, judgement.verdict.reason


def test_the_nearest_marks_give_the_name() -> None:
    marks = {"TF32": (1e-4, 3e-4), "bfloat16": (1e-3,), "float16": (1e-4, math.inf)}
    assert name_of([Observation(9e-4, marks)]) == "bfloat16-like"
    assert name_of([Observation(2.9e-4, marks)]) == "TF32-like"
    assert name_of([Observation(1e-2, marks)]) == APPROXIMATE
    overflowed = {"TF32": (1e-4,), "float16": (math.inf,)}
    assert name_of([Observation(1e-4, marks), Observation(1e-4, overflowed)]) == "TF32-like"
    assert name_of([]) == APPROXIMATE


def test_names_of_faithful_outputs() -> None:
    assert faithful(["float64"]) == "float64"
    assert faithful(["float64", "float32"]) == "float32-faithful"
    assert faithful(["bfloat16", "float32"]) == "bfloat16-faithful"
    assert faithful([]) == "exact"


def test_tf32_rounds_to_nearest_with_the_range_of_float32() -> None:
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    relative = ((round_tf32(x) - x) / x).abs()
    assert 0.9 * 2**-11 < relative.max() <= 2**-11
    assert round_tf32(torch.tensor(1 + 2**-11)) == 1, "a tie goes to even"
    kept = torch.tensor([math.inf, -math.inf, 0.0, 1e-38])
    assert torch.allclose(round_tf32(kept), kept, rtol=2**-11, atol=0)
    assert round_tf32(torch.tensor(math.nan)).isnan()


def test_lowering_costs_what_the_format_keeps() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(256, 64, bias=False), torch.randn(50, 256)
    exact = x.double() @ model.weight.detach().double().t()
    scale = float(exact.square().mean().sqrt())
    for lowering in narrower(torch.float32):
        lowered = run_lowered(model, Call((x,), {}), 0, Lowered(lowering))
        bits = -math.log2(float((lowered - exact).square().mean().sqrt()) / scale)
        expected = 8 if lowering.name == "bfloat16" else 11
        assert expected < bits < expected + 2, lowering.text
    assert [low.name for low in narrower(torch.bfloat16)] == []
    assert len(narrower(torch.float64)) == len(LOWERINGS)


class _AsOne(torch.nn.Module):
    """Looks at its weight as PyTorch's recurrent layers do on a GPU: as a run of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        whole = torch.empty(0).set_(self.weight.detach().untyped_storage(), 0, (64,), (1,))
        return x @ whole.view(8, 8)


@pytest.mark.parametrize("lowering", LOWERINGS, ids=lambda lowering: lowering.text)
def test_a_lowered_run_does_not_change_the_weights(lowering: Lowering) -> None:
    model, x = _AsOne(), torch.randn(3, 8)
    kept = model.weight.detach().clone()
    lowered = run_lowered(model, Call((x,), {}), 0, Lowered(lowering))
    assert torch.equal(model.weight, kept)
    if lowering.everywhere and lowering.name != "float32":
        assert not torch.equal(lowered, x @ kept), "it is lowered all the same"


def test_marks_that_overflow_are_no_distance() -> None:
    """A rounding whose own error overflows says nothing of the result's."""
    for rounded in (0.0, 1e-8, math.inf):
        seen = Observation(1e-3, {"bfloat16": (2e-3, math.inf)}, 1e-8, rounded)
        assert not seen.is_faithful
        assert name_of([seen]) == "bfloat16-like"
    assert name_of([Observation(math.inf, {"bfloat16": (2e-3,)}, 0.0, 1e-8)]) == "approximate"
