"""Launches go by the multiprocessors that the device has, and results do not."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest
from tests.emulation.emulate import emulate
from tests.emulation.products import Call, needs, product, text

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
    files = [f for f in resources.files("opweld.device").iterdir() if f.name.startswith(family)]
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
