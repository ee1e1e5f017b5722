"""When a backward is the formula that was found for it, and when that of the reference."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from opweld.emission import piece

X = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def twice_and_square(x: Tensor) -> tuple[Tensor, Tensor]:
    return 2 * x, x * x


class Backward:
    """Both ways to the gradients of twice_and_square, which note that they were gone."""

    def __init__(self) -> None:
        self.ways: list[str] = []
        names: dict[str, Any] = {"torch": torch}
        exec(piece("gradients/closed"), names)
        closed = names["_closed"](self.formula, 1, (0, 1), ())
        self.function = closed(twice_and_square, self, None)

    def formula(self, needed: Any, of_twice: Tensor, of_square: Tensor, x: Tensor) -> Any:
        self.ways.append("formula")
        return (2 * of_twice + 2 * x * of_square,)

    def backward(self, ctx: Any, of_twice: Tensor | None, of_square: Tensor | None) -> Any:
        self.ways.append("reference")
        (x,) = ctx.saved_tensors
        found = torch.zeros_like(x)
        found = found if of_twice is None else found + 2 * of_twice
        return found if of_square is None else found + 2 * x * of_square

    def gradient(self, summed: Callable[[Tensor, Tensor], Tensor], **given: Any) -> Tensor:
        x = X.clone().requires_grad_()
        total = summed(*self.function.apply(x))
        (found,) = torch.autograd.grad(total, x, **given)
        return found.detach()


def both(twice: Tensor, square: Tensor) -> Tensor:
    return (twice + square).sum()


def test_the_formula_is_what_runs() -> None:
    backward = Backward()
    assert torch.equal(backward.gradient(both), 2 + 2 * X)
    assert backward.ways == ["formula"]


@pytest.mark.parametrize("used", [0, 1])
def test_a_result_that_nothing_used_is_left_to_the_reference(used: int) -> None:
    backward = Backward()
    found = backward.gradient(lambda *results: results[used].sum())
    assert torch.equal(found, (2 + 0 * X, 2 * X)[used])
    assert backward.ways == ["reference"]


class Nothing(torch.autograd.Function):
    """Has no gradient for its operand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        return None


def test_without_any_gradient_nothing_runs() -> None:
    backward = Backward()
    x = X.clone().requires_grad_()
    twice, square = backward.function.apply(x)
    total = (Nothing.apply(twice) + Nothing.apply(square)).sum()
    assert torch.autograd.grad(total, x, allow_unused=True) == (None,)
    assert backward.ways == []


@pytest.mark.parametrize("state", ["gradients of gradients", "autocast", "functorch", "compiling"])
def test_states_that_the_formula_does_not_know_are_the_references(state: str) -> None:
    active = {
        "functorch": mock.patch("torch._C._are_functorch_transforms_active", return_value=True),
        "compiling": mock.patch("torch.compiler.is_compiling", return_value=True),
    }
    with active.get(state, nullcontext()):
        backward = Backward()  # which asks those that it finds now
    x = X.clone().requires_grad_()
    total = both(*backward.function.apply(x))
    with torch.autocast("cpu") if state == "autocast" else nullcontext():
        (found,) = torch.autograd.grad(total, x, create_graph=state.startswith("gradients"))
    assert torch.equal(found.detach(), 2 + 2 * X)
    assert backward.ways == ["reference"]
