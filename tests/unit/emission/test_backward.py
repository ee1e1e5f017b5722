"""Backwards in closed form: each row of the gradients against autograd in float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.capturing import graph_of, module_of
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.emission import piece
from opweld.emission.backward import Backward, backward
from opweld.emission.body import reference
from opweld.emission.spelling import gradients
from opweld.ir.graph import arena_of
from opweld.ir.operator import operator_over
from opweld.ir.ops import Op
from opweld.ir.plan import Group, GroupKind
from opweld.plan.groups import NO_ESTIMATE
from opweld.simplify import simplify

Function = Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]
SHAPE = (3, 4, 6, 6)


@dataclass(frozen=True)
class Made:
    """A function as a group of its own: its backward, and its reference."""

    closed: Backward | None
    names: dict[str, Any]
    num_results: int

    def gradients(self, need: tuple[bool, ...], grads: Tensors, args: Tensors) -> tuple[Any, ...]:
        assert self.closed is not None
        with torch.no_grad():
            results = self.names["_k1_reference"](*args)
            results = results if self.num_results > 1 else (results,)
            kept = [results[place] for place in self.closed.kept]
            found: tuple[Any, ...] = self.names["_k1_backward"](need, *grads, *args, *kept)
        return found


def made(function: Function, *inputs: torch.Tensor) -> Made:
    graph = graph_of(module_of(lambda self, *args: function(*args)), *inputs, batch=False)
    graph = simplify(graph, arena_of(graph)).graph
    nodes = tuple(node for node in graph.nodes() if node not in graph.inputs)
    given = (GroupKind.POINTWISE, nodes, graph.inputs, graph.outputs, None, NO_ESTIMATE, "")
    group = Group("k1", *given)
    operator = operator_over(group, tuple("abcdef"[: len(inputs)]))
    closed = backward(graph, group, operator)
    text = "\n\n".join([piece("gradients/batch_norm"), reference(graph, group, operator)])
    names: dict[str, Any] = {"torch": torch}
    exec(f"{text}\n\n{closed.text if closed else ''}", names)
    return Made(closed, names, len(graph.outputs))


def hard(*shape: int, seed: int = 3) -> torch.Tensor:
    """With both signs, large and small values, and zeros."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    values = values * torch.logspace(-2, 1, values.numel(), dtype=torch.float64).reshape(shape)
    values.view(-1)[:: max(values.numel() // 3, 1)] = 0.0
    return values


def positive(*shape: int, seed: int = 3) -> torch.Tensor:
    return hard(*shape, seed=seed).abs() + 1e-3


def apart(*shape: int, seed: int = 3) -> torch.Tensor:
    """No two alike: the largest of some is one of them."""
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return (order.double() - count / 2).reshape(shape) / 7


X, Y, ROW = hard(*SHAPE), hard(*SHAPE, seed=4) + 0.3, hard(6, seed=5) + 2.0
WIDE, SQUARE = hard(5, 3, 6, seed=6), hard(4, 6, seed=7)

CASES: dict[str, tuple[Function, Tensors]] = {
    "neg": (lambda x: -x, (X,)),
    "abs": (torch.abs, (X,)),
    "sqrt": (torch.sqrt, (positive(*SHAPE),)),
    "rsqrt": (torch.rsqrt, (positive(*SHAPE),)),
    "reciprocal": (torch.reciprocal, (positive(*SHAPE),)),
    "exp": (torch.exp, (X,)),
    "expm1": (torch.expm1, (X,)),
    "log": (torch.log, (positive(*SHAPE),)),
    "log1p": (torch.log1p, (positive(*SHAPE),)),
    "sin": (torch.sin, (X,)),
    "cos": (torch.cos, (X,)),
    "tanh": (torch.tanh, (X,)),
    "sigmoid": (torch.sigmoid, (X,)),
    "relu": (torch.relu, (X,)),
    "gelu": (F.gelu, (X,)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (X,)),
    "silu": (F.silu, (X,)),
    "mish": (F.mish, (X,)),
    "hardsigmoid": (F.hardsigmoid, (X,)),
    "hardswish": (F.hardswish, (X,)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), (X,)),
    "leaky_relu, falling": (lambda x: F.leaky_relu(x, -0.2), (X,)),
    "elu": (lambda x: F.elu(x, 0.7), (X,)),
    "softplus": (lambda x: F.softplus(x, 2.0, 5.0), (X,)),
    "hardtanh": (F.relu6, (X,)),
    "add": (lambda x, y: x + y, (X, Y)),
    "add, a row": (lambda x, y: x + y, (X, ROW)),
    "sub": (lambda x, y: x - y, (X, Y)),
    "mul": (lambda x, y: x * y, (X, Y)),
    "mul, a row": (lambda x, y: y * x, (X, ROW)),
    "mul, itself": (lambda x: x * x, (X,)),
    "div": (lambda x, y: x / y, (X, Y)),
    "div, of a number": (lambda y: 2.0 / y, (ROW,)),
    "where": (lambda x, y: torch.where(x > 0, x, y), (X, Y)),
    "cast": (lambda x: x.float(), (X,)),
    "permute": (lambda x: x.permute(2, 0, 3, 1) * 2, (X,)),
    "reshape": (lambda x: x.reshape(12, 36) * 2, (X,)),
    "expand": (lambda x, y: x.expand(3, 4, 6, 6) * y, (ROW, X)),
    "sum": (lambda x: torch.sum(x, (0, 2)), (X,)),
    "mean": (lambda x: torch.mean(x, (2, 3)), (X,)),
    "slice": (lambda x: x[:, 1:4:2] * 2, (X,)),
    "softmax": (lambda x: torch.softmax(x, 1), (X,)),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), (X,)),
    "layer_norm": (lambda x: F.layer_norm(x, (6, 6)), (X,)),
    "layer_norm, affine": (lambda x, w, b: F.layer_norm(x, (6,), w, b), (X, ROW, ROW)),
    "max_pool2d": (lambda x: torch.relu(F.max_pool2d(x, 3, 2, 1)), (apart(*SHAPE),)),
    "max_pool2d, dilated": (
        lambda x: F.max_pool2d(x, 2, (2, 3), 1, (2, 1), ceil_mode=True),
        (apart(*SHAPE),),
    ),
    "linear": (lambda x, w, b, y: F.linear(x, w, b) + y, (WIDE, SQUARE, ROW[:4], X[0, 0, 0, :1])),
    "linear, a gate": (lambda x, w: F.silu(F.linear(x, w)), (WIDE[0], SQUARE)),
    "mm": (lambda x, y: torch.mm(x, y) + 1.0, (WIDE[0], SQUARE.T.contiguous())),
    "bmm": (lambda x, y: torch.bmm(x, y) + 1.0, (WIDE, hard(5, 6, 2))),
    "matmul": (lambda x, y: torch.matmul(x, y) * 0.5, (WIDE, hard(5, 6, 2))),
    "used twice": (lambda x, y: torch.relu(x * y + x), (X, Y)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_autograds(name: str) -> None:
    function, inputs = CASES[name]
    here = made(function, *inputs)
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = function(*leaves)
    grad = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).reshape(out.shape).to(out)
    wanted = torch.autograd.grad(out, leaves, grad)
    assert here.closed is not None, "a row is missing"
    found = here.gradients((True,) * len(inputs), (grad,), inputs)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12, equal_nan=True)
    for place, theirs in enumerate(wanted):
        need = tuple(place == each for each in range(len(inputs)))
        ours = here.gradients(need, (grad,), inputs)[place]
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12, equal_nan=True)


