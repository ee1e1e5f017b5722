"""Sums over the features of a product, against PyTorch on the graphs before and after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.rules.linear_graphs import (
    DEPTH,
    FEATURES,
    ROWS,
    Maker,
    as_tensors,
    feeds_of,
    gradients_of,
    values_of,
)
from tests.unit.ir.graphs import BATCH, graph

from opweld.ir.attrs import CastAttrs, PermuteAttrs, WindowAttrs
from opweld.ir.graph import Arena, Graph, Node
from opweld.ir.ops import Op
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.rewrite import Simplified
from opweld.ir.types import DType
from opweld.simplify import simplify

Form = Callable[[Maker], Node]


def scaled(m: Maker, y: Node) -> Node:
    """2 - (y * 0.5 + y) / 4"""
    twice = m.make(Op.ADD, m.make(Op.MUL, y, m.number(0.5)), y)
    return m.make(Op.SUB, m.number(2.0), m.make(Op.DIV, twice, m.number(4.0)))


def of_all(m: Maker) -> Node:
    return m.sum(m.linear(m.input("x", ROWS, DEPTH)), 1)


def of_all_scaled(m: Maker) -> Node:
    return m.sum(scaled(m, m.linear(m.input("x", 2, 3, DEPTH))), 2)


def of_all_and_rows(m: Maker) -> Node:
    return m.sum(m.linear(m.input("x", ROWS, DEPTH), bias=False), 0, 1)


def of_a_matmul(m: Maker) -> Node:
    x, weight = m.input("x", ROWS, DEPTH), m.weight("w", DEPTH, FEATURES)
    return m.sum(m.call("matmul.default", (ROWS, FEATURES), x, weight), 1)


def of_an_addmm(m: Maker) -> Node:
    x, weight, bias = m.input("x", ROWS, DEPTH), m.weight("w", DEPTH, 24), m.weight("b", 24)
    return m.sum(m.call("addmm.default", (ROWS, 24), bias, x, weight), 1)


def of_members(m: Maker) -> Node:
    y = m.reshape(m.linear(m.input("x", ROWS, DEPTH)), ROWS, 3, 8)
    return m.sum(scaled(m, y), 2)


def of_groups(m: Maker) -> Node:
    """Every third feature."""
    return m.sum(m.reshape(m.linear(m.input("x", ROWS, DEPTH)), ROWS, 8, 3), 1)


def of_windows(m: Maker) -> Node:
    """As an average pooling has it; the last features are left out."""
    y = m.reshape(m.linear(m.input("x", ROWS, DEPTH), 26), ROWS, 1, 26)
    windows = m.make(Op.WINDOW, y, attrs=WindowAttrs(2, 3, 8, 8))
    return m.sum(m.make(Op.PERMUTE, windows, attrs=PermuteAttrs((3, 0, 1, 2))), 0)


def of_rows(m: Maker) -> Node:
    """Means over the rows of a sequence."""
    y = scaled(m, m.linear(m.input("x", 2, 24, DEPTH)))
    return m.make(Op.DIV, m.sum(y, 1), m.number(24.0))


def of_rows_of_a_matmul(m: Maker) -> Node:
    x, weight = m.input("x", 2, 8, DEPTH), m.weight("w", DEPTH, FEATURES)
    return m.sum(m.call("matmul.default", (2, 8, FEATURES), x, weight), 0, 1)


FULL = (of_all, of_all_scaled, of_all_and_rows, of_a_matmul, of_an_addmm)
GROUPED = (of_members, of_groups, of_windows)
ROWWISE = (of_rows, of_rows_of_a_matmul)
each_form = pytest.mark.parametrize(
    "form", [*FULL, *GROUPED, *ROWWISE], ids=lambda form: form.__name__
)


def both(form: Form, algebra: Algebra = Algebra.EXACT) -> tuple[Graph, Simplified]:
    arena = Arena()
    before = graph(form(Maker(arena, dtype_of(form))))
    return before, simplify(before, arena, algebra=algebra)


def dtype_of(form: Form) -> DType:
    """What is made in float64 is a rule for float32."""
    return DType.F32 if form in ROWWISE else DType.F64


def given(form: Form, feeds) -> dict[str, torch.Tensor]:
    return as_tensors(feeds, torch.float32 if form in ROWWISE else torch.float64)


def tolerances(form: Form) -> dict[str, float]:
    single = {"rtol": 1e-4, "atol": 1e-4}
    return single if form in ROWWISE else {"rtol": 1e-10, "atol": 1e-11}


def fired(result: Simplified) -> set[str]:
    return {name for name, _, _ in result.fired}


def elements_of_products(g: Graph) -> int:
    sizes = [n.type.num_elems for n in g.nodes() if n.op is Op.CALL]
    return sum(size for size in sizes if isinstance(size, int))


def products_of(g: Graph) -> list[int]:
    """The features of the products that are left."""
    return [n.type.shape[-1] for n in g.nodes() if n.op is Op.CALL]


@each_form
@pytest.mark.parametrize("algebra", [Algebra.EXACT, Algebra.FINITE], ids=lambda a: a.value)
def test_values_and_gradients_are_the_original_s(form, algebra):
    before, after = both(form, algebra)
    name = "sum-of-rows" if form in ROWWISE else "sum-of-product"
    assert f"{name}{'' if algebra is Algebra.EXACT else '-finite'}" in fired(after)
    assert elements_of_products(after.graph) * 2 <= elements_of_products(before)
    feeds, near = given(form, feeds_of(before)), tolerances(form)
    for expected, got in zip(values_of(before, feeds), values_of(after.graph, feeds), strict=True):
        np.testing.assert_allclose(got, expected, **near)
    expected, got = gradients_of(before, feeds), gradients_of(after.graph, feeds)
    for name, gradient in expected.items():
        np.testing.assert_allclose(got[name], gradient, **near, err_msg=name)


@each_form
def test_nothing_is_rewritten_without_leave(form):
    before, after = both(form, Algebra.OFF)
    assert after.rewritten == () and products_of(after.graph) == products_of(before)


def hard_feeds(before: Graph, seed: int) -> dict[str, np.ndarray]:
    """Rows with NaN and infinities, of every second seed, which meet columns of one sign, of both,
    and with zeros; some weights are not finite either, and meet such columns of x.
    """
    rng = np.random.default_rng(seed)
    feeds = feeds_of(before, seed)
    for name, values in feeds.items():
        if name == "x":
            values[..., ::3] = np.abs(values[..., ::3])
            values[..., 1::6] = -np.abs(values[..., 1::6])
            if seed % 2:
                continue
            spots = rng.random(values.shape)
            values[spots < 0.04] = np.inf
            values[(spots > 0.04) & (spots < 0.08)] = -np.inf
            values[spots > 0.99] = np.nan
            values[spots.argmin(axis=-1) == 0] = 0.0
        elif name.endswith("bias") or values.ndim == 1:
            values[rng.random(values.shape) < 0.02 * (seed % 3)] = rng.choice([np.inf, -np.inf])
        else:
            along = values.T if name.endswith("w") else values  # [features, depth]
            along[:, ::3] = np.abs(along[:, ::3])
            along[:, 1::6] = -np.abs(along[:, 1::6])
            along[3, 6] = along[5, 9] = 0.0
            if seed % 3 == 0:
                along[2, seed % DEPTH] = rng.choice([np.inf, -np.inf, np.nan])
    return feeds


def disagreeing(form: Form, algebra: Algebra, seeds=range(60)) -> list[int]:
    """The seeds for which NaN and infinities are elsewhere than in the original."""
    before, after = both(form, algebra)
    found = []
    for seed in seeds:
        feeds = given(form, hard_feeds(before, seed))
        (expected,), (got,) = values_of(before, feeds), values_of(after.graph, feeds)
        if not np.allclose(got, expected, **tolerances(form), equal_nan=True):
            found.append(seed)
    return found


@each_form
def test_nan_and_infinities_are_the_original_s(form):
    assert disagreeing(form, Algebra.EXACT) == []


@each_form
def test_the_rule_for_finite_inputs_is_caught(form):
    assert disagreeing(form, Algebra.FINITE)


def test_what_is_hard_is_met():
    """Rows of all kinds among the results."""
    before, _ = both(of_all)
    seen = np.concatenate(
        [values_of(before, as_tensors(hard_feeds(before, seed)))[0].ravel() for seed in range(60)]
    )
    assert np.isnan(seen).any() and np.isposinf(seen).any() and np.isneginf(seen).any()
    assert np.isfinite(seen).any()


@pytest.mark.parametrize("form", FULL, ids=lambda form: form.__name__)
def test_nothing_overflows_that_did_not(form):
    """Features near the largest float32, whose sum overflows only where the original's does."""
    arena = Arena()
    before = graph(form(Maker(arena, DType.F32)))
    after = simplify(before, arena).graph
    for size in (1e30, 1e36, 1e37, 3e37):
        feeds = {n: np.sign(v) * size if n == "x" else v / 16 for n, v in feeds_of(before).items()}
        feeds = as_tensors(feeds, torch.float32)
        (expected,), (got,) = values_of(before, feeds), values_of(after, feeds)
        assert not (np.isfinite(expected) & ~np.isfinite(got)).any()


