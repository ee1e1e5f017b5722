"""Chains of products in another order, against PyTorch on the graphs before and after."""

from __future__ import annotations

import dataclasses
from unittest import mock

import pytest
from tests.rules.linear_graphs import Maker
from tests.rules.rewritten import disagreeing, errors, pair_of, require_same
from tests.unit.ir.graphs import BATCH, graph

from opweld.ir.attrs import CallAttrs, Operand, PermuteAttrs
from opweld.ir.graph import Arena, Node
from opweld.ir.ops import Op
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.costs import Costs
from opweld.ir.rules.pattern import Match
from opweld.ir.rules.rewrite import readers_of
from opweld.ir.types import DType, TensorType
from opweld.simplify.products.order.chain import MOST_FACTORS, chain_of
from opweld.simplify.products.order.cheapest import cheapest, flops

FINITE = Algebra.FINITE


def swapped(m: Maker, x: Node) -> Node:
    rank = x.type.rank
    dims = (*range(rank - 2), rank - 1, rank - 2)
    return m.make(Op.PERMUTE, x, attrs=PermuteAttrs(dims))


def matmul(m: Maker, left: Node, right: Node) -> Node:
    shape = (*left.type.shape[:-1], right.type.shape[-1])
    return m.call("matmul.default", shape, left, right)


def normed(m: Maker, y: Node, name: str = "norm") -> Node:
    """As eval batch norm is captured."""
    size = y.type.shape[-1]
    mean, scale, shift = (m.weight(f"{name}.{each}", size) for each in ("mean", "scale", "shift"))
    y = m.make(Op.MUL, m.make(Op.SUB, y, mean), scale)
    return m.make(Op.ADD, y, shift)


def two_layers(m: Maker) -> Node:
    return m.linear(m.linear(m.input("x", 40, 6), 32, "one"), 5, "two")


def three_layers(m: Maker) -> Node:
    hidden = m.linear(m.linear(m.input("x", 3, 40, 6), 24, "one"), 32, "two", bias=False)
    return m.linear(hidden, 5, "three")


def with_a_norm_between(m: Maker) -> Node:
    return m.linear(normed(m, m.linear(m.input("x", 40, 6), 32, "one")), 5, "two")


def with_steps_between(m: Maker) -> Node:
    """3 - (y / 2 + y) of the first, whose bias there is none of."""
    y = m.linear(m.input("x", 40, 6), 32, "one", bias=False)
    y = m.make(Op.ADD, m.make(Op.DIV, y, m.number(2.0)), y)
    return m.linear(m.make(Op.SUB, m.number(3.0), m.make(Op.NEG, y)), 5, "two")


def scaled_and_normed(m: Maker) -> Node:
    """What stays behind the last product of a merged part."""
    y = normed(m, m.linear(m.linear(m.input("x", 40, 6), 32, "one"), 16, "two"))
    return m.linear(m.make(Op.RELU, y), 4, "three")


def low_rank(m: Maker) -> Node:
    weight = matmul(m, m.weight("u", 32, 2), m.weight("v", 2, 24))
    return matmul(m, m.input("x", 40, 32), weight)


def low_rank_layer(m: Maker) -> Node:
    """F.linear(x, (u @ v).T.T, b)"""
    weight = matmul(m, m.weight("u", 24, 2), m.weight("v", 2, 32))
    weight = swapped(m, swapped(m, weight))
    x = m.input("x", 40, 32)
    return m.call("linear.default", (40, 24), x, weight, m.weight("b", 24))


def low_rank_transposed(m: Maker) -> Node:
    weight = matmul(m, m.weight("u", 24, 2), m.weight("v", 2, 32))
    return matmul(m, m.input("x", 40, 32), swapped(m, weight))


def of_matrices(m: Maker) -> Node:
    left = matmul(m, m.input("x", 40, 3), m.input("x2", 3, 40))
    return matmul(m, left, matmul(m, m.input("x3", 40, 30), m.input("x4", 30, 2)))


def of_batches(m: Maker) -> Node:
    left = matmul(m, m.input("x", 3, 40, 4), swapped(m, m.input("x2", 3, 40, 4)))
    return matmul(m, left, m.input("x3", 3, 40, 2))


def einsum(m: Maker, equation: str, shape, *operands: Node) -> Node:
    places = (equation, tuple(map(Operand, range(len(operands)))))
    result = TensorType(operands[0].type.dtype, shape)
    attrs = CallAttrs("aten.einsum.default", places, (), (result,), "")
    return m.arena.call(operands, attrs)


