"""The bytes that must move and those that do, each figure by hand."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from tests.emulation.emulate import emulate
from tests.kernels import library
from tests.reduction_kernels import reduction_of
from tests.unit.plan.convolving import TF32, conv
from tests.unit.plan.plans import BATCH, Make, graph

from opweld import device
from opweld.ir.attrs import CastAttrs
from opweld.ir.expr import symbol
from opweld.ir.graph import Node
from opweld.ir.kernels.reduction import Reduction
from opweld.ir.ops import Op
from opweld.ir.plan import Conditions, Plan, Traffic
from opweld.ir.text import to_text
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.cuda import texts as cuda
from opweld.render.cuda.texts import cuda_text
from opweld.render.pieces import num_pieces, partial_bytes
from opweld.render.traffic import with_traffic
from opweld.target import CPU, SM_90A, Target

MIB = 2**20
SIZES = (("s0", 300),)


def planned(*outputs: Node, target: Target = SM_90A, weight_cache: bool = True) -> Plan:
    conditions = Conditions(sizes=SIZES, weight_cache=weight_cache)
    plan = make_plan(graph(*outputs), target, conditions=conditions)
    return with_traffic(plan, lower(plan), target, SIZES)


def traffic_of(*outputs: Node, **how) -> list[Traffic]:
    return [group.traffic for group in planned(*outputs, **how).groups if group.fused]


@pytest.mark.parametrize("target", (SM_90A, CPU), ids=("cuda", "cpu"))
def test_elements_are_read_and_written_once(target):
    m = Make()
    x, row, column = m.x("x", BATCH, 512), m.x("row", 512), m.x("column", BATCH, 1)
    half = m.arena.make(
        Op.CAST, m.x("half", BATCH, 512, dtype=DType.F16), attrs=CastAttrs(DType.F32)
    )
    result = m.gt(m.add(m.mul(m.add(x, half), row), column), 0.0)
    each = 300 * 512 * (4 + 2 + 1) + 512 * 4 + 300 * 4
    assert traffic_of(result, target=target) == [Traffic(each, each)]


def test_of_a_padded_slice_the_slice_is_read():
    m = Make()
    sliced = m.slice(m.x("x", BATCH, 1000), 1, 8, 64)
    result = m.exp(m.pad(sliced, (0, 3), (0, 5), 0.0))
    (found,) = traffic_of(result)
    assert found.moved_bytes == 300 * 72 * (4 + 4)


def test_a_softmax_on_the_chip_reads_its_rows_once():
    m = Make()
    assert traffic_of(m.softmax(m.x("x", BATCH, 4096), 1)) == [Traffic(*(2 * 4 * 300 * 4096,) * 2)]


def test_a_softmax_of_longer_rows_reads_them_twice():
    """In one walk for the largest and the powers, and in one for the results."""
    m = Make()
    elems = 300 * 4 * MIB
    (found,) = traffic_of(m.softmax(m.x("x", BATCH, 4 * MIB), 1))
    assert found == Traffic(2 * 4 * elems, 3 * 4 * elems)


def test_a_row_in_a_cores_cache_is_read_once_and_a_longer_one_in_every_walk():
    """Three walks: the largest; exp, which is kept where the result will stand; the quotient."""
    m = Make()
    elems = 300 * 65536
    (found,) = traffic_of(m.softmax(m.x("x", BATCH, 65536), 1), target=CPU)
    assert found == Traffic(2 * 4 * elems, 2 * 4 * elems)
    elems = 300 * 4 * MIB
    (found,) = traffic_of(m.softmax(m.x("long", BATCH, 4 * MIB), 1), target=CPU)
    assert found == Traffic(2 * 4 * elems, (1 + 2 + 2) * 4 * elems)


def test_a_layer_norm_of_huge_rows():
    """What is folded of each row is cut in 66 pieces and put together by 8 times 132 blocks."""
    m = Make()
    x, weight, bias = m.x("x", 16, 4 * MIB), m.w("weight", 4 * MIB), m.w("bias", 4 * MIB)
    folds, results = traffic_of(m.add(m.mul(m.standardised(x, 1), weight), bias))
    row = 4 * 4 * MIB
    assert folds.must_bytes == 16 * row + 2 * 16 * 4
    spread = 3 * 8
    assert folds.moved_bytes == folds.must_bytes + 2 * 16 * 66 * spread
    assert results == Traffic(*(2 * 16 * row + 2 * row + 2 * 16 * 4,) * 2)


def test_what_repeats_behind_more_than_the_cache_has_is_read_again():
    """Where the operand is read through a view that is no broadcast, threads do not hold it."""
    m = Make()
    x, flipped = m.x("x", 16, 4 * MIB), m.flip(m.w("weight", 4 * MIB), 0)
    (found,) = traffic_of(m.mul(x, flipped), target=replace(SM_90A, holds_operands=False))
    row = 4 * 4 * MIB
    assert found == Traffic(2 * 16 * row + row, 2 * 16 * row + 16 * row)
    (found,) = traffic_of(m.mul(m.slice(x, 1, 0, MIB), m.slice(flipped, 0, 0, MIB)))
    assert found.moved_bytes == found.must_bytes == (2 * 16 + 1) * row // 4


def test_a_sum_in_pieces_writes_and_reads_one_float_of_each():
    m = Make()
    (found,) = traffic_of(m.reduced("sum", m.x("x", 8, MIB), 1))
    must = 4 * 8 * MIB + 4 * 8
    assert found == Traffic(must, must + 2 * 8 * (8 * 132 // 8) * 4)
    (found,) = traffic_of(m.reduced("sum", m.x("x", 8, MIB), 1), target=CPU)
    assert found == Traffic(must, must + 2 * 8 * 64 * 8)  # of double


def test_a_sum_of_many_rows_is_not_cut():
    m = Make()
    (found,) = traffic_of(m.reduced("argmax", m.x("x", 4000, 1000), 1))
    assert found == Traffic(*(4000 * 1000 * 4 + 4000 * 8,) * 2)


def linear(weight_cache: bool) -> Traffic:
    m = Make()
    x, weight, bias = m.x("x", 2048, 4096), m.w("weight", 8192, 4096), m.w("bias", 8192)
    y = m.product("linear", x, weight, bias, shape=(2048, 8192))
    (found,) = traffic_of(m.relu(y), weight_cache=weight_cache)
    return found


def test_a_linear_splits_its_operand_and_reads_the_copies():
    """A float32 value has two parts of 2 bytes: copies are as large as what they copy."""
    x, weight, bias, y = (4 * n for n in (2048 * 4096, 8192 * 4096, 8192, 2048 * 8192))
    held = linear(weight_cache=True)
    assert held.must_bytes == x + weight + bias + y
    assert held.moved_bytes == (x + x) + x + weight + bias + y
    live = linear(weight_cache=False)
    assert live.moved_bytes == held.moved_bytes + 3 * weight + weight


def test_a_convolution_of_one_tap_rounds_its_filters_and_copies_nothing_else():
    m = Make()
    y = conv(m, m.x("x", BATCH, 64, 28, 28), 96, (1, 1))
    plan = make_plan(graph(m.relu(y)), SM_90A, conditions=replace(TF32, sizes=SIZES))
    (group,) = with_traffic(plan, lower(plan), SM_90A, SIZES).groups
    x, weight, result = 4 * 300 * 64 * 784, 4 * 96 * 64, 4 * 300 * 96 * 784
    must = x + weight + result
    assert group.traffic == Traffic(must, must + 2 * weight)


def test_a_small_product_writes_and_reads_partial_sums():
    """16 tiles of 128 by 128 leave most multiprocessors idle: each sum has 132 // 16 parts."""
    m = Make()
    a, b = m.x("a", 512, 16384), m.x("b", 512, 16384)
    y = m.product("mm", a, m.permute(b, 1, 0), shape=(512, 512))
    (found,) = traffic_of(m.relu(y))
    operand, result = 4 * 512 * 16384, 4 * 512 * 512
    # Both operands are split as they are multiplied.
    assert found == Traffic(2 * operand + result, 2 * operand + result + 2 * 8 * result)


