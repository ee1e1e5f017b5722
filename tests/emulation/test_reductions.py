"""Reductions as CUDA text compute what they mean, at every edge of teams, packets and pieces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from tests.emulation.emulate import ORDERS
from tests.emulation.reductions import (
    AROUND,
    F32,
    F64,
    I64,
    WHOLE,
    across,
    along,
    folds,
    layer_norm,
    run,
    softmax,
)

from opweld.ir.ops import OPS, Op, ReduceAttrs
from opweld.ir.reduction import Reduction
from opweld.ir.types import DType
from opweld.render.cuda import cuda_text

SUM, PROD, AMAX, AMIN = Op.SUM, Op.PROD, Op.AMAX, Op.AMIN
ARGMAX, ARGMIN, ANY, ALL = Op.ARGMAX, Op.ARGMIN, Op.ANY, Op.ALL

REDUCTIONS: dict[str, Reduction] = {
    r.group: r
    for r in (
        softmax("softmax", along(4), 4),
        softmax("softmax_half", along(8, 264), 8, DType.F16),
        softmax("softmax_odd", along(1, 37), 1),
        softmax("softmax_across", across(4), 4),
        layer_norm("norm", along(4, 520), 4),
        folds("sum", along(4), 4, F32, [SUM]),
        folds("sum_across", across(4), 4, F32, [SUM]),
        folds("around", AROUND, 4, F32, [SUM, ARGMAX], cut=False),
        folds("whole", WHOLE, 1, F64, [SUM, PROD]),
        folds("extremes", along(4, 44), 4, F32, [AMAX, AMIN, ARGMAX, ARGMIN]),
        folds("extremes_across", across(2, 23), 2, F32, [AMAX, AMIN, ARGMAX, ARGMIN]),
        folds("truths", along(16, 80), 16, DType.BOOL, [ANY, ALL]),
        folds("integers", along(2, 300), 2, I64, [SUM, PROD, AMAX, ARGMIN]),
        folds("places", along(8, 72), 8, DType.F16, [AMAX, ARGMAX]),
    )
}


@cache
def text() -> str:
    return cuda_text(tuple(REDUCTIONS.values()))


def values(shape: tuple[int, ...], dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is np.bool_:
        return rng.random(shape) > 0.1
    if dtype is np.int64:
        return rng.integers(-(2**62), 2**62, shape)
    return rng.standard_normal(shape).astype(dtype)


def with_gaps(array: np.ndarray) -> np.ndarray:
    """The same values in memory with other strides: axes reversed, every second element unused."""
    storage = np.zeros([2 * size for size in array.shape[::-1]], array.dtype)
    view = storage.T[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def results(name: str, x: np.ndarray, **options: object) -> Mapping[str, np.ndarray]:
    """What a reduction of s0 x s1 or s0 x s1 x s2 elements gives."""
    reduction = REDUCTIONS[name]
    sizes = dict(zip(("s0", "s1", "s2"), _symbolic(reduction, x.shape), strict=False))
    return run(text(), reduction, {"x": x}, sizes, **options)  # type: ignore[arg-type]


def _symbolic(reduction: Reduction, shape: tuple[int, ...]) -> list[int]:
    """The symbols' values: an axis may be a multiple of its symbol."""
    folding = reduction.contiguous
    loops = (*folding.kept, *folding.reduced)
    if folding.across:
        return [shape[0], shape[1], shape[2] // folding.lanes]
    last = loops[-1].extent
    return [shape[0], 0 if isinstance(last, int) else shape[1] // folding.lanes]


def softmax_of(x: np.ndarray) -> np.ndarray:
    power = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


# Every team and number of packets in registers, and past all of them.
LENGTHS = (4, 100, 128, 132, 256, 260, 1020, 1024, 1028, 2052, 8196, 16388, 32772)


@pytest.mark.parametrize("length", LENGTHS)
def test_softmax_along_rows(length: int) -> None:
    x = values((33 if length < 200 else 9 if length < 1100 else 2, length))
    got = results("softmax", x)["result"].reshape(x.shape)
    np.testing.assert_allclose(got, softmax_of(x), rtol=2e-6)


@pytest.mark.parametrize("length", [4, 1024, 1028])
@pytest.mark.parametrize("options", [{"aligned": False}, {"wide": True}], ids=str)
def test_softmax_without_vectors_and_with_wide_indices(
    length: int, options: dict[str, bool]
) -> None:
    x = values((3, length))
    got = results("softmax", x, **options)["result"].reshape(x.shape)
    np.testing.assert_allclose(got, softmax_of(x), rtol=2e-6)


@pytest.mark.parametrize("length", [4, 124, 2052])
def test_softmax_of_any_strides(length: int) -> None:
    x = with_gaps(values((5, length)))
    got = results("softmax", x, variant="strided")["result"].reshape(x.shape)
    np.testing.assert_allclose(got, softmax_of(x), rtol=2e-6)


@pytest.mark.parametrize(("name", "length"), [("softmax_odd", 37), ("softmax_half", 264)])
def test_softmax_of_other_lanes(name: str, length: int) -> None:
    dtype = np.float16 if name == "softmax_half" else np.float32
    x = values((11, length), dtype)
    got = results(name, x)["result"].reshape(x.shape)
    np.testing.assert_allclose(got, softmax_of(x), rtol=1e-3 if dtype is np.float16 else 2e-6)


@pytest.mark.parametrize("length", [1, 8, 9, 64, 65, 256, 257, 300])
def test_softmax_across_rows(length: int) -> None:
    x = values((2, length, 68))
    for options in ({}, {"aligned": False}, {"variant": "strided"}):
        given = with_gaps(x) if options.get("variant") else x
        # Strides come with the kept axes first.
        given = np.moveaxis(given, 1, 2) if options.get("variant") else given
        got = _across("softmax_across", x, given, options)["result"].reshape(x.shape)
        np.testing.assert_allclose(got, softmax_of(x), rtol=2e-6)


def _across(
    name: str, x: np.ndarray, given: np.ndarray, options: Mapping[str, object]
) -> Mapping[str, np.ndarray]:
    reduction = REDUCTIONS[name]
    sizes = {"s0": x.shape[0], "s1": x.shape[1], "s2": x.shape[2] // reduction.contiguous.lanes}
    return run(text(), reduction, {"x": given}, sizes, **options)  # type: ignore[arg-type]


def test_layer_norm_with_statistics() -> None:
    x, weight = values((9, 520)) + 3, values((520,), seed=1)
    for variant in ("contiguous", "strided"):
        given = with_gaps(x) if variant == "strided" else x
        operands = {"x": given, "weight": weight}
        got = run(text(), REDUCTIONS["norm"], operands, {"s0": 9}, variant=variant)
        wide = x.astype(np.float64)
        variance = wide.var(1, keepdims=True)
        wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(variance + 1e-5) * weight
        np.testing.assert_allclose(got["result"].reshape(x.shape), wanted, rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(got["mean_out"], wide.mean(1), rtol=1e-6)
        np.testing.assert_allclose(got["variance_out"], variance[:, 0], rtol=1e-6)


@pytest.mark.parametrize("pieces", [1, 2, 3, 40])
@pytest.mark.parametrize("length", [4, 128, 132, 2048, 2052, 9000])
def test_sum_in_pieces(length: int, pieces: int) -> None:
    x = values((9, length))
    exact = x.astype(np.float64).sum(1)
    bound = 1e-6 * np.sqrt(length)
    for options in ({}, {"aligned": False}, {"wide": True}):
        got = results("sum", x, pieces=pieces, **options)["sum_out"]
        np.testing.assert_allclose(got, exact, rtol=0, atol=bound)
    got = results("sum", with_gaps(x), pieces=pieces, variant="strided")["sum_out"]
    np.testing.assert_allclose(got, exact, rtol=0, atol=bound)


@pytest.mark.parametrize("pieces", [1, 3, 40])
@pytest.mark.parametrize("shape", [(1, 1, 4), (2, 8, 64), (3, 9, 132), (1, 2100, 8)], ids=str)
def test_sum_across_in_pieces(shape: tuple[int, ...], pieces: int) -> None:
    x = values(shape)
    exact = x.astype(np.float64).sum(1).reshape(-1)
    for options in ({}, {"aligned": False}, {"wide": True}, {"variant": "strided"}):
        given = np.moveaxis(with_gaps(x), 1, 2) if options.get("variant") else x
        got = _across("sum_across", x, given, {"pieces": pieces, **options})["sum_out"]
        np.testing.assert_allclose(got, exact, rtol=0, atol=1e-6 * np.sqrt(shape[1]))


def test_a_long_sum_is_more_exact_than_its_threads_chains() -> None:
    strips, length = 8, 16384
    x = np.full((1, length, 4), 0.1, np.float32)
    exact = x.astype(np.float64).sum(1).reshape(-1)
    chains = np.cumsum(x.reshape(-1, strips, 4), axis=0, dtype=np.float32)[-1]
    naive = np.abs(chains.astype(np.float64).sum(0) / exact - 1).max()
    got = _across("sum_across", x, x, {})["sum_out"]
    assert np.abs(got / exact - 1).max() < naive / 4


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pieces", [1, 5])
def test_every_order_of_threads_gives_the_same_bits(order: str, pieces: int) -> None:
    x = values((2, 5000))
    first = results("sum", x, pieces=pieces)["sum_out"]
    now = results("sum", x, pieces=pieces, order=order)["sum_out"]
    np.testing.assert_array_equal(first, now)
    y = values((1, 70, 12))
    shares = [results("softmax_across", y, order=o)["result"] for o in ("forward", order)]
    np.testing.assert_array_equal(*shares)


def test_two_reduced_loops() -> None:
    x = values((7, 6, 12))
    got = run(text(), REDUCTIONS["around"], {"x": x}, {"s0": 6})
    rows = np.moveaxis(x, 1, 0).reshape(6, -1)
    np.testing.assert_allclose(got["sum_out"], rows.sum(1, dtype=np.float64), atol=3e-6)
    np.testing.assert_array_equal(got["argmax_out"], rows.argmax(1))


@pytest.mark.parametrize("pieces", [1, 7])
def test_everything_to_one_double(pieces: int) -> None:
    x = 1 + values((3000,), np.float64) / 100
    got = run(text(), REDUCTIONS["whole"], {"x": x}, {}, pieces=pieces)
    np.testing.assert_allclose(got["sum_out"], [x.sum()], rtol=1e-15)
    np.testing.assert_allclose(got["prod_out"], [x.prod()], rtol=1e-12)


HARD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0)


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("name", ["extremes", "extremes_across"])
def test_extremes_and_their_places(name: str, pieces: int) -> None:
    """Ties, rows of infinities, several NaN: the first place counts."""
    shape = (40, 44) if name == "extremes" else (6, 23, 14)
    rng = np.random.default_rng(2)
    x = rng.choice(np.float32([1, 2, 3]), shape)
    x[rng.random(shape) > 0.97] = np.nan
    x[0], x[1] = -np.inf, np.inf
    x[2] = rng.choice(np.float32(HARD[1:]), shape[1:])
    got = results(name, x, pieces=pieces)
    for op in (AMAX, AMIN, ARGMAX, ARGMIN):
        wanted = OPS[op].evaluate(x, ReduceAttrs((1,)))
        np.testing.assert_array_equal(got[f"{op.value}_out"], wanted.reshape(-1))


@pytest.mark.parametrize("pieces", [1, 2])
def test_other_types(pieces: int) -> None:
    for name, ops, shape, dtype in (
        ("truths", (ANY, ALL), (30, 80), np.bool_),
        ("integers", (SUM, PROD, AMAX, ARGMIN), (5, 300), np.int64),
        ("places", (AMAX, ARGMAX), (7, 72), np.float16),
    ):
        x = values(shape, dtype)
        if dtype is np.bool_:
            x[0], x[1] = False, True
        got = results(name, x, pieces=pieces)
        for op in ops:
            wanted = OPS[op].evaluate(x, ReduceAttrs((1,)))
            np.testing.assert_array_equal(got[f"{op.value}_out"], wanted.reshape(-1), str(op))


def test_sums_of_infinities() -> None:
    x = values((4, 400))
    x[0, 7], x[1, 399], x[2, 3], x[2, 300] = np.nan, np.inf, np.inf, -np.inf
    got = results("sum", x)["sum_out"]
    np.testing.assert_array_equal(np.isnan(got), [True, False, True, False])
    assert got[1] == np.inf
