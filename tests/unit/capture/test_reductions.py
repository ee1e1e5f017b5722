"""Reductions, norms and losses against PyTorch on hard rows: graph, text and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.capturing import assert_row, captured, exported, module_of, ops_of, run, tolerance
from tests.spelled import gradients, run_spelled

from opweld.ir.ops import Op

INF = math.inf
# A few roundings of float32, in results near 1.
NEAR = {"rtol": 2e-6, "atol": 2e-6}


def rows() -> torch.Tensor:
    """(6, 3, 4): equal elements, zeros of both signs, infinities and NaN, each in rows of its own.

    Along every axis some rows are ordinary.
    """
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(6, 3, 4, generator=generator, dtype=torch.float64)
    x[0, 0] = torch.tensor([1.0, 1.0, -2.0, 1.0])
    x[1, 1] = torch.tensor([0.0, -0.0, 0.0, -0.0])
    x[2, 2] = torch.tensor([INF, 1.0, INF, -INF])
    x[3, 0] = torch.tensor([-INF, -INF, -INF, -INF])
    x[4, 1] = torch.tensor([math.nan, 1.0, INF, math.nan])
    return x


FINITE = rows().nan_to_num(0.5, 2.0, -3.0)


def classes() -> torch.Tensor:
    """Of three, for rows of (6, 3, 4); made by the forward, as weights are."""
    return torch.arange(24).reshape(6, 4) * 7 % 3


def weights(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(1, 4, dtype=x.dtype) * 0.5


OF_HARD = {
    "sum": lambda x: (x.sum(), x.sum(-1), x.sum((0, 2)), x.sum(1, keepdim=True)),
    "sum of no list": lambda x: x.sum(dim=[]),
    "mean": lambda x: (x.mean(), x.mean(-1), x.mean((0, -1), keepdim=True)),
    "prod": lambda x: (x.prod(), x.prod(-1), x.prod(0, keepdim=True)),
    "nansum": lambda x: (x.nansum(), x.nansum(-1)),
    "nanmean": lambda x: (x.nanmean(), x.nanmean(-1)),
    "amax": lambda x: (x.amax(), x.amax(-1), x.amax((0, 1), keepdim=True)),
    "amin": lambda x: (x.amin(), x.amin(-1), x.amin((0, 1), keepdim=True)),
    "max": lambda x: (x.max(), *x.max(-1), *x.max(0, keepdim=True)),
    "min": lambda x: (x.min(), *x.min(-1), *x.min(0, keepdim=True)),
    "aminmax": lambda x: (*x.aminmax(), *x.aminmax(dim=1)),
    "argmax": lambda x: (x.argmax(), x.argmax(-1), x.argmax(0, keepdim=True)),
    "argmin": lambda x: (x.argmin(), x.argmin(-1), x.argmin(0, keepdim=True)),
    "any": lambda x: (x.any(), (x > 2).any(-1), x.any((0, 1), keepdim=True)),
    "all": lambda x: (x.all(), (x < 2).all(-1), x.all((0, 1), keepdim=True)),
    "count_nonzero": lambda x: (x.count_nonzero(), x.count_nonzero((0, 2))),
    "var": lambda x: (x.var(-1), x.var((0, 1), correction=0), x.var(unbiased=False)),
    "std": lambda x: (x.std(-1), x.std((0, 1), correction=2)),
    "norm": lambda x: (x.norm(), x.norm(dim=-1), torch.linalg.norm(x, dim=1, keepdim=True)),
    "norm 1": lambda x: (x.norm(1), x.norm(1, -1)),
    "norm inf": lambda x: (x.norm(INF, -1), x.norm(-INF, -1)),
    "logsumexp": lambda x: (x.logsumexp(-1), x.logsumexp((0, 2), keepdim=True)),
    "softmax": lambda x: (x.softmax(-1), x.softmax(0)),
    "log_softmax": lambda x: (x.log_softmax(-1), x.log_softmax(0)),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
}
OF_FINITE = {
    "std_mean": lambda x: torch.std_mean(x, (0, 2)),
    "var_mean": lambda x: torch.var_mean(x, 2, keepdim=True),
    "norm 3": lambda x: (x.norm(3, -1), x.norm(3)),
    "norm 0.5": lambda x: x.norm(0.5, -1),
    "matrix norm": lambda x: (torch.linalg.matrix_norm(x), torch.norm(x, "fro", (0, 1))),
    "normalize": lambda x: (F.normalize(x, dim=-1), F.normalize(x, 1.0, dim=0)),
    "rms_norm": lambda x: (F.rms_norm(x, (4,)), F.rms_norm(x, (3, 4), eps=1e-3)),
    "group_norm": lambda x: F.group_norm(x.reshape(3, 6, 4), 2, x[0, 0, :2].repeat(3), x[:, 1, 1]),
    "instance_norm": lambda x: F.instance_norm(x, weight=x[0, :, 1], bias=x[1, :, 2]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "layer_norm scaled": lambda x: F.layer_norm(x, (3, 4), x[0], x[1], 1e-3),
    "pool": lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool1d(x, 1)),
    "mse_loss": lambda x: (F.mse_loss(x, x.flip(0)), F.mse_loss(x, x + 1, reduction="sum")),
    "l1_loss": lambda x: (F.l1_loss(x, x.flip(0)), F.l1_loss(x, 2 * x, reduction="none")),
    "smooth_l1_loss": lambda x: (F.smooth_l1_loss(x, -x), F.smooth_l1_loss(x, -x, beta=0.0)),
    "huber_loss": lambda x: (F.huber_loss(x, -x), F.huber_loss(x, -x, delta=0.3)),
    "kl_div": lambda x: (F.kl_div(x, x.sigmoid()), F.kl_div(x, x.flip(0), log_target=True)),
    "bce with logits": lambda x: F.binary_cross_entropy_with_logits(
        x, x.sigmoid(), torch.full((3, 1), 0.7), pos_weight=torch.arange(4, dtype=x.dtype)
    ),
    "margins": lambda x: F.margin_ranking_loss(x, x.flip(0), x.sign(), 0.3),
    "triplet": lambda x: F.triplet_margin_loss(x, x.flip(0), x.flip(1), swap=True),
    "distance": lambda x: (F.pairwise_distance(x, x.flip(0)), torch.dist(x, x.flip(1), 1)),
    "cosine": lambda x: (F.cosine_similarity(x, x.flip(0)), F.cosine_similarity(x, x[0], dim=-1)),
    "cross_entropy": lambda x: F.cross_entropy(
        x, x.flip(0).softmax(1), x[:3, 0, 0].abs(), label_smoothing=0.1
    ),
    "classes": lambda x: (
        F.cross_entropy(x, classes()),
        F.cross_entropy(x, classes(), ignore_index=1, reduction="sum"),
        F.cross_entropy(x[:, :, 0], classes()[:, 0], weights(x), ignore_index=0),
        F.cross_entropy(x[0, :, 0], classes()[1, 1], reduction="none"),
    ),
    "smoothed classes": lambda x: (
        F.cross_entropy(x, classes(), label_smoothing=0.2, ignore_index=2),
        F.cross_entropy(x, classes(), weights(x), label_smoothing=0.2, ignore_index=2),
        F.cross_entropy(x, classes(), weights(x), label_smoothing=0.5, reduction="none"),
    ),
    "nll_loss": lambda x: (
        F.nll_loss(x, classes(), ignore_index=1),
        F.nll_loss(x[:, :, 0], classes()[:, 0], weights(x), reduction="sum"),
        F.nll_loss(x[:, :, None], classes()[:, None], reduction="none"),
    ),
    "one element": lambda x: (x[:1].sum(0), x[:1].softmax(0), x[:, :1].std(1, correction=0)),
}
EVERY = {**OF_HARD, **OF_FINITE}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def data_of(name: str) -> list[torch.Tensor]:
    """Finite rows of each type, and hard ones where those have a meaning."""
    given = [FINITE, rows()] if name in OF_HARD else [FINITE]
    return [x.to(dtype, copy=True) for x in given for dtype in DTYPES]


def module_for(function: Any) -> Any:
    """The results of all inputs in one list."""

    def forward(self: Any, *inputs: torch.Tensor) -> Any:
        results = [function(x) for x in inputs]
        return [each for r in results for each in (r if isinstance(r, tuple) else (r,))]

    return module_of(forward)


def is_fused(graph: Any) -> bool:
    return not any(node.op is Op.CALL for node in graph.nodes())


def compare(ours: list[torch.Tensor], exact: list[torch.Tensor]) -> None:
    """With what eager gives in float64, whose own float32 is at times less exact than ours."""
    for one, theirs in zip(ours, exact, strict=True):
        near = {**NEAR, **tolerance(one.dtype)}
        torch.testing.assert_close(one, theirs.to(one.dtype), equal_nan=True, **near)


@pytest.mark.parametrize("name", EVERY)
def test_graph_and_text(name: str) -> None:
    """What the graph means, its text, and the gradient of that in float64, by one capture.

    Equal elements, and rows of zeros, have eager's gradient too.
    """
    module, inputs = module_for(EVERY[name]), data_of(name)
    variant = exported(module, *inputs)
    assert is_fused(variant.graph)
    exact = module(*(x.double() for x in inputs))
    compare(run(variant, module, *inputs), exact)
    x = inputs[1].requires_grad_()
    text, eager = run_spelled(variant.graph, module, *inputs), module(*inputs)
    compare(text, exact)
    found, expected = gradients(text, [x])[0], gradients(eager, [x])[0]
    assert (found is None) == (expected is None)
    if expected is not None:
        torch.testing.assert_close(found, expected, equal_nan=True)


# Where a row has infinities or NaN, eager's own formulas say what their elements get.
@pytest.mark.parametrize(
    "name", ["sum", "mean", "amax", "softmax", "log_softmax", "norm 1", "std", "logsumexp"]
)
def test_gradients_where_eager_has_numbers(name: str) -> None:
    x, module = rows().requires_grad_(), module_for(OF_HARD[name])
    text = run_spelled(exported(module, x.detach()).graph, module, x)
    found, expected = gradients(text, [x])[0], gradients(module(x), [x])[0]
    known = expected.isfinite()
    torch.testing.assert_close(found[known], expected[known])


def test_what_is_ignored_counts_nothing_and_what_is_no_class_is_refused() -> None:
    x, y = FINITE[:, :, 0].float(), torch.tensor([0, 1, 2, -100, -100, 1])
    module = module_of(lambda self, x, y: F.cross_entropy(x, y, reduction="none"))
    variant = exported(module, x, y.clamp(0, 2))
    (loss,) = run(variant, module, x, y)
    torch.testing.assert_close(loss, F.cross_entropy(x, y, reduction="none"))
    for number in (3, -1):
        with pytest.raises(IndexError):
            run(variant, module, x, y.clamp(0, 2).fill_(number))


def test_a_mean_of_ignored_rows_alone_is_no_number() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, torch.full((6, 4), 2), ignore_index=2)

    assert_row(module_for(loss), FINITE.float())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.bool], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    x = (torch.arange(24).reshape(2, 3, 4) * 37 % 11).to(dtype)
    module = module_for(
        lambda x: (
            x.sum(), x.sum(1), x.prod(-1), x.any(1), x.all(0), x.amax(2), x.amin((0, 1)), x.max(),
            x.count_nonzero(2), x.sum(1, dtype=torch.float32), x.mean(1, dtype=torch.float64),
        )
    )  # fmt: skip
    assert is_fused(assert_row(module, x))


def test_sums_of_16_bit_floats_round_once() -> None:
    x = torch.full((4, 3000), 1.0, dtype=torch.float16)
    graph = assert_row(module_for(lambda x: x.sum(1)), x)
    assert ops_of(graph) == ["cast", "sum", "cast", "reshape"]


def test_the_place_of_a_16_bit_extreme_is_that_of_its_stored_value() -> None:
    x = torch.tensor([[1.0, 1.0005, 1.001], [2.0, 2.002, 1.0]]).to(torch.bfloat16)
    assert_row(module_for(lambda x: ((x * 1.001).argmax(1), (x * 0.999).max(1)[1])), x)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x[:, :0].sum(1), "no elements"),
        (lambda x: x.expand(2, *x.shape).sum(0), "repeated elements"),
        (lambda x: x.norm(0, -1), "order 0"),
        (lambda x: torch.linalg.matrix_norm(x, 1), "matrices"),
        (lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid()), "ends of its domain"),
        (lambda x: F.instance_norm(x, x[0, :, 0], x[0, :, 1].abs(), use_input_stats=False), "stat"),
        (lambda x: F.cosine_similarity(x, x, eps=0.1), "large eps"),
    ],
)
def test_what_stays_with_the_library_says_why(function: Any, reason: str) -> None:
    graph = assert_row(module_for(function), FINITE.float())
    reasons = [node.attrs.reason for node in graph.nodes() if node.op is Op.CALL]
    assert reasons and reason in reasons[0]


def test_a_dynamic_batch_is_reduced() -> None:
    module = module_for(lambda x: (x.softmax(0), x.mean(), x.max(), x.var(0), x.argmax(0)))
    graph = captured(module, FINITE.float()).variants[0].graph
    assert is_fused(graph)
    assert "s0" in str(graph.inputs[0].type)


def weighted(x: torch.Tensor, reduction: str) -> torch.Tensor:
    weight = torch.full((3, 1), 0.7003)
    return F.binary_cross_entropy_with_logits(x, x.sigmoid(), weight, reduction=reduction)


NARROW = {
    "bce with logits": weighted,
    "soft_margin": lambda x, how: F.soft_margin_loss(x, x.float().cos(), reduction=how),
    "huber": lambda x, how: F.huber_loss(x, 1.001 * x.float(), reduction=how),
}


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", NARROW)
def test_a_loss_has_the_type_that_eager_gives_it(name: str, reduction: str) -> None:
    """That of its input, where another operand's is wider: torch's rule for exports promotes, and
    may have been asked before. The wider operand is not rounded to the narrower type."""
    module = module_for(lambda x: (NARROW[name](x, reduction), NARROW[name](x, reduction).exp()))
    x = FINITE.to(torch.bfloat16)
    torch.export.export(module, (x,), strict=False)
    variant, exact = exported(module, x), module(x.double())
    assert is_fused(variant.graph)
    assert [each.dtype for each in module(x)] == [torch.bfloat16] * 2
    # the text rounds at every step, as eager does, where a small loss is of two close numbers
    text = run_spelled(variant.graph, module, x)
    for results, near in ((run(variant, module, x), 0.01), (text, 0.1)):
        for one, theirs in zip(results, exact, strict=True):
            torch.testing.assert_close(one, theirs.bfloat16(), rtol=near, atol=0)
