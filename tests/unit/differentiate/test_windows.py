"""Gradients of pooling and of sliding windows, in float64, against autograd."""

from __future__ import annotations

import pytest
import torch
from tests.unit.differentiate.test_rows import Function, check_case, vjp_of
from torch.nn import functional as F

from opweld.ir.ops import Op

torch.manual_seed(7)
LINE = torch.randn(2, 3, 11, dtype=torch.float64)
PLANE = torch.randn(2, 3, 9, 11, dtype=torch.float64)
VOLUME = torch.randn(2, 2, 5, 6, 7, dtype=torch.float64)
TIES = PLANE.round()
NAN, INF = float("nan"), float("inf")
WITH_NAN = torch.where(PLANE > 1.0, torch.tensor(NAN).double(), PLANE)
INFINITE = torch.where(PLANE > 0.5, torch.tensor(-INF).double(), PLANE.sign() * INF)

CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "largest, side by side": (lambda x: F.max_pool2d(x, 2) * 2, (PLANE,)),
    "largest, overlapping": (lambda x: F.max_pool2d(x, 3, 2, 1) * 2, (PLANE,)),
    "largest, every step": (lambda x: F.max_pool2d(x, 3, 1, 1) * 2, (PLANE,)),
    "largest, apart": (lambda x: F.max_pool2d(x, 2, 3) * 2, (PLANE,)),
    "largest, dilated": (lambda x: F.max_pool2d(x, 2, 2, dilation=3) * 2, (PLANE,)),
    "largest, beyond the end": (lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True) * 2, (PLANE,)),
    "largest, unlike axes": (lambda x: F.max_pool2d(x, (3, 2), (1, 2), (1, 0)) * 2, (PLANE,)),
    "largest, equal ones": (lambda x: F.max_pool2d(x, 3, 2, 1) * 2, (TIES,)),
    "largest, equal ones side by side": (lambda x: F.max_pool2d(x, 3) * 2, (TIES,)),
    "largest, zeros of both signs": (lambda x: F.max_pool2d(x * 0.0, 3, 2) * 2, (PLANE,)),
    "largest, NaN": (lambda x: F.max_pool2d(x, 3, 2, 1) * 2, (WITH_NAN,)),
    "largest, NaN side by side": (lambda x: F.max_pool2d(x, 3) * 2, (WITH_NAN,)),
    "largest, infinite": (lambda x: F.max_pool2d(x, 3, 2, 1) * 2, (INFINITE,)),
    "largest, infinite and dilated": (
        lambda x: F.max_pool2d(x, 5, 2, 2, dilation=2) * 2,
        (INFINITE,),
    ),
    "largest, infinite, an odd border under a dilation": (
        lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2) * 2,
        (INFINITE,),
    ),
    "largest on a line": (lambda x: F.max_pool1d(x, 3, 2, 1) * 2, (LINE,)),
    "largest in a volume": (lambda x: F.max_pool3d(x, 3, 2, 1) * 2, (VOLUME,)),
    "largest, adaptive": (lambda x: F.adaptive_max_pool2d(x[:, :, :, :9], 3) * 2, (PLANE,)),
    "largest of all": (lambda x: F.adaptive_max_pool2d(x, 1) * 2, (PLANE,)),
    "mean, side by side": (lambda x: F.avg_pool2d(x, 2) * 2, (PLANE,)),
    "mean, overlapping": (lambda x: F.avg_pool2d(x, 3, 2, 1) * 2, (PLANE,)),
    "mean, of what is inside": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False) * 2,
        (PLANE,),
    ),
    "mean, beyond the end": (lambda x: F.avg_pool2d(x, 2, ceil_mode=True) * 2, (PLANE,)),
    "mean, apart": (lambda x: F.avg_pool2d(x, 2, 3) * 2, (PLANE,)),
    "mean on a line": (lambda x: F.avg_pool1d(x, 4, 3, 1) * 2, (LINE,)),
    "mean in a volume": (lambda x: F.avg_pool3d(x, 2, 1) * 2, (VOLUME,)),
    "mean, infinite": (lambda x: F.avg_pool2d(x, 2) * 2, (INFINITE,)),
    "power means": (lambda x: F.lp_pool2d(x, 2, 2) * 2, (PLANE,)),
    "local responses": (lambda x: F.local_response_norm(x, 2) * 2, (PLANE,)),
    "windows side by side": (lambda x: x.unfold(2, 3, 4) * 2, (LINE,)),
    "windows that overlap": (lambda x: torch.exp(x.unfold(2, 4, 2)), (LINE,)),
    "one step after the other": (lambda x: torch.exp(x.unfold(2, 3, 1)), (LINE,)),
    "all largest of windows": (lambda x: x.unfold(2, 3, 2).amax(-1) * 2, (LINE.round(),)),
    "several steps": (lambda x: F.max_pool2d(torch.relu(x), 3, 2) + 1, (TIES,)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_autograds(name: str) -> None:
    check_case(*CASES[name])


def test_places_are_found_in_one_fold_and_nothing_is_scattered() -> None:
    _, vjp = vjp_of(lambda x: F.max_pool2d(x, 3, 2, 1) * 2, PLANE)
    assert vjp is not None
    ops = [node.op for node in vjp.graph.nodes()]
    assert ops.count(Op.ARGMAX) == 1 and Op.CALL not in ops


def test_long_windows_that_overlap_have_no_graph() -> None:
    assert vjp_of(lambda x: torch.exp(x.unfold(2, 9, 1)), LINE)[1] is None


@pytest.mark.parametrize(
    ("function", "sums"),
    [
        (lambda x: F.avg_pool2d(x, 2, 3) * 2, 0),
        (lambda x: F.avg_pool2d(x, 2, 2) * 2, 0),
        (lambda x: F.max_pool2d(x, 3, 3) * 2, 0),
        (lambda x: F.avg_pool2d(x, 2, 1) * 2, 1),
    ],
)
def test_windows_side_by_side_need_no_sum(function: Function, sums: int) -> None:
    _, vjp = vjp_of(function, PLANE)
    assert vjp is not None
    assert [node.op for node in vjp.graph.nodes()].count(Op.SUM) == sums
