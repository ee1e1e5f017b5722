from __future__ import annotations

import ctypes
import math
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.ir.attrs import NO_ATTRS, CastAttrs, EluAttrs, NanToNumAttrs
from opweld.ir.expr import Size, evaluate, quotient, remainder, symbol, symbols_of
from opweld.ir.kernels.kernel import Const, Let, Name
from opweld.ir.ops import Op
from opweld.ir.types import DType
from opweld.render.c import (
    Integers,
    compute_type,
    constant,
    grouped,
    index_text,
    load_text,
    named_in,
    spelled,
    storage_pieces,
    store_text,
)

I, N = symbol("i"), symbol("n")  # noqa: E741


def let(
    op: Op, *args: object, operands: DType = DType.F32, dtype: DType | None = None, attrs=NO_ATTRS
):
    given_args = tuple(Name(a) if isinstance(a, str) else Const(a, operands) for a in args)
    return Let("y", dtype or operands, op, given_args, operands, attrs)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.5, DType.F32, "0.5f"),
        (1, DType.F32, "1.0f"),
        (0.1, DType.F32, "0.1f"),
        (1e30, DType.F32, "1e+30f"),
        (-0.0, DType.F32, "-0.0f"),
        (0.1, DType.BF16, "0.1f"),
        (0.1, DType.F64, "0.1"),
        (1, DType.F64, "1.0"),
        (math.inf, DType.F32, "op::kInfinity<float>"),
        (-math.inf, DType.F64, "-op::kInfinity<double>"),
        (math.nan, DType.F32, "float(NAN)"),
        (True, DType.BOOL, "true"),
        (0, DType.BOOL, "false"),
        (-7, DType.I64, "int64_t(-7ll)"),
        (-(2**63), DType.I64, "int64_t((-9223372036854775807ll - 1))"),
        (200, DType.U8, "uint8_t(200)"),
        (-128, DType.I8, "int8_t(-128)"),
    ],
)
def test_constants(value: object, dtype: DType, text: str) -> None:
    assert constant(value, dtype) == text


@cache
def compiled_constants(texts: tuple[str, ...], kind: str) -> ctypes.CDLL:
    lines = [f'extern "C" {kind} f{k}() {{ return {text}; }}' for k, text in enumerate(texts)]
    with TemporaryDirectory(prefix="opweld-test-") as folder:  # what is loaded may go
        source = Path(folder) / "c.cpp"
        source.write_text("\n".join(lines))
        library = source.with_suffix(".so")
        subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
        return ctypes.CDLL(str(library))


def test_float_constants_are_exact() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 300, dtype=np.uint64).astype(np.uint32)
    values = [float(v) for v in bits.view(np.float32) if np.isfinite(v)]
    for dtype, kind, number in (
        (DType.F32, "float", ctypes.c_float),
        (DType.F64, "double", ctypes.c_double),
    ):
        exact = values if dtype is DType.F32 else [v / 3 for v in values]
        library = compiled_constants(tuple(constant(v, dtype) for v in exact), kind)
        for index, value in enumerate(exact):
            function = library[f"f{index}"]
            function.restype = number
            assert function() == value


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (let(Op.ADD, "a", "b"), "a + b"),
        (let(Op.MUL, "a", 0.5), "a * 0.5f"),
        (let(Op.NEG, "a"), "-a"),
        (let(Op.TANH, "a"), "op::tanh(a)"),
        (let(Op.GT, "a", 0.0, dtype=DType.BOOL), "a > 0.0f"),
        (let(Op.WHERE, "c", "a", "b"), "c ? a : b"),
        (let(Op.ADD, "a", "b", operands=DType.I8), "int8_t(a + b)"),
        (let(Op.NEG, "a", operands=DType.U8), "uint8_t(-a)"),
        (let(Op.ADD, "a", "b", operands=DType.I64), "a + b"),
        (let(Op.ADD, "a", "b", operands=DType.BOOL), "a || b"),
        (let(Op.BITWISE_AND, "a", "b", operands=DType.BOOL), "a && b"),
        (let(Op.BITWISE_AND, "a", "b", operands=DType.I32), "a & b"),
        (let(Op.BITWISE_NOT, "a", operands=DType.BOOL), "!a"),
        (let(Op.BITWISE_NOT, "a", operands=DType.U8), "uint8_t(~a)"),
        (let(Op.LOGICAL_NOT, "a", dtype=DType.BOOL), "a == 0.0f"),
        (let(Op.LOGICAL_XOR, "a", "b", dtype=DType.BOOL), "(a != 0.0f) != (b != 0.0f)"),
        (let(Op.ELU, "a", attrs=EluAttrs(1.5, 1.0, 2.0)), "op::elu(a, 1.5f, 1.0f, 2.0f)"),
        (
            let(Op.NAN_TO_NUM, "a", attrs=NanToNumAttrs(0.0, 1.0, -1.0)),
            "op::nan_to_num(a, 0.0f, 1.0f, -1.0f)",
        ),
    ],
)
def test_spelling(statement: Let, text: str) -> None:
    assert spelled(statement, "cpp") == text
    assert spelled(statement, "cuda") == text.replace("op::to_integer", "static_cast")


