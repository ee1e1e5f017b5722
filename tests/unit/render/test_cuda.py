from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pytest
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.attrs import IotaAttrs
from opweld.ir.graph import Node
from opweld.ir.kernels.kernel import Pointwise
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.render import render
from opweld.render.cuda import texts as cuda
from opweld.target import SM_90A


@pytest.fixture(autouse=True)
def own_kernels() -> Iterator[None]:
    """Also of groups that the skeleton would run (test_pointwise.py)."""
    with (
        mock.patch.object(cuda, "is_functor", _never),
        mock.patch.object(cuda, "is_row_functor", _never),
    ):
        yield


def _never(fused: Pointwise) -> bool:
    return False


def text_of(*outputs: Node, target=SM_90A) -> str:
    text = render("case", lower(plan_of(*outputs, target=target)), "cuda").text
    return text[text.index("// k1_") :]


def function(text: str, name: str) -> str:
    """The definition of a function, from its template head to its closing brace."""
    begin = text.index(f"{name}(")
    return text[begin : text.index("\n}\n", begin)]


def test_entry_points_have_the_documented_signature() -> None:
    m = Make()
    x, row = m.x("x", BATCH, 24), m.x("row_weight", 24)
    text = text_of(m.add(x, row))
    heads = dict(re.findall(r"^static int (\w+)\(\s*([^)]*)\)", text, re.MULTILINE))
    assert {k: re.sub(r"\s+", " ", v) for k, v in heads.items()} == {
        "k1_add_contiguous": "const void* x, const void* row_weight, void* result, int64_t s0, "
        "int64_t num_elems, int64_t max_offset, int aligned, void* stream",
        "k1_add_strided": "const void* x, const void* row_weight, void* result, int64_t s0, "
        "int64_t x_stride0, int64_t x_stride1, int64_t row_weight_stride0, "
        "int64_t result_stride0, int64_t result_stride1, "
        "int64_t num_elems, int64_t max_offset, int aligned, void* stream",
    }
    entries = re.findall(r'extern "C" int (\w+)\(\s*([^)]*)\)', text)
    assert entries == [("k1_add_launch", "const TensorView* operands, void* stream")]


def test_every_kernel_and_launcher_of_a_source_is_an_entry_point() -> None:
    m = Make()
    x = m.x("x", BATCH, 24)
    source = render("case", lower(plan_of(m.exp(m.call(m.neg(x))))), "cuda")
    assert source.entry_points == ("k1_neg_launch", "k2_exp_launch")
    assert all(f'extern "C" int {name}(' in source.text for name in source.entry_points)
    again = render("case", lower(plan_of(m.exp(m.call(m.neg(x))))), "cuda")
    assert again == source


def test_a_contiguous_operand_is_one_packet() -> None:
    m = Make()
    body = function(text_of(m.exp(m.x("x", BATCH, 24))), "k1_exp_contiguous_packet")
    assert "op::load_vector<kLanes>(x + at)" in body
    assert "op::store_vector(result + at, result_vector);" in body
    assert "%" not in body and "/" not in body


def test_operands_of_a_row_are_read_before_the_lanes() -> None:
    m = Make()
    x, row, column = m.x("x", BATCH, 24), m.x("b", 24), m.x("c", BATCH, 1)
    body = function(text_of(m.mul(m.add(x, row), column)), "k1_add_mul_contiguous_packet")
    before, _ = body.split("#pragma unroll")
    assert "op::load_vector<kLanes>(&b[i1])" in before
    assert "const float c_1 = c[i0];" in before


def test_an_unsigned_index_is_summed_before_it_meets_the_pointer() -> None:
    """`x - i1 * 4u + ...` would move the pointer by four billion elements, and so would nvcc's
    reading of `x[i0 * 12u - i1 * 4u + i2 + 8u]` (device/elements/positions.cuh).
    """
    m = Make()
    text = text_of(m.neg(m.flip(m.x("x", BATCH, 3, 4), 1)))
    assert "op::load_vector<kLanes>(&x[op::difference(i0 * 12u + i2 + 8u, i1 * 4u)]);" in text
    assert not re.search(r"load_vector<kLanes>\(\w+ [+-] (?!at\))", text)