def test_every_row_has_a_case() -> None:
    names = {name.partition(",")[0] for name in CASES}
    rows = {op.value for op in (*gradients._ROWS, *gradients._BY_ATTRS)}
    rows |= {*gradients._CALLS, *(name.split(".")[1] for name in gradients._PRODUCTS)}
    # Batch norms take statistics that kernels leave in training: models have them.
    assert rows - names == {"batch_norm"}


class Calls(TorchDispatchMode):
    """Counts what PyTorch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def test_the_backward_uses_the_result_instead_of_the_product() -> None:
    here = made(lambda x, w, y: torch.relu(F.linear(x, w) + y), WIDE, SQUARE, ROW[:4])
    grad = torch.ones(5, 3, 4, dtype=torch.float64)
    assert here.closed is not None and here.closed.kept == (0,)
    with torch.no_grad():
        out = here.names["_k1_reference"](WIDE, SQUARE, ROW[:4])
    for need, products in (((True, True, True), 2), ((False, True, False), 1)):
        with Calls() as calls, torch.no_grad():
            here.names["_k1_backward"](need, grad, WIDE, SQUARE, ROW[:4], out)
        found = calls.counts
        assert (found["mm"] + found["bmm"], found["addmm"], found["relu"]) == (products, 0, 0)


def test_a_softmax_is_kept_for_the_backward() -> None:
    here = made(lambda x: torch.softmax(x * 2, -1), X)
    assert here.closed is not None and here.closed.kept == (0,)
    assert "softmax(" not in here.closed.text and "torch.exp" not in here.closed.text


def test_several_results_have_gradients_of_their_own() -> None:
    here = made(lambda x, y: (torch.tanh(x) * y, torch.tanh(x)), X, Y)
    assert here.closed is not None and here.closed.differentiated == (0, 1)
    leaves = [x.clone().requires_grad_() for x in (X, Y)]
    results = (torch.tanh(leaves[0]) * leaves[1], torch.tanh(leaves[0]))
    grads = (torch.cos(X), torch.sin(X))
    wanted = torch.autograd.grad(results, leaves, grads)
    found = here.gradients((True, True), grads, (X, Y))
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


def test_operations_without_a_row_are_left_to_the_reference() -> None:
    assert Op.ERF not in gradients._ROWS
    assert made(torch.erf, X).closed is None


def test_long_chains_of_elementwise_operations_are_left_to_the_reference() -> None:
    assert made(lambda x: torch.tanh(x * x * x + x) * x, X).closed is None