@pytest.mark.parametrize(
    ("divisor", "text"),
    [
        (6.0, "op::ratio(x, 6.0f)"),
        (1.7, "op::ratio(x, 1.7f)"),
        (4.0, "x / 4.0f"),  # which nvcc multiplies by 0.25f
        (0.7, "x / 0.7f"),
        (-6.0, "x / -6.0f"),
        (math.inf, "x / op::kInfinity<float>"),
        ("y", "x / y"),
    ],
)
def test_a_division_by_a_constant_has_no_branch_on_a_gpu(divisor: object, text: str) -> None:
    assert spelled(let(Op.DIV, "x", divisor), "cuda") == text
    assert "ratio" not in spelled(let(Op.DIV, "x", divisor), "cpp")
    assert "ratio" not in spelled(let(Op.DIV, "x", divisor, operands=DType.F64), "cuda")


@pytest.mark.parametrize(
    ("source", "result", "text"),
    [
        (DType.F32, DType.F64, "static_cast<double>(a)"),
        (DType.F16, DType.F32, "a"),
        (DType.F32, DType.F16, "op::to_compute(op::from_compute<op::half>(a))"),
        (DType.F64, DType.F16, "op::to_compute(op::from_compute<op::half>(static_cast<float>(a)))"),
        (DType.F32, DType.BOOL, "a != 0.0f"),
        (DType.BOOL, DType.F32, "a ? 1.0f : 0.0f"),
        (DType.BOOL, DType.I64, "a ? int64_t(1ll) : int64_t(0ll)"),
        (DType.F32, DType.U8, "static_cast<uint8_t>(op::to_integer<int64_t>(a))"),
        (DType.F32, DType.I32, "op::to_integer<int32_t>(a)"),
        (DType.I64, DType.I8, "static_cast<int8_t>(a)"),
    ],
)  # fmt: skip
def test_casts(source: DType, result: DType, text: str) -> None:
    statement = let(Op.CAST, "a", operands=source, dtype=result, attrs=CastAttrs(result))
    assert spelled(statement, "cpp") == text


def test_sixteen_bit_values_are_converted_where_they_are_stored() -> None:
    assert compute_type(DType.BF16) == "float"
    assert load_text(DType.BF16, "x[i]") == "op::to_compute(x[i])"
    assert load_text(DType.F32, "x[i]") == "x[i]"
    assert store_text(DType.F16, "v") == "op::from_compute<op::half>(v)"
    assert storage_pieces({DType.F32, DType.BF16}) == {"to_compute", "from_compute", "bfloat16"}
    assert storage_pieces({DType.F64}) == set()


terms = st.tuples(st.integers(-5, 5), st.lists(st.sampled_from([I, N]), max_size=2))
sums = st.lists(terms, min_size=1, max_size=4).map(
    lambda items: sum((f * (a[0] if a else 1) * (a[1] if a[1:] else 1) for f, a in items), start=0)
)


@given(sums, st.sampled_from([2, 3, N]), st.booleans())
def test_index_text_is_c_for_the_value(value: Size, denominator: Size, divide: bool) -> None:
    """Python's operators mean the same where nothing divided is below zero."""
    positive = value * value
    both = quotient(positive, denominator, {}) * -3 + remainder(positive, denominator, {}) * N
    expr = both + value if divide else value
    text = index_text(expr, str).replace("/", "//")
    for i, n in ((1, 1), (2, 3), (7, 4)):
        point = {"i": i, "n": n}
        assert eval(text, {}, point) == evaluate(expr, point)
    assert set(named_in(("i", "n"), text)) == symbols_of(expr)


def test_literals_and_names_are_spelled_by_the_language() -> None:
    signed = Integers(str, lambda name: f"int64_t({name})")
    assert signed.text(I * 2 - 3) == "int64_t(i) * 2 - 3"
    assert index_text(I * 2 - 3, lambda v: f"{v}u") == "i * 2u - 3u"
    assert index_text(0, lambda v: f"{v}u") == "0u"
    assert index_text(I * -1, str) == "-i"


def test_grouping_and_names() -> None:
    assert grouped("a + b") == "(a + b)" and grouped("a") == "a"
    assert named_in(("x", "x_1", "y"), "x_1 + x_12") == ("x_1",)
