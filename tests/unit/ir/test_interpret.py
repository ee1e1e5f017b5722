from __future__ import annotations

import numpy as np
import pytest
import torch

from opweld.ir.attrs import CallAttrs, CastAttrs, IotaAttrs, Operand, ShapeAttrs
from opweld.ir.expr import symbol
from opweld.ir.graph import Arena, Leaf
from opweld.ir.numpy.interpret import Uninterpretable, interpret
from opweld.ir.ops import Op
from opweld.ir.types import DType

from .graphs import BATCH, graph, tensor, weight


def half_plus_bias(dtype: DType = DType.F32):
    arena = Arena()
    x, bias = tensor(arena, "x", BATCH, 3, dtype=dtype), weight(arena, "fc.bias", 3, dtype=dtype)
    return graph(arena.make(Op.ADD, arena.make(Op.MUL, x, arena.const(0.1, dtype)), bias))


def test_float32_calculates_in_float32():
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    bias = np.array([1, 2, 3], np.float32)
    result = interpret(half_plus_bias(), {"x": x, "fc.bias": bias})
    expected = (torch.from_numpy(x) * 0.1 + torch.from_numpy(bias)).numpy()
    assert result.dtype == np.float32
    assert np.array_equal(result, expected)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda d: d.value)
def test_sixteen_bits_are_rounded_at_the_end_only(dtype):
    torch_dtype = torch.float16 if dtype is DType.F16 else torch.bfloat16
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(50, 3)).astype(np.float32)).to(torch_dtype)
    bias = torch.from_numpy(rng.normal(size=3).astype(np.float32)).to(torch_dtype)
    feeds = {"x": x.float().numpy(), "fc.bias": bias.float().numpy()}
    result = interpret(half_plus_bias(dtype), feeds)
    expected = (x.float() * 0.1 + bias.float()).to(torch_dtype)
    assert result.dtype == (np.float16 if dtype is DType.F16 else np.float32)
    assert np.array_equal(result.astype(np.float32), expected.float().numpy())
    twice_rounded = x * 0.1 + bias
    assert not torch.equal(expected, twice_rounded), "the test data tell nothing"


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda d: d.value)
def test_casts_round(dtype):
    arena = Arena()
    x = tensor(arena, "x", 1000)
    narrow = arena.make(Op.CAST, x, attrs=CastAttrs(dtype))
    wide = arena.make(Op.CAST, narrow, attrs=CastAttrs(DType.F32))
    values = np.random.default_rng(2).normal(size=1000).astype(np.float32) * 100
    torch_dtype = torch.float16 if dtype is DType.F16 else torch.bfloat16
    expected = torch.from_numpy(values).to(torch_dtype).float().numpy()
    assert np.array_equal(interpret(graph(wide), {"x": values}), expected)
    exact = interpret(graph(wide), {"x": values}, precision="float64")
    assert np.array_equal(exact, values.astype(np.float64))


def test_float64_precision_calculates_all_in_float64():
    x, bias = np.full((2, 3), 1 / 3, np.float32), np.zeros(3, np.float32)
    result = interpret(half_plus_bias(), {"x": x, "fc.bias": bias}, precision="float64")
    assert result.dtype == np.float64
    assert np.array_equal(result, np.float64(np.float32(1 / 3)) * 0.1 * np.ones((2, 3)))


def test_sizes_are_bound_from_shapes_or_given():
    arena = Arena()
    x = tensor(arena, "x", BATCH)
    count = arena.iota(IotaAttrs(2, 3, BATCH), DType.I64)
    size = arena.const(BATCH * 2, DType.F32)
    wide = arena.make(Op.EXPAND, size, attrs=ShapeAttrs((symbol("s1"),)))
    small = graph(arena.make(Op.NEG, x), count, wide)
    result = interpret(small, {"x": np.ones(4, np.float32)}, {"s1": 2})
    assert [list(r) for r in result] == [[-1, -1, -1, -1], [2, 5, 8, 11], [8.0, 8.0]]
    with pytest.raises(Uninterpretable, match="no number for the size s1"):
        interpret(small, {"x": np.ones(4, np.float32)})


def test_feeds_that_do_not_fit():
    small = half_plus_bias()
    x, bias = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    with pytest.raises(Uninterpretable, match=r"no feed for weight fc\.bias"):
        interpret(small, {"x": x})
    with pytest.raises(Uninterpretable, match=r"has shape \(2,\)"):
        interpret(small, {"x": x[:, 0], "fc.bias": bias})
    with pytest.raises(Uninterpretable, match=r"has shape \(2, 2\), the graph says \(2, 3\)"):
        interpret(small, {"x": x[:, :2], "fc.bias": bias})
    arena = Arena()
    two = graph(tensor(arena, "a", BATCH), tensor(arena, "b", BATCH))
    with pytest.raises(Uninterpretable, match="s0 is both 2 and 3"):
        interpret(two, {"a": np.ones(2), "b": np.ones(3)})


def test_calls_get_stored_operands_and_give_results():
    arena = Arena()
    x = tensor(arena, "x", 2, dtype=DType.F16)
    scaled = arena.make(Op.MUL, x, arena.const(0.1, DType.F16))
    attrs = CallAttrs("aten.split", (Operand(0), 7), (), (x.type, None, x.type), "")
    call = arena.call((scaled,), attrs)
    single = arena.call((x,), CallAttrs("aten.one", (Operand(0),), (), (x.type,), ""))
    seen = []

    def calls(attrs, operands):
        seen.append((attrs.target, attrs.arguments, operands[0].dtype))
        return (operands[0], None, -operands[0])[: len(attrs.results)]

    last = arena.make(Op.ADD, arena.item(call, 2, x.type), single)
    feed = np.array([1.0, 3.0], np.float16)
    result = interpret(graph(last), {"x": feed}, calls=calls)
    rounded = (feed.astype(np.float32) * np.float32(0.1)).astype(np.float16)
    expected = (feed.astype(np.float32) - rounded.astype(np.float32)).astype(np.float16)
    assert np.array_equal(result, expected)
    assert [target for target, *_ in seen] == ["aten.split", "aten.one"]
    assert {dtype for *_, dtype in seen} == {np.dtype(np.float16)}
    with pytest.raises(Uninterpretable, match=r"calls aten\.split, and nothing evaluates calls"):
        interpret(graph(last), {"x": feed})


def test_structure_of_the_result():
    arena = Arena()
    x = tensor(arena, "x", 2)
    structure = ("dict", (("a", ("list", (Leaf(0), ("const", 3)))), ("b", ("tuple", (Leaf(0),)))))
    result = interpret(graph(x, structure=structure), {"x": np.ones(2, np.float32)})
    assert list(result) == ["a", "b"]
    assert isinstance(result["a"], list)
    assert isinstance(result["b"], tuple)
    assert result["a"][1] == 3
    assert np.array_equal(result["b"][0], [1.0, 1.0])
