"""Every operation's PyTorch text against what PyTorch itself does for the operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.rules.torch_ops import TORCH, TORCH_DTYPES, call_torch
from tests.unit.ir.test_meaning import REDUCED, TAKEN, VIEWS, operands_for, rows_of

from opweld.emission.body import Body
from opweld.emission.spelling.calls import CALLS
from opweld.ir.attrs import (
    NO_ATTRS,
    CallAttrs,
    CastAttrs,
    CatAttrs,
    IotaAttrs,
    Operand,
    PadAttrs,
    SliceAttrs,
    TorchLiteral,
)
from opweld.ir.expr import symbol
from opweld.ir.graph import Arena, Graph, Leaf, Node
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

FROM_TORCH = {value: key for key, value in TORCH_DTYPES.items()}


def label(value: Any) -> str:
    return getattr(value, "value", str(value))


def text_of(node: Node) -> str:
    """The expression of one node, its operands by the names of its inputs."""
    graph = Graph("one", (), (), (node,), Leaf(0))
    body = Body(graph, "a.device")
    for operand in node.inputs:
        if operand.op is Op.INPUT:
            body.texts[operand.serial] = operand.attrs.access
    return body.expression(node)


def source(arena: Arena, name: str, value: torch.Tensor) -> Node:
    kind = TensorType(FROM_TORCH[value.dtype], tuple(value.shape))
    return arena.source(Op.INPUT, name, name, kind)


def run(node: Node, **values: Any) -> torch.Tensor:
    return eval(text_of(node), {"torch": torch, **values})


def assert_equal(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)


def tensors_for(op: Op, dtype: DType) -> list[torch.Tensor]:
    return [torch.from_numpy(operand) for operand in operands_for(op, dtype)]


@pytest.mark.parametrize(("op", "attrs", "dtype"), TAKEN, ids=label)
def test_operation_on_tensors(op: Op, attrs: Any, dtype: DType) -> None:
    values = dict(zip("abc", tensors_for(op, dtype), strict=False))
    arena = Arena()
    inputs = [source(arena, name, value) for name, value in values.items()]
    node = arena.make(op, *inputs, attrs=attrs)
    assert_equal(run(node, **values), call_torch(op, list(values.values()), attrs))


@pytest.mark.parametrize(("op", "attrs", "dtype"), REDUCED, ids=label)
def test_reduction(op: Op, attrs: Any, dtype: DType) -> None:
    x = torch.from_numpy(rows_of(dtype))
    arena = Arena()
    node = arena.make(op, source(arena, "a", x), attrs=attrs)
    assert_equal(run(node, a=x), call_torch(op, [x], attrs))


BINARY = [case for case in TAKEN if case[0] in TORCH and len(operands_for(case[0], case[2])) == 2]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("op", "attrs", "dtype"), BINARY, ids=label)
def test_operation_with_a_constant(op: Op, attrs: Any, dtype: DType, place: int) -> None:
    """A Python number on either side does what a tensor of that one value does."""
    operands = tensors_for(op, dtype)
    constant = operands[place][3:4]
    if op in (Op.POW, Op.PRELU) and place == 0:
        return  # never built: a power of a constant, and a constant through prelu, are other nodes
    other = operands[1 - place][(operands[place] == constant)]
    arena = Arena()
    numbers = [arena.const(constant.item(), dtype)]
    numbers.insert(1 - place, source(arena, "a", other))
    node = arena.make(op, *numbers, attrs=attrs)
    expected = [constant.expand_as(other), other]
    pair = expected if place == 0 else expected[::-1]
    exact = dtype.is_float and op in (Op.POW, Op.DIV, Op.XLOGY, Op.LOGADDEXP, Op.REMAINDER)
    torch.testing.assert_close(
        run(node, a=other),
        call_torch(op, pair, attrs),
        rtol=1e-5 if exact else 0,
        atol=1e-30 if exact else 0,
        equal_nan=True,
    )


@pytest.mark.parametrize(("op", "attrs"), VIEWS, ids=label)
def test_views(op: Op, attrs: Any) -> None:
    x = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    arena = Arena()
    node = arena.make(op, source(arena, "a", x), attrs=attrs)
    assert_equal(run(node, a=x), call_torch(op, [x], attrs))


def test_cat_and_casts() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 2)
    arena = Arena()
    cat = arena.make(Op.CAT, source(arena, "a", x), source(arena, "b", y), attrs=CatAttrs(1))
    assert_equal(run(cat, a=x, b=y), torch.cat((x, y), 1))
    for dtype, expected in TORCH_DTYPES.items():
        cast = arena.make(Op.CAST, source(arena, "a", x), attrs=CastAttrs(dtype))
        assert run(cast, a=x).dtype == expected


def test_symbolic_sizes() -> None:
    s0 = symbol("s0")
    x = torch.randn(6, 4)
    arena = Arena()
    a = arena.source(Op.INPUT, "a", "a", TensorType(DType.F32, (s0, 4)))
    half = arena.make(Op.SLICE, a, attrs=SliceAttrs(0, 1, 2, 2))
    assert_equal(run(half, a=x, _s0=6), x[1:5:2])
    padded = arena.make(Op.PAD, a, attrs=PadAttrs((s0, 0), (0, 1), 0.5))
    assert run(padded, a=x, _s0=6).shape == (12, 5)


@pytest.mark.parametrize(("start", "step"), [(0, 1), (3, 2), (5, -1), (0.5, 0.25)])
def test_positions(start: float, step: float) -> None:
    dtype = DType.I64 if isinstance(start, int) else DType.F32
    node = Arena().iota(IotaAttrs(start, step, symbol("s0")), dtype)
    found = run(node, a=torch.zeros(1), _s0=5)
    expected = torch.tensor([start + step * i for i in range(5)], dtype=TORCH_DTYPES[dtype])
    assert_equal(found, expected)


def test_calls() -> None:
    x, w = torch.randn(4, 8), torch.randn(3, 8)
    arena = Arena()
    a, b = source(arena, "a", x), source(arena, "b", w)
    kind = TensorType(DType.F32, (4, 3))
    linear = CallAttrs("aten.linear.default", (Operand(0), Operand(1)), (), (kind,), "a product")
    node = arena.call((a, b), linear)
    assert text_of(node) == "torch.nn.functional.linear(a, b)"
    assert_equal(run(node, a=x, b=w), torch.nn.functional.linear(x, w))
    keywords = (("dim", (1,)), ("keepdim", True))
    total = CallAttrs("aten.sum.dim_IntList", (Operand(0),), keywords, (kind,), "a sum")
    assert_equal(run(arena.call((a,), total), a=x), x.sum(dim=1, keepdim=True))
    placed = (("dtype", TorchLiteral("torch.int64")), ("device", TorchLiteral("cuda:3")))
    made = CallAttrs("aten.zeros_like.default", (Operand(0),), placed, (kind,), "zeros")
    found = run(arena.call((a,), made), a=x)
    assert (found.dtype, found.device.type) == (torch.int64, "cpu")


def values(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape).sin()


INDEX = torch.tensor([2, 0, 1])
# Positional arguments, and keywords, that are not what the functions assume.
NATIVE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "aten.conv_transpose1d.default": (
        (values(2, 4, 5), values(4, 3, 3), values(6), [2], [1], [1], 2, [2]),
        {},
    ),
    "aten.conv_transpose2d.input": (
        (values(2, 4, 5, 5), values(4, 3, 3, 3), values(6), [2, 3], [1, 0], [1, 2], 2, [2, 1]),
        {},
    ),
    "aten.conv_transpose3d.input": (
        (values(1, 4, 3, 3, 3), values(4, 3, 2, 2, 2), values(6), [2] * 3, [1] * 3, [1] * 3, 2),
        {},
    ),
    "aten.scaled_dot_product_attention.default": (
        (values(2, 3, 4), values(2, 5, 4), values(2, 5, 4), values(3, 5), 0.0, False),
        {"scale": 0.3},
    ),
    "aten.embedding.default": ((values(4, 3), INDEX, 1, True, False), {}),
    "aten.index_add.default": ((values(3, 4), 0, INDEX, values(3, 4)), {"alpha": 2.5}),
}


@pytest.mark.parametrize("target", NATIVE)
def test_functions_take_what_their_operators_take(target: str) -> None:
    arguments, keywords = NATIVE[target]
    operator = torch.ops
    for name in target.split("."):
        operator = getattr(operator, name)
    assert not CALLS[target].startswith("torch.ops.")
    found = eval(CALLS[target], {"torch": torch})(*arguments, **keywords)
    assert_equal(found, operator(*arguments, **keywords))


def test_constants_keep_their_value() -> None:
    x = torch.zeros(1, dtype=torch.float64)
    for value in (0.1, -0.0, 1e-310, 1e308, float("inf"), float("-inf"), float("nan"), -2.5):
        arena = Arena()
        node = arena.make(Op.COPYSIGN, source(arena, "a", x), arena.const(value, DType.F64))
        assert np.signbit(run(node, a=x).item()) == np.signbit(value)
        added = arena.make(Op.ADD, source(arena, "a", x), arena.const(value, DType.F64))
        assert_equal(run(added, a=x), x + value)


def test_negative_constants_in_powers() -> None:
    x = torch.tensor([2.0, 3.0])
    arena = Arena()
    node = arena.make(Op.POW, arena.const(-1.5, DType.F32), source(arena, "a", x), attrs=NO_ATTRS)
    assert_equal(run(node, a=x), torch.pow(torch.tensor(-1.5), x))


def test_where_a_call_puts_what_it_creates() -> None:
    """On the device of its operands or inputs, unless the user named another."""
    arena = Arena()
    kind = TensorType(DType.F32, (2,))

    def created(target: str, device: str, *operands: Node) -> str:
        places = tuple(Operand(index) for index in range(len(operands)))
        keywords = (("device", TorchLiteral(device)),)
        arguments = places or ((1.5, 2.5),)
        return text_of(
            arena.call(operands, CallAttrs(target, arguments, keywords, (kind,), "reason"))
        )

    x = source(arena, "x", torch.ones(2))
    assert created("torch.tensor", "x.device") == "torch.tensor([1.5, 2.5], device=_device)"
    copy = created("aten._to_copy.default", "torch.device('cpu')", x)
    assert copy == "torch.ops.aten._to_copy.default(x, device=torch.device('cpu'))"
    drawn = created("aten.rand_like.default", "pair[1].device", x)
    assert drawn == "torch.ops.aten.rand_like.default(x, device=x.device)"