def of_256_features(m: Maker) -> Node:
    return m.sum(m.linear(m.input("x", 16, 256), 256), 1)


def of_32_features(m: Maker) -> Node:
    return m.sum(m.reshape(m.linear(m.input("x", 16, 256), 256), 16, 8, 32), 2)


def of_64_rows(m: Maker) -> Node:
    """Whose mean is no smaller than they are."""
    return m.sum(m.linear(m.make(Op.ABS, m.input("x", 4, 64, 256)), 64), 1)


@pytest.mark.parametrize("form", [of_256_features, of_32_features, of_64_rows])
def test_errors_are_no_larger(form):
    """Against float64, over many draws: of all features, of groups of them, and of rows. By the
    margin of grade A.
    """
    exact, _ = both(form)
    arena = Arena()
    before = graph(form(Maker(arena, DType.F32)))
    after = simplify(before, arena).graph
    errors: list[list[float]] = [[], []]
    for seed in range(20):
        rounded = as_tensors(feeds_of(before, seed), torch.float32)
        (expected,) = values_of(exact, {name: value.double() for name, value in rounded.items()})
        for kept, each in zip(errors, (before, after), strict=True):
            kept.append(float(np.square(values_of(each, rounded)[0] - expected).mean()))
    original, ours = (np.sqrt(np.mean(kept)) for kept in errors)
    assert ours <= original * 1.05


