"""What ModelNew may refuse in the scope of a call, and what fails there all the same."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.judge.pairs import LINEAR, POINTWISE, failing, judge_pair, named

from opweld.judge import report
from opweld.judge.values import CALL, FULL

NORM = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return torch.relu(self.norm(x))

def get_inputs():
    return [torch.randn(12, 16)]

def get_init_inputs():
    return [16]
"""


def refusing(condition: str) -> str:
    return f"""
class ModelNew(Base):
    def forward(self, x):
        if {condition}:
            raise NotImplementedError("not this")
        return super().forward(x)
"""


REFUSALS = {
    "layouts": (POINTWISE, "not x.is_contiguous()", {"transposed storage", "padded rows"}),
    "inner sizes": (POINTWISE, "x.shape[-1] != 33", set()),
    "another dtype": (LINEAR, "x.dtype is torch.float64", {"in float64"}),
    "autocast": (LINEAR, "torch.is_autocast_enabled('cpu')", {"autocast to bfloat16"}),
    "inference mode": (LINEAR, "torch.is_inference_mode_enabled()", {"inference mode"}),
    "the other mode": (NORM, "not self.training", {"eval mode", "gradients"}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_beyond_the_call_may_be_refused(name: str, tmp_path: Path) -> None:
    model, condition, refused = REFUSALS[name]
    judgement = judge_pair(tmp_path, model, refusing(condition), scope=CALL)
    verdict = judgement.verdict
    assert verdict.passed and verdict.scope == CALL, verdict.reason
    assert verdict.unsupported and set(verdict.unsupported) >= refused
    for check in [named(judgement, each) for each in verdict.unsupported]:
        assert check.skipped and "NotImplementedError: not this" in check.detail
    assert not verdict.inference_only
    text = printed(judgement)
    assert f"unsupported: {verdict.unsupported[0]}: " in text and "scope: the example call" in text
    full = judge_pair(tmp_path, model, refusing(condition), scope=FULL)
    assert failing(full) >= set(verdict.unsupported) and full.verdict.unsupported == ()


@pytest.mark.parametrize(
    ("condition", "fails"),
    [
        ("x.shape[0] != 6", "batch of 1"),
        ("float(x.detach().max()) > 50", "large values"),
        ("not torch.equal(self.fc.weight, self.first)", "other weights by load_state_dict"),
    ],
)
def test_what_belongs_to_the_call_may_not(condition: str, fails: str, tmp_path: Path) -> None:
    new = refusing(condition).replace(
        "    def forward",
        """\
    def __init__(self, width):
        super().__init__(width)
        self.first = self.fc.weight.detach().clone()

    def forward""",
    )
    judgement = judge_pair(tmp_path, LINEAR, new, scope=CALL)
    assert fails in failing(judgement)


WRONG = {
    "another dtype": (LINEAR, "x.dtype is torch.float64", "in float64"),
    "a layout": (POINTWISE, "not x.is_contiguous()", "transposed storage"),
    "the other mode": (NORM, "not self.training", "eval mode"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_fails_beyond_the_call_too(name: str, tmp_path: Path) -> None:
    model, condition, check = WRONG[name]
    new = refusing(condition).replace(
        'raise NotImplementedError("not this")', "return super().forward(x) + 0.5"
    )
    assert check in failing(judge_pair(tmp_path, model, new, scope=CALL))


def test_a_refusal_that_does_more_than_raise_fails(tmp_path: Path) -> None:
    new = refusing("x.dtype is torch.float64").replace(
        "raise NotImplementedError", "x.zero_(); raise NotImplementedError"
    )
    judgement = judge_pair(tmp_path, LINEAR, new, scope=CALL)
    assert "in float64" in failing(judgement), "it wrote to its input before"


WITHOUT_GRADIENTS = """
class ModelNew(Base):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)
"""


def test_without_gradients_it_is_for_inference_only(tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, LINEAR, WITHOUT_GRADIENTS, scope=CALL)
    verdict = judgement.verdict
    assert verdict.passed and verdict.inference_only, verdict.reason
    assert "for inference only" in verdict.reason
    assert "EQUIVALENT for inference only" in printed(judgement)
    full = judge_pair(tmp_path, LINEAR, WITHOUT_GRADIENTS, scope=FULL)
    assert failing(full) == {"gradients"} and not full.verdict.inference_only


def printed(judgement: object) -> str:
    text = io.StringIO()
    report.render(judgement, Console(file=text, width=200))  # type: ignore[arg-type]
    return text.getvalue()
