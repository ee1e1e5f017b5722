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
from opweld.plan.products.copies import unfused_copies

NONE = frozenset[int]()


def convolution(m: Make) -> Node:
    return conv(m, m.x("x", BATCH, 56, 56, 64), 64, (3, 3), last=True)


def test_a_convolution_in_tiles_writes_its_result_or_a_copy() -> None:
    m = Make()
    made = convolution(m)
    result = m.relu(made)
    copy = copied(m, result)
    tiled = frozenset({made.serial})
    assert unfused_copies(graph(copy), tiled, NONE) == []
    assert unfused_copies(graph(copy), NONE, tiled) == [copy], "each channel by itself"
    both = graph(copy, m.reduced("mean", result, 1, 2))
    assert unfused_copies(both, tiled, NONE) == [copy], "it is read in its own order, too"


def test_what_a_kernel_of_elements_computes_is_copied_in_passing() -> None:
    m = Make()
    made = convolution(m)
    copy = copied(m, m.relu(made))
    assert unfused_copies(graph(copy), NONE, NONE) == []


@pytest.mark.parametrize("in_tiles", [False, True])
def test_a_copy_that_a_convolution_reads_is_a_kernel(in_tiles: bool) -> None:
    """Beside its element, whose order it has; elsewhere it is read in passing."""
    m = Make()
    made = convolution(m)
    other = m.permute(m.x("other", BATCH, 64, 54, 54), 0, 2, 3, 1)
    copy = m.arena.make(Op.CAST, other, attrs=CastAttrs(DType.F32))
    found = graph(m.add(made, copy))
    tiled = frozenset({made.serial}) if in_tiles else NONE
    assert unfused_copies(found, tiled, NONE) == ([copy] if in_tiles else [])