def read_twice(m: Maker) -> Node:
    y = m.linear(m.input("x", ROWS, DEPTH))
    return m.make(Op.MUL, m.sum(y, 1), y)


def after_a_relu(m: Maker) -> Node:
    return m.sum(m.make(Op.RELU, m.linear(m.input("x", ROWS, DEPTH))), 1)


def over_few_rows(m: Maker) -> Node:
    return m.sum(m.linear(m.input("x", ROWS, DEPTH)), 0)


def over_any_rows(m: Maker) -> Node:
    return m.sum(m.linear(m.input("x", BATCH, DEPTH)), 0)


def over_rows_that_are_read(m: Maker) -> Node:
    y = m.linear(m.input("x", 2, 12, DEPTH))
    return m.make(Op.SUB, y, m.sum(y, 1))


def of_few(m: Maker) -> Node:
    return m.sum(m.linear(m.input("x", ROWS, DEPTH), 3), 1)


def of_small_groups(m: Maker) -> Node:
    return m.sum(m.reshape(m.linear(m.input("x", ROWS, DEPTH)), ROWS, 6, 4), 2)


def of_overlapping_windows(m: Maker) -> Node:
    y = m.linear(m.input("x", ROWS, DEPTH))
    return m.sum(m.make(Op.WINDOW, y, attrs=WindowAttrs(1, 9, 2, 8)), 2)


def of_the_square(m: Maker) -> Node:
    y = m.linear(m.input("x", ROWS, DEPTH))
    return m.sum(m.make(Op.MUL, y, y), 1)


def divided_by_zero(m: Maker) -> Node:
    return m.sum(m.make(Op.DIV, m.linear(m.input("x", ROWS, DEPTH)), m.number(0.0)), 1)


def scaled_by_infinity(m: Maker) -> Node:
    return m.sum(m.make(Op.MUL, m.linear(m.input("x", ROWS, DEPTH)), m.number(np.inf)), 1)


def scaled_by_feature(m: Maker) -> Node:
    y = m.linear(m.input("x", ROWS, DEPTH))
    return m.sum(m.make(Op.MUL, y, m.weight("scale", FEATURES)), 1)


