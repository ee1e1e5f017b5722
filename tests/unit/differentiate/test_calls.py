"""Gradients that PyTorch's own calls are part of, in float64, against autograd."""

from __future__ import annotations

import pytest
import torch
from tests.unit.differentiate.test_rows import Function, check_case, gradients, group_of, vjp_of
from tests.unit.plan.plans import Make, graph
from torch.nn import functional as F

from opweld.differentiate import differentiate
from opweld.ir.attrs import CallAttrs, Operand
from opweld.ir.operator import operator_over
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

torch.manual_seed(8)
D = torch.float64


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=D)


IMAGE, FILTERS, BIAS = normal(2, 4, 7, 6), normal(6, 4, 3, 3), normal(6)
ROWS, NUMBERS = normal(5, 3), torch.tensor([[4, 0, 2, 2], [1, 2, 2, 0]])
PLACES = torch.tensor([[0, 2], [1, 1], [2, 0], [0, 0], [1, 2]])

CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "convolution": (lambda x, w, b: F.conv2d(x, w, b).exp(), (IMAGE, FILTERS, BIAS * 0.1)),
    "convolution without bias": (lambda x, w: F.conv2d(x, w).tanh(), (IMAGE, FILTERS)),
    "convolution, strides": (
        lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2)).tanh(),
        (IMAGE, FILTERS, BIAS),
    ),
    "convolution, groups": (
        lambda x, w: F.conv2d(x, w, padding=1, groups=2).relu(),
        (IMAGE, normal(6, 2, 3, 3)),
    ),
    "convolution, depthwise": (
        lambda x, w: F.conv2d(x, w, padding=1, groups=4).relu(),
        (IMAGE, normal(4, 1, 3, 3)),
    ),
    "convolution of a line": (
        lambda x, w, b: F.conv1d(x, w, b, 2, 1).relu(),
        (normal(2, 3, 9), normal(4, 3, 3), normal(4)),
    ),
    "convolution of a volume": (
        lambda x, w: F.conv3d(x, w, padding=1).relu(),
        (normal(2, 2, 4, 3, 5), normal(3, 2, 3, 3, 3)),
    ),
    "convolution, transposed": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1).relu(),
        (normal(2, 4, 3, 5), normal(4, 3, 3, 3), normal(3)),
    ),
    "convolution, transposed on a line": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, groups=2, dilation=2).relu(),
        (normal(2, 4, 5), normal(4, 3, 3)),
    ),
    "embedding": (lambda w, n: F.embedding(n, w) * 2, (ROWS, NUMBERS)),
    "embedding with padding": (
        lambda w, n: F.embedding(n, w, padding_idx=2) * 2,
        (ROWS, NUMBERS),
    ),
    "rows by an index": (lambda x, n: x[n] * 2, (ROWS, NUMBERS - 5)),
    "columns by an index": (lambda x, n: x[:, n[0] % 3] * 2, (normal(4, 3, 2), NUMBERS)),
    "rows of matrices": (lambda x, n: x[:, n] * 2, (normal(2, 5, 3), NUMBERS)),
    "rows that are selected": (lambda x, n: x.index_select(1, n[0]).exp(), (normal(2, 5), NUMBERS)),
    "elements": (lambda x, n: torch.gather(x, 1, n) * 2, (ROWS, PLACES)),
    "elements along the first axis": (
        lambda x, n: torch.gather(x, 0, n) * 2,
        (normal(4, 2), PLACES),
    ),
    "elements of a part": (lambda x, n: torch.gather(x, 1, n[:2]) * 2, (ROWS, PLACES)),
    "elements in an order": (
        lambda x: torch.take_along_dim(x, x.argsort(1), 1) * 2,
        (ROWS,),
    ),
    "matrix and vector": (lambda x, y: (x @ y).tanh(), (normal(4, 3), normal(3))),
    "matrices and vector": (lambda x, y: (x @ y).tanh(), (normal(2, 4, 3), normal(3))),
    "vector and matrix": (lambda x, y: (x @ y).tanh(), (normal(4), normal(4, 3))),
    "vector and matrices": (lambda x, y: (x @ y).tanh(), (normal(4), normal(2, 4, 3))),
    "two vectors": (lambda x, y: (x @ y).tanh(), (normal(4), normal(4))),
    "matrices and one": (lambda x, y: (x @ y).tanh(), (normal(2, 4, 3), normal(3, 5))),
    "one and matrices": (lambda x, y: (x @ y).tanh(), (normal(5, 4), normal(2, 4, 3))),
    "stacks of other sizes": (
        lambda x, y: (x @ y).tanh(),
        (normal(2, 1, 3, 4), normal(5, 4, 2)),
    ),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y).tanh(), (normal(4, 3), normal(5, 3))),
    "einsum of one with itself": (lambda x: torch.einsum("ij,kj->ik", x, x).tanh(), (ROWS,)),
    "einsum of three": (
        lambda x, y, z: torch.einsum("bi,ij,bjk->bk", x, y, z).tanh(),
        (normal(2, 3), normal(3, 4), normal(2, 4, 5)),
    ),
    "einsum over a batch": (
        lambda x, y: torch.einsum("bhid,bhjd->bhij", x, y).tanh(),
        (normal(2, 2, 3, 4), normal(2, 2, 5, 4)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_autograds(name: str) -> None:
    check_case(*CASES[name])


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: torch.einsum("ij,kl->ik", x, y).tanh(), (normal(4, 3), normal(5, 3))),
        (lambda x, y: torch.einsum("ii,ij->ij", x, y).tanh(), (normal(4, 4), normal(4, 3))),
        (lambda x: F.conv2d(x, x[:, :, :3, :3], padding="same").relu(), (IMAGE,)),
    ],
    ids=["a sum of one alone", "a diagonal", "padding by a name"],
)
def test_what_has_no_row_has_no_graph(function: Function, inputs: tuple[torch.Tensor, ...]) -> None:
    assert vjp_of(function, *inputs)[1] is None


