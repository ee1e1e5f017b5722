"""What the forward keeps for gradients: the fewest bytes that the rest can be computed from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.differentiate.test_rows import CASES, Function, check, vjp_of
from tests.unit.emission.test_backward import ROW, SQUARE, WIDE, X
from torch.nn import functional as F

from opweld.ir.ops import Op
from opweld.ir.original import Vjp
from opweld.ir.types import DType


def kept_by(function: Function, *inputs: torch.Tensor, **given: Any) -> list[Op]:
    return [node.op for node in found(function, *inputs, **given).kept]


def found(function: Function, *inputs: torch.Tensor, **given: Any) -> Vjp:
    _, vjp = vjp_of(function, *inputs, **given)
    assert vjp is not None
    return vjp


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w)


def test_a_test_of_a_product_is_kept_as_bits() -> None:
    """Its bytes are an eighth of the product's."""
    vjp = found(lambda x, w: F.leaky_relu(linear(x, w), 0.2) * 3.0, WIDE, SQUARE)
    assert [(node.op, node.type.dtype) for node in vjp.kept] == [(Op.GT, DType.BOOL)]


def test_a_result_that_says_all_is_kept_alone() -> None:
    assert kept_by(lambda x, w: F.relu(linear(x, w)), WIDE, SQUARE) == [Op.RELU]
    assert kept_by(lambda x: torch.softmax(x, 1), X) == [Op.DIV]


def test_a_result_that_nobody_keeps_costs_its_bytes() -> None:
    def relu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(linear(x, w))

    assert kept_by(relu, WIDE, SQUARE, staying=()) == [Op.LE]
    assert kept_by(relu, WIDE, SQUARE, staying=(), again=True) == []
    assert kept_by(torch.tanh, X, staying=()) == []
    assert kept_by(lambda x: torch.softmax(x, 1), X, staying=()) == [Op.AMAX, Op.SUM]


def test_a_result_that_the_kept_product_says_is_not_read() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.silu(linear(x, w)))

    assert kept_by(function, WIDE, SQUARE) == [Op.CALL]


def test_a_result_is_read_in_the_place_of_its_operand() -> None:
    """Which is no more to read, and less to compute."""
    assert kept_by(torch.tanh, X) == [Op.TANH]
    assert kept_by(lambda x: torch.tanh(x) * x, X) == []


def test_statistics_of_a_norm_are_kept_as_they_are_read() -> None:
    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[1],), w)

    ops = kept_by(norm, X.reshape(-1, 6), ROW)
    assert len(ops) == 2 and Op.RSQRT in ops and {*ops} <= {Op.MEAN, Op.DIV, Op.RSQRT}


def test_of_a_view_of_a_sum_the_sum_is_kept() -> None:
    assert kept_by(lambda x: x.sum(1) * x.sum(1), X) == [Op.SUM]


def test_what_two_products_are_computed_into_is_kept_in_their_place() -> None:
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sin(linear(x, w) + linear(x * 2.0, w))

    assert kept_by(product, WIDE, SQUARE) == [Op.ADD]


def test_nothing_is_kept_of_what_is_linear() -> None:
    assert kept_by(lambda x, w: linear(x, w) * 2.0 + 1.0, WIDE, SQUARE) == []
    assert kept_by(lambda x: x.sum(1) * 2.0, X) == []


def test_products_are_computed_again_where_that_is_asked_for() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.gelu(linear(x, w))

    vjp = found(function, WIDE, SQUARE, again=True)
    assert vjp.kept == ()
    calls = [node.attrs.target for node in vjp.graph.nodes() if node.op is Op.CALL]
    assert sorted(calls) == ["aten.linear.default", *["aten.matmul.default"] * 2]
    assert kept_by(lambda x, w: F.relu(linear(x, w)), WIDE, SQUARE, again=True) == [Op.RELU]


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_autograds_where_all_is_computed_again(name: str) -> None:
    check(name, again=True)
