"""Judgements of nested results, of states that a call leaves, of writes and of random numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.judge.pairs import LINEAR, OWN, POINTWISE, SAME, failing, judge_pair, named
from torch import nn

from opweld.judge.numerics.precision import FLOAT64
from opweld.judge.values import Judgement
from opweld.judge.verify.weights import copy_state, load_state

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


def test_training_is_compared_where_the_original_is_random(tmp_path: Path) -> None:
    """From the same seed: a dropout left out, one that draws other numbers, one that is right."""
    model = DROPOUT.replace("DROP", "drop")
    judgement = judge_pair(tmp_path, model, SAME, mode="eval")
    assert judgement.verdict.passed, judgement.verdict.reason
    assert not named(judgement, "training mode").skipped
    new = """
    class ModelNew(Base):
        def forward(self, x):
            y = self.norm(x)
            if not self.training:
                return y
            return MASK
    """
    kept = "y * (torch.empty_like(y).bernoulli_(0.5) / 0.5)"
    judgement = judge_pair(tmp_path, model, new.replace("MASK", kept), mode="eval")
    assert judgement.verdict.passed, judgement.verdict.reason
    for wrong in ("y", "y * 2 * (torch.rand_like(y) < 0.5)"):
        judgement = judge_pair(tmp_path, model, new.replace("MASK", wrong), mode="eval")
        failed = failing(judgement) - {"random state"}
        assert failed == {"training mode", "gradients in training mode"}, wrong


def test_training_compares_what_batch_norm_keeps(tmp_path: Path) -> None:
    model = DROPOUT.replace("self.DROP", "F.relu")
    judgement = judge_pair(tmp_path, model, SAME, mode="eval")
    assert judgement.verdict.passed and not named(judgement, "training mode").skipped
    new = """
    class ModelNew(Base):
        def forward(self, x):
            if not self.training:
                return super().forward(x)
            n = self.norm
            return F.relu(F.batch_norm(x, None, None, n.weight, n.bias, True))
    """
    judgement = judge_pair(tmp_path, model, new, mode="eval")
    assert failing(judgement) == {"training mode"}
    assert "state norm.num_batches_tracked: " in named(judgement, "training mode").detail


WRONG_IN_EVAL = """
    class ModelNew(Base):
        def forward(self, x):
            y = super().forward(x)
            return y if self.training else y + 1e-3
"""
WRONG_IN_TRAINING = WRONG_IN_EVAL.replace("y if self", "y if not self")


@pytest.mark.parametrize("held", ["drop", "norm"])
def test_the_judged_mode_is_the_model_files_own(held: str, tmp_path: Path) -> None:
    """Training where nobody says otherwise; eval is a check of its own then."""
    model = DROPOUT.replace("self.DROP", "self.drop" if held == "drop" else "F.relu")
    assert "eval mode" not in names(judge_pair(tmp_path, model, SAME, mode="eval"))
    right = judge_pair(tmp_path, model, SAME)
    assert right.verdict.passed and not named(right, "eval mode").skipped
    assert not named(right, "gradients").skipped
    assert failing(judge_pair(tmp_path, model, WRONG_IN_EVAL)) >= {"eval mode"}
    assert "own inputs" not in failing(judge_pair(tmp_path, model, WRONG_IN_EVAL))
    assert failing(judge_pair(tmp_path, model, WRONG_IN_TRAINING)) >= {"own inputs"}
    in_eval = model.replace("nn.BatchNorm1d(12)", "nn.BatchNorm1d(12); self.eval()")
    assert "own inputs" in failing(judge_pair(tmp_path, in_eval, WRONG_IN_EVAL))
    assert "own inputs" not in failing(judge_pair(tmp_path, in_eval, WRONG_IN_TRAINING))


def names(judgement: Judgement) -> set[str]:
    return {check.name for check in judgement.verdict.checks}


WRONG_UNDER_AUTOCAST = """
    class ModelNew(Base):
        def forward(self, x):
            y = super().forward(x)
            return y * 1.1 if torch.is_autocast_enabled("cpu") else y
