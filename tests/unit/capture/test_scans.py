"""Scans, and the forms in which users write them, against PyTorch: graph, text and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.capturing import assert_row, exported, module_of, ops_of, run, tolerance
from tests.spelled import gradients, run_spelled

from opweld.ir.attrs import ScanAttrs
from opweld.ir.graph import Graph, Node
from opweld.ir.ops import Kind, Op

INF = math.inf
Function = Callable[[torch.Tensor], Any]


def rows() -> torch.Tensor:
    """(4, 5, 6): equal elements, zeros of both signs, infinities and NaN, in rows of their own."""
    x = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    x[0, 0] = torch.tensor([1.0, 1.0, -2.0, 1.0, 3.0, 3.0])
    x[1, 1] = torch.tensor([0.0, -0.0, 0.0, -0.0, -0.0, 0.0])
    x[2, 2] = torch.tensor([INF, 1.0, INF, -INF, 2.0, INF])
    x[3, 0] = -INF
    x[1, 3] = torch.tensor([1.0, math.nan, 2.0, INF, math.nan, 1.0])
    return x


FINITE = rows().nan_to_num(0.5, 2.0, -3.0)


def nothing_before(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.zeros_like(x.select(dim, 0).unsqueeze(dim))


def from_the_end(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.flip(torch.cumsum(torch.flip(x, [dim]), dim), [dim])


def before_each(x: torch.Tensor, dim: int) -> torch.Tensor:
    joined = torch.cat([nothing_before(x, dim), x], dim=dim)
    return torch.cumsum(joined.narrow(dim, 0, x.shape[dim]), dim)


REVERSE, EXCLUSIVE = ScanAttrs(1, reverse=True), ScanAttrs(1, exclusive=True)
# Each with the scans that it should be.
FORMS: dict[str, tuple[Function, list[tuple[Op, ScanAttrs]]]] = {
    "cumsum": (lambda x: x.cumsum(1), [(Op.CUMSUM, ScanAttrs(1))]),
    "innermost": (lambda x: x.cumsum(-1), [(Op.CUMSUM, ScanAttrs(2))]),
    "outermost": (lambda x: x.cumprod(0), [(Op.CUMPROD, ScanAttrs(0))]),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), [(Op.LOGCUMSUMEXP, ScanAttrs(1))]),
    "masked": (lambda x: torch.cumsum(x * (x > 0), 1), [(Op.CUMSUM, ScanAttrs(1))]),
    "flips": (lambda x: from_the_end(x, 1), [(Op.CUMSUM, REVERSE)]),
    "methods": (lambda x: x.flip(1).cumsum(1).flip(1), [(Op.CUMSUM, REVERSE)]),
    "fliplr": (lambda x: torch.fliplr(torch.fliplr(x).cumprod(1)), [(Op.CUMPROD, REVERSE)]),
    "flipud": (
        lambda x: torch.flipud(torch.flipud(x).logcumsumexp(0)),
        [(Op.LOGCUMSUMEXP, ScanAttrs(0, reverse=True))],
    ),
    "one operand behind": (lambda x: before_each(x, 1), [(Op.CUMSUM, EXCLUSIVE)]),
    "one result behind": (
        lambda x: torch.cat([nothing_before(x, 1), x.cumsum(1)[:, :-1]], 1),
        [(Op.CUMSUM, EXCLUSIVE)],
    ),
    "padded": (
        lambda x: torch.cumsum(F.pad(x, (1, 0))[..., :-1], -1),
        [(Op.CUMSUM, ScanAttrs(2, exclusive=True))],
    ),
    "ones before a product": (
        lambda x: torch.cumprod(torch.cat([torch.ones_like(x[:, :1]), x[:, :-1]], 1), 1),
        [(Op.CUMPROD, ScanAttrs(1))],
    ),
    "product of those before": (
        lambda x: torch.cat([torch.ones_like(x[:, :1]), x.cumprod(1)[:, :-1]], 1),
        [(Op.CUMPROD, EXCLUSIVE)],
    ),
    "from the end without its own": (
        lambda x: before_each(x.flip(1), 1).flip(1),
        [(Op.CUMSUM, ScanAttrs(1, reverse=True, exclusive=True))],
    ),
    "without its own": (lambda x: x.cumsum(1) - x, [(Op.CUMSUM, ScanAttrs(1))]),
    "a row longer": (
        lambda x: torch.cumsum(torch.cat([nothing_before(x, 1), x], 1)[:-1], 1),
        [(Op.CUMSUM, ScanAttrs(1))],
    ),
    "cummax": (
        lambda x: tuple(torch.cummax(x, 1)),
        [(Op.CUMMAX, ScanAttrs(1)), (Op.CUMMAX_PLACE, ScanAttrs(1))],
    ),
    "cummin": (
        lambda x: tuple(torch.cummin(x, 2)),
        [(Op.CUMMIN, ScanAttrs(2)), (Op.CUMMIN_PLACE, ScanAttrs(2))],
    ),
    "largest from the end": (
        lambda x: x.flip(1).cummax(1).values.flip(1),
        [(Op.CUMMAX, REVERSE)],
    ),
    "place from the end": (
        lambda x: x.flip(1).cummin(1).indices.flip(1),
        [(Op.CUMMIN_PLACE, ScanAttrs(1))],
    ),
}
OF_FINITE = ("masked", "without its own")  # zeros times infinities, differences of infinities


def module_for(function: Function) -> Any:
    def forward(self: Any, *inputs: torch.Tensor) -> Any:
        results = [function(x) for x in inputs]
        return [each for r in results for each in (r if isinstance(r, tuple) else (r,))]

    return module_of(forward)


def scans_of(graph: Graph) -> list[tuple[Op, ScanAttrs]]:
    return [(node.op, node.attrs) for node in graph.nodes() if node.kind is Kind.SCAN]


def calls_of(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if node.op is Op.CALL]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_a_scan(name: str) -> None:
    function, scans = FORMS[name]
    graph = exported(module_for(function), FINITE.float()).graph
    assert scans_of(graph) == scans and not calls_of(graph)
    if scans[0][1].reverse or scans[0][1].exclusive:
        assert len(ops_of(graph)) == 1


@pytest.mark.parametrize("name", FORMS)
def test_graph_and_text(name: str) -> None:
    """What the graph means, its text, and the gradient of that in float64."""
    module, data = module_for(FORMS[name][0]), FINITE if name in OF_FINITE else rows()
    inputs = [data.to(dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16)]
    variant = exported(module, *inputs)
    exact = module(*(x.double() for x in inputs))
    for results in (run(variant, module, *inputs), run_spelled(variant.graph, module, *inputs)):
        for one, theirs in zip(results, exact, strict=True):
            near = {"rtol": 4e-6, "atol": 4e-6, **tolerance(one.dtype)}
            torch.testing.assert_close(one, theirs.to(one.dtype), equal_nan=True, **near)
    x = FINITE.clone().requires_grad_()
    text = run_spelled(exported(module, FINITE).graph, module, x)
    found, expected = gradients(text, [x])[0], gradients(module(x), [x])[0]
    assert (found is None) == (expected is None)
    if expected is not None:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64], ids=str)
def test_integers_are_summed_up_in_int64(dtype: torch.dtype) -> None:
    x = (torch.arange(24).reshape(2, 3, 4) * 37 % 11 % (2 if dtype is torch.bool else 11)).to(dtype)
    module = module_for(
        lambda x: (
            *(x.cumsum(1), x.cumprod(2), x.cumsum(0, dtype=torch.int32)),
            *(x.cumsum(1, dtype=torch.float32), *x.cummax(1), *x.cummin(2)),
        )
    )
    graph = assert_row(module, x)
    assert not calls_of(graph) and len(scans_of(graph)) == 8


def test_16_bit_floats_are_rounded_once() -> None:
    x = torch.full((2, 3000), 1.0, dtype=torch.float16)
    module = module_for(lambda x: x.flip(1).cumsum(1).flip(1))
    graph = assert_row(module, x)
    assert ops_of(graph) == ["cast", "cumsum", "cast"]
    assert scans_of(graph) == [(Op.CUMSUM, REVERSE)]


def test_16_bit_extremes_are_those_of_stored_values() -> None:
    x = torch.tensor([[1.0, 1.0005, 1.001, 0.5], [2.0, 2.002, 1.0, 2.001]]).to(torch.bfloat16)
    assert_row(module_for(lambda x: (*(x * 1.001).cummax(1), *(x * 0.999).cummin(1))), x)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x[0, 0, 0].cumsum(0), "a single element"),
        (lambda x: x[:1].expand(5, *x.shape[1:]).cumsum(0), "repeated elements"),
        (lambda x: x.cumsum(1, dtype=torch.bool), "type bool"),
    ],
)
def test_what_stays_with_the_library_says_why(function: Function, reason: str) -> None:
    graph = exported(module_for(function), FINITE.float()).graph
    (call,) = calls_of(graph)
    assert reason in call.attrs.reason


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.flip(0).cumsum(1).flip(1),
        lambda x: x.flip(1).cumsum(1).flip(0),
        lambda x: x.flip((0, 1)).cumsum(1).flip((0, 1)),
        lambda x: x.flip(1).cumsum(1),
        lambda x: torch.cumsum(torch.cat([torch.ones_like(x[:, :1]), x], 1)[:, :-1], 1),
        lambda x: torch.cumsum(torch.cat([torch.zeros_like(x[:, :2]), x], 1)[:, :-2], 1),
        lambda x: torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(1)[:, 1:]], 1),
        lambda x: torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(2)[:, :-1]], 1),
        lambda x: torch.cat([torch.zeros_like(x[:, :1]), x.cumprod(1)[:, :-1]], 1),
        lambda x: torch.cumsum(F.pad(x, (1, 0), value=1.0)[..., :-1], -1),
        lambda x: torch.cumsum(F.pad(x, (1, 1))[..., :-2], -1),
    ],
)
def test_what_looks_like_a_form_and_is_none(function: Function) -> None:
    graph = assert_row(module_for(function), FINITE.float())
    ((_, attrs),) = scans_of(graph)
    assert not attrs.reverse and not attrs.exclusive
