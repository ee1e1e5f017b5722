"""The forward's arguments: signature text, access expressions, facts, and refusals."""

from __future__ import annotations

import functools

import pytest
import torch
from tests.capturing import assert_agrees, captured, captured_plainly, module_of
from torch import nn

from opweld.errors import CaptureError

X = torch.randn(4, 8)


def contract_of(forward, *args, **kwargs):
    model = module_of(forward)
    variant = captured(model, *args, **kwargs).variants[0]
    assert_agrees(variant, model, *args, **kwargs)
    return variant.contract


def test_signature_text() -> None:
    def forward(
        self, x: torch.Tensor, /, y=1.0, *rest, dtype=torch.float32, limit=float("inf"), **more
    ) -> torch.Tensor:
        return x * y

    assert contract_of(forward, X).signature == (
        "self, x, /, y=1.0, *rest, dtype=torch.float32, limit=float('inf'), **more"
    )


def test_parameters_left_out_must_keep_their_defaults() -> None:
    contract = contract_of(lambda self, x, scale=2.0, shape=(1, 2): x * scale * shape[1], X)
    facts = {fact.access: fact.literal for fact in contract.inputs if fact.type is None}
    assert facts == {"scale": 2.0, "shape": (1, 2)}


def test_variadic_parameters() -> None:
    def forward(self, *parts, **named):
        return parts[0] * parts[1] + named["shift"]

    contract = contract_of(forward, X, X, shift=X)
    accesses = [fact.access for fact in contract.inputs if fact.type is not None]
    assert accesses == ["parts[0]", "parts[1]", "named['shift']"]
    facts = {fact.access: fact.literal for fact in contract.inputs if fact.type is None}
    assert facts == {"len(parts)": 2, "tuple(named)": ("shift",)}


def test_keyword_arguments_in_another_order() -> None:
    contract = contract_of(lambda self, x, y, z: x * y - z, X, z=X, y=X + 1)
    assert [fact.access for fact in contract.inputs] == ["x", "y", "z"]


def test_integer_bool_and_scalar_tensors() -> None:
    def forward(self, x, index, mask, level):
        return torch.where(mask, x * level, index)

    inputs = (X, torch.arange(32).reshape(4, 8), X > 0, torch.tensor(2.5))
    contract = contract_of(forward, *inputs)
    types = [str(fact.type) for fact in contract.inputs]
    assert types == ["f32[s0, 8]", "i64[s0, 8]", "bool[s0, 8]", "f32[]"]


class Odd:
    pass


class Slotted:
    __slots__ = ("held",)


ODD = Odd()


@pytest.mark.parametrize(
    ("forward", "args", "reason"),
    [
        (lambda self, x: x, (), "the inputs do not fit the forward's parameters"),
        (lambda self, x, y: x, (X, Odd()), "input y is a Odd"),
        (lambda self, x, f=ODD: x, (X,), "the default of parameter 'f'"),
        (lambda self, n: n, (3,), "none of the inputs is a tensor"),
        (lambda self, x: x, (X.to_sparse(),), "input x is a torch.sparse_coo tensor"),
        (lambda self, x: (x, Slotted()), (X,), "Slotted"),
    ],
)
def test_refusals(forward, args, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        captured(module_of(forward), *args)


class Decides(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class Selects(nn.Module):
    def forward(self, x):
        return x[x > 0]


class Fails(nn.Module):
    def forward(self, x):
        return x @ x


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("not today")


class Finds(nn.Module):
    def forward(self, x):
        (rows,) = torch.where(x[:, 0] > 0)
        return x[rows]


class Pairs(nn.Module):
    def forward(self, x):
        return torch.combinations(x[0]) * 2


class ByNumPy(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.detach().numpy()) * 2


OUTSIDE = torch.ones(8)


class Reaches(nn.Module):
    def forward(self, x):
        return x * OUTSIDE


@pytest.mark.parametrize(
    ("model", "text", "reason"),
    [
        (Decides, "if x.sum() > 0:", "decides by the elements of a tensor"),
        (Selects, "return x[x > 0]", "a tensor's size depends on the elements of another"),
        (Finds, "(rows,) = torch.where(x[:, 0] > 0)", "size depends on the elements of another"),
        (Pairs, "return torch.combinations(x[0]) * 2", "size depends on the elements of another"),
        (ByNumPy, "return torch.from_numpy(x.detach().numpy()) * 2", "to NumPy, which a graph"),
        (Fails, "return x @ x", "the forward raises RuntimeError"),
        (Raises, 'raise ValueError("not today")', "the forward raises ValueError: not today"),
        (Reaches, "return x * OUTSIDE", "no parameter, buffer or attribute"),
    ],
)
def test_refusals_name_the_users_line(model, text: str, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason) as refusal:
        captured(model(), X)
    where = refusal.value.where
    assert where is not None and where.file == "test_arguments.py" and where.text == text
    assert str(refusal.value).startswith(f"test_arguments.py:{where.line}")


class Slopes(nn.Module):
    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(torch.tanh(x).sum(), x)
        return slope * 2


class SlopesByFunction(nn.Module):
    def forward(self, x):
        return torch.func.grad(lambda y: torch.tanh(y).sum())(x) * 2


@pytest.mark.parametrize("model", [Slopes, SlopesByFunction])
def test_gradients_inside_a_forward_are_named_with_what_takes_them(model) -> None:
    with pytest.raises(CaptureError, match="takes gradients of what it computes") as refusal:
        captured(model(), X)
    assert 'torch.compile(model, backend="opweld")' in str(refusal.value)
    made = torch.compile(model(), backend="opweld")
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(made(X), model()(X))


def _defaults(forward):
    """As a library does that fills in an argument where it is not given by name."""

    @functools.wraps(forward)
    def wrapped(self, *args, **kwargs):
        return forward(self, *args, **{"scale": 2.0, **kwargs})

    return wrapped


class Wrapped(nn.Module):
    @_defaults
    def forward(self, x, scale=1.0):
        return torch.tanh(x) * scale


def test_what_is_given_by_name_stays_so() -> None:
    variant = captured_plainly(Wrapped(), X, scale=3.0)
    assert_agrees(variant, Wrapped(), X, scale=3.0)
