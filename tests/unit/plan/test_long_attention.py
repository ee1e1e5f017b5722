"""Attention whose rows no tile holds becomes products and a softmax of the same meaning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.emulation.attention import graph_of
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.emission.body import reference
from opweld.ir.attrs import CallAttrs
from opweld.ir.graph import Graph
from opweld.ir.kernels.attention import MOST_DEPTH
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.operator import operators_of
from opweld.ir.plan import Conditions, GroupKind
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.plan.attention.long import in_two_products
from opweld.target import CPU, SM_80, SM_90A

LONG = 1024


class Function(nn.Module):
    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.given = given

    def forward(self, *operands: Tensor) -> Tensor:
        q, k, v, *mask = operands
        more = {"attn_mask": mask[0]} if mask else {}
        return F.scaled_dot_product_attention(q, k, v, **more, **self.given)


def operands(
    rows: int = 512, keys: int = 640, depth: int = LONG, columns: int = LONG
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, rows, depth), (2, 4, keys, depth), (2, 4, keys, columns))
    return [torch.randn(shape, generator=generator) for shape in shapes]


def targets(graph: Graph) -> list[str]:
    calls = [node.attrs for node in graph.nodes() if hasattr(node.attrs, "target")]
    return [attrs.target.removeprefix("aten.").removesuffix(".default") for attrs in calls]


def split(module: nn.Module, *given: Tensor) -> Graph:
    graph = in_two_products(graph_of(module, *given), SM_90A, Conditions())
    assert targets(graph) == ["matmul", "matmul"]
    return graph


def multiplied(call: CallAttrs, arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray]:
    assert call.target == "aten.matmul.default"
    return (np.matmul(*arrays),)


def require_the_same(module: nn.Module, *given: Tensor) -> Tensor:
    """Beside torch's own in float64. Returns what the graph means."""
    graph = split(module, *given)
    feeds = {n.attrs.access: x.numpy() for n, x in zip(graph.inputs, given, strict=True)}
    (made,) = interpret_outputs(graph, feeds, calls=multiplied)
    wide = [x.double() if x.is_floating_point() else x for x in given]
    torch.testing.assert_close(torch.from_numpy(made).double(), module(*wide), rtol=0, atol=1e-5)
    return torch.from_numpy(made)


@pytest.mark.parametrize("given", [{}, {"is_causal": True}, {"scale": 0.05}], ids=str)
def test_the_meaning_stays(given: dict[str, Any]) -> None:
    require_the_same(Function(**given), *operands())


def test_values_may_be_the_long_ones() -> None:
    require_the_same(Function(), *operands(depth=200))


def test_a_row_without_keys_is_zeros() -> None:
    mask = torch.rand(2, 1, 512, 640) > 0.5
    mask[1, :, 7] = False
    made = require_the_same(Function(), *operands(), mask)
    assert made[1, :, 7].abs().max() == 0
    numbers = torch.randn(512, 640).masked_fill(~mask[1, 0], -torch.inf)
    made = require_the_same(Function(), *operands(), numbers)
    assert made[:, :, 7].abs().max() == 0


def test_gradients_of_a_row_without_keys_are_numbers() -> None:
    """As PyTorch computes what the graph says: no infinity less another is on the way."""
    graph = split(Function(), *operands(), torch.rand(512, 640) > 0.5)
    powers = next(node for node in graph.nodes() if node.op.value == "exp")
    assert powers.inputs[0].inputs[1].op.value == "where"