"""
WRONG_IN_FLOAT64 = WRONG_UNDER_AUTOCAST.replace(
    'torch.is_autocast_enabled("cpu")', "x.dtype is torch.float64"
)


def test_autocast_and_dtypes_are_compared_where_they_are_asked_for(tmp_path: Path) -> None:
    asked = {"autocast": ("bfloat16",), "dtype": ("float64",)}
    right = judge_pair(tmp_path, LINEAR, SAME, **asked)
    assert right.verdict.passed, right.verdict.reason
    for name in ("autocast to bfloat16", "in float64"):
        assert not named(right, name).skipped
    for settings in (asked, {}):
        wrong = judge_pair(tmp_path, LINEAR, WRONG_UNDER_AUTOCAST, **settings)
        assert failing(wrong) == {"autocast to bfloat16"}
        wrong = judge_pair(tmp_path, LINEAR, WRONG_IN_FLOAT64, **settings)
        assert failing(wrong) == {"in float64"}


REFUSES = """
    class ModelNew(Base):
        def forward(self, x):
            if x.dtype is not torch.float32 or torch.is_autocast_enabled("cpu"):
                raise TypeError("made for float32")
            return super().forward(x)
"""
FLOAT32_INSIDE = """
    class ModelNew(Base):
        def forward(self, x):
            with torch.autocast("cpu", enabled=False):
                weight, bias = self.fc.weight.float(), self.fc.bias.float()
                y = F.linear(x.float(), weight, bias)
                return torch.tanh(y * torch.sigmoid(y))
"""


def test_unasked_it_may_refuse_or_be_of_float32(tmp_path: Path) -> None:
    names_of_both = ("autocast to bfloat16", "in float64")
    asked = {"autocast": ("bfloat16",), "dtype": ("float64",)}
    for new in (REFUSES, FLOAT32_INSIDE):
        judgement = judge_pair(tmp_path, LINEAR, new)
        assert judgement.verdict.passed, judgement.verdict.reason
        skipped = {name for name in names_of_both if named(judgement, name).skipped}
        assert skipped == (set(names_of_both) if new is REFUSES else set())
        assert failing(judge_pair(tmp_path, LINEAR, new, **asked)) == set(names_of_both)


def test_autocast_may_round_where_the_original_does_not(tmp_path: Path) -> None:
    """Torch computes a cross entropy in float32, and its two steps not; asked for, it counts."""
    model = LINEAR.replace("randn(6", "randn(96").replace(
        "return torch.tanh(y * torch.sigmoid(y))",
        'return F.cross_entropy(y, x.argmax(1), reduction="none")',
    )
    right = """
    class ModelNew(Base):
        def forward(self, x):
            logs = F.log_softmax(self.fc(x), 1)
            return F.nll_loss(logs, x.argmax(1), reduction="none")
    """
    wrong = WRONG_UNDER_AUTOCAST
    judgement = judge_pair(tmp_path, model, right)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert named(judgement, "autocast to bfloat16").grade == "C"
    assert failing(judge_pair(tmp_path, model, wrong)) == {"autocast to bfloat16"}
    asked = judge_pair(tmp_path, model, right, autocast=("bfloat16",))
    assert failing(asked) == {"autocast to bfloat16"}


def test_inference_mode_is_compared(tmp_path: Path) -> None:
    new = """
    class ModelNew(Base):
        def forward(self, x):
            return super().forward(x) * (1.1 if torch.is_inference_mode_enabled() else 1.0)
    """
    assert failing(judge_pair(tmp_path, LINEAR, new)) == {"inference mode"}


def test_generators_are_left_as_the_original_leaves_them(tmp_path: Path) -> None:
    draws = POINTWISE.replace("torch.tanh(x) * x", "torch.tanh(x) * torch.rand_like(x)")
    judgement = judge_pair(tmp_path, draws, SAME)
    assert judgement.verdict.passed and named(judgement, "random state").passed
    more = "class ModelNew(Base):\n    def forward(self, x):\n"
    more += "        y = super().forward(x)\n        torch.rand(1)\n        return y\n"
    failed = judge_pair(tmp_path, draws, more)
    assert failing(failed) == {"random state"}
    assert "torch's generator" in named(failed, "random state").detail
    in_training = more.replace("torch.rand(1)", "torch.rand(1) if self.training else None")
    failed = judge_pair(tmp_path, POINTWISE, in_training, mode="eval")
    assert "(training mode)" in named(failed, "random state").detail


@pytest.mark.parametrize("size", [2, 24, 90])
def test_rings_of_buffers_are_seen(size: int, tmp_path: Path) -> None:
    new = f"""
    class ModelNew(Base):
        def forward(self, x):
            ring = self.__dict__.setdefault("rings", {{}}).setdefault((x.shape, x.dtype), [])
            y = super().forward(x)
            if torch.is_grad_enabled():
                return y
            if len(ring) == {size}:
                ring.append(ring.pop(0).copy_(y))
            else:
                ring.append(y)
            return ring[-1]
    """
    assert "many results stay" in failing(judge_pair(tmp_path, POINTWISE, new))


def test_a_random_forward_is_compared_with_eager_from_the_same_seed(tmp_path: Path) -> None:
    model = POINTWISE.replace("torch.tanh(x) * x", "torch.tanh(x) * torch.rand_like(x)")
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert named(judgement, OWN).error_vs_f64, "float64 is given the same random numbers"
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
    timed = judge_pair(tmp_path, model, SAME, measure=True, baselines=("eager",), budget_s=0.02)
    assert timed.verdict.passed, timed.verdict.reason
    twice = "class ModelNew(Base):\n    def forward(self, x):\n        self.calls += 1\n"
    twice += "        self.calls -= 1\n        return super().forward(x) + 0 * self.calls\n"
    assert judge_pair(tmp_path, model, twice).verdict.passed
    frozen = "class ModelNew(Base):\n    def forward(self, x):\n"
    frozen += "        return torch.tanh(x) * (self.calls + 1)\n"
    assert not judge_pair(tmp_path, model, frozen).verdict.passed


ASSIGNS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(12))

    def forward(self, x):
        self.mean = 0.5 * self.mean + x.mean(0)
        return x - self.mean

def get_inputs():
    return [torch.randn(20, 12)]

def get_init_inputs():
    return []
"""


