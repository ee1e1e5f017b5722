"""Reductions as CUDA text compute what they mean, at every edge of teams, packets and pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest
from tests.emulation.emulate import ORDERS, emulate
from tests.emulation.reductions import ANY_CALL, Calls, Case, case, each_result, exact, run
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.attrs import CastAttrs, ReduceAttrs
from opweld.ir.expr import symbol
from opweld.ir.graph import Node
from opweld.ir.ops import OPS, Op
from opweld.ir.types import DType
from opweld.render.cuda.texts import cuda_text

LENGTH, WIDTH = symbol("s1"), symbol("s2")
EXTREMES = ("amax", "amin", "argmax", "argmin")
Outputs = tuple[Node, ...]


def softmax(m: Make) -> Outputs:
    return (m.softmax(m.x("x", BATCH, LENGTH * 4), 1),)


def softmax_odd(m: Make) -> Outputs:
    return (m.softmax(m.x("x", BATCH, 37), 1),)


def softmax_of_products(m: Make) -> Outputs:
    x = m.x("x", BATCH, LENGTH * 4)
    return (m.softmax(m.mul(x, 0.3), 1), m.softmax(m.mul(x, x), 1))


def softmax_half(m: Make) -> Outputs:
    wide = m.arena.make(Op.CAST, m.x("x", BATCH, 264, dtype=DType.F16), attrs=CastAttrs(DType.F32))
    return (m.arena.make(Op.CAST, m.softmax(wide, 1), attrs=CastAttrs(DType.F16)),)


def softmax_across(m: Make) -> Outputs:
    return (m.softmax(m.x("x", BATCH, LENGTH, WIDTH * 4), 1),)


def layer_norm(m: Make) -> Outputs:
    """With the mean and the variance of each row."""
    x, weight, bias = m.x("x", BATCH, 3, 40), m.x("weight", 3, 40), m.x("bias", 40)
    mean = m.div(m.reduced("sum", x, 1, 2), 120.0)
    centred = m.sub(x, mean)
    variance = m.div(m.reduced("sum", m.mul(centred, centred), 1, 2), 120.0)
    scaled = m.mul(centred, m.rsqrt(m.add(variance, 1e-5)))
    return m.add(m.mul(scaled, weight), bias), mean, variance


def norm_of_products(m: Make) -> Outputs:
    return (m.standardised(m.mul(m.x("x", BATCH, 64), 0.3), 1),)


def channel_norm(m: Make) -> Outputs:
    """Several reduced loops around the kept one."""
    return (m.standardised(m.x("x", 5, BATCH, 12), 0, 2),)


def batch_norm(m: Make) -> Outputs:
    """In training, and what its running statistics go towards."""
    x, weight = m.x("x", 5, BATCH, 12), m.x("weight", 1, BATCH, 1)
    mean = m.div(m.reduced("sum", x, 0, 2), 60.0)
    centred = m.sub(x, mean)
    total = m.reduced("sum", m.mul(centred, centred), 0, 2)
    scaled = m.mul(m.mul(centred, m.rsqrt(m.add(m.div(total, 60.0), 1e-5))), weight)
    return m.relu(scaled), mean, m.div(total, 59.0)


def padded(m: Make) -> Outputs:
    """Guarded loads, of which two walks read the same."""
    x, y = m.x("x", BATCH, 9, 8), m.x("y", BATCH, 2, 8)
    wide = m.pad(m.flip(m.cat(1, x, y), 1), (0, 2, 1), (0, 1, 3))
    return (m.softmax(wide, 1), m.reduced("sum", wide, 1))


def total(m: Make) -> Outputs:
    return (m.mul(m.reduced("sum", m.x("x", BATCH, LENGTH * 4), 1), 0.5),)


def total_across(m: Make) -> Outputs:
    return (m.reduced("sum", m.x("x", BATCH, LENGTH, WIDTH * 4), 1),)


def whole(m: Make) -> Outputs:
    x = m.x("x", 3000, dtype=DType.F64)
    return m.reduced("sum", x, 0), m.reduced("prod", x, 0)


def extremes(m: Make) -> Outputs:
    x = m.x("x", BATCH, 44)
    return tuple(m.reduced(op, x, 1) for op in EXTREMES)


def extremes_across(m: Make) -> Outputs:
    x = m.x("x", BATCH, 23, 14)
    return tuple(m.reduced(op, x, 1) for op in EXTREMES)


def truths(m: Make) -> Outputs:
    x = m.x("x", BATCH, 80, dtype=DType.BOOL)
    return m.reduced("any", x, 1), m.reduced("all", x, 1)


def integers(m: Make) -> Outputs:
    x = m.x("x", BATCH, 300, dtype=DType.I64)
    return tuple(m.reduced(op, x, 1) for op in ("sum", "prod", "amax", "argmin"))


def half_places(m: Make) -> Outputs:
    x = m.x("x", BATCH, 72, dtype=DType.F16)
    return m.reduced("amax", x, 1), m.reduced("argmax", x, 1)


NORMS = (layer_norm, norm_of_products, channel_norm, batch_norm)
UNCUT = (softmax, softmax_odd, softmax_of_products, softmax_half, softmax_across, *NORMS, padded)
CUT = (total, total_across, whole, extremes, extremes_across, truths, integers, half_places)


@cache
def case_of(make: Callable[[Make], Outputs]) -> Case:
    return case(make.__name__, *make(Make()), cut=make in CUT)


@cache
def text() -> str:
    return cuda_text(tuple(case_of(make).reduction for make in (*UNCUT, *CUT)))


def values(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is np.bool_:
        return rng.random(shape) > 0.1
    if dtype is np.int64:
        return rng.integers(-(2**62), 2**62, shape)
    return rng.standard_normal(shape).astype(dtype)


def sizes_of(x: np.ndarray) -> dict[str, int]:
    """For x[s0, 4 * s1] and x[s0, s1, 4 * s2]; what is fixed in a graph asks for nothing."""
    *outer, inner = x.shape
    return dict(zip(("s0", "s1", "s2"), [*outer, inner // 4], strict=False))


def check(
    make: Callable[[Make], Outputs],
    feeds: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    calls: Calls = ANY_CALL,
    **tolerance: float,
) -> None:
    """Every way to call a reduction gives what the graph means."""
    for mine, theirs, call in each_result(text(), case_of(make), feeds, sizes, calls):
        np.testing.assert_allclose(mine, theirs, **tolerance, err_msg=str(call))


# Every team and number of packets in registers, and past all of them.
LENGTHS = (4, 100, 128, 132, 256, 260, 1020, 1024, 1028, 2052, 8196, 16388, 32772)


@pytest.mark.parametrize("length", LENGTHS)
def test_softmax_along_rows(length: int) -> None:
    x = values(33 if length < 200 else 9 if length < 1100 else 2, length)
    check(softmax, {"x": x}, sizes_of(x), ({},), rtol=2e-6)


@pytest.mark.parametrize("length", [4, 124, 1028])
def test_softmax_in_any_call(length: int) -> None:
    x = values(5, length)
    check(softmax, {"x": x}, sizes_of(x), rtol=2e-6)


@pytest.mark.parametrize("length", [1, 32, 33, 256, 257, 1024, 1025])
def test_softmax_across_few_rows(length: int) -> None:
    x = values(2, length, 68 if length < 1000 else 4)
    calls = ANY_CALL if length == 33 else ({},)
    check(softmax_across, {"x": x}, sizes_of(x), calls, rtol=2e-6)


@pytest.mark.parametrize("length", [1, 8, 9, 64, 65])
def test_softmax_across_many_rows(length: int) -> None:
    x = values(1, length, 16388)
    check(softmax_across, {"x": x}, sizes_of(x), ({},), rtol=2e-6)


def test_softmax_of_other_lanes() -> None:
    check(softmax_odd, {"x": values(11, 37)}, {"s0": 11}, rtol=2e-6)
    half = values(11, 264, dtype=np.float16)
    check(softmax_half, {"x": half}, {"s0": 11}, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("length", [32, 1028, 32772])
def test_the_largest_product_is_itself(length: int) -> None:
    x = values(4, length)
    x[:, 5] = np.float32([1e4, 1.2345678e6, 1e9, 1.2345678e12])
    calls = ANY_CALL if length == 32 else ({},)
    for mine, product in zip(
        run(text(), case_of(softmax_of_products), {"x": x}, sizes_of(x)),
        (x * np.float32(0.3), x * x),
        strict=True,
    ):
        np.testing.assert_array_equal(mine[:, 5], product[:, 5] / product[:, 5])
    check(softmax_of_products, {"x": x}, sizes_of(x), calls, rtol=2e-6)


def test_equal_products_are_zero_beside_their_mean() -> None:
    x = np.repeat(np.float32([[1.2345], [123.456], [1.2345678e6], [1.2345678e12]]), 64, 1)
    (got,) = run(text(), case_of(norm_of_products), {"x": x}, {"s0": 4})
    np.testing.assert_array_equal(got, np.zeros((4, 64)))


def test_norms() -> None:
    feeds = {"x": values(9, 3, 40) + 3, "weight": values(3, 40, seed=1), "bias": values(40, seed=2)}
    check(layer_norm, feeds, {"s0": 9}, rtol=2e-5, atol=3e-6)
    check(channel_norm, {"x": values(5, 6, 12)}, {"s0": 6}, rtol=2e-5, atol=3e-6)
    feeds = {"x": values(5, 6, 12) + 3, "weight": values(1, 6, 1)}
    check(batch_norm, feeds, {"s0": 6}, rtol=2e-5, atol=3e-6)


def test_guards() -> None:
    feeds = {"x": values(3, 9, 8), "y": values(3, 2, 8, seed=1)}
    check(padded, feeds, {"s0": 3}, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("pieces", [1, 3, 40])
@pytest.mark.parametrize("length", [4, 128, 132, 2052, 9000])
def test_sum_in_pieces(length: int, pieces: int) -> None:
    x = values(9, length)
    calls = tuple({**options, "pieces": pieces} for options in ANY_CALL)
    check(total, {"x": x}, sizes_of(x), calls, rtol=0, atol=1e-6 * np.sqrt(length))


@pytest.mark.parametrize("pieces", [1, 3, 40])
@pytest.mark.parametrize("shape", [(1, 1, 4), (2, 8, 64), (3, 9, 132), (1, 2100, 8)], ids=str)
def test_sum_across_in_pieces(shape: tuple[int, ...], pieces: int) -> None:
    x = values(*shape)
    calls = tuple({**options, "pieces": pieces} for options in ANY_CALL)
    check(total_across, {"x": x}, sizes_of(x), calls, rtol=0, atol=1e-6 * np.sqrt(shape[1]))


@pytest.mark.parametrize("pieces", [1, 7])
def test_everything_to_one_double(pieces: int) -> None:
    x = 1 + values(3000, dtype=np.float64) / 100
    check(whole, {"x": x}, {}, ({"pieces": pieces},), rtol=1e-12)


def test_a_long_sum_is_more_exact_than_its_threads_chains() -> None:
    strips, length = 8, 16384
    x = np.full((1, length, 4), 0.1, np.float32)
    (sums,) = exact(case_of(total_across), {"x": x}, sizes_of(x))
    chains = np.cumsum(x.reshape(-1, strips, 4), axis=0, dtype=np.float32)[-1]
    naive = np.abs(chains.astype(np.float64).sum(0) / sums - 1).max()
    (got,) = run(text(), case_of(total_across), {"x": x}, sizes_of(x))
    assert np.abs(got / sums - 1).max() < naive / 4


@pytest.mark.parametrize("order", ORDERS[1:])
def test_every_order_of_threads_gives_the_same_bits(order: str) -> None:
    for make, x in ((total, values(2, 5000)), (softmax_across, values(1, 70, 12))):
        for pieces in (1, 5) if make is total else (1,):
            first, now = (
                run(text(), case_of(make), {"x": x}, sizes_of(x), pieces=pieces, order=each)
                for each in ("forward", order)
            )
            np.testing.assert_array_equal(first[0], now[0])


HARD = np.float32([np.inf, -np.inf, 0.0, -0.0, 1.0])


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("make", [extremes, extremes_across], ids=lambda make: make.__name__)
def test_extremes_and_their_places(make: Callable[[Make], Outputs], pieces: int) -> None:
    """Ties, rows of infinities, several NaN: the first place counts."""
    shape = (40, 44) if make is extremes else (6, 23, 14)
    rng = np.random.default_rng(2)
    x = rng.choice(np.float32([1, 2, 3]), shape)
    x[rng.random(shape) > 0.97] = np.nan
    x[0], x[1] = -np.inf, np.inf
    x[2] = rng.choice(HARD, shape[1:])
    calls = tuple({**options, "pieces": pieces} for options in ANY_CALL)
    check(make, {"x": x}, {"s0": shape[0]}, calls, rtol=0)


@pytest.mark.parametrize("pieces", [1, 2])
def test_other_types(pieces: int) -> None:
    for make, ops, x in (
        (truths, ("any", "all"), values(30, 80, dtype=np.bool_)),
        (integers, ("sum", "prod", "amax", "argmin"), values(5, 300, dtype=np.int64)),
        (half_places, ("amax", "argmax"), values(7, 72, dtype=np.float16)),
    ):
        if make is truths:
            x[0], x[1] = False, True
        got = run(text(), case_of(make), {"x": x}, {"s0": x.shape[0]}, pieces=pieces)
        for mine, op in zip(got, ops, strict=True):
            np.testing.assert_array_equal(mine, OPS[Op(op)].evaluate(x, ReduceAttrs((1,))), op)


def test_sums_of_infinities() -> None:
    x = values(4, 400)
    x[0, 7], x[1, 399], x[2, 3], x[2, 300] = np.nan, np.inf, np.inf, -np.inf
    (got,) = run(text(), case_of(total), {"x": x}, sizes_of(x))
    np.testing.assert_array_equal(got[:3, 0], [np.nan, np.inf, np.nan])
    assert np.isfinite(got[3, 0])


def test_rows_of_nothing_give_the_identity() -> None:
    x = np.empty((3, 0), np.float32)
    for options in ANY_CALL:
        (got,) = run(text(), case_of(total), {"x": x}, sizes_of(x), **options)  # type: ignore
        np.testing.assert_array_equal(got, np.zeros((3, 1)))


ASKED = """
extern "C" int asked(int64_t num_rows, int64_t length, int64_t* answers, void* stream) {
  answers[0] = GROUP_row::Cut::pieces(num_rows, length);
  answers[1] = sizeof(GROUP_row::Pass0::Folds);
  return 0;
}
"""


def test_rows_are_cut_until_the_device_is_busy() -> None:
    """The emulated device has one multiprocessor: eight blocks keep it busy, up to 64 long ones."""
    group = case_of(total).reduction
    asking = cuda_text((group,)) + ASKED.replace("GROUP", group.group)
    for rows, length, pieces in (
        *((1, 8191, 1), (1, 8192, 2), (1, 1 << 19, 8), (1, 1 << 20, 16), (1, 1 << 24, 64)),
        *((2, 1 << 18, 4), (2, 1 << 20, 16), (5, 1 << 16, 1), (5, 1 << 20, 12), (1000, 1 << 20, 1)),
    ):
        answers = np.zeros(2, np.int64)
        emulate(asking, "asked", [rows, length, answers])
        assert answers.tolist() == [pieces, 4]


@needs_nvcc
def test_nvcc_takes_it_without_warnings_and_spills() -> None:
    makes = (softmax_half, layer_norm, total_across, extremes)
    require_no_spills(compile_cuda(cuda_text(tuple(case_of(m).reduction for m in makes))))