def test_two_new_operands_of_many_results_are_split_before():
    m = Make()
    a, b = m.x("a", 1024, 16384), m.x("b", 1024, 16384)
    (found,) = traffic_of(m.product("mm", a, m.permute(b, 1, 0), shape=(1024, 1024)))
    operand, result = 4 * 1024 * 16384, 4 * 1024 * 1024
    split = (operand + operand) + (3 * operand + operand) + 2 * operand
    assert found == Traffic(2 * operand + result, split + result + 2 * 2 * result)


def test_the_plan_says_both():
    m = Make()
    text = to_text(planned(m.softmax(m.x("x", 2000, 4 * MIB), 1)))
    row = 4 * 4 * MIB
    figures = f"must move {2 * 2000 * row} bytes, moves {3 * 2000 * row}, 1.50 times as many"
    assert f"\n  {figures}\n" in text
    text = to_text(planned(m.relu(m.x("y", 1000))))
    assert "\n  must move 8000 bytes, moves 8000\n" in text


FOLDS = ("sum", "prod", "argmax", "amax", "any")
TYPES = (DType.F32, DType.F64, DType.F16, DType.I32)


def cut_reduction(op: str, dtype: DType) -> Reduction:
    m = Make()
    x = m.x("x", BATCH, 16 * MIB, dtype=DType.BOOL if op == "any" else dtype)
    return replace(reduction_of(m.reduced(op, x, 1)), cut=True)


