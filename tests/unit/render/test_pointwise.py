"""Functors of the pointwise skeleton: which groups have one, and what it says."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from tests.nvcc import needs_nvcc, ptx_of
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.device import pieces
from opweld.ir.graph import Node
from opweld.ir.kernels.kernel import Pointwise
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.render import render
from opweld.render.cuda.pointwise import functor_pieces, functor_text, is_functor
from opweld.target import SM_90A


def fused_of(*outputs: Node) -> Pointwise:
    (fused,) = lower(plan_of(*outputs, target=SM_90A))
    assert isinstance(fused, Pointwise)
    return fused


def operands(*outputs: Node) -> list[str]:
    found = re.search(r"Types<(.*)>;", functor_text(fused_of(*outputs)).replace("\n", " "))
    assert found is not None
    return re.findall(r"op::Along<([^>]*)>", found[1])


def test_operands_lie_along_axes_of_the_results() -> None:
    m = Make()
    x, row, column = m.x("x", BATCH, 24), m.x("b", 24), m.x("c", BATCH, 1)
    assert operands(m.mul(m.add(x, row), column)) == [
        "const float, 0, 1",
        "const float, 1",
        "const float, 0, 1",
        "float, 0, 1",
    ]


def test_axes_may_be_permuted() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 6), m.x("y", 6, BATCH)
    assert operands(m.add(m.permute(x, 1, 0), y))[:2] == ["const float, 1, 0", "const float, 0, 1"]


def test_what_is_read_in_other_ways_has_kernels_of_its_own() -> None:
    m = Make()
    x, wide = m.x("x", BATCH, 3, 4), m.x("wide", BATCH, 17)
    others = (
        m.neg(m.flip(x, 1)),
        m.cos(m.pad(x, (0, 1, 2), (0, 2, 1))),
        m.neg(m.cat(1, x, m.x("y", BATCH, 5, 4))),
        m.neg(m.slice(x, 0, BATCH - 2, 2)),  # from where is known at the call alone
        m.neg(m.slice(x, 2, 0, 2, 2)),
        functools.reduce(m.add, [m.slice(wide, 1, i, 1) for i in range(17)]),
    )
    assert [is_functor(fused_of(each)) for each in others] == [False] * len(others)
    assert is_functor(fused_of(m.neg(x)))


def test_parts_of_a_tensor_are_operands_of_their_own() -> None:
    m = Make()
    x = m.x("x", BATCH, 5, 8, dtype=DType.F16)
    picked = m.reshape(m.slice(x, 1, 3, 1), BATCH, 8)
    text = functor_text(fused_of(m.mul(m.slice(picked, 1, 0, 4), m.slice(picked, 1, 4, 4))))
    assert "void of(op::half x_1, op::half x_2, op::half& result)" in text
    assert "op::to_compute(x_1) * op::to_compute(x_2)" in text
    assert "const op::Part<op::half, 3> x_1(operands[0], {{1, 3, 1}, {2, 0, 4}});" in text
    assert "const op::Part<op::half, 3> x_2(operands[0], {{1, 3, 1}, {2, 4, 4}});" in text
    assert "parts[] = {x_1, x_2, operands[1]};" in text
    assert operands(m.neg(m.slice(m.x("y", 3, 9), 1, 2, 7)))[0] == "const float, 0, 1"


def test_a_part_may_be_as_long_as_the_results_are() -> None:
    m = Make()
    x = m.x("x", 4, BATCH)
    text = functor_text(fused_of(m.mul(m.slice(x, 1, 1, BATCH - 1), m.slice(x, 1, 0, BATCH - 1))))
    assert "const op::Part<float, 2> x_1(operands[0], {{1, 1, operands[1].sizes[1]}});" in text
    assert "const op::Part<float, 2> x_2(operands[0], {{1, 0, operands[1].sizes[1]}});" in text


def test_a_tensor_beside_its_transpose_is_given_twice() -> None:
    m = Make()
    square = m.x("square", BATCH, BATCH)
    sum_of_both = m.add(square, m.permute(square, 1, 0))
    assert operands(sum_of_both)[:2] == ["const float, 0, 1", "const float, 1, 0"]
    text = functor_text(fused_of(sum_of_both))
    assert "parts[] = {operands[0], operands[0], operands[1]};" in text
    assert "op::pointwise_transposed<" in text and "op::Part" not in text


def test_only_what_is_used_is_a_statement() -> None:
    m = Make()
    x = m.x("x", BATCH, 24)
    twice = m.exp(x)
    text = functor_text(fused_of(m.add(m.mul(twice, twice), x)))
    body = text.partition("void of(")[2].partition("  }\n")[0]
    assert "const float exp_1 = op::exp(x);" in body
    assert "result = exp_1 * exp_1 + x;" in body
    assert body.count(";") == 2


def test_16_bit_values_are_widened_once_and_rounded_at_the_end() -> None:
    m = Make()
    text = functor_text(fused_of(m.exp(m.x("x", BATCH, 24, dtype=DType.BF16))))
    assert "void of(op::bfloat16 x, op::bfloat16& result)" in text
    assert "result = op::from_compute<op::bfloat16>(op::" in text
    assert "op::to_compute(x)" in text


def test_sizes_are_no_part_of_a_functor() -> None:
    texts = []
    for size in (24, 2**33):
        m = Make()
        texts.append(functor_text(fused_of(m.exp(m.x("x", BATCH, size)))))
    assert texts[0].split("struct")[1] == texts[1].split("struct")[1]


def test_there_is_one_launcher_a_group_and_what_it_needs() -> None:
    m = Make()
    x = m.x("x", BATCH, 24)
    kernels = lower(plan_of(m.exp(m.call(m.neg(x)))))
    source = render("case", kernels, "cuda")
    assert source.entry_points == ("k1_neg_launch", "k2_exp_launch")
    assert all(f'extern "C" int {name}(' in source.text for name in source.entry_points)
    assert source.text.count("__global__") == 1
    assert "type_of<float>" in source.text and "type_of<double>" not in source.text
    needed = functor_pieces(kernels[0])
    assert pieces(sorted(needed)) and "type_of_float" in needed


@needs_nvcc
def test_no_thread_divides_by_a_size(tmp_path: Path) -> None:
    """Nor does it read an operand four times that is the same for four neighbours."""
    m = Make()
    x, scale, shift = m.x("x", BATCH, 64, 56), m.x("scale", 64, 1), m.x("shift", 64, 1)
    fused = lower(plan_of(m.add(m.mul(x, scale), shift), target=SM_90A))
    ptx = ptx_of(render("norm", fused, "cuda").text, tmp_path)
    narrow = [each for each in ptx.split(".entry ") if re.match(r"\S*elements\S*Li4EjLi4E", each)]
    assert len(narrow) == 1
    assert not re.findall(r"\b(?:div|rem)\.u32", narrow[0])
    assert "div.u64" in ptx, "wide ones have no other way"
    # Of each operand: as a vector, once for all, one at a time, and those left at the end of a row.
    assert len(re.findall(r"\bld\.global", narrow[0])) == 3 * (1 + 1 + 4 + 1)
