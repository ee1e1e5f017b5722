"""Functors of the skeleton of rows compute the bits of kernels written out for one group."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from unittest import mock

import numpy as np
import pytest
from tests.emulation.emulate import emulate
from tests.emulation.reductions import ANY_CALL, Case, case, run
from tests.emulation.test_reductions import (
    BATCH,
    Outputs,
    channel_norm,
    extremes,
    extremes_across,
    half_places,
    layer_norm,
    softmax,
    softmax_across,
    total,
    values,
)
from tests.kernels import with_gaps
from tests.unit.plan.plans import Make

from opweld.ir.expr import evaluate
from opweld.render.cuda import texts as cuda
from opweld.render.cuda.reduce_rows import is_row_functor

UNCUT = (softmax, softmax_across, layer_norm, channel_norm)
CUT = (total, extremes, extremes_across, half_places)
SIZES = {"s0": 5, "s1": 13, "s2": 3}


@cache
def case_of(make: Callable[[Make], Outputs]) -> Case:
    return case(f"bits_{make.__name__}", *make(Make()), cut=make in CUT)


@cache
def text(functors: bool) -> str:
    reductions = tuple(case_of(make).reduction for make in (*UNCUT, *CUT))
    assert all(map(is_row_functor, reductions))
    if functors:
        return cuda.cuda_text(reductions)
    with mock.patch.object(cuda, "is_row_functor", lambda _: False):
        return cuda.cuda_text(reductions)


def hard(array: np.ndarray) -> np.ndarray:
    """With signed zeros, infinities and NaN in some rows."""
    flat = array.reshape(-1)
    flat[3], flat[7], flat[11] = 0.0, -0.0, np.inf
    flat[-2], flat[-9] = np.nan, -np.inf
    return array


def bits(array: np.ndarray) -> np.ndarray:
    """Every NaN has the same: where two meet, the host's compiler chooses whose sign is kept."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.mark.parametrize("make", [*UNCUT, *CUT], ids=lambda make: make.__name__)
def test_the_same_bits_as_kernels_of_their_own(make: Callable[[Make], Outputs]) -> None:
    found = case_of(make)
    feeds = {}
    for seed, node in enumerate(found.group.inputs):
        shape = [evaluate(size, SIZES) for size in node.type.shape]
        kind = np.float16 if make is half_places else np.float32
        feeds[node.attrs.access] = hard(values(*shape, dtype=kind, seed=seed))
    for call in ANY_CALL:
        strided = "variant" in call
        given = {n: with_gaps(x) for n, x in feeds.items()} if strided else feeds
        # Columns at any strides are folded in the order of others, which they were not.
        as_before = strided and not found.reduction.contiguous.across
        before, options = (given, call) if as_before or not strided else (feeds, {})
        for pieces in (1, 3) if make in CUT else (1,):
            ours = run(text(True), found, given, SIZES, pieces=pieces, **call)  # type: ignore
            theirs = run(text(False), found, before, SIZES, pieces=pieces, **options)  # type: ignore
            for mine, old in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(bits(mine), bits(old), str(call))


# What the skeleton finds of a tensor of float32 with three axes that is summed up.
PROBE = """
template <typename F, typename... X>
void probed(const float* x, const int64_t* sizes, const int64_t* strides, int64_t* found,
            op::Types<X...>) {
    constexpr int kRanks[] = {X::kRank...};
    const int64_t ones[] = {1, 1, 1};
    float result = 0;
    const TensorView views[] = {{const_cast<float*>(x), 6, 3, sizes, strides},
                                {&result, 6, kRanks[1], ones, ones}};
    const op::Rows<F, X...> rows(views);
    found[0] = rows.misfit, found[1] = rows.packed(), found[2] = rows.flat();
}
extern "C" int probe(const float* x, const int64_t* sizes, const int64_t* strides, int64_t* found,
                     void*) {
    probed<@F@>(x, sizes, strides, found, @F@::Operands());
    return 0;
}
"""


def cube_total(m: Make) -> Outputs:
    return (m.reduced("sum", m.x("x", BATCH, 4, 5), 0, 1, 2),)


def images_total(m: Make) -> Outputs:
    return (m.reduced("sum", m.x("x", BATCH, 4, 20), 0, 2),)


@cache
def probe_text(make: Callable[[Make], Outputs]) -> str:
    reduction = case(f"probe_{make.__name__}", *make(Make()), cut=True).reduction
    made = cuda.cuda_text((reduction,))
    (name,) = re.findall(r"struct (\w+_row)", made)
    return made + PROBE.replace("@F@", name)


@pytest.mark.parametrize(
    ("make", "strides", "packed", "flat"),
    [
        # 80 elements in one run, though its inner rows of 5 are not aligned.
        (cube_total, (20, 5, 1), True, True),
        (cube_total, (24, 6, 1), False, False),
        (cube_total, (21, 5, 1), False, False),
        (cube_total, (24, 5, 1), True, False),
        (cube_total, (40, 10, 2), False, False),
        (cube_total, (1, 4, 16), False, False),
        # Packets of images whose rows are apart: no run, but aligned.
        (images_total, (80, 20, 1), True, False),
        (images_total, (84, 21, 1), False, False),
    ],
)
def test_what_is_one_run_is_moved_by_packets(
    make: Callable[[Make], Outputs], strides: tuple[int, ...], packed: bool, flat: bool
) -> None:
    size = np.array([4, 4, 5 if make is cube_total else 20], dtype=np.int64)
    found = np.full(3, -9, dtype=np.int64)
    x = np.zeros(512, dtype=np.float32)
    emulate(probe_text(make), "probe", [x, size, np.array(strides, dtype=np.int64), found])
    assert found.tolist() == [0, packed, flat]