def of_mixed_axes(m: Maker) -> Node:
    """Rows and features in one axis."""
    y = m.linear(m.input("x", ROWS, DEPTH))
    return m.sum(m.reshape(m.make(Op.PERMUTE, y, attrs=PermuteAttrs((1, 0))), 16, 9), 1)


def of_the_largest(m: Maker) -> Node:
    return m.make(Op.AMAX, m.linear(m.input("x", ROWS, DEPTH)), attrs=of_all(m).attrs)


UNFIT = (
    read_twice,
    after_a_relu,
    over_few_rows,
    over_any_rows,
    over_rows_that_are_read,
    of_few,
    of_small_groups,
    of_overlapping_windows,
    of_the_square,
    divided_by_zero,
    scaled_by_infinity,
    scaled_by_feature,
    of_mixed_axes,
    of_the_largest,
)


@pytest.mark.parametrize("form", UNFIT, ids=lambda form: form.__name__)
def test_other_sums_stay(form):
    before, after = both(form)
    assert not {"sum-of-product", "sum-of-rows"} & fired(after)
    assert products_of(after.graph) == products_of(before)


def test_small_groups_go_where_inputs_are_finite():
    _, after = both(of_small_groups, Algebra.FINITE)
    assert products_of(after.graph) == [6]


def test_a_matmul_that_is_returned_stays():
    arena = Arena()
    m = Maker(arena)
    y = m.linear(m.input("x", ROWS, DEPTH))
    after = simplify(graph(m.sum(y, 1), y), arena)
    assert "sum-of-product" not in fired(after)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda dtype: dtype.value)
def test_products_of_16_bits_are_summed_in_float32(dtype):
    arena = Arena()
    m = Maker(arena, dtype)
    y = m.make(Op.CAST, m.linear(m.input("x", ROWS, DEPTH)), attrs=CastAttrs(DType.F32))
    before = graph(m.sum(y, 1))
    after = simplify(before, arena)
    assert "sum-of-product" in fired(after) and not products_of(after.graph)
    torch_dtype = {DType.F16: torch.float16, DType.BF16: torch.bfloat16}[dtype]
    feeds = as_tensors(feeds_of(before), torch_dtype)
    (expected,), (got,) = values_of(before, feeds), values_of(after.graph, feeds)
    np.testing.assert_allclose(got, expected, rtol=0.05, atol=0.3)


def test_any_batch_is_summed():
    arena = Arena()
    m = Maker(arena)
    before = graph(m.sum(m.linear(m.input("x", BATCH, DEPTH)), 1))
    after = simplify(before, arena).graph
    for rows in (0, 1, 7):
        feeds = as_tensors(feeds_of(before, sizes={"s0": rows}))
        np.testing.assert_allclose(values_of(after, feeds)[0], values_of(before, feeds)[0])


def test_a_mean_of_rows_is_effect():
    _, after = both(of_rows)
    (rewritten,) = after.rewritten
    assert rewritten.effect.before.startswith("sum over 24 rows of f(y) = (2 - ")
    assert rewritten.effect.after == "24 * f(mean(x) @ fc.weight.T + fc.bias)"
    assert rewritten.effect.flops_before == 2 * 48 * 16 * 24
    assert rewritten.effect.flops_after == 48 * 16 + 2 * (2 * 2 * 16 * 24)


def test_the_rewrite_is_described_in_the_users_names():
    _, after = both(of_all_scaled)
    (rewritten,) = after.rewritten
    assert rewritten.effect.before == (
        "sum over the features of f(y) = (2 - (((y * 0.5) + y) * 0.25)),"
        " y = x @ fc.weight.T + fc.bias"
    )
    assert rewritten.effect.after == "24 * f(x @ mean(fc.weight.T) + mean(fc.bias))"
    assert rewritten.effect.flops_before == 2 * 6 * 16 * 24
    assert rewritten.effect.flops_after == 2 * 6 * 16 + 16 * 24


@pytest.mark.parametrize(("algebra", "products"), [(Algebra.EXACT, 2), (Algebra.FINITE, 1)])
def test_the_second_product_of_groups_is_counted(algebra, products):
    _, after = both(of_members, algebra)
    (rewritten,) = after.rewritten
    assert rewritten.effect.flops_after == products * 2 * ROWS * DEPTH * 3 + FEATURES * DEPTH
    assert len(products_of(after.graph)) == products
