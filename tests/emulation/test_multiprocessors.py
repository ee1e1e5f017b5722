"""Launches go by the multiprocessors that the device has, and results do not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.emulation.distributions import exact
from tests.emulation.emulate import emulate
from tests.emulation.products import Call, needs, product, text

import opweld.device
from opweld.device import pieces
from opweld.device.used import used

COUNTS = (78, 114, 132)
PLAN = """
extern "C" int tile_plan(int64_t m, int64_t n, int64_t k, void* found, void* stream) {
  const op::Product product{{}, {}, 1, m, n, k};
  const auto plan = op::TilePlan::choose(product, (k + 63) / 64, 1.9);
  static_cast<double*>(found)[0] = plan.wide;
  static_cast<double*>(found)[1] = plan.splits;
  static_cast<double*>(found)[2] = plan.time;
  return 0;
}
"""
ASKED = """
extern "C" int asked(int64_t few, int64_t many, int64_t k, int64_t* answers, void* stream) {
  const op::Product product{{nullptr, 0, k, 1}, {nullptr, 0, k, 1}, 1, few, many, k};
  const op::Skinny p = op::Skinny::of(product);
  answers[0] = op::pieces_for(1, 1, 1 << 30, 4096, 8);
  answers[1] = op::blocks_together();
  answers[2] = op::ring_plan<op::RowRing<8>>(p).splits;
  answers[3] = op::slice_plan<op::SliceDots<false>>(p, op::Slice::most_depth()).parts;
  answers[4] = op::SkinnyPlan::of(16, 1 << 17, 32, op::Skinny::kWarps).splits;
  answers[5] = op::pieces_for(few - few, 0, 1 << 30, 4096, 8);
  return 0;
}
"""


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def plan(count: int, m: int, n: int, k: int) -> tuple[bool, int, float]:
    """Whether tiles are wide, the parts of k, microseconds."""
    found = np.zeros(3)
    source = "\n".join([*used(pieces(["TilePlan"]), [PLAN]), PLAN])
    emulate(source, "tile_plan", [m, n, k, found], multiprocessors=count)
    return bool(found[0]), int(found[1]), float(found[2])


@pytest.mark.parametrize("family", ["contract", "split", "attend", "combine", "launch"])
def test_no_header_says_how_many_there_are(family: str) -> None:
    files = [*Path(opweld.device.__file__).parent.rglob(f"{family}*.cuh")]
    assert files and not [file.name for file in files if "132" in file.read_text("utf-8")]


@pytest.mark.parametrize("count", COUNTS)
def test_a_tile_for_each_multiprocessor_is_one_turn(count: int) -> None:
    full = plan(count, 128, 128 * count, 128)
    assert full[:2] == (False, 1)
    assert plan(count, 128, 128 * (count + 1), 128)[2] > 1.5 * full[2]


@pytest.mark.parametrize("count", COUNTS)
def test_one_tile_of_a_long_sum_is_shared_out_among_all(count: int) -> None:
    _, splits, _ = plan(count, 128, 128, 64 * 4 * 256)
    assert count // 2 < splits <= count


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("mode", ["Faithful", "FaithfulLive", "Half"])
def test_parts_of_a_sum_by_mma_are_as_many_as_find_work(mode: str, count: int) -> None:
    """What one tile needs in memory grows by as much as its parts do."""
    source, extents = text((mode,), (1,), "mma"), (1, 128, 128, 2**16)
    calls = (Call(mode=mode, family="mma", multiprocessors=number) for number in (count, 1))
    for_all, for_one = (needs(extents, call, held=True, source=source)[0] for call in calls)
    parts = (for_all - for_one) / (4 * 128 * 128)
    assert 0.9 * count < parts <= count


@pytest.mark.parametrize("count", [1, 5, *COUNTS])
def test_a_weight_is_split_by_blocks_that_wait_for_each_other(count: int) -> None:
    """More blocks than the device has room for would wait for ever."""
    a, b = random(1, 40, 200), random(1, 150, 200)
    call = Call(family="mma", multiprocessors=count)
    held = np.zeros(needs((1, 40, 150, 200), call, held=True)[1], np.uint8)
    alone = product(a, b, Call(family="mma", multiprocessors=1))
    assert np.array_equal(product(a, b, call, held=held), alone)


@pytest.mark.parametrize("count", COUNTS)
def test_short_sums_are_the_same_on_any_device(count: int) -> None:
    a, b = random(1, 300, 24), random(1, 70, 24)
    alone = product(a, b, Call(multiprocessors=1))
    assert np.array_equal(product(a, b, Call(multiprocessors=count)), alone)


@cache
def asking() -> str:
    """As of a device whose blocks may wait for each other."""
    texts = pieces(("blocks_together", "pieces_for", "RingRows", "SliceRows"))
    capability = "return major >= 9;"
    text = "\n".join([*texts, ASKED])
    assert text.count(capability) == 1
    return text.replace(capability, "return true;")


def answers(count: int, few: int, many: int, k: int) -> list[int]:
    found = np.zeros(6, np.int64)
    emulate(asking(), "asked", [few, many, k, found], multiprocessors=count)
    return found.tolist()


@pytest.mark.parametrize("count", COUNTS)
def test_every_multiprocessor_has_its_share(count: int) -> None:
    cut, together, splits, groups, column_splits, cut_nothing = answers(count, 8, 64, 1 << 17)
    assert (cut, cut_nothing) == (8 * count, 1)
    assert together == count
    assert 0.9 * count < splits <= count, "one round, in whole stages of k"
    assert abs(column_splits - count / 2) <= 2, "twice 32 warps of each, of 16 teams with 8 warps"
    assert groups == 1, "slices of k are enough"
    *_, groups, _, _ = answers(count, 16, 1 << 20, 1024)
    assert groups == count, "of blocks, beside one slice of k"


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("extents", [(1, 3, 200, 4100), (1, 16, 260, 1100), (1, 1, 70, 20000)])
def test_products_of_few_rows_on_any_device(extents: tuple[int, ...], count: int) -> None:
    batches, m, n, k = extents
    draw = np.random.default_rng(k).standard_normal
    a, b = (draw((batches, size, k)).astype(np.float32) for size in (m, n))
    call = Call(lanes=1, multiprocessors=count)
    found = product(a, b, call)
    assert (abs(found - exact(a, b)) <= 2.0**-20 * exact(abs(a), abs(b))).all()


def test_a_larger_device_takes_more_parts_of_a_sum() -> None:
    few, more = (
        needs((1, 1, 8, 1 << 16), Call(lanes=1, multiprocessors=count))[0] for count in (16, 114)
    )
    assert few < more


@pytest.mark.parametrize("rows", [1, 16, 17])
def test_long_sums_of_few_rows_are_made_in_parts(rows: int) -> None:
    """As cuBLAS does; as exact as it is then are sums of 32 intervals."""
    parts = plan(132, rows, 128 * 132, 64 * 320)[1]
    assert parts >= 10 if rows <= 16 else parts == 1


def test_there_are_no_more_parts_than_multiprocessors() -> None:
    assert plan(78, 1, 128, 64 * 32 * 200)[1] == 78