def of_an_einsum(m: Maker) -> Node:
    x, other, last = m.input("x", 40, 4), m.input("x2", 40, 4), m.input("x3", 40, 2)
    return einsum(m, "ij,kj,kl->il", (40, 2), x, other, last)


def of_a_batched_einsum(m: Maker) -> Node:
    x, other, last = m.input("x", 2, 40, 4), m.input("x2", 2, 4, 40), m.input("x3", 2, 40, 2)
    return einsum(m, "bij, bjk, bkl -> bil", (2, 40, 2), x, other, last)


def weighted_sum(m: Maker) -> Node:
    y = m.linear(m.input("x", 40, 16), 24)
    return m.sum(m.make(Op.MUL, y, m.weight("v", 24)), 1)


FORMS = (
    two_layers,
    three_layers,
    with_a_norm_between,
    with_steps_between,
    scaled_and_normed,
    low_rank,
    low_rank_layer,
    low_rank_transposed,
    of_matrices,
    of_batches,
    of_an_einsum,
    of_a_batched_einsum,
    weighted_sum,
)
each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
RULES = {"product-order", "weighted-sum-order"}


@each_form
def test_values_and_gradients_are_the_original_s(form):
    pair = pair_of(form, FINITE)
    assert {f"{rule}-finite" for rule in RULES} & pair.fired
    (rewritten,) = pair.after.rewritten
    assert rewritten.effect.flops_after < rewritten.effect.flops_before
    for seed in range(3):
        require_same(pair, seed)


@each_form
def test_a_second_run_finds_nothing(form):
    pair = pair_of(form, FINITE)
    assert not any("no order" in each.missed.reason for each in pair.after.left)


@each_form
def test_nothing_changes_where_values_may_be_infinite(form):
    pair = pair_of(form)
    assert not RULES & pair.fired
    (reason,) = {r for rule, r in pair.reasons.items() if rule in RULES}
    assert "not infinite, unlike x" in reason


@pytest.mark.parametrize("form", [two_layers, of_matrices, of_an_einsum, weighted_sum])
def test_infinities_would_make_others(form):
    assert disagreeing(pair_of(form, FINITE))


def bounded(m: Maker) -> Node:
    """Values between -1 and 1: NaN alone is handed on."""
    x, other = (
        m.make(Op.TANH, m.input(f"x{i}", *shape)) for i, shape in ((1, (40, 4)), (2, (4, 40)))
    )
    return matmul(m, matmul(m, x, other), m.make(Op.SIGMOID, m.input("x3", 40, 2)))


def test_bounded_values_take_any_order():
    pair = pair_of(bounded)
    assert "product-order" in pair.fired
    assert disagreeing(pair) == []
    require_same(pair)


def read_between(m: Maker) -> Node:
    hidden = m.linear(m.input("x", 40, 6), 32, "one")
    return m.make(Op.ADD, m.linear(hidden, 5, "two"), m.sum(hidden, 1))


def with_a_function_between(m: Maker) -> Node:
    return m.linear(m.make(Op.RELU, m.linear(m.input("x", 40, 6), 32, "one")), 5, "two")


def divided_by_it(m: Maker) -> Node:
    hidden = m.linear(m.input("x", 40, 6), 32, "one")
    return m.linear(m.make(Op.DIV, m.weight("v", 32), hidden), 5, "two")


def squared(m: Maker) -> Node:
    hidden = m.linear(m.input("x", 40, 6), 32, "one")
    return m.linear(m.make(Op.MUL, hidden, hidden), 5, "two")


def with_a_wide_middle(m: Maker) -> Node:
    """One weight would be the larger."""
    return m.linear(m.linear(m.input("x", 40, 32), 2, "one"), 24, "two")


def of_other_letters(m: Maker) -> Node:
    x, other, last = m.input("x", 40, 4), m.input("x2", 4, 40), m.input("x3", 40, 2)
    return einsum(m, "ij,jk,kl->li", (2, 40), x, other, last)


def of_one_letter_left(m: Maker) -> Node:
    x, other, last = m.input("x", 40, 6), m.input("x2", 6, 6), m.input("x3", 40, 6)
    return einsum(m, "bi,ij,bj->b", (40,), x, other, last)


def read_in_two_places(m: Maker) -> Node:
    """Another order of the second product would not save the first."""
    y = matmul(m, m.input("x", 40, 6), m.weight("w", 6, 40))
    return matmul(m, y, matmul(m, y, m.input("x2", 40, 2)))


