from __future__ import annotations

import re

import numpy as np
import pytest
from tests.kernels import run_groups
from tests.unit.ir.graphs import graph
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.graph import Node
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.render import render
from opweld.target import CPU


def text_of(*outputs: Node) -> str:
    text = render("case", lower(plan_of(*outputs, target=CPU)), "c++").text
    return text[text.index("// k1_") :]


def body(text: str, variant: str = "contiguous") -> str:
    begin = text.index(f"_{variant}(")
    return text[begin : text.index("\n}\n", begin)]


def test_entry_points_have_the_documented_signature() -> None:
    m = Make()
    text = text_of(m.add(m.x("x", BATCH, 24), m.x("b", 24)))
    heads = dict(re.findall(r'extern "C" void (\w+)\(\s*([^)]*)\)', text))
    assert {k: re.sub(r"\s+", " ", v) for k, v in heads.items()} == {
        "k1_add_contiguous": "const void* x_data, const void* b_data, void* result_data, "
        "int64_t s0, int64_t begin, int64_t end",
        "k1_add_strided": "const void* x_data, const void* b_data, void* result_data, int64_t s0, "
        "int64_t x_stride0, int64_t x_stride1, int64_t b_stride0, int64_t result_stride0, "
        "int64_t result_stride1, int64_t begin, int64_t end",
    }


def test_an_elementwise_kernel_is_one_loop() -> None:
    m = Make()
    loop = body(text_of(m.exp(m.x("x", BATCH, 3))))
    assert "for (int64_t i = begin; i < end; ++i) {" in loop and "%" not in loop


def test_long_rows_have_a_loop_each() -> None:
    m = Make()
    loop = body(text_of(m.add(m.x("x", BATCH, 16), m.x("b", 16))))
    assert "for (int64_t i1 = first; i1 < last; ++i1) {" in loop


@pytest.mark.parametrize("elems", [2, 3, 15])
def test_short_rows_share_a_loop(elems: int) -> None:
    m = Make()
    loop = body(text_of(m.add(m.x("x", BATCH, elems), m.x("b", elems))))
    assert "for (uint32_t k = first; k < last; ++k) {" in loop
    assert f"const int64_t i1 = k % {elems}u;" in loop
    assert "x[place]" in loop and "result[place]" in loop
    assert "i0" not in loop  # nobody reads the row's number


def test_rows_that_step_over_elements_are_short_for_longer() -> None:
    m = Make()
    turned = m.permute(m.x("x", BATCH, 24, 4), 0, 2, 1)
    assert "uint32_t k" in body(text_of(m.add(turned, m.x("y", BATCH, 4, 24))))


def test_strided_kernels_keep_a_loop_a_row() -> None:
    m = Make()
    text = text_of(m.add(m.x("x", BATCH, 3), m.x("b", 3)))
    assert "uint32_t k" not in body(text, "strided")


def test_bools_are_bytes_in_memory() -> None:
    m = Make()
    loop = body(text_of(m.logical_not(m.x("mask", BATCH, 8, dtype=DType.BOOL))))
    assert "const uint8_t* __restrict__ mask" in loop and "mask[i] != 0" in loop


def test_comparisons_that_always_hold_are_left_out() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 20), m.x("y", BATCH, 12)
    loop = body(text_of(m.relu(m.cat(1, x, y, x))))
    assert "inside_1 = (i1 < 20);" in loop
    assert "inside_2 = (i1 >= 20) & (i1 < 32);" in loop
    assert "inside_3 = (i1 >= 32);" in loop


SHAPES = [
    ((BATCH, 3), (BATCH, 1)),
    ((BATCH, 3), (3,)),
    ((BATCH, 5, 3), (1, 5, 1)),
    ((BATCH, 300, 3), (BATCH, 1, 3)),
    ((2, BATCH, 2, 3), (2, 1, 2, 1)),
    ((BATCH, 2, 2, 7), (2, 2, 1)),
    ((4, 50, 6, 2), (4, 1, 6, 1)),
    ((BATCH, 17), (BATCH, 1)),
]


@pytest.mark.parametrize("n", [1, 2, 700])
@pytest.mark.parametrize(("shape", "other"), SHAPES)
def test_every_form_of_loop(shape, other, n: int) -> None:
    """Ranges that begin and end within rows, spans that end before the loop's longest run."""
    m = Make()
    x, y = m.x("x", *shape), m.x("y", *other)
    case = graph(m.sub(m.mul(x, y), y))
    sizes = {"s0": n}
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.integers(-9, 9, [n if size == BATCH else size for size in sizes_of]).astype("f4")
        for name, sizes_of in (("x", shape), ("y", other))
    }
    (wanted,) = interpret_outputs(case, feeds, sizes)
    (got,) = run_groups(case, feeds, sizes, language="c++")
    np.testing.assert_array_equal(got, wanted)