@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_what_cpp_keeps_of_a_piece(op, dtype):
    reduction = cut_reduction(op, dtype)
    entry = library(render("k", (reduction,), "c++").text)[f"{reduction.group}_partial_bytes"]
    entry.restype = ctypes.c_int64
    assert partial_bytes(reduction, "c++") == entry()


def test_positions_of_rows_that_may_be_long_take_64_bits():
    def kept(length):
        m = Make()
        reduced = m.reduced("argmax", m.x("x", BATCH, length), 1)
        return partial_bytes(replace(reduction_of(reduced), cut=True), "cuda")

    assert [kept(length) for length in (1000, 2**31 - 1, 2**31, symbol("s1"))] == [8, 8, 16, 16]


TELL = """
extern "C" int tell(int64_t* told, int64_t num_rows, int64_t length, void*) {{
  told[0] = {0}_pieces(num_rows, length);
  told[1] = {0}_partial_bytes();
  return 0;
}}
"""
EMULATED = replace(SM_90A, multiprocessors=1)


@pytest.mark.parametrize(("op", "dtype"), [*((op, DType.F32) for op in FOLDS), ("sum", DType.F64)])
def test_what_cuda_keeps_of_a_piece_and_how_many_there_are(op, dtype):
    """Of the texts by themselves: the skeleton asks the same function (`pieces_for`)."""
    reduction = cut_reduction(op, dtype)
    with mock.patch.object(cuda, "is_row_functor", lambda _: False):
        text = cuda_text((reduction,)) + TELL.format(reduction.group)
    told = np.zeros(2, np.int64)
    for num_rows, length in ((1, 16 * MIB), (3, 16 * MIB), (1, 3 * 4096), (40, 16 * MIB)):
        emulate(text, "tell", [told, num_rows, length])
        pieces = num_pieces(reduction, EMULATED, num_rows, length)
        assert told.tolist() == [pieces, partial_bytes(reduction, "cuda")]


def test_pieces_on_a_cpu_are_those_of_the_host_code():
    folder = Path(device.__file__).parent / "host"
    text = (folder / "host_cpu.h").read_text().partition("// Fewer elements")[2]
    text = "#include <cstdint>\nnamespace host {\n//" + text + (folder / "rows_cpu.h").read_text()
    text += (
        'extern "C" int64_t pieces(int64_t rows, int64_t n) { return host::num_pieces(rows, n); }\n'
    )
    entry = library(text).pieces
    entry.restype = ctypes.c_int64
    m = Make()
    reduction = replace(reduction_of(m.reduced("sum", m.x("x", BATCH, 8), 1)), cut=True)
    for num_rows, length in ((1, 100), (1, 3 * 65536), (5, 65536), (63, 2**24), (64, 2**24)):
        found = entry(ctypes.c_int64(num_rows), ctypes.c_int64(length))
        assert num_pieces(reduction, CPU, num_rows, length) == found
