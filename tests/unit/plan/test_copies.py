"""Which copies into another order take a kernel of their own."""

from __future__ import annotations

import pytest
from tests.unit.plan.convolving import conv
from tests.unit.plan.plans import BATCH, Make, graph
from tests.unit.plan.test_moved_results import copied

from opweld.ir.attrs import CastAttrs
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType
from opweld.plan.layouts.copies import (
    ALONE,
    BEHIND_ROWS,
    IN_PASSING,
    reductions_over_space,
    shares_of_copies,
)

NONE = frozenset[int]()


def convolution(m: Make) -> Node:
    return conv(m, m.x("x", BATCH, 56, 56, 64), 64, (3, 3), last=True)


def test_a_convolution_in_tiles_writes_its_result_or_a_copy() -> None:
    m = Make()
    made = convolution(m)
    result = m.relu(made)
    copy = copied(m, result)
    tiled = frozenset({made.serial})
    assert shares_of_copies(graph(copy), tiled, NONE) == []
    assert shares_of_copies(graph(copy), NONE, tiled) == [(copy, ALONE)], "each channel by itself"
    both = graph(copy, m.reduced("mean", result, 1, 2))
    assert shares_of_copies(both, tiled, NONE) == [(copy, ALONE)], (
        "it is read in its own order, too"
    )


def test_what_a_kernel_of_elements_computes_is_copied_in_passing() -> None:
    m = Make()
    made = convolution(m)
    copy = copied(m, m.relu(made))
    assert shares_of_copies(graph(copy), NONE, NONE) == [(copy, IN_PASSING)]


def test_what_is_computed_behind_rows_is_copied_by_their_kernel_or_another() -> None:
    m = Make()
    made = convolution(m)
    copy = copied(m, m.relu(m.mul(m.softmax(made, 3), 2.0)))
    for tiled in (NONE, frozenset({made.serial})):
        assert shares_of_copies(graph(copy), tiled, NONE) == [(copy, BEHIND_ROWS)]


def test_reductions_over_space_read_their_operand_twice() -> None:
    m = Make()
    made = convolution(m)
    folds = m.reduced("mean", made, 1, 2), m.reduced("sum", made, 1, 2)
    found = graph(*folds, m.relu(made))
    assert reductions_over_space(found, frozenset({made.serial})) == [made], "once for both"
    assert reductions_over_space(found, NONE) == []
    assert reductions_over_space(graph(*folds), frozenset({made.serial})) == [], "it is read once"
    of_channels = graph(m.reduced("mean", made, 3))
    assert reductions_over_space(of_channels, frozenset({made.serial})) == []


@pytest.mark.parametrize("in_tiles", [False, True])
def test_a_copy_that_a_convolution_reads_is_a_kernel(in_tiles: bool) -> None:
    """Beside its element, whose order it has; elsewhere it is read in passing."""
    m = Make()
    made = convolution(m)
    other = m.permute(m.x("other", BATCH, 64, 54, 54), 0, 2, 3, 1)
    copy = m.arena.make(Op.CAST, other, attrs=CastAttrs(DType.F32))
    found = graph(m.add(made, copy))
    tiled = frozenset({made.serial}) if in_tiles else NONE
    assert shares_of_copies(found, tiled, NONE) == [(copy, ALONE if in_tiles else IN_PASSING)]