UNFIT = (
    read_between,
    read_in_two_places,
    with_a_function_between,
    divided_by_it,
    squared,
    with_a_wide_middle,
)


@pytest.mark.parametrize(
    "form", [*UNFIT, of_other_letters, of_one_letter_left], ids=lambda form: form.__name__
)
def test_other_products_stay(form):
    pair = pair_of(form, FINITE)
    assert not {f"{rule}-finite" for rule in RULES} & pair.fired


def test_16_bits_stay():
    assert "product-order-finite" not in pair_of(two_layers, FINITE, DType.F16).fired


def test_sizes_of_the_example_decide():
    def few_or_many(m: Maker) -> Node:
        return m.linear(m.linear(m.input("x", BATCH, 64), 256, "one"), 64, "two")

    fired = [
        "product-order-finite" in pair_of(few_or_many, FINITE, costs=Costs((("s0", rows),))).fired
        for rows in (2, 100_000)
    ]
    assert fired == [False, True]


def test_a_call_has_its_price():
    slow = Costs(call_s=1.0)
    assert "product-order-finite" not in pair_of(two_layers, FINITE, costs=slow).fired


def test_the_order_is_the_best_of_all():
    """By trying them all: sizes of 5 matrices."""

    def trees(first: int, last: int):
        if first == last:
            return [first]
        return [
            (one, other)
            for cut in range(first, last)
            for one in trees(first, cut)
            for other in trees(cut + 1, last)
        ]

    for sizes in ((30, 35, 15, 5, 10, 20), (4, 9, 2, 40, 3, 17), (8, 8, 8, 8, 8, 8)):
        chain = _chain(sizes)
        compute_alone = Costs(flops_per_s=1.0, bytes_per_s=1e30)
        least = min(flops(chain, tree) for tree in trees(0, 4))
        assert flops(chain, cheapest(chain, compute_alone)) == least


def _chain(sizes: tuple[int, ...], expected: int | None = None):
    m = Maker(Arena())
    pairs = list(zip(sizes, sizes[1:], strict=False))
    made = m.input("x0", *pairs[0])
    for place, shape in enumerate(pairs[1:], 1):
        made = matmul(m, made, m.input(f"x{place}", *shape))
    found = chain_of(Match(made, {}, m.arena, readers_of(graph(made))))
    assert found is not None and len(found.factors) == (expected or len(pairs))
    return found


def test_a_long_chain_is_one_chain():
    def five(m: Maker) -> Node:
        made = m.input("x", 64, 8)
        for place, size in enumerate((32, 8, 32, 8, 2)):
            made = m.linear(made, size, f"fc{place}")
        return made

    pair = pair_of(five, FINITE)
    assert len(pair.after.rewritten) == 1
    require_same(pair)


def test_a_longer_chain_is_ordered_from_its_end():
    """What is before the factors of a part is the value on its left."""
    assert len(_chain((8,) * 101, MOST_FACTORS).factors) == MOST_FACTORS

    def five(m: Maker) -> Node:
        made = m.input("x", 64, 8)
        for place, size in enumerate((32, 8, 32, 8, 2)):
            made = m.linear(made, size, f"fc{place}")
        return made

    with mock.patch("opweld.simplify.products.order.chain.MOST_FACTORS", 3):
        pair = pair_of(five, FINITE)
    assert len(pair.after.rewritten) > 1
    require_same(pair)


def wide(m: Maker) -> Node:
    return m.linear(m.linear(m.input("x", 256, 96), 192, "one"), 64, "two")


def slim(m: Maker) -> Node:
    weight = matmul(m, m.weight("u", 96, 8), m.weight("v", 8, 96))
    return matmul(m, m.input("x", 64, 96), weight)


@pytest.mark.parametrize("form", [wide, slim], ids=lambda form: form.__name__)
def test_errors_are_no_larger(form):
    original, ours = errors(form, FINITE, draws=20)
    assert ours <= original * 1.05


def test_the_text_has_the_user_s_names():
    effect = pair_of(with_a_norm_between, FINITE).after.rewritten[0].effect
    assert effect.before == (
        "(x @ one.weight.T) @ two.weight.T, with what is added and scaled between"
    )
    assert effect.after == (
        "x @ (one.weight.T @ two.weight.T), with what is added and scaled between"
    )
    assert dataclasses.astuple(effect)[2:4] == (2 * 40 * 32 * 11, 2 * (6 * 32 * 5 + 40 * 6 * 5))