def test_what_differs_between_lanes_is_read_in_the_lanes() -> None:
    m = Make()
    x, row = m.x("x", BATCH, 7), m.x("b", 7)
    body = function(text_of(m.add(x, row)), "k1_add_contiguous_packet")
    _, inside = body.split("#pragma unroll")
    assert "const Index lane_at = at + lane;" in inside
    assert "const float b_1 = b[i1];" in inside


def test_only_the_last_block_looks_where_the_elements_end() -> None:
    m = Make()
    kernel = function(text_of(m.exp(m.x("x", BATCH, 24))), "k1_exp_contiguous_kernel")
    full, last = kernel.split("return;")
    assert "if (num_elems - first >= 128 * kLanes) {" in full
    assert "_packet<kLanes>(x, result, begin);" in full
    assert "for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {" in last
    assert "_packet<1>(x, result, at);" in last


def test_several_packets_a_thread() -> None:
    m = Make()
    target = replace(SM_90A, loads_in_flight=4)
    text = text_of(m.exp(m.x("x", BATCH, 24)), target=target)
    kernel = function(text, "k1_exp_contiguous_kernel")
    assert "for (int k = 0; k < 4; ++k) {" in kernel
    assert "begin + k * (128 * kLanes)" in kernel
    assert "constexpr int64_t kBlock = 512 * kLanes;" in text
    assert "constexpr int64_t kBlock = 128;" in text  # the strided kernel


def test_launchers_choose_index_and_access_width() -> None:
    m = Make()
    launcher = function(text_of(m.exp(m.x("x", BATCH, 24))), "static int k1_exp_contiguous")
    for instance in ("<4, uint32_t>", "<4, uint64_t>", "<1, uint32_t>", "<1, uint64_t>"):
        assert f"k1_exp_contiguous_launch{instance}" in launcher
    assert "num_elems < (1ll << 31) && max_offset < (1ll << 31)" in launcher
    assert "if (aligned) launch = narrow ?" in launcher


def test_device_code_gets_only_the_sizes_it_reads() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 6), m.x("y", 6, BATCH)
    plain = text_of(m.exp(x))
    assert "Index s0" not in plain and "int64_t s0" in plain
    assert "Index s0" in text_of(m.add(m.permute(x, 1, 0), y))


def test_values_made_of_positions_are_signed_and_wide() -> None:
    """As unsigned 32-bit numbers, 3 - 2 * i would wrap."""
    m = Make()
    x = m.x("x", BATCH, 8, dtype=DType.I64)
    position = m.arena.iota(IotaAttrs(3, -2, 8), DType.I64)
    assert "const int64_t index_1 = -int64_t(i1) * 2 + 3;" in text_of(m.add(x, position))


@pytest.mark.parametrize("reads", ["inside_1 ? x[", "i2 - 2u < 5u", "i1 - 1u < 4u"])
def test_guards_are_unsigned_and_named(reads: str) -> None:
    m = Make()
    text = text_of(m.cos(m.pad(m.x("x", BATCH, 4, 5), (0, 1, 2), (0, 2, 1))))
    assert reads in function(text, "k1_cos_contiguous_packet")


def test_a_test_within_another_begins_with_its_name() -> None:
    """Outside the first, what the second divides by may be 0."""
    m = Make()
    both = m.cat(1, m.x("x", BATCH, 5), m.x("y", BATCH, 3))
    text = text_of(m.neg(m.pad(both, (2, 0), (0, 0))))
    body = function(text, "k1_neg_strided_kernel")
    assert "const bool inside_1 = i0 - 2u < s0;" in body
    assert "const bool inside_2 = inside_1 && i1 < 5u;" in body
    assert "const float x_1 = inside_2 ? x[" in body


def test_large_literals_are_wide() -> None:
    m = Make()
    x = m.x("x", BATCH, 2, 2**33)
    assert "% 8589934592ull" in text_of(m.add(x, m.x("b", BATCH, 1, 2**33)))
