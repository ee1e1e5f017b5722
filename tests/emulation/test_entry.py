"""Kernels with a text for each layout, from the operator on: a table of tensors is checked, and the
layouts choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.emulation.operators import emulated_kernels, load_operators
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.graph import Node
from opweld.ir.kernels.reduction import Scan
from opweld.ir.original import Part
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.cuda.entry import given_sizes
from opweld.render.cuda.texts import runs_by_skeleton
from opweld.render.host.texts import host
from opweld.target import SM_90A

Tensor = torch.Tensor
# More axes than the skeleton takes, with the batch.
MANY = (2, 1, 2, 1, 3, 1, 2, 2)


def pooled(m: Make) -> Node:
    return m.reduced("amax", m.windows(m.x("image", BATCH, 3, 9, 9), (3, 2, 1, 1), (3, 2, 1, 1),
                                       outside=float("-inf")), 0, 1)  # fmt: skip


def flipped(m: Make) -> Node:
    y = m.x("y", BATCH, 8)
    return m.sub(m.exp(m.flip(y, 1)), y)


def summed(m: Make) -> Node:
    return m.scanned("cumsum", m.mul(m.x("z", BATCH, 24), m.w("weight", 24)), 1)


def repeated(m: Make) -> Node:
    """To a size that no operand has."""
    return m.tanh(m.flip(m.expand(m.x("row", 6), BATCH, 6), 0, 1))


def of_many_axes(m: Make) -> Node:
    """Any layout that all have in common is that of row-major operands."""
    return m.tanh(m.add(m.x("many", BATCH, *MANY), m.x("others", BATCH, *MANY)))


def of_first(m: Make) -> Node:
    """Of an operand that is read in part, from its start, and with steps."""
    return m.tanh(m.slice(m.x("wide", BATCH, 12), 1, 0, 5, 2))


def sum_of_first(m: Make) -> Node:
    return m.reduced("sum", m.slice(m.x("rows", BATCH, 12), 1, 0, 10), 1)


def total_of_first(m: Make) -> Node:
    return m.reduced("sum", m.slice(m.x("table", BATCH, 12), 1, 0, 10), 0, 1)


# In PyTorch; the first operand is the one whose layout changes.
Case = tuple[Callable[[Make], Node], tuple[tuple[int, ...], ...], Callable[..., Tensor]]
CASES: dict[str, Case] = {
    "pooled": (
        pooled,
        ((2, 3, 9, 9),),
        lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1).reshape(1, 1, len(x), 3, 5, 5),
    ),
    "flipped": (flipped, ((5, 8),), lambda x: torch.exp(x.flip(1)) - x),
    "summed": (summed, ((5, 24), (24,)), lambda x, w: torch.cumsum(x * w, 1)),
    "many axes": (of_many_axes, ((3, *MANY), (3, *MANY)), lambda x, y: torch.tanh(x + y)),
    "repeated": (repeated, ((6,),), lambda x, count: torch.tanh(x.expand(count, 6).flip(0, 1))),
    "of the first": (of_first, ((5, 12),), lambda x: torch.tanh(x[:, :10:2])),
    "sum of the first": (sum_of_first, ((5, 12),), lambda x: x[:, :10].sum(1, keepdim=True)),
    "total of the first": (total_of_first, ((5, 12),), lambda x: x[:, :10].sum().view(1, 1)),
}


@pytest.fixture(scope="module")
def operators() -> dict[str, Any]:
    """Each scan may be cut."""
    m = Make()
    plan = make_plan(graph(*(make(m) for make, *_ in CASES.values())), SM_90A)
    kernels = tuple(
        replace(each, cut=True) if isinstance(each, Scan) else each for each in lower(plan)
    )
    assert not any(map(runs_by_skeleton, kernels))
    given = [("s0",) if name == "repeated" else () for name in CASES]
    assert [given_sizes(each) for each in kernels] == given
    text = render("entries", kernels, "cuda").text
    main = host((Part(None, plan, kernels),), "cuda").text  # type: ignore[arg-type]
    ops, _ = load_operators(emulated_kernels(text), main)
    return {name: getattr(ops, each.group) for name, each in zip(CASES, kernels, strict=True)}


def every_second(x: Tensor) -> Tensor:
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1])
    wide[..., ::2] = x
    return wide[..., ::2]


def turned(x: Tensor) -> Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def misaligned(x: Tensor) -> Tensor:
    memory = torch.zeros(x.numel() + 1)
    memory[1:] = x.flatten()
    return memory[1:].view(x.shape)


LAYOUTS = (torch.Tensor.contiguous, every_second, turned, misaligned)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_results_at_any_layout(operators: dict[str, Any], name: str, layout: Any) -> None:
    _, (first, *others), function = CASES[name]
    torch.manual_seed(len(name))
    inputs = [layout(torch.randn(first)), *map(torch.randn, others)]
    more = [4] if name == "repeated" else []
    got, wanted = operators[name](*inputs, *more), function(*inputs, *more)
    assert got.shape == wanted.shape
    torch.testing.assert_close(got, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_no_elements(operators: dict[str, Any], name: str) -> None:
    _, (first, *others), function = CASES[name]
    others = [(0, *shape[1:]) if len(shape) == len(first) else shape for shape in others]
    inputs = [torch.randn(0, *first[1:]), *map(torch.randn, others)]
    if name == "repeated":
        inputs = [torch.randn(first), 0]
    got = operators[name](*inputs)
    if name == "total of the first":
        assert got.tolist() == [[0]]
        return
    assert got.numel() == 0
    if name != "pooled":  # which PyTorch refuses
        assert got.shape == function(*inputs).shape


def test_a_layout_that_all_have_is_as_good_as_the_row_major_one(operators: dict[str, Any]) -> None:
    """And another one than that of the result is not."""
    x, y = turned(torch.randn(3, *MANY)), torch.randn(3, *MANY)
    for other in (turned(y), y):
        result = operators["many axes"](x, other)
        torch.testing.assert_close(result, torch.tanh(x + other), rtol=2e-6, atol=1e-6)
        assert result.stride() == torch.tanh(x).stride()


def test_operands_that_do_not_fit_are_named(operators: dict[str, Any]) -> None:
    z, weight = torch.randn(5, 24), torch.randn(24)
    wrong: dict[int, list[tuple[Tensor, Tensor]]] = {
        1: [(z.double(), weight), (z[0], weight), (z[:, :23], weight)],
        2: [(z, weight.half()), (z, weight[None]), (z, weight[:23]), (z, weight[:1])],
    }
    for number, calls in wrong.items():
        for call in calls:
            with pytest.raises(RuntimeError, match=rf"operand {number} does not fit"):
                operators["summed"](*call)