def test_the_two_gradients_of_a_convolution_are_calls_of_their_own() -> None:
    """So that of what is frozen none is made."""
    _, vjp = vjp_of(lambda x, w: F.relu(F.conv2d(x, w)), IMAGE, FILTERS)
    assert vjp is not None
    calls = [node for node in vjp.graph.nodes() if node.op is Op.CALL]
    masks = [node.attrs.arguments[-1] for node in calls]
    assert sorted(masks) == [(False, True, False), (True, False, False)]


def test_of_channels_behind_space_gradients_lie_as_the_operands_do() -> None:
    """As the plan lays convolutions out."""
    image, filters, bias = normal(2, 7, 6, 4), normal(6, 4, 3, 3), normal(6)
    m = Make()
    x, w, b = (
        m.x(name, *each.shape, dtype=DType.F64)
        for name, each in (("x", image), ("w", filters), ("b", bias))
    )
    kind = TensorType(DType.F64, (2, 5, 4, 6))
    given = tuple(Operand(place) for place in range(3))
    attrs = CallAttrs("aten.conv2d.default", given, (), (kind,), "", channels_last=True)
    group = group_of(m.mul(m.arena.call((x, w, b), attrs), m.const(2.0, DType.F64)), x, w, b)
    whole = graph(*group.outputs)
    vjp = differentiate(whole, group, operator_over(group, ("x", "w", "b")))
    assert vjp is not None and vjp.kept == ()
    leaves = [each.clone().requires_grad_() for each in (image, filters, bias)]
    result = F.conv2d(leaves[0].permute(0, 3, 1, 2), *leaves[1:]).permute(0, 2, 3, 1) * 2.0
    grad = torch.cos(torch.arange(result.numel(), dtype=D)).reshape(result.shape)
    wanted = torch.autograd.grad(result, leaves, grad)
    found = gradients(whole, vjp, (image, filters, bias), [grad])
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)
