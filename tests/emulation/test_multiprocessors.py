"""Work is shared out among the multiprocessors that the device has, not those of the plan."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.emulation.distributions import exact
from tests.emulation.emulate import emulate
from tests.emulation.products import Call, needs, product

from opweld.device import pieces

# Those of an H100 by PCI Express, of a part of an H200, and of a whole one.
COUNTS = (114, 78, 132)

ASKED = """
extern "C" int asked(int64_t few, int64_t many, int64_t k, int64_t* answers, void* stream) {
  const op::Product product{{nullptr, 0, k, 1}, {nullptr, 0, k, 1}, 1, few, many, k};
  const op::Skinny p = op::Skinny::of(product);
  answers[0] = op::pieces_for(1, 1, 1 << 30, 4096, 8);
  answers[1] = op::blocks_together();
  answers[2] = op::ring_plan<op::RowRing<8>>(p).splits;
  answers[3] = op::slice_plan<op::SliceDots<false>>(p, op::Slice::most_depth()).parts;
  answers[4] = op::SkinnyPlan::of(16, 1 << 17, 32, op::Skinny::kWarps).splits;
  return 0;
}
"""


@cache
def asking() -> str:
    """As of a device whose blocks may wait for each other."""
    texts = pieces(("blocks_together", "pieces_for", "RingRows", "SliceRows"))
    capability = "return major >= 9;"
    text = "\n".join([*texts, ASKED])
    assert text.count(capability) == 1
    return text.replace(capability, "return true;")


def answers(count: int, few: int, many: int, k: int) -> list[int]:
    found = np.zeros(5, np.int64)
    emulate(asking(), "asked", [few, many, k, found], multiprocessors=count)
    return found.tolist()


@pytest.mark.parametrize("count", COUNTS)
def test_every_multiprocessor_has_its_share(count: int) -> None:
    cut, together, splits, groups, column_splits = answers(count, 8, 64, 1 << 17)
    assert cut == 8 * count
    assert together == count
    assert 0.9 * count < splits <= count, "one round, in whole stages of k"
    assert abs(column_splits - count / 2) <= 2, "twice 32 warps of each, of 16 teams with 8 warps"
    assert groups == 1, "slices of k are enough"
    *_, groups, _ = answers(count, 16, 1 << 20, 1024)
    assert groups == count, "of blocks, beside one slice of k"


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("extents", [(1, 3, 200, 4100), (1, 16, 260, 1100), (1, 1, 70, 20000)])
def test_products_of_few_rows_on_any_device(extents: tuple[int, ...], count: int) -> None:
    batches, m, n, k = extents
    draw = np.random.default_rng(k).standard_normal
    a, b = (draw((batches, size, k)).astype(np.float32) for size in (m, n))
    call = Call(lanes=1, options={"multiprocessors": count})
    found = product(a, b, call)
    assert (abs(found - exact(a, b)) <= 2.0**-20 * exact(abs(a), abs(b))).all()


def test_a_larger_device_takes_more_parts_of_a_sum() -> None:
    few, more = (
        needs((1, 1, 8, 1 << 16), Call(lanes=1, options={"multiprocessors": count}))[0]
        for count in (16, 114)
    )
    assert few < more
