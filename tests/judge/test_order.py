"""What PyTorch's own results depend on, and ModelNew may do otherwise: an order, a layout."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.judge.pairs import SAME, failing, judge_pair, named

from opweld.judge.inputs.kinds import Kind
from opweld.judge.load import Call
from opweld.judge.values import Check, Errors

# PRODUCT and those of all numbers before; a float32 product of 4000 normal numbers vanishes.
CUMPROD = """
class Model(nn.Module):
    def forward(self, x):
        return torch.cumprod(x, dim=1)

def get_inputs():
    return [torch.rand(24, 4000) + 0.5]

def get_init_inputs():
    return []
"""
BY_BLOCKS = """
class ModelNew(Base):
    def forward(self, x):
        within = x.reshape(len(x), 4, 1000).cumprod(2)
        before = F.pad(within[:, :-1, -1].cumprod(1), (1, 0), value=1.0)
        return WHOLE(within * before[..., None]).view_as(x)
"""


def test_products_that_overflow_may_do_so_in_another_order(tmp_path: Path) -> None:
    right = judge_pair(tmp_path, CUMPROD, BY_BLOCKS.replace("WHOLE", ""))
    assert right.verdict.passed, right.verdict.reason
    special = named(right, "NaN, infinities, signed zeros")
    assert "near one" in special.detail and special.grade


@pytest.mark.parametrize("lost", ["torch.nan_to_num", "(lambda y: y.clamp(max=3e38))"])
def test_what_is_not_finite_counts_all_the_same(lost: str, tmp_path: Path) -> None:
    wrong = judge_pair(tmp_path, CUMPROD, BY_BLOCKS.replace("WHOLE", lost))
    assert "NaN, infinities, signed zeros" in failing(wrong)


# Like an attention of PyTorch's that reads output gradients of no strides as others.
BY_LAYOUT = """
class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * (g if g.is_contiguous() else torch.full_like(x, BAD))

class Model(nn.Module):
    def forward(self, x):
        return _Read.apply(x) + 1

def get_inputs():
    return [torch.randn(6, 40)]

def get_init_inputs():
    return []
"""
RIGHT = BY_LAYOUT.replace("(g if g.is_contiguous() else torch.full_like(x, BAD))", "g")
LAYOUTS = "gradients from other layouts"
BY_ITSELF = """
class ModelNew(Base):
    def forward(self, x):
        return Read.apply(x) + 1
"""


def test_gradients_that_pytorch_has_wrong_from_a_layout(tmp_path: Path) -> None:
    """The candidate has others that are wrong from there; beside a right original it fails."""
    function = BY_LAYOUT[: BY_LAYOUT.index("class Model")].replace("_Read", "Read")
    new = function.replace("BAD", "math.nan") + BY_ITSELF
    judgement = judge_pair(tmp_path, BY_LAYOUT.replace("BAD", "7.0"), new)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert "lie in memory" in named(judgement, LAYOUTS).detail
    assert failing(judge_pair(tmp_path, RIGHT, new)) == {LAYOUTS}


def test_the_same_model_passes_by_every_layout(tmp_path: Path) -> None:
    assert not failing(judge_pair(tmp_path, RIGHT, SAME))


NORMALISED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.InstanceNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x))

def get_inputs():
    return [torch.randn(4, 3, 10, 12)]

def get_init_inputs():
    return []
"""
FLIPPED = """
class Flipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g if g.is_contiguous() else g.flip(-1)

class ModelNew(Base):
    def forward(self, x):
        return Flipped.apply(super().forward(x))
"""


OF_THE_BIAS = """
DENSE = [True]

class Seen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        DENSE[0] = g.is_contiguous()
        return g

class Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, bias):
        return bias.clone()

    @staticmethod
    def backward(ctx, g):
        return g if DENSE[0] else g + 1

class ModelNew(Base):
    def forward(self, x):
        bias = Moved.apply(self.conv.bias)
        return Seen.apply(self.norm(F.conv2d(x, self.conv.weight, bias, padding=1)))
"""


def test_a_gradient_of_rounding_excuses_no_other(tmp_path: Path) -> None:
    """That of a bias before a norm differs by layout, as by anything."""
    assert not failing(judge_pair(tmp_path, NORMALISED, SAME))
    assert LAYOUTS in failing(judge_pair(tmp_path, NORMALISED, FLIPPED))
    assert LAYOUTS in failing(judge_pair(tmp_path, NORMALISED, OF_THE_BIAS)), "nor itself"


NOT_RECORDED = """
from torch.utils._python_dispatch import _get_current_dispatch_mode

class Model(nn.Module):
    def forward(self, x):
        if _get_current_dispatch_mode() is not None:
            raise NotImplementedError("no rule for this mode")
        return F.dropout(x, 0.3) * x

def get_inputs():
    return [torch.randn(9, 33)]

def get_init_inputs():
    return []
"""
EIGHT_BITS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        small = torch.randn(9, 33).to(torch.float8_e4m3fn)
        self.small = nn.Parameter(small, requires_grad=False)

    def forward(self, x):
        return F.rrelu(x, training=True) + self.small.float()

def get_inputs():
    return [torch.randn(9, 33)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("model", [NOT_RECORDED, EIGHT_BITS], ids=["recorded", "moved"])
def test_what_cannot_be_recorded_or_moved_is_judged_by_eager(model: str, tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, model, SAME, stop_at_first=True)
    assert named(judgement, "own inputs").passed, judgement.verdict.reason


SINE = """
class Model(nn.Module):
    def forward(self, x):
        return torch.sin(x)

def get_inputs():
    return [torch.randn(64, 40)]

def get_init_inputs():
    return []
"""
REDUCED = """
class ModelNew(Base):
    def forward(self, x):
        return torch.sin(x - 6.2831855 * torch.round(x / 6.2831855))
"""


def test_large_values_may_be_off_in_a_maximum_alone(tmp_path: Path) -> None:
    """As inexact as an ulp of the inputs makes it, everywhere."""
    assert "large values" in failing(judge_pair(tmp_path, SINE, REDUCED))
    make = partial(Check, "large values", False, eager_error_vs_f64=Errors(1e-4, 1e-3))
    large = Kind("large values", lambda draw: Call((), {}))
    one_row = make("", error_vs_f64=Errors(1.2e-4, 2e-2))
    assert large.may_tip(one_row) and not replace(large, name="normal values").may_tip(one_row)
    assert not large.may_tip(make("", error_vs_f64=Errors(1e-3, 2e-2)))
