"""Which parts of a graph become attention, and what stands in the way of others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.emulation.attention import graph_of
from torch import Tensor, nn
from torch.nn import functional as F

from opweld.ir.graph import arena_of
from opweld.ir.kernels.attention import Attention
from opweld.ir.plan import Conditions, GroupKind
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.plan.attention.function import of_function
from opweld.plan.attention.scores import NoAttention, users_in
from opweld.plan.attention.written import written_out
from opweld.plan.products.choice import choose_products
from opweld.target import CPU, SM_80, SM_90A, Target


class Forward(nn.Module):
    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.of = forward

    def forward(self, *operands: Tensor) -> Any:
        return self.of(*operands)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape)


QKV = (normal(2, 4, 32, 64), normal(2, 4, 40, 64), normal(2, 4, 40, 48))


def found(forward: Any, *operands: Tensor) -> list[Attention]:
    choice = choose_products(graph_of(Forward(forward), *operands), SM_90A, Conditions())
    return [made for made in choice.products.values() if isinstance(made, Attention)]


def refused(forward: Any, *operands: Tensor) -> str:
    graph = graph_of(Forward(forward), *operands)
    users, arena = users_in(graph), arena_of(graph)
    for call in graph.nodes():
        try:
            assert of_function(call, users, arena) is None
            assert written_out(call, users) is None
        except NoAttention as reason:
            return str(reason)
    return ""


def softmax_of(scores: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores, dim=-1) @ v


def normalised(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


FORMS = {
    "function": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "matmul": lambda q, k, v: softmax_of(q @ k.mT / 8, v),
    "einsum": lambda q, k, v: torch.einsum(
        "bhij,bhjd->bhid", torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k), -1), v
    ),
    "bmm": lambda q, k, v: torch.bmm(
        torch.softmax(torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT), -1), v.flatten(0, 1)
    ),
    "by hand": lambda q, k, v: normalised(q @ k.mT) @ v,
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    (attention,) = found(FORMS[form], *QKV)
    assert (attention.queries, attention.keys) == (32, 40)
    assert (attention.depth, attention.columns) == (64, 48)


@pytest.mark.parametrize(
    ("depth", "columns", "target", "family"),
    [
        (64, 64, SM_90A, "sm90"),
        (8, 33, SM_90A, "sm90"),
        (128, 128, SM_90A, "sm90"),
        (64, 32, SM_90A, "mma"),  # half of a tile's columns would be padding
        (64, 129, SM_90A, "mma"),
        (129, 64, SM_90A, "mma"),
        (64, 64, SM_80, "mma"),
    ],
)
def test_hopper_multiplies_rows_that_fit_by_wgmma(
    depth: int, columns: int, target: Target, family: str
) -> None:
    q, k, v = normal(2, 32, depth), normal(2, 40, depth), normal(2, 40, columns)
    (group,) = make_plan(graph_of(Forward(FORMS["function"]), q, k, v), target).groups
    assert str(group.schedule) == f"tensor cores {family}, vector width {1 if columns % 2 else 2}"


@pytest.mark.parametrize(
    ("forward", "factor"),
    [
        (FORMS["function"], 0.125),
        (FORMS["einsum"], 1.0),
        (lambda q, k, v: softmax_of(q @ k.mT * 0.5 / 4.0, v), 0.125),
        (lambda q, k, v: softmax_of(q @ k.mT * -0.5, v), None),
        (lambda q, k, v: softmax_of(torch.relu(q @ k.mT), v), None),
    ],
)
def test_scores_that_are_scaled_products(forward: Any, factor: float | None) -> None:
    plan = make_plan(graph_of(Forward(forward), *QKV), SM_90A)
    (attending,) = lower(plan)
    assert attending.factor == factor  # type: ignore[union-attr]


def test_operands_are_read_through_views() -> None:
    def heads(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            *(part.view(-1, 32, 4, 64).transpose(1, 2) for part in x.split(256, dim=2))
        )

    (attention,) = found(heads, normal(2, 32, 768))
    (source,) = {seen.node for seen in (attention.q, attention.k, attention.v)}
    assert source.type.shape[1:] == (32, 768)


def test_shared_keys_are_told() -> None:
    q, k = normal(2, 4, 32, 64), normal(2, 2, 40, 64)
    forward = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)  # noqa: E731
    (attending,) = lower(make_plan(graph_of(Forward(forward), q, k, k), SM_90A))
    assert [loop.extent for loop in attending.shared[1:]] == [2]  # type: ignore[union-attr]


def weights_too(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(q @ k.mT, dim=-1)
    return weights @ v, weights


def scores_too(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT
    return softmax_of(scores, v), scores


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (weights_too, "its softmax is needed elsewhere"),
        (scores_too, "its first product is needed elsewhere"),
        (
            lambda q, k, v: torch.softmax(q @ k.mT, dim=-2) @ v,
            "its softmax is not over what is summed",
        ),
        (
            lambda q, k, v: F.scaled_dot_product_attention(q.half(), k.half(), v.half()),
            "the library's kernels for f16 are faster",
        ),
        (
            lambda q, k, v: F.scaled_dot_product_attention(
                q.repeat(1, 1, 1, 5), k.repeat(1, 1, 1, 5), v
            ),
            "its rows are of 320 values",
        ),
    ],
)
def test_what_stays_the_librarys(forward: Any, reason: str) -> None:
    assert refused(forward, *QKV).startswith(reason)


@pytest.mark.parametrize(
    ("conditions", "rows", "reason"),
    [
        (Conditions(tf32=True), 32, "torch's flags allow products of less precision"),
        (Conditions(autocast=True), 32, "autocast casts its operands"),
        (Conditions(), 8, "of few rows"),
    ],
)
def test_what_gains_nothing(conditions: Conditions, rows: int, reason: str) -> None:
    graph = graph_of(Forward(FORMS["function"]), QKV[0][:, :, :rows], *QKV[1:])
    (group,) = make_plan(graph, SM_90A, conditions=conditions).groups
    assert group.kind is GroupKind.LIBRARY
    assert group.reason.startswith(f"attention of the library's: {reason}")


@pytest.mark.parametrize(
    ("heads", "rows", "keys", "depth", "target", "ours"),
    [
        (64, 64, 64, 64, SM_90A, False),
        (63, 64, 64, 64, SM_90A, True),  # so few were not timed
        (64, 64, 64, 64, SM_80, True),
        (64, 70, 71, 64, SM_90A, True),  # more than 0.3 of a tile
        (64, 1024, 64, 64, SM_90A, True),
        (64, 128, 128, 64, SM_90A, True),
        (64, 128, 128, 128, SM_90A, False),
        (64, 129, 128, 128, SM_90A, True),
        (64, 128, 129, 128, SM_90A, True),
    ],
)
def test_tiles_that_are_mostly_empty_or_hold_all_keys(
    heads: int, rows: int, keys: int, depth: int, target: Target, ours: bool
) -> None:
    q, k, v = normal(1, heads, rows, depth), *(normal(1, heads, keys, depth) for _ in range(2))
    (group,) = make_plan(graph_of(Forward(FORMS["function"]), q, k, v), target).groups
    assert (group.kind is not GroupKind.LIBRARY) == ours
    if not ours:
        assert group.reason == "attention of the library's: of so few keys, for which it is faster"
    written = make_plan(graph_of(Forward(FORMS["matmul"]), q, k, v), target)
    assert any(group.kind is GroupKind.ATTENTION for group in written.groups)


def test_keys_that_heads_share_are_not_copied_for_the_librarys() -> None:
    def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    graph = graph_of(Forward(grouped), normal(1, 64, 64, 64), *[normal(1, 32, 64, 64)] * 2)
    assert [g.kind for g in make_plan(graph, SM_90A).groups] == [GroupKind.ATTENTION]


def test_the_cpu_has_none() -> None:
    plan = make_plan(graph_of(Forward(FORMS["function"]), *QKV), CPU)
    assert [group.kind for group in plan.groups] == [GroupKind.LIBRARY]


def test_what_is_given_back_is_torchs_own_call() -> None:
    graph = graph_of(Forward(FORMS["function"]), *QKV)
    plan = make_plan(graph, SM_90A, excluded=frozenset({"k1_attention"}))
    assert [(g.kind, len(g.nodes)) for g in plan.groups] == [(GroupKind.LIBRARY, 1)]
