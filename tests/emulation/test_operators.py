"""A whole operator by mma.sync: host code, kept weight, split pass, tiles and epilogue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.emulation.operators import emulated_kernels, load_operators
from tests.unit.plan.plans import BATCH, Make, graph
from tests.unit.plan.test_choice import EAGER

from opweld.ir.original import Part
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.host.texts import host

ROWS, COLUMNS, INNER = 40, 36, 100


@pytest.fixture(scope="module")
def operator() -> Any:
    """relu(x @ w.t() + bias) + y, and the sums before that."""
    m = Make()
    x, y = m.x("x", BATCH, INNER), m.x("y", BATCH, COLUMNS)
    w, bias = m.w("w", COLUMNS, INNER), m.w("bias", COLUMNS)
    h = m.product("linear", x, w, bias, shape=(BATCH, COLUMNS))
    target = replace(EAGER, tensor_cores="mma")
    plan = make_plan(graph(m.add(m.relu(h), y), h), target)
    kernels = lower(plan)
    text = render("operator", kernels, "cuda").text
    main = host((Part(None, plan, kernels),), "cuda").text  # type: ignore[arg-type]
    ops, _ = load_operators(emulated_kernels(text), main)
    return ops.k1_linear_relu_add


def check(operator: Any, x: torch.Tensor, w: torch.Tensor) -> None:
    bias, y = torch.randn(COLUMNS), torch.randn(len(x), COLUMNS)
    sums, result = operator(x, w, bias, y)
    exact = x.double() @ w.double().t() + bias
    # A few roundings of each term, and those of the bias and of y.
    size = x.double().abs() @ w.double().abs().t() + bias.abs() + y.abs()
    assert ((sums - exact).abs() <= size * 2.0**-21).all()
    assert ((result - exact.relu() - y).abs() <= size * 2.0**-21).all()


def test_every_way_to_change_a_weight_is_seen(operator: Any) -> None:
    x, w = torch.randn(ROWS, INNER), torch.nn.Parameter(torch.randn(COLUMNS, INNER))
    with torch.no_grad():
        check(operator, x, w)
        w.mul_(3.0)  # counted
        check(operator, x, w)
        w.data.copy_(torch.randn(COLUMNS, INNER))  # seen by the device alone
        check(operator, x, w)
        w.data = torch.randn(COLUMNS, INNER)
        check(operator, x, w)


def test_layouts_and_values_out_of_range(operator: Any) -> None:
    x, w = torch.randn(INNER, ROWS).t(), torch.randn(INNER, COLUMNS).t()
    check(operator, x, w)
    check(operator, x, w * 1e-30)
    infinite = x.clone()
    infinite[3, 5] = float("inf")
    sums, _ = operator(infinite, w, torch.zeros(COLUMNS), torch.zeros(ROWS, COLUMNS))
    wanted = torch.where(w[:, 5] > 0, float("inf"), -float("inf"))
    assert torch.equal(sums[3], wanted) and sums[4:].isfinite().all()
