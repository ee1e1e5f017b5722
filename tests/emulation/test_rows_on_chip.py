"""Rows of known lengths that stay on the chip: in registers, in shared memory, on a cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.emulation.emulate import EmulationFault
from tests.emulation.reductions import Case, case, exact, run
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.kernels.reduction import Folding
from opweld.lower import lower
from opweld.render.cuda.texts import cuda_text
from opweld.target import SM_80, SM_90A, Target

# Shared memory for one packet of each of 512 threads: the sizes of a real device take long here.
LITTLE_BYTES = 20 * 1024
# Elements: 8 packets of 4 in registers, 9 with the shared one, of 512 threads.
HELD, WITH_SHARED = 8 * 4 * 512, 9 * 4 * 512
INSTANCES = {
    4: "8, 1, 4",
    128: "16, 2, 4",
    132: "16, 3, 4",
    1024: "32, 8, 4",
    1028: "128, 3, 4",
    2052: "128, 5, 4",
    4096: "128, 8, 4",
    4100: "256, 5, 4",
    8196: "512, 5, 4",
    HELD: "512, 8, 4",
    HELD + 4: "512, 8, 4, 1",
    WITH_SHARED: "512, 8, 4, 1",
    WITH_SHARED + 4: "512, 8, 4, 0, 2",
    2 * WITH_SHARED: "512, 8, 4, 1, 2",
    4 * WITH_SHARED: "512, 8, 4, 1, 4",
    8 * WITH_SHARED: "512, 8, 4, 1, 8",
    8 * WITH_SHARED + 4: "512, 10, 4, 0, 8",
    37: "16, 3, 1",
    4095: "256, 16, 1",
}


BEFORE_PEERS = "if (threadIdx.x == 0) of_block = mine;\n        "


def little(folding: Folding) -> Folding:
    return replace(folding, shared_bytes=LITTLE_BYTES)


@cache
def softmax(length: int) -> Case:
    """With the sum of each row."""
    m = Make()
    x = m.x("x", BATCH, length)
    found = case(f"softmax{length}", m.softmax(x, 1), m.reduced("sum", x, 1))
    reduction = found.reduction
    return replace(found, reduction=replace(reduction, contiguous=little(reduction.contiguous)))


@cache
def text(length: int) -> str:
    return cuda_text((softmax(length).reduction,))


@pytest.mark.parametrize("length", INSTANCES, ids=str)
def test_the_instance_is_made_to_measure(length: int) -> None:
    (team,) = re.findall(r"using Teams = op::Types<op::Team<([^>]*)>>", text(length))
    (width,) = re.findall(r"kWidth = (\d+)", text(length))
    threads, items, _, *more = team.split(", ")
    shared = "" if not more else f", {more[1]}" if more[2] == "1" else f", {more[1]}, {more[2]}"
    assert f"{threads}, {items}, {width}{shared}" == INSTANCES[length]


@pytest.mark.parametrize("length", INSTANCES, ids=str)
def test_softmax_and_sum(length: int) -> None:
    x = np.random.default_rng(length).standard_normal((2, length)).astype("f4")
    found = softmax(length)
    got = run(text(length), found, {"x": x}, {"s0": 2})
    wanted = exact(found, {"x": x}, {"s0": 2})
    np.testing.assert_allclose(got[0], wanted[0], rtol=3e-6)
    np.testing.assert_allclose(got[1], wanted[1], rtol=0, atol=1e-6 * np.sqrt(length))


@pytest.mark.parametrize("order", ["reverse", "seeded"])
def test_blocks_of_a_row_may_run_in_any_order(order: str) -> None:
    length = WITH_SHARED + 4
    x = np.random.default_rng(1).standard_normal((1, length)).astype("f4")
    first, now = (
        run(text(length), softmax(length), {"x": x}, {"s0": 1}, order=each)
        for each in ("forward", order)
    )
    for mine, theirs in zip(first, now, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("broken", "by"),
    [
        (BEFORE_PEERS + "sync_cluster();", BEFORE_PEERS),
        ("mine = mapa(of_block, 0);", "mine = of_block;"),
        ("item * blockDim.x + threadIdx.x", "item * blockDim.x"),
        ("begin + (kItems + item) * kStep", "begin + item * kStep"),
    ],
    ids=["no barrier", "no peer", "one place for all", "the first items again"],
)
def test_a_broken_kernel_fails(broken: str, by: str) -> None:
    length = 2 * WITH_SHARED
    assert broken in text(length)
    x = np.random.default_rng(2).standard_normal((1, length)).astype("f4")
    found = softmax(length)
    wanted = exact(found, {"x": x}, {"s0": 1})
    with pytest.raises((AssertionError, EmulationFault)):
        got = run(text(length).replace(broken, by), found, {"x": x}, {"s0": 1})
        np.testing.assert_allclose(got[0], wanted[0], rtol=3e-6)


@needs_nvcc
@pytest.mark.parametrize(("target", "length"), [(SM_90A, 360448), (SM_80, 20000)])
def test_it_compiles_without_spills(target: Target, length: int) -> None:
    """Where blocks are no clusters the text knows nothing of them."""
    m = Make()
    reductions = lower(plan_of(m.softmax(m.x("x", BATCH, length), 1), target=target))
    text = cuda_text(reductions)
    assert ("sync_cluster" in text) == (target is SM_90A) and "kShared" in text
    require_no_spills(compile_cuda(text, target.arch))
