"""Judgements of derivatives."""

from __future__ import annotations

from pathlib import Path

from tests.judge.pairs import LINEAR, POINTWISE, SAME, failing, judge_pair, named

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
