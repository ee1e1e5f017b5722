"""Long rows that all multiprocessors keep together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.emulation.emulate import EmulationFault
from tests.emulation.reductions import Case, exact, run
from tests.nvcc import compile_cuda, needs_nvcc
from tests.unit.plan.plans import BATCH, Make, graph, plan_of

from opweld.ir.graph import Node
from opweld.ir.kernels.reduction import Reduction
from opweld.lower import lower
from opweld.render.cuda.cooperative_rows import DeviceInstance, device_instance
from opweld.render.cuda.texts import cuda_text
from opweld.target import SM_90A

# Rows longer than one multiprocessor keeps: of four elements more than whole packets of all.
LENGTH = 65536 + 2048 + 4
NORM, AFFINE, GATED, SCALED, STORED = "norm", "affine", "gated", "scaled", "stored"
# By what is computed and how many blocks have a row: many packets a thread, or few.
INSTANCES = {
    (NORM, 5): DeviceInstance(14, 54, 2, 0),
    (AFFINE, 5): DeviceInstance(14, 40, 2, 14),
    (NORM, 8): DeviceInstance(9, 54, 3, 0),
    (AFFINE, 8): DeviceInstance(9, 45, 3, 9),
    (GATED, 8): DeviceInstance(9, 54, 3, 0),
    (SCALED, 8): DeviceInstance(9, 54, 3, 0),
    (STORED, 8): DeviceInstance(9, 54, 3, 0),
}


def _computed(m: Make, what: str, x: Node) -> tuple[Node, ...]:
    """SCALED with what is known of each row, STORED with what the walk that folds stores."""
    if what == STORED:
        kept = m.relu(x)
        return kept, m.div(kept, m.reduced("sum", kept, 1))
    if what == SCALED:
        largest = m.reduced("amax", m.abs(x), 1)
        return m.div(x, largest), largest
    mean_square = m.div(m.reduced("sum", m.mul(x, x), 1), float(LENGTH))
    found = m.mul(x, m.rsqrt(m.add(mean_square, 1e-5)))
    if what == GATED:
        return (m.mul(found, m.x("y", BATCH, LENGTH)),)
    return (m.mul(found, m.w("w", LENGTH)) if what == AFFINE else found,)


@cache
def rows(what: str, blocks: int) -> Case:
    m = Make()
    target = replace(SM_90A, cluster_blocks=1, device_blocks=blocks)
    results = _computed(m, what, m.x("x", BATCH, LENGTH))
    plan = plan_of(*results, suffix=f"_{what}{blocks}", target=target)
    (group,), (reduction,) = plan.groups, lower(plan)
    assert isinstance(reduction, Reduction)
    return Case(graph(*group.outputs), group, reduction)


@cache
def text(what: str, blocks: int) -> str:
    return cuda_text((rows(what, blocks).reduction,))


def fed(what: str, num_rows: int) -> Mapping[str, np.ndarray]:
    """Rows and their parts differ in their means."""
    draw = np.random.default_rng(num_rows).standard_normal
    slopes = np.linspace(1, 3, num_rows)[:, None] * np.linspace(-1, 2, LENGTH)
    feeds = {"x": (draw((num_rows, LENGTH)) + slopes).astype("f4")}
    if what == GATED:
        feeds["y"] = draw((num_rows, LENGTH)).astype("f4")
    if what == AFFINE:
        feeds |= {name: draw(LENGTH).astype("f4") for name in "w"}
    return feeds


def near(got: list[np.ndarray], what: str, blocks: int, num_rows: int) -> None:
    expected = exact(rows(what, blocks), fed(what, num_rows), {"s0": num_rows})
    for mine, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=3e-6, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(("what", "blocks"), INSTANCES)
def test_all_that_fits_is_kept(what: str, blocks: int) -> None:
    assert device_instance(rows(what, blocks).reduction) == INSTANCES[what, blocks]


@pytest.mark.parametrize("num_rows", [1, 2, 5])
@pytest.mark.parametrize(("what", "blocks"), INSTANCES)
def test_rows_of_the_whole_device(what: str, blocks: int, num_rows: int) -> None:
    case, feeds = rows(what, blocks), fed(what, num_rows)
    got = run(text(what, blocks), case, feeds, {"s0": num_rows}, pieces=blocks)
    near(got, what, blocks, num_rows)


def test_huge_tensors_have_wide_indices() -> None:
    case, feeds = rows(AFFINE, 5), fed(AFFINE, 2)
    near(run(text(AFFINE, 5), case, feeds, {"s0": 2}, pieces=5, wide=True), AFFINE, 5, 2)


@pytest.mark.parametrize("order", ["reverse", "seeded"])
def test_blocks_may_run_in_any_order(order: str) -> None:
    first, now = (
        run(text(NORM, 8), rows(NORM, 8), fed(NORM, 3), {"s0": 3}, pieces=8, order=each)
        for each in ("forward", order)
    )
    np.testing.assert_array_equal(first[0], now[0])


@pytest.mark.parametrize(
    "options",
    [{"pieces": 1}, {"pieces": 2}, {"pieces": 5, "aligned": False}],
    ids=["no others", "too few blocks", "misaligned"],
)
def test_what_the_device_cannot_keep_is_read_again(options: Mapping[str, int]) -> None:
    kernel = "rows.walk(from, keep, fold, tell, store);"
    assert kernel in text(NORM, 5)
    without = text(NORM, 5).replace(kernel, "")
    near(run(without, rows(NORM, 5), fed(NORM, 1), {"s0": 1}, **options), NORM, 5, 1)


BROKEN = {
    "all wait for none": ("sync_threads<kTeam + 32>(kKnown + stored % kTurns);", ""),
    "one turn for all": ("kTurns = kLag + 1", "kTurns = 1"),
    "told of another row": ("told + row * gridDim.x", "told"),
    "a slot is taken too early": ("await_copies<kSlots - kLag * kItems>();", ""),
    "the same slot again": ("kSlots) % kItems, number", "kSlots + 1) % kItems, number"),
    "moved from another slot": ("moved = after(moved, kItems);", ""),
    "folded from another slot": ("first = after(first, kItems);", ""),
    "one block's folds": ("return in_warp<32>(all);", "return all;"),
    "one thread's folds": ("mine = in_warp<32>(mine);", ""),
    "neighbours' folds": ("in_warp<kTogether>(", "in_warp<1>("),
    "the wrong kept packet": ("[item * kTeam + threadIdx.x];", "[threadIdx.x];"),
    "packets behind the row": ("count += place(item) < packets", "count += 1"),
    "stored a row late": ("stored = next - 1", "stored = next"),
    "not waited for": ("while (waits) {", "while (false) {"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_kernel_fails(broken: str) -> None:
    before, after = BROKEN[broken]
    assert before in text(AFFINE, 5)
    with pytest.raises((AssertionError, EmulationFault)):
        got = run(
            text(AFFINE, 5).replace(before, after),
            rows(AFFINE, 5),
            fed(AFFINE, 5),
            {"s0": 5},
            pieces=5,
            order="seeded",
        )
        near(got, AFFINE, 5, 5)


@needs_nvcc
def test_it_compiles() -> None:
    m = Make()
    x = m.x("x", BATCH, 1 << 21)
    built = cuda_text(lower(plan_of(m.div(x, m.reduced("sum", x, 1)), target=SM_90A)))
    assert "device_kernel" in built
    compile_cuda(built, "sm_90a")
