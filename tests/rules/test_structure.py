"""Products with diagonal and triangular matrices, against PyTorch on both graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.rules.linear_graphs import Maker, values_of
from tests.rules.rewritten import disagreeing, errors, pair_of, require_same
from tests.unit.ir.graphs import BATCH

from opweld.ir.attrs import CallAttrs, CastAttrs, IotaAttrs, Operand, PermuteAttrs
from opweld.ir.graph import Arena, Node
from opweld.ir.ops import Op
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.costs import Costs
from opweld.ir.types import DType, TensorType
from opweld.simplify.products.structure.bands import Band, band_of, name_of_band

N = 12


def iota(m: Maker, size: int, start: int = 0) -> Node:
    return m.arena.iota(IotaAttrs(start, 1, size), DType.I64)


def eye(m: Maker, size: int = N) -> Node:
    """As torch.eye is captured."""
    rows = m.reshape(iota(m, size), size, 1)
    equal = m.make(Op.EQ, rows, iota(m, size))
    return m.make(Op.CAST, equal, attrs=CastAttrs(m.dtype))


def part(m: Maker, op: Op, value: Node, offset: int = 0) -> Node:
    """As tril (LE) and triu (GE) are captured."""
    rows, columns = value.type.shape
    place = m.reshape(iota(m, rows), rows, 1)
    if offset:
        place = m.make(Op.ADD, place, m.arena.const(offset, DType.I64))
    return m.make(Op.WHERE, m.make(op, iota(m, columns), place), value, m.number(0.0))


def matmul(m: Maker, left: Node, right: Node) -> Node:
    shape = (*left.type.shape[:-1], right.type.shape[-1])
    return m.call("matmul.default", shape, left, right)


def diag(m: Maker, vector: Node) -> Node:
    return m.call("diag.default", (*vector.type.shape, *vector.type.shape), vector)


def rows_scaled(m: Maker) -> Node:
    return matmul(m, diag(m, m.weight("a", N)), m.input("x", N, 7))


def columns_scaled(m: Maker) -> Node:
    return matmul(m, m.input("x", 2, 5, N), diag(m, m.weight("a", N)))


def in_a_layer(m: Maker) -> Node:
    x, bias = m.input("x", 5, N), m.weight("b", N)
    return m.call("linear.default", (5, N), x, diag(m, m.weight("a", N)), bias)


def by_ones(m: Maker) -> Node:
    return m.make(Op.ADD, matmul(m, m.input("x", 5, N), eye(m)), m.number(1.0))


def in_batches(m: Maker) -> Node:
    vector = m.input("x", 3, N)
    matrices = m.call("diag_embed.default", (3, N, N), vector)
    return m.call("bmm.default", (3, N, 5), matrices, m.input("x2", 3, N, 5))


def of_one_matrix(m: Maker) -> Node:
    """A matrix for all vectors."""
    matrices = m.call("diag_embed.default", (3, N, N), m.input("x", 3, N))
    return m.call("matmul.default", (3, N, 5), matrices, m.weight("w", N, 5))


DIAGONAL = (rows_scaled, columns_scaled, in_a_layer, by_ones, in_batches, of_one_matrix)
BIG = 256
COMPUTE_ALONE = Costs(flops_per_s=1e9, bytes_per_s=1e15)


def layer_of_tril(m: Maker) -> Node:
    weight = part(m, Op.LE, m.weight("w", BIG, BIG))
    return m.call("linear.default", (9, BIG), m.input("x", 9, BIG), weight, m.weight("b", BIG))


def times_tril(m: Maker) -> Node:
    return matmul(m, m.input("x", 3, 3, BIG), part(m, Op.LE, m.weight("w", BIG, BIG), -1))


def times_triu(m: Maker) -> Node:
    """Higher than wide, beyond the diagonal."""
    return matmul(m, m.input("x", 9, BIG), part(m, Op.GE, m.weight("w", BIG, 160), 2))


def tril_times(m: Maker) -> Node:
    return matmul(m, part(m, Op.LE, m.weight("w", BIG, BIG)), m.input("x", BIG, 9))


def triu_times(m: Maker) -> Node:
    return matmul(m, part(m, Op.GE, m.input("x", BIG, BIG), 1), m.input("x2", BIG, 9))


def both_triangles(m: Maker) -> Node:
    left, right = (part(m, Op.LE, m.input(name, BIG, BIG)) for name in ("x", "x2"))
    return matmul(m, left, right)


def of_a_transposed(m: Maker) -> Node:
    weight = part(m, Op.LE, m.weight("w", BIG, BIG))
    weight = m.make(Op.PERMUTE, weight, attrs=PermuteAttrs((1, 0)))
    return matmul(m, m.input("x", 9, BIG), weight)


TRIANGULAR = (
    layer_of_tril,
    times_tril,
    times_triu,
    tril_times,
    triu_times,
    both_triangles,
    of_a_transposed,
)
each_form = pytest.mark.parametrize(
    "form", [*DIAGONAL, *TRIANGULAR], ids=lambda form: form.__name__
)


def rule_of(form) -> str:
    return "diagonal-product" if form in DIAGONAL else "triangular-product"


@each_form
@pytest.mark.parametrize("algebra", [Algebra.EXACT, Algebra.FINITE], ids=lambda a: a.value)
def test_values_and_gradients_are_the_original_s(form, algebra):
    pair = pair_of(form, algebra, costs=COMPUTE_ALONE)
    assert f"{rule_of(form)}{'-finite' if algebra is Algebra.FINITE else ''}" in pair.fired
    (rewritten,) = pair.after.rewritten
    assert rewritten.effect.flops_after < rewritten.effect.flops_before
    if form in DIAGONAL:
        assert not {"matmul", "linear", "bmm"} & set(pair.calls())
    require_same(pair)


@each_form
def test_nan_and_infinities_are_the_original_s(form):
    assert disagreeing(pair_of(form, costs=COMPUTE_ALONE), range(16)) == []


@each_form
def test_the_rule_for_finite_inputs_is_caught(form):
    assert disagreeing(pair_of(form, Algebra.FINITE, costs=COMPUTE_ALONE), range(16))


def test_what_a_product_of_zeros_hides_is_seen():
    """Of rows with one infinity its own result alone is not NaN."""
    pair = pair_of(columns_scaled)
    x = torch.ones(2, 5, N, dtype=torch.float64)
    x[0, 0, 3] = torch.inf
    x[0, 1, 3] = x[0, 1, 4] = torch.inf
    feeds = {"x": x, "self.a": torch.full((N,), 2.0, dtype=torch.float64)}
    (found,) = values_of(pair.after.graph, feeds)
    assert found[0, 0, 3] == np.inf and np.isnan(found[0, 0]).sum() == N - 1
    assert np.isnan(found[0, 1]).all() and (found[1] == 2).all()


def by_a_vector(m: Maker) -> Node:
    return matmul(m, m.input("x", 5, N), m.make(Op.MUL, m.weight("a", N), eye(m)))


def by_another_diagonal(m: Maker) -> Node:
    """The one above."""
    vector = m.weight("a", N - 1)
    result = (TensorType(m.dtype, (N, N)),)
    attrs = CallAttrs("aten.diag.default", (Operand(0), 1), (), result, "")
    return matmul(m, m.input("x", 5, N), m.arena.call((vector,), attrs))


def of_any_rows(m: Maker) -> Node:
    """A triangle whose number of rows is any."""
    value = m.input("x", BATCH, BIG)
    place = m.reshape(m.arena.iota(IotaAttrs(0, 1, BATCH), DType.I64), BATCH, 1)
    mask = m.make(Op.LE, iota(m, BIG), place)
    return matmul(m, m.make(Op.WHERE, mask, value, m.number(0.0)), m.input("x2", BIG, 9))


def of_ones_outside(m: Maker) -> Node:
    rows = m.reshape(iota(m, BIG), BIG, 1)
    mask = m.make(Op.LE, iota(m, BIG), rows)
    weight = m.make(Op.WHERE, mask, m.weight("w", BIG, BIG), m.number(1.0))
    return matmul(m, m.input("x", 9, BIG), weight)


UNFIT = (by_a_vector, by_another_diagonal, of_any_rows, of_ones_outside)


@pytest.mark.parametrize("form", UNFIT, ids=lambda form: form.__name__)
def test_other_products_stay(form):
    fired = pair_of(form, Algebra.FINITE, costs=COMPUTE_ALONE).fired
    assert not {"diagonal-product-finite", "triangular-product-finite"} & fired


def test_a_small_triangle_stays_and_the_plan_says_why():
    def small(m: Maker) -> Node:
        return matmul(m, m.input("x", 9, 48), part(m, Op.LE, m.weight("w", 48, 48)))

    pair = pair_of(small)
    assert "triangular-product" not in pair.fired
    assert pair.reasons["triangular-product"] == "a block of 48 is one of 32 at least"


def long_sums(m: Maker) -> Node:
    return matmul(m, m.input("x", 16, 1024), part(m, Op.LE, m.weight("w", 1024, 1024)))


def long_sums_on_the_right(m: Maker) -> Node:
    return matmul(m, part(m, Op.LE, m.weight("w", 1024, 1024)), m.input("x", 1024, 16))


@pytest.mark.parametrize("form", [long_sums, long_sums_on_the_right])
def test_errors_are_no_larger(form):
    original, ours = errors(form, Algebra.EXACT, draws=3, costs=COMPUTE_ALONE)
    assert ours <= original * 1.05


@pytest.mark.parametrize(
    ("op", "offset", "band", "name"),
    [
        (Op.LE, 0, Band(None, 0), "tril(w)"),
        (Op.LE, -3, Band(None, -3), "tril(w, -3)"),
        (Op.GE, 2, Band(2, None), "triu(w, 2)"),
    ],
)
def test_bands(op, offset, band, name):
    m = Maker(Arena())
    value = part(m, op, m.weight("w", 8, 6), offset)
    assert band_of(value) == band and name_of_band(value) == name
    transposed = m.make(Op.PERMUTE, value, attrs=PermuteAttrs((1, 0)))
    assert band_of(transposed) == band.mirrored and name_of_band(transposed) == f"{name}.T"
    ones = np.ones((8, 6))
    kept = np.tril(ones, offset) if op is Op.LE else np.triu(ones, offset)
    apart = np.arange(6) - np.arange(8)[:, None]
    low = -99 if band.low is None else band.low
    high = 99 if band.high is None else band.high
    assert ((low <= apart) & (apart <= high)).tolist() == kept.astype(bool).tolist()


def test_a_triangle_of_a_triangle_is_a_band():
    m = Maker(Arena())
    inner = part(m, Op.LE, m.weight("w", 8, 8), 1)
    assert band_of(part(m, Op.GE, inner, -2)) == Band(-2, 1)
    for op, band in ((Op.LE, Band(None, -2)), (Op.GE, Band(1, None))):
        for one, other in ((1, -2), (-2, 1)):
            assert band_of(part(m, op, part(m, op, m.weight("w", 8, 8), one), other)) == band
    assert band_of(eye(m, 8)) == Band(0, 0) and name_of_band(eye(m, 8)) == "eye"


@pytest.mark.parametrize("dtype", [DType.F32, DType.U8], ids=lambda dtype: dtype.value)
def test_numbers_with_parts_or_few_bits_make_no_band(dtype):
    """Where rows and a half are columns there is no element."""
    m = Maker(Arena())
    rows, columns = (m.arena.iota(IotaAttrs(0, 1, 8), dtype) for _ in range(2))
    rows = m.make(Op.ADD, m.reshape(rows, 8, 1), m.arena.const(0.5 if dtype.is_float else 1, dtype))
    equal = m.make(Op.EQ, rows, columns)
    assert band_of(m.make(Op.CAST, equal, attrs=CastAttrs(m.dtype))) == Band()


def test_comparisons_with_rows_on_the_left():
    """Rows at least as large as columns."""
    m = Maker(Arena())
    rows = m.reshape(iota(m, 8), 8, 1)
    for condition, band in (
        (m.make(Op.GE, rows, iota(m, 8)), Band(None, 0)),
        (m.make(Op.LE, rows, iota(m, 8, 2)), Band(-2, None)),
        (m.make(Op.EQ, iota(m, 8), rows), Band(0, 0)),
        (m.make(Op.GT, rows, iota(m, 8)), Band()),
    ):
        value = m.make(Op.WHERE, condition, m.weight("w", 8, 8), m.number(0.0))
        assert band_of(value) == band
