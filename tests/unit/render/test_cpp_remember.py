"""What the walks of a C++ reduction leave for later ones, which would compute it again."""

from __future__ import annotations

import numpy as np
import pytest
from tests.calls import calls_at_most
from tests.reduction_kernels import reduction_of, run_reduction
from tests.unit.plan.plans import BATCH
from tests.unit.render.test_cpp_reduction import RNG, Reduce, softmax, text_of

from opweld.ir.types import DType


def test_what_is_dear_is_computed_once_and_stands_in_the_result() -> None:
    r = Reduce()
    for shape in ((BATCH, 1000), (64, 40000), (64, BATCH)):
        text = text_of(reduction_of(r.softmax(r.x("x", *shape), 1)))
        contiguous = text[text.index("_contiguous(") : text.index("_strided(")]
        assert text.count("op::exp(") == 1 and "exp_1_row" not in contiguous
        place = f"i * {'s0' if shape[1] == BATCH else shape[1]} + r"
        blocks_and_rest = 1 + (shape[1] != 40000)  # a multiple of the lanes
        assert contiguous.count(f"result[{place}] = value0;") == blocks_and_rest + 1
        assert contiguous.count(f"const float exp_1 = result[{place}];") == 1


@pytest.mark.parametrize(
    ("shape", "axis", "memory"),
    [
        ((BATCH, 1000), 1, "float exp_1_row[1000];"),
        ((64, 33000), 1, "exp_1_row_memory(33000)"),
        ((4, BATCH), 1, "exp_1_row_memory(s0)"),
        ((3, BATCH, 200), 1, "exp_1_row_memory(s0 * 128)"),
        ((3, 40, BATCH), 1, "float exp_1_row[5120];"),
    ],
)
def test_arrays_of_rows_without_a_result_of_their_type(shape, axis: int, memory: str) -> None:
    r = Reduce()
    x = r.x("x", *shape, dtype=DType.F16)
    case = reduction_of(r.cast(r.softmax(r.cast(x, DType.F32), axis), DType.F16))
    text = text_of(case)
    assert text.count("op::exp(") == 1 and text.count(memory) == 2
    size = 7 if axis != 1 or shape[0] == BATCH else 300
    shape = tuple(size if extent == BATCH else extent for extent in shape)
    values = RNG.standard_normal(shape).astype("f2")
    for variant in ("contiguous", "strided"):
        (got,) = run_reduction(case, [values], {"s0": size}, [shape], variant=variant)
        np.testing.assert_allclose(got, softmax(values, axis), rtol=2e-3, atol=1e-7)


def test_rows_across_of_any_length() -> None:
    """The strips are kept in the result."""
    r = Reduce()
    case = reduction_of(r.softmax(r.x("x", 3, BATCH, 200), 1))
    assert "exp_1_row" not in text_of(case).split("_strided(")[0]
    x = RNG.standard_normal((3, 70, 200)).astype("f4")
    for variant in ("contiguous", "strided"):
        (got,) = run_reduction(case, [x], {"s0": 70}, [x.shape], variant=variant)
        np.testing.assert_allclose(got, softmax(x, 1), rtol=1e-6)


@pytest.mark.parametrize("length", [40, 1000, 40000])
def test_two_values_that_are_kept(length: int) -> None:
    """Each in a result of its own, or one in an array where the other type is wider."""
    r = Reduce()
    x, y = r.x("x", BATCH, length), r.x("y", BATCH, length)
    first, second = r.exp(x), r.exp(y)
    scale = r.add(r.fold("sum", first, 1), r.fold("amax", second, 1))
    outputs = [r.div(first, scale), r.sub(second, scale), r.cast(r.mul(first, second), DType.F64)]
    case = reduction_of(outputs[0], outputs[1], r.mul(outputs[2], r.cast(scale, DType.F64)))
    text = text_of(case)
    assert text.count("op::exp(") == 2
    given = [RNG.standard_normal((5, length)).astype("f4") for _ in range(2)]
    shape = given[0].shape
    a, b = (np.exp(each.astype("f8")) for each in given)
    total = a.sum(1, keepdims=True) + b.max(1, keepdims=True)
    for variant in ("contiguous", "strided"):
        got = run_reduction(case, given, {"s0": 5}, [shape] * 3, variant=variant)
        np.testing.assert_allclose(got[0], a / total, rtol=2e-6)
        np.testing.assert_allclose(got[1], b - total, rtol=2e-6)
        np.testing.assert_allclose(got[2], a * b * total, rtol=2e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_one_value_of_two_folds_is_kept_once(axis: int) -> None:
    """The sum's and the largest's element; nothing but its array can hold it."""
    r = Reduce()
    exp = r.exp(r.x("x", 40, 50))
    scale = r.add(r.fold("sum", exp, axis), r.fold("amax", exp, axis))
    case = reduction_of(r.fold("amin", r.mul(exp, scale), axis))
    assert text_of(case).count("exp_1_row[") >= 2
    x = RNG.standard_normal((40, 50)).astype("f4")
    wide = np.exp(x.astype("f8"))
    scales = wide.sum(axis, keepdims=True) + wide.max(axis, keepdims=True)
    wanted = (wide * scales).min(axis, keepdims=True)
    for variant in ("contiguous", "strided"):
        (got,) = run_reduction(case, [x], {}, [wanted.shape], variant=variant)
        np.testing.assert_allclose(got, wanted, rtol=2e-6)


def test_two_values_of_one_name_are_kept_apart() -> None:
    """Each walk numbers its own values: what either folds is its `exp_1`."""
    r = Reduce()
    x = r.x("x", 4, 50)
    first = r.exp(x)
    second = r.exp(r.div(x, r.fold("sum", first, 1)))
    total = r.fold("sum", second, 1)
    case = reduction_of(r.fold("amin", r.mul(r.mul(first, second), total), 1))
    text = text_of(case)
    assert "float exp_1_row[50];" in text and "float exp_1_2_row[50];" in text
    values = RNG.standard_normal((4, 50)).astype("f4")
    (got,) = run_reduction(case, [values], {}, [(4, 1)])
    a = np.exp(values.astype("f8"))
    b = np.exp(values / a.sum(1, keepdims=True))
    wanted = (a * b * b.sum(1, keepdims=True)).min(1, keepdims=True)
    np.testing.assert_allclose(got, wanted, rtol=2e-6)


def test_values_are_compared_in_linear_time() -> None:
    """There are 2^40 ways through what the last one is made of."""
    r = Reduce()
    value = r.x("x", BATCH, 50)
    for _ in range(40):
        value = r.mul(r.sigmoid(value), value)
    case = reduction_of(r.softmax(value, 1))
    with calls_at_most(1_000_000):
        text = text_of(case)
    assert text.count("op::sigmoid(") == 40 and "_row[" in text
