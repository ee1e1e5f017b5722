"""Functors of the skeleton of rows: which groups have one, and what it says."""

from __future__ import annotations

import re

import pytest
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.expr import symbol
from opweld.ir.graph import Node
from opweld.ir.kernels.reduction import Reduction
from opweld.lower import lower
from opweld.render import render
from opweld.render.cuda.reduce_rows import is_row_functor, row_functor_text
from opweld.target import SM_90A

LENGTH = symbol("s1")


def reduction_of(*outputs: Node) -> Reduction:
    (reduction,) = lower(plan_of(*outputs, target=SM_90A))
    assert isinstance(reduction, Reduction)
    return reduction


def text_of(*outputs: Node) -> str:
    return row_functor_text(reduction_of(*outputs))


def teams(text: str, which: str = "Teams") -> list[str]:
    found = re.search(rf"using {which} = op::Types<(.*?)>;", text, re.S)
    assert found is not None
    return re.findall(r"op::Team<([^>]*)>", found[1])


def test_softmax_is_three_passes_in_few_lines() -> None:
    m = Make()
    text = text_of(m.softmax(m.x("x", BATCH, 4096), 1))
    assert [line for line in text.splitlines() if "return op::exp(x - amax_1);" in line]
    assert "using Passes = op::Types<Pass0, Pass1, Pass2>;" in text
    assert len(text.splitlines()) <= 36


def test_sizes_and_strides_are_no_part_of_the_text() -> None:
    texts = []
    for size in (4, 8):
        m = Make()
        texts.append(text_of(m.softmax(m.x("x", BATCH, LENGTH * size), 1)).split("struct ", 1)[1])
    assert texts[0] == texts[1]


def test_operands_lie_along_axes_of_the_space() -> None:
    m = Make()
    x, weight, scale = m.x("x", BATCH, 3, 40), m.x("weight", 40), m.x("scale", BATCH, 1, 1)
    text = text_of(m.mul(m.mul(m.softmax(x, 2), weight), scale)).replace("\n", " ")
    found = re.search(r"Types<(.*?)>;", text)
    assert found is not None
    assert re.findall(r"op::Along<([^>]*)>", found[1]) == [
        "const float, 0, 1, 2",
        "const float, 2",
        "const float, 0, 3, 3",
        "float, 0, 1, 2",
    ]


def test_rows_that_are_read_in_part_have_kernels_of_their_own() -> None:
    """The skeleton would go by the size of the operand."""
    m = Make()
    x = m.x("x", BATCH, 12)
    for part in (m.slice(x, 1, 0, 10), m.slice(x, 0, 0, 4)):
        assert not is_row_functor(reduction_of(m.reduced("sum", part, 1)))
        assert not is_row_functor(reduction_of(m.reduced("sum", part, 0, 1)))
        assert not is_row_functor(reduction_of(m.reduced("sum", part, 0)))
    assert is_row_functor(reduction_of(m.reduced("sum", x, 1)))


@pytest.mark.parametrize(("length", "team"), [(128, "16, 2, 32"), (8192, "256, 8, 2048")])
def test_a_known_length_compiles_its_own_instance_only(length: int, team: str) -> None:
    m = Make()
    text = text_of(m.softmax(m.x("x", BATCH, length), 1))
    assert teams(text) == [team] and f"kLength = {length};" in text


def test_columns_have_instances_for_single_elements_too() -> None:
    m = Make()
    text = text_of(m.softmax(m.x("x", BATCH, LENGTH, 64), 1))
    assert "op::AcrossRows" in text and "kLeastRows = 16384;" in text
    assert len(teams(text)) > 1 and len(teams(text, "Singles")) > 1


def test_a_row_that_may_be_cut_takes_memory() -> None:
    m = Make()
    whole, cut = m.softmax(m.x("x", BATCH, 64), 1), m.reduced("sum", m.x("y", 1 << 20), 0)
    assert "op::CutRows" not in text_of(whole)
    source = render("case", (reduction_of(cut),), "cuda")
    assert len(source.entry_points) == 2
    assert source.entry_points[1].endswith("_scratch")
    for name in source.entry_points:
        assert f" {name}(const TensorView* operands" in source.text


def test_what_is_read_in_other_ways_has_kernels_of_its_own() -> None:
    m = Make()
    x = m.x("x", BATCH, 9, 8)
    others = (
        m.softmax(m.flip(x, 1), 1),
        m.softmax(m.pad(x, (0, 2, 1), (0, 1, 3)), 1),
    )
    assert [is_row_functor(reduction_of(each)) for each in others] == [False] * len(others)
    assert is_row_functor(reduction_of(m.softmax(x, 1)))
