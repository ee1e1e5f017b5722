"""What PyTorch's own results depend on, and ModelNew may do otherwise: an order, a layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.judge.pairs import SAME, failing, judge_pair, named

from opweld.judge.numerics.effective import OF_CUDNN, Lowered, round_tf32

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


def test_recurrent_layers_may_be_as_inexact_as_tf32() -> None:
    """cuDNN's, with their weights one by one and all in one; the sizes stay."""
    mode = Lowered(OF_CUDNN)
    x, weight, whole, state = (torch.randn(5, 7) for _ in range(4))
    given = (x, [weight, weight], 4, whole, state, None, 2, 7)
    found = mode._factors("_cudnn_rnn", given)
    assert mode.acted
    assert torch.equal(found[0], round_tf32(x)) and not torch.equal(found[0], x)
    assert all(torch.equal(w, round_tf32(weight)) for w in found[1])
    assert torch.equal(found[3], round_tf32(whole)) and torch.equal(found[4], round_tf32(state))
    assert found[2] == 4 and found[5:] == (None, 2, 7)