def test_layers_behind_each_other_keep_their_order() -> None:
    class Two(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            first = F.scaled_dot_product_attention(q, k, v)
            return F.scaled_dot_product_attention(torch.cumsum(first, 0), k, v)

    q, k, v = operands()
    graph = in_two_products(graph_of(Two(), q, k, v), SM_90A, Conditions())
    serials = [node.serial for node in graph.nodes() if hasattr(node.attrs, "target")]
    assert len(serials) == 4 and serials == sorted(serials)
    make_plan(graph_of(Two(), q, k, v), SM_90A)


@pytest.mark.parametrize(
    ("given", "conditions", "target"),
    [
        (operands(depth=MOST_DEPTH, columns=MOST_DEPTH), Conditions(), SM_90A),
        (operands(rows=8), Conditions(), SM_90A),
        (operands(rows=130, keys=130), Conditions(), SM_90A),
        (operands(rows=9000, keys=9000, depth=260, columns=260), Conditions(), SM_90A),
        (operands(), Conditions(tf32=True), SM_90A),
        (operands(), Conditions(autocast=True), SM_90A),
        (operands(), Conditions(), CPU),
    ],
    ids=["short", "few rows", "little work", "many scores", "tf32", "autocast", "cpu"],
)
def test_what_stays_one_call(given: list[Tensor], conditions: Conditions, target: Any) -> None:
    graph = graph_of(Function(), *given)
    assert in_two_products(graph, target, conditions) is graph


@pytest.mark.parametrize("target", [SM_80, SM_90A])
def test_the_plan_has_products_of_ours(target: Any) -> None:
    q = torch.empty(4, 8, 512, 1024)
    groups = make_plan(graph_of(Function(), q, q, q), target).groups
    kinds = [group.kind for group in groups if group.kind is not GroupKind.VIEW]
    assert kinds == [GroupKind.CONTRACTION, GroupKind.REDUCTION, GroupKind.CONTRACTION]


@pytest.mark.parametrize("mask", ["", "bool", "bfloat16"])
def test_scores_of_16_bit_operands_are_float32(mask: str) -> None:
    """As in PyTorch's kernel: rounded once, as the weights that they become."""
    q = torch.empty(4, 8, 2048, 1024, dtype=torch.bfloat16)
    more = [torch.ones(2048, 2048, dtype=getattr(torch, mask))] if mask else []
    groups = make_plan(graph_of(Function(), q, q, q, *more), SM_90A).groups
    scores, softmax, *_ = (group for group in groups if group.kind is not GroupKind.VIEW)
    assert (scores.kind, softmax.kind) == (GroupKind.CONTRACTION, GroupKind.REDUCTION)
    assert [node.type.dtype for node in scores.outputs] == [DType.F32]
    assert [node.type.dtype for node in softmax.outputs] == [DType.BF16]


class InOrder(TorchDispatchMode):
    """Products whose terms are added one by one, as one thread of a GPU's float32 product does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.bmm.default:
            return func(*args, **(kwargs or {}))
        a, b = args
        total = a.new_zeros(a.shape[0], a.shape[1], b.shape[2])
        for index in range(a.shape[2]):
            total.addcmul_(a[:, :, index, None], b[:, index, None, :])
        return total


@functools.cache
def product_with_values() -> Callable[[Tensor, Tensor], Tensor]:
    """What the emitted file computes its gradients by."""
    q = torch.empty(4, 8, 512, 1024)
    plan = make_plan(graph_of(Function(is_causal=True), q, q, q), SM_90A)
    group, _, operator = operators_of(plan.groups, lower(plan))[-1]
    names: dict[str, Any] = {"torch": torch}
    exec(reference(plan.graph, group, operator), names)
    found: Callable[[Tensor, Tensor], Tensor] = names[f"_{group.name}_reference"]
    return found


def causal_weights(generator: torch.Generator) -> Tensor:
    scores = torch.randn(1, 2, 512, 512, generator=generator)
    return scores.masked_fill(torch.ones(512, 512).triu(1) > 0, -torch.inf).softmax(-1)


def test_gradients_of_values_are_sums_of_parts() -> None:
    """The first rows' are the largest, and lose a little with each later row that is added."""
    generator = torch.Generator().manual_seed(0)
    weights = causal_weights(generator)
    values = torch.randn(1, 2, 512, 32, generator=generator)
    grads = 2 * (weights @ values)
    exact = weights.double().mT @ grads.double()

    def largest_error(product: Callable[[Tensor, Tensor], Tensor]) -> float:
        v = values.clone().requires_grad_()
        with InOrder():
            made = product(weights, v)
            (found,) = torch.autograd.grad(made, v, grads)
        torch.testing.assert_close(made, weights @ values)
        return float((found - exact).abs().max())

    in_parts = product_with_values()
    assert largest_error(in_parts) < 0.25 * largest_error(torch.matmul)


@pytest.mark.parametrize("rows", [0, 1, 16, 129])
def test_a_product_in_parts_has_any_number_of_rows(rows: int) -> None:
    in_parts = product_with_values()
    weights, values = torch.randn(2, 3, rows, 40), torch.randn(2, 3, 40, 8)
    torch.testing.assert_close(in_parts(weights, values), weights @ values)
    mapped = torch.func.vmap(torch.func.grad(lambda a, b: in_parts(a, b).sum(), argnums=1))
    expected = weights.sum(-2)[..., None].expand(values.shape)
    torch.testing.assert_close(mapped(weights, values), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_of_parts_are_not_rounded_to_16_bits(dtype: torch.dtype) -> None:
    q = torch.empty(4, 8, 2048, 1024, dtype=dtype)
    graph = split(Function(), q, q, q)
    products = [node.attrs for node in graph.nodes() if hasattr(node.attrs, "target")]
    assert [each.summed_in_parts for each in products] == [False, dtype is torch.float32]