def test_buffers_that_are_assigned_are_put_back_after_inference_mode(tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, ASSIGNS, SAME, scope="full")
    assert judgement.verdict.passed, judgement.verdict.reason


def test_a_state_is_loaded_where_inference_mode_left_a_buffer() -> None:
    model = nn.BatchNorm1d(3)
    state = copy_state(model)
    with torch.inference_mode():
        model.running_mean = torch.ones(3)
    load_state(model, state)
    assert torch.equal(model.running_mean, torch.zeros(3))


WRITES = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.zeros(20, 12)

    def forward(self, x, hidden):
        self.hidden.copy_(hidden)
        self.hidden = torch.tanh(x + self.hidden)
        return self.hidden * 2.0

def get_inputs():
    return [torch.randn(20, 12), torch.randn(20, 12)]

def get_init_inputs():
    return []
"""


def test_what_a_forward_keeps_of_inference_mode_is_written_to_later(tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, WRITES, SAME)
    assert judgement.verdict.passed, judgement.verdict.reason
    skipped = {check.name for check in judgement.verdict.checks if check.skipped}
    assert not skipped & {"autocast to bfloat16", "in float64"}


def test_what_a_forward_writes_to_an_attribute_is_there_in_float64(tmp_path: Path) -> None:
    """Without it results would be held to those of another state, as large errors as eager's."""
    judgement = judge_pair(tmp_path, WRITES, SAME)
    (own,) = (check for check in judgement.verdict.checks if check.name == "own inputs")
    assert own.detail and "weak" not in own.detail
    assert own.eager_error_vs_f64 is None or own.eager_error_vs_f64.max < 1e-5


def test_tensors_in_lists_and_dicts_of_a_module_are_converted() -> None:
    model = nn.Module()
    model.cache = {"keys": [torch.zeros(3)], "places": torch.arange(3)}
    model.cache["itself"] = model.cache
    wide = FLOAT64.model(model)
    assert wide.cache["keys"][0].dtype is torch.float64
    assert wide.cache["places"].dtype is torch.int64
    assert model.cache["keys"][0].dtype is torch.float32
