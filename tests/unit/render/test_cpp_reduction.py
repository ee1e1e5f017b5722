"""The C++ kernels of reductions against the interpreter in float64, at every edge of lanes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulation.emulate import from_bfloat16, to_bfloat16
from tests.kernels import NUMPY
from tests.reduction_kernels import cut, reduction_of, run_reduction
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.attrs import CastAttrs, ReduceAttrs
from opweld.ir.graph import Node
from opweld.ir.kernels.reduction import Reduction
from opweld.ir.ops import Op
from opweld.ir.types import DType
from opweld.render import render

RNG = np.random.default_rng(0)


class Reduce(Make):
    """`r.sum(x, 1)`: reductions by axes, and compositions of them."""

    def cast(self, x: Node, dtype: DType) -> Node:
        return self.arena.make(Op.CAST, x, attrs=CastAttrs(dtype))

    def fold(self, op: str, x: Node, *axes: int) -> Node:
        return self.arena.make(Op(op), x, attrs=ReduceAttrs(axes))

    def softmax(self, x: Node, axis: int) -> Node:
        exp = self.exp(self.sub(x, self.fold("amax", x, axis)))
        return self.div(exp, self.fold("sum", exp, axis))

    def normalized(self, x: Node, axes: tuple[int, ...], elems: int) -> Node:
        mean = self.mul(self.fold("sum", x, *axes), 1.0 / elems)
        centred = self.sub(x, mean)
        variance = self.mul(self.fold("sum", self.mul(centred, centred), *axes), 1.0 / elems)
        return self.mul(centred, self.rsqrt(self.add(variance, 1e-5)))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype("f8")
    exp = np.exp(wide - wide.max(axis, keepdims=True))
    return exp / exp.sum(axis, keepdims=True)


LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000]


@pytest.mark.parametrize("length", LENGTHS)
def test_softmax_along_rows(length: int) -> None:
    x = RNG.standard_normal((7, length)).astype("f4")
    r = Reduce()
    case = reduction_of(r.softmax(r.x("x", BATCH, length), 1))
    (got,) = run_reduction(case, [x], {"s0": 7}, [x.shape])
    np.testing.assert_allclose(got, softmax(x, 1), rtol=1e-6)


def test_softmax_along_rows_of_any_length() -> None:
    r = Reduce()
    case = reduction_of(r.softmax(r.x("x", 5, BATCH), 1))
    for length in LENGTHS:
        x = RNG.standard_normal((5, length)).astype("f4")
        (got,) = run_reduction(case, [x], {"s0": length}, [x.shape])
        np.testing.assert_allclose(got, softmax(x, 1), rtol=1e-6)


def test_softmax_across_rows() -> None:
    r = Reduce()
    case = reduction_of(r.softmax(r.x("x", 3, 6, BATCH), 1))
    for width in (1, 2, 127, 128, 129, 300):
        x = RNG.standard_normal((3, 6, width)).astype("f4")
        (got,) = run_reduction(case, [x], {"s0": width}, [x.shape])
        np.testing.assert_allclose(got, softmax(x, 1), rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 40), (5, 3000), (40, 3, 70)])
def test_layer_norm(shape: tuple[int, ...]) -> None:
    x = (RNG.standard_normal(shape) + 3).astype("f4")
    r = Reduce()
    axes = tuple(range(1, len(shape)))
    elems = int(np.prod(shape[1:]))
    case = reduction_of(r.normalized(r.x("x", BATCH, *shape[1:]), axes, elems))
    (got,) = run_reduction(case, [x], {"s0": shape[0]}, [shape])
    wide = x.astype("f8")
    wanted = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("pieces", [1, 3, 8])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((7, 5000), (1,)), ((3, 9, 1100), (0, 2)), ((6000, 9), (0,)), ((70, 2, 5, 33), (0, 2))],
)
def test_sums_in_pieces(shape: tuple[int, ...], axes: tuple[int, ...], pieces: int) -> None:
    x = (RNG.standard_normal(shape) + 1).astype("f4")
    r = Reduce()
    case = cut(reduction_of(r.mul(r.fold("sum", r.x("x", *shape), *axes), 0.5)))
    wanted = 0.5 * x.astype("f8").sum(axes, keepdims=True)
    for variant in ("contiguous", "strided"):
        (got,) = run_reduction(case, [x], {}, [wanted.shape], variant=variant, pieces=pieces)
        np.testing.assert_allclose(got, wanted, rtol=1.2e-7)


FOLDS = {
    "sum": np.sum,
    "prod": np.prod,
    "amax": np.max,
    "amin": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


@pytest.mark.parametrize(
    "dtype",
    [
        DType.F32,
        DType.I64,
        *(pytest.param(d, marks=pytest.mark.slow) for d in (DType.F64, DType.U8, DType.F16)),
    ],
)
@pytest.mark.parametrize("pieces", [0, 4])
@pytest.mark.parametrize(("shape", "axis"), [((5, 200), 1), ((4, 9), 1), ((70, 200), 0)])
def test_every_fold_of_every_type(dtype: DType, pieces: int, shape, axis: int) -> None:
    """All folds in one walk. Sums and products of narrow types are of wider ones in graphs."""
    narrow = dtype in (DType.F16, DType.U8)
    ops = [op for op in FOLDS if not narrow or op not in ("sum", "prod")]
    x = RNG.integers(1, 3, shape).astype(NUMPY[dtype])
    x[np.cumsum(x, axis) > 60] = 1  # products within range
    r = Reduce()
    node = r.x("x", *shape, dtype=dtype)
    case = reduction_of(*(r.fold(op, node, axis) for op in ops))
    case = cut(case) if pieces else case
    wanted = [FOLDS[op](x, axis, keepdims=True) for op in ops]
    for variant in ("contiguous", "strided"):
        got = run_reduction(
            case, [x], {}, [w.shape for w in wanted], variant=variant, pieces=pieces or 1
        )
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("shape", "axis"), [((5, 200), 1), ((4, 9), 1), ((7, 200), 0)])
def test_special_values(shape, axis: int) -> None:
    x = RNG.integers(-3, 3, shape).astype("f4")
    by_row = np.moveaxis(x, axis, -1)
    by_row[0] = -np.inf
    by_row[1, [2, 5]] = np.nan
    by_row[1, 4] = np.inf
    by_row[2] = np.inf
    by_row[3] = -0.0
    r = Reduce()
    node = r.x("x", *shape)
    ops = ["amax", "amin", "argmax", "argmin", "sum"]
    case = reduction_of(*(r.fold(op, node, axis) for op in ops))
    with np.errstate(invalid="ignore"):
        wanted = [FOLDS[op](x, axis, keepdims=True) for op in ops]
    for one, other in zip(
        run_reduction(case, [x], {}, [w.shape for w in wanted]), wanted, strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("shape", "axis"), [((5, 200), 1), ((4, 9), 1), ((7, 200), 0)])
@pytest.mark.parametrize("pieces", [0, 3])
def test_any_and_all(shape, axis: int, pieces: int) -> None:
    x = RNG.random(shape) < 0.5
    by_row = np.moveaxis(x, axis, -1)
    by_row[0], by_row[1] = True, False
    r = Reduce()
    node = r.x("x", *shape, dtype=DType.BOOL)
    case = reduction_of(r.logical_not(r.fold("any", node, axis)), r.fold("all", node, axis))
    case = cut(case) if pieces else case
    wanted = [~x.any(axis, keepdims=True), x.all(axis, keepdims=True)]
    got = run_reduction(case, [x], {}, [w.shape for w in wanted], pieces=pieces or 1)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize(("shape", "axis"), [((5, 300), 1), ((3, 20, 150), 1), ((6, 10), 1)])
def test_softmax_of_16_bits(dtype: DType, shape, axis: int) -> None:
    r = Reduce()
    x = r.x("x", *shape, dtype=dtype)
    case = reduction_of(r.cast(r.softmax(r.cast(x, DType.F32), axis), dtype))
    values = RNG.standard_normal(shape).astype("f4")
    bits = as_stored(values, dtype)
    (got,) = run_reduction(case, [bits], {}, [shape])
    wanted = softmax(as_float(bits, dtype), axis)
    np.testing.assert_allclose(
        as_float(got, dtype), wanted, rtol=2e-3 if dtype is DType.F16 else 1e-2
    )


def as_stored(values: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype is DType.F16:
        return values.astype("f2")
    return to_bfloat16(values).reshape(values.shape)


def as_float(stored: np.ndarray, dtype: DType) -> np.ndarray:
    return stored.astype("f4") if dtype is DType.F16 else from_bfloat16(stored)


def test_guarded_loads() -> None:
    """Of integers, whose sums are exact in any order."""
    x = RNG.integers(-1000, 1000, (4, 90)).astype("f4")
    r = Reduce()
    case = reduction_of(r.fold("sum", r.pad(r.x("x", 4, 90), (0, 7), (0, 3)), 1))
    (got,) = run_reduction(case, [x], {}, [(4, 1)])
    np.testing.assert_array_equal(got, x.sum(1, keepdims=True))


def test_strided_operands() -> None:
    memory = RNG.standard_normal((300, 8)).astype("f4")
    x = memory[::2, 1:7].T
    r = Reduce()
    case = reduction_of(r.softmax(r.x("x", 6, 150), 1))
    (got,) = run_reduction(case, [x], {}, [x.shape], variant="strided")
    np.testing.assert_allclose(got, softmax(x, 1), rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 1_000_000), (1_000_000, 2)])
def test_long_sums_lose_nothing(shape: tuple[int, int]) -> None:
    """A million numbers round 1: within the last place of the exact sum."""
    x = (RNG.standard_normal(shape) + 1).astype("f4")
    axis = int(np.argmax(shape))
    r = Reduce()
    case = reduction_of(r.fold("sum", r.x("x", *shape), axis))
    wanted = x.astype("f8").sum(axis, keepdims=True)
    (got,) = run_reduction(cut(case), [x], {}, [wanted.shape], pieces=5)
    assert (np.abs(got - wanted) <= np.spacing(wanted.astype("f4"))).all()


@pytest.mark.parametrize("shape", [(3, BATCH), (BATCH, 3)])
def test_empty_rows_are_identities(shape) -> None:
    r = Reduce()
    node = r.x("x", *shape)
    axis = shape.index(BATCH)
    case = reduction_of(*(r.fold(op, node, axis) for op in ("sum", "prod", "amax", "amin")))
    x = np.empty([0 if size == BATCH else size for size in shape], "f4")
    kept = (3, 1) if axis else (1, 3)
    got = run_reduction(case, [x], {"s0": 0}, [kept] * 4)
    for one, identity in zip(got, (0, 1, -np.inf, np.inf), strict=True):
        np.testing.assert_array_equal(one, np.full(kept, identity, "f4"))


def text_of(case: Reduction) -> str:
    text = render("case", (case,), "c++").text
    return text[text.index("// k1_") :]


@pytest.mark.parametrize("factor", [0.3, None])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_largest_product_is_itself(factor: float | None, axis: int) -> None:
    """A contracted difference to it would be half an ulp of 1e12, of which exp is infinite."""
    r = Reduce()
    x = r.x("x", 40, 50)
    case = reduction_of(r.softmax(r.mul(x, factor or x), axis))
    values = RNG.standard_normal((40, 50)).astype("f4")
    np.fill_diagonal(values, np.float32([1e4, 1.2345678e6, 1e9, 1.2345678e12] * 12))
    products = values * (np.float32(factor) if factor else values)
    for variant in ("contiguous", "strided"):
        (got,) = run_reduction(case, [values], {}, [(40, 50)], variant=variant)
        np.testing.assert_allclose(got, softmax(products, axis), rtol=1e-6)


@pytest.mark.parametrize("function", ["mul", "gelu", "gelu_tanh"])
@pytest.mark.parametrize(("axis", "length"), [(0, 2), (1, 2), (1, 1)])
def test_equal_products_are_zero_beside_their_mean(axis: int, length: int, function: str) -> None:
    """The sum of two is exact."""
    r = Reduce()
    shape = (40, length) if axis else (length, 40)
    x = r.x("x", *shape)
    made = r.mul(x, 0.3) if function == "mul" else getattr(r, function)(x)
    case = reduction_of(r.normalized(made, (axis,), length))
    along = np.float32([0.7, 1.2345, 1.2345678e6, 1.2345678e12] * 10)
    values = np.ascontiguousarray(np.broadcast_to(np.expand_dims(along, axis), shape))
    for variant in ("contiguous", "strided"):
        (got,) = run_reduction(case, [values], {}, [shape], variant=variant)
        np.testing.assert_array_equal(got, np.zeros(shape))


def test_a_value_that_is_needed_after_its_result_was_stored() -> None:
    """The first result is stored by a walk that is not the last one to need the value."""
    r = Reduce()
    x = r.x("x", BATCH, 300)
    exp = r.exp(x)
    early = r.div(exp, r.fold("sum", exp, 1))
    late = r.sub(exp, r.fold("amax", r.mul(early, early), 1))
    case = reduction_of(early, late)
    values = RNG.standard_normal((5, 300)).astype("f4")
    wide = np.exp(values.astype("f8"))
    wanted = wide / wide.sum(1, keepdims=True)
    for variant in ("contiguous", "strided"):
        got = run_reduction(case, [values], {"s0": 5}, [values.shape] * 2, variant=variant)
        np.testing.assert_allclose(got[0], wanted, rtol=2e-6)
        np.testing.assert_allclose(got[1], wide - (wanted**2).max(1, keepdims=True), rtol=2e-6)


def test_results_of_16_bits_are_rounded_by_their_stores_alone() -> None:
    r = Reduce()
    x = r.cast(r.x("x", BATCH, 300, dtype=DType.F16), DType.F32)
    scaled = r.mul(x, 3.0)
    case = reduction_of(
        r.cast(r.div(scaled, r.fold("sum", r.mul(x, x), 1)), DType.F16),
        r.cast(r.fold("amax", scaled, 1), DType.F16),
    )
    assert "to_compute(op::from_compute" not in text_of(case)
    values = (RNG.standard_normal((5, 300)) * 100).astype("f2")
    wide = 3 * values.astype("f4")
    got = run_reduction(case, [values], {"s0": 5}, [(5, 300), (5, 1)])
    exact = wide.astype("f8") / (values.astype("f8") ** 2).sum(1, keepdims=True)
    np.testing.assert_allclose(got[0], exact, rtol=2**-10, atol=2**-24)
    np.testing.assert_array_equal(got[1], wide.max(1, keepdims=True).astype("f2"))


def test_short_rows_of_half_are_converted_by_strips() -> None:
    r = Reduce()
    x = r.x("x", BATCH, 10, dtype=DType.F16)
    case = reduction_of(r.cast(r.softmax(r.cast(x, DType.F32), 1), DType.F16))
    contiguous = text_of(case).split("_strided(")[0]
    assert contiguous.count("op::widen_block(x + strip * 10, count * 10, x_1_strip);") == 2
    assert contiguous.count("op::narrow_block(result_strip, count * 10, result + ") == 1
    for rows in (1, 3, 127, 128, 400):
        values = RNG.standard_normal((rows, 10)).astype("f2")
        for variant in ("contiguous", "strided"):
            (got,) = run_reduction(case, [values], {"s0": rows}, [values.shape], variant=variant)
            np.testing.assert_allclose(got, softmax(values, 1), rtol=1e-3)


def test_a_folded_cast_rounds() -> None:
    """What is folded, too, has to be rounded by the cast."""
    r = Reduce()
    x = r.x("x", BATCH, 300)
    rounded = r.cast(x, DType.F16)
    case = reduction_of(r.fold("amax", rounded, 1), r.fold("sum", r.cast(rounded, DType.F32), 1))
    values = RNG.standard_normal((5, 300)).astype("f4")
    got = run_reduction(case, [values], {"s0": 5}, [(5, 1), (5, 1)])
    halves = values.astype("f2")
    np.testing.assert_array_equal(got[0], halves.max(1, keepdims=True))
    np.testing.assert_allclose(got[1], halves.astype("f8").sum(1, keepdims=True), 1e-6, 4e-6)


def test_values_of_guarded_loads_are_kept() -> None:
    x = RNG.standard_normal((4, 90)).astype("f4")
    r = Reduce()
    case = reduction_of(r.softmax(r.pad(r.x("x", 4, 90), (0, 7), (0, 3)), 1))
    (got,) = run_reduction(case, [x], {}, [(4, 100)])
    np.testing.assert_allclose(got, softmax(np.pad(x, ((0, 0), (7, 3))), 1), rtol=1e-6)


@pytest.mark.parametrize("name", ["strip", "partial", "lane", "from", "x_lane", "exp_1_row"])
def test_operands_of_any_name(name: str) -> None:
    x = RNG.standard_normal((4, 50)).astype("f4")
    r = Reduce()
    (got,) = run_reduction(reduction_of(r.softmax(r.x(name, 4, 50), 1)), [x], {}, [(4, 50)])
    np.testing.assert_allclose(got, softmax(x, 1), rtol=1e-6)


def test_entry_points() -> None:
    r = Reduce()
    case = reduction_of(r.fold("sum", r.x("x", 4, 50), 1))
    name = case.group
    assert render("case", (case,), "c++").entry_points == (
        f"{name}_contiguous",
        f"{name}_strided",
    )
    parts = [f"{name}_{v}_{part}" for v in ("contiguous", "strided") for part in ("fold", "finish")]
    source = render("case", (cut(case),), "c++")
    assert source.entry_points == (f"{name}_partial_bytes", *parts)
    assert all(f" {entry}(" in source.text for entry in source.entry_points)
