"""Judgements of derivatives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.judge.pairs import LINEAR, POINTWISE, SAME, failing, judge_pair, named

from opweld.judge.inputs import gradient_cases as cases
from opweld.judge.load import Call
from opweld.judge.numerics.differentiate import (
    DENSE,
    EXPANDED,
    TRANSPOSED,
    Backward,
    NoGradients,
    differentiate,
    draw_grad_outputs,
    fresh_grad_outputs,
    record,
)
from opweld.judge.numerics.outputs import Comparison
from opweld.judge.numerics.reference import Block
from opweld.judge.values import Check
from opweld.judge.verify import gradients
from opweld.judge.verify.run import Run

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


NORM = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 24)
        self.norm = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return F.relu(self.drop(self.norm(self.fc(x))))

def get_inputs():
    return [torch.randn(6, 16)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("mode", ["own", "eval"])
def test_all_ways_to_ask_for_gradients_are_compared(mode: str, tmp_path: Path) -> None:
    """A norm that changes its state and a dropout, by the same steps in another order of sums."""
    new = """
    class ModelNew(Base):
        def forward(self, x):
            y = F.linear(x.flip(1), self.fc.weight.flip(1), self.fc.bias)
            return self.drop(self.norm(y)).clamp(min=0)
    """
    judgement = judge_pair(tmp_path, NORM, new, mode=mode)
    assert judgement.verdict.passed, judgement.verdict.reason
    found = {check.name: check for check in judgement.verdict.checks}
    # in either mode most are in eval, where the norm leaves its state alone
    names = set(cases.NAMES) - {cases.IN_EVAL}
    assert names <= found.keys() and cases.IN_EVAL not in found
    assert not {name for name in names if found[name].skipped}


def test_a_gradient_that_is_lost_elsewhere_is_no_inference_only(tmp_path: Path) -> None:
    new = "class ModelNew(Base):\n    def forward(self, x):\n"
    new += "        return super().forward(x if len(x) == 6 else x.detach()).detach().add_(0)\n"
    lost = new.replace(".detach().add_(0)", "").replace("x.detach()", "x * float('nan')")
    assert failing(judge_pair(tmp_path, LINEAR, new)) == set()
    assert cases.OTHER_BATCH in failing(judge_pair(tmp_path, LINEAR, lost))
    cut = "class ModelNew(Base):\n    def forward(self, x):\n"
    cut += "        y = super().forward(x)\n        return y if x.requires_grad else y.detach()\n"
    judgement = judge_pair(tmp_path, LINEAR, cut)
    assert failing(judgement) == {cases.PARAMETERS}
    assert "carry no gradients" in named(judgement, cases.PARAMETERS).detail


def test_a_backward_may_rematerialize(tmp_path: Path) -> None:
    """What is frozen in the forward is so in the backward, which counts what it saves anew."""
    new = """
    from torch.utils.checkpoint import checkpoint

    class ModelNew(Base):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)
    """
    judgement = judge_pair(tmp_path, LINEAR, new)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert {cases.INPUTS, cases.SOME} <= {c.name for c in judgement.verdict.checks}
    assert not judgement.verdict.inference_only


@pytest.mark.parametrize("layout", [DENSE, EXPANDED, TRANSPOSED])
def test_output_gradients_lie_in_memory_as_asked_for(layout: str) -> None:
    model, call, how = (
        torch.nn.Linear(3, 4),
        Call((torch.rand(5, 3),), {}),
        Backward(grad_layout=layout),
    )
    graphs = record(model, [call], 1, how)
    drawn = draw_grad_outputs(graphs, 2, how)
    (given,) = drawn[0][0]
    assert given is not None and given.shape == (5, 4)
    assert given.stride() == {DENSE: (4, 1), EXPANDED: (0, 0), TRANSPOSED: (1, 5)}[layout]
    (fresh,) = fresh_grad_outputs(drawn)[0][0]
    assert fresh is not None and torch.equal(fresh, given) and fresh.stride() == given.stride()
    assert fresh.data_ptr() != given.data_ptr()
    found = differentiate(graphs, fresh_grad_outputs(drawn), how)
    named = dict(zip(found.names, found.leaves, strict=True))
    assert torch.allclose(named["gradient of bias"], given.sum(0))


def test_frozen_parameters_ask_for_gradients_behind_it() -> None:
    model, call = torch.nn.Linear(3, 4), Call((torch.rand(5, 3),), {})
    how = Backward(inputs=False, frozen=("weight",))
    graphs = record(model, [call], 1, how)
    assert list(graphs.named[0]) == ["gradient of bias"]
    assert model.weight.requires_grad and model.bias.requires_grad
    with pytest.raises(NoGradients):
        record(model, [call], 1, Backward(inputs=False, frozen=("weight", "bias")))


def test_the_lowest_grade_of_all_gradients_decides() -> None:
    """One of grade A may part from eager's by chance where terms cancel; another may be grade C."""
    torch.manual_seed(5)
    exact = [torch.randn(500, dtype=torch.float64) * 1e-3, torch.randn(500, dtype=torch.float64)]

    def run(*errors: float) -> Run:
        leaves = [
            (t + error * torch.randn(500, dtype=torch.float64)).float()
            for t, error in zip(exact, errors, strict=True)
        ]
        return Run(("one", "other"), leaves, [("", "leaf")])

    def judged(new: Run, eager: Run) -> Check:
        comparison = Comparison(eager)
        assert not comparison.add(new, eager, Block(None, exact))
        assert not comparison.close
        return gradients._lenient(comparison.check("gradients"))

    eager = run(1e-5, 1e-8)
    assert judged(run(1e-5, 3e-7), eager).grade == "C"
    assert judged(run(1e-5, 3e-7), eager).passed
    assert not judged(run(1e-5, 1e-4), eager).passed
    assert not judged(run(1e-4, 3e-7), eager).passed


def test_a_backward_may_not_count_on_being_the_last(tmp_path: Path) -> None:
    """One that cannot be differentiated may refuse; wrong gradients in a graph fail."""
    new = """
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y.clone()

        @staticmethod
        ONCE
        def backward(ctx, grad):
            return grad * (1.5 if torch.is_grad_enabled() else 1.0)

    class ModelNew(Base):
        def forward(self, x):
            return Doubled.apply(super().forward(x))
    """
    assert failing(judge_pair(tmp_path, LINEAR, new.replace("ONCE", ""))) == {cases.IN_GRAPH}
    once = new.replace("ONCE", "@torch.autograd.function.once_differentiable")
    assert failing(judge_pair(tmp_path, LINEAR, once)) == set()


ON_THE_EDGE = """
import itertools
TURN = itertools.count()

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lost):
        ctx.save_for_backward(x)
        ctx.lost = lost
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        row = torch.ones_like(x)
        row[3] = 1 - ctx.lost
        return 2 * g * x * row, None

class Model(nn.Module):
    def forward(self, x):
        return Square.apply(x, int(x.dtype is torch.float32 and next(TURN) % 3 == 0))

def get_inputs():
    return [torch.randn(9, 33)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("lost", "passes"), [("1", True), ("0", True), ("4", False)])
def test_what_the_original_differs_by_from_run_to_run_is_allowed(
    lost: str, passes: bool, tmp_path: Path
) -> None:
    """In each third run of it a row of gradients is lost."""
    new = f"""
    class ModelNew(Base):
        def forward(self, x):
            return Square.apply(x, {lost})
    """
    judgement = judge_pair(tmp_path, ON_THE_EDGE, new)
    assert judgement.verdict.passed is passes
    assert passes or "gradients" in failing(judgement).pop()
