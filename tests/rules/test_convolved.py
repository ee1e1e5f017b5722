"""Convolutions whose results are averaged, pooled or multiplied, against PyTorch on both graphs."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from tests.rules.convolved_graphs import (
    FOLDED,
    MEANS,
    MERGED,
    POOLINGS,
    POOLS,
    conv,
    largest_of_largest,
    mean_dilated,
    mean_of_one_tap,
    mean_padded,
    mean_pool_of_pool,
    mean_transposed,
    norm_behind,
    one_tap_behind,
    over_space,
    pool_of_conv,
    pool_of_one_tap,
    pool_of_pool,
    pool_of_transposed,
    pooled,
)
from tests.rules.linear_graphs import Maker, feeds_of, values_of
from tests.rules.rewritten import disagreeing, errors, pair_of, require_same
from tests.unit.ir.graphs import graph

from opweld.ir.graph import Arena, Node
from opweld.ir.ops import Op
from opweld.ir.plan import number_at
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.costs import Costs
from opweld.ir.rules.rewrite import Numerics, readers_of, rewrite
from opweld.ir.types import DType
from opweld.simplify import simplify
from opweld.simplify.products.convolved.folded import FOLDED_FINITE
from opweld.simplify.rounds import in_rounds
from opweld.simplify.rules import PHASES_FINITE, RULES

FINITE = Algebra.FINITE
MEMORY_ALONE = Costs(flops_per_s=1e15, bytes_per_s=1.0)
COMPUTE_ALONE = Costs(flops_per_s=1e9, bytes_per_s=1e15, own_products=True)
NAMES = {
    **dict.fromkeys(MEANS, "sum-of-convolution"),
    **dict.fromkeys(POOLS, "pooled-convolution"),
    **dict.fromkeys(MERGED, "merged-layers"),
    **dict.fromkeys(FOLDED, "folded-scale"),
    pool_of_pool: "sum-of-pooling",
    mean_pool_of_pool: "sum-of-pooling",
    largest_of_largest: "amax-of-pooling",
}
SINGLE = MEANS  # what is made in float64 is a rule for float32
ids = {"ids": lambda form: form.__name__}


def both(form, algebra: Algebra):
    dtype = DType.F32 if form in SINGLE else DType.F64
    costs = MEMORY_ALONE if form in FOLDED else COMPUTE_ALONE
    return pair_of(form, algebra, dtype, costs)


@pytest.mark.parametrize("form", NAMES, **ids)
def test_values_and_gradients_are_the_original_s(form):
    pair = both(form, FINITE)
    finite = "" if form in POOLINGS else "-finite"
    assert f"{NAMES[form]}{finite}" in pair.fired
    (rewritten,) = pair.after.rewritten
    effect = rewritten.effect
    before, after = (number_at(n) for n in (effect.flops_before, effect.flops_after))
    assert after < before
    for seed in range(2):
        require_same(pair, seed)


@pytest.mark.parametrize("form", MEANS, **ids)
def test_means_are_exact(form):
    pair = both(form, Algebra.EXACT)
    assert pair.fired >= {"sum-of-convolution"} and "conv" not in " ".join(pair.calls())
    require_same(pair)
    assert disagreeing(pair, range(30)) == []


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_zeros_of_the_padding_meet_infinite_weights(place):
    """As in products with all that a window has; the tap in the middle meets none."""
    pair = both(mean_padded, Algebra.EXACT)
    feeds = {n: np.abs(values) for n, values in feeds_of(pair.before).items()}
    feeds["self.c.weight"][2, 1, place[0], place[1]] = np.inf
    (found,) = values_of(pair.after.graph, pair.tensors(feeds))
    expected = np.inf if place == (1, 1) else np.nan
    assert np.isfinite(np.delete(found, 2, 1)).all()
    np.testing.assert_equal(found[:, 2], np.full_like(found[:, 2], expected))


@pytest.mark.parametrize("form", [mean_padded, mean_transposed, mean_dilated], **ids)
def test_the_rule_for_finite_inputs_is_caught(form):
    assert disagreeing(both(form, FINITE), range(60))


@pytest.mark.parametrize("form", [pool_of_conv, pool_of_transposed, pool_of_one_tap], **ids)
def test_pools_of_infinite_values_stay(form):
    pair = both(form, Algebra.EXACT)
    assert "pooled-convolution" not in pair.fired
    assert "infinite" in pair.reasons["pooled-convolution"]
    assert disagreeing(both(form, FINITE), range(60))


@pytest.mark.parametrize("width", [2, 3])
def test_pools_of_bounded_values_are_exact(width):
    def form(m: Maker) -> Node:
        x = m.make(Op.SIGMOID, m.input("x", 2, 3, 9, 8))
        return pooled(m, conv(m, x, 5, (3, 3), padding=1), width)

    pair = both(form, Algebra.EXACT)
    assert "pooled-convolution" in pair.fired
    require_same(pair)
    assert disagreeing(pair, range(30)) == []


@pytest.mark.parametrize("form", POOLINGS, **ids)
def test_pools_of_pools_are_exact(form):
    pair = both(form, Algebra.EXACT)
    assert NAMES[form] in pair.fired
    assert disagreeing(pair, range(30)) == []


@pytest.mark.parametrize("form", [*MERGED, *FOLDED], **ids)
def test_infinite_weights_keep_layers_apart(form):
    pair = both(form, Algebra.EXACT)
    assert NAMES[form] not in pair.fired and "may" in pair.reasons[NAMES[form]]
    assert disagreeing(both(form, FINITE), range(40))


def read_twice(m: Maker) -> Node:
    y = conv(m, m.input("x", 2, 3, 7, 6), 5, (3, 3), padding=1)
    return m.make(Op.MUL, over_space(m, y), y)


def over_one_axis(m: Maker) -> Node:
    return m.sum(conv(m, m.input("x", 2, 3, 7, 6), 5, (3, 3)), 2)


def after_a_relu(m: Maker) -> Node:
    return over_space(m, m.make(Op.RELU, conv(m, m.input("x", 2, 3, 7, 6), 5, (3, 3))))


def with_an_idle_tap(m: Maker) -> Node:
    """Which meets zeros of the padding alone."""
    return over_space(m, conv(m, m.input("x", 2, 3, 1), 5, (3,), padding=1))


def pooled_and_read(m: Maker) -> Node:
    y = conv(m, m.input("x", 2, 3, 8, 8), 5, (3, 3), padding=1)
    return m.make(Op.MUL, pooled(m, y, 2), m.sum(y, 2, 3))


def pooled_apart(m: Maker) -> Node:
    """Steps of a transposed convolution that its stride does not divide."""
    x = m.input("x", 2, 3, 7, 6)
    return pooled(m, conv(m, x, 5, (3, 3), stride=2, transposed=True), 3)


def in_a_wide_middle(m: Maker) -> Node:
    x = m.input("x", 2, 24, 9, 8)
    return conv(m, conv(m, x, 2, (3, 3), padding=1), 24, (1, 1), name="d")


def several_taps_behind(m: Maker) -> Node:
    x = m.input("x", 2, 4, 9, 8)
    return conv(m, conv(m, x, 24, (1, 1)), 5, (3, 3), padding=1, name="d")


def every_second_of_one_tap(m: Maker) -> Node:
    return conv(m, conv(m, m.input("x", 2, 4, 9, 8), 24, (1, 1)), 5, (1, 1), stride=2, name="d")


def padded_one_tap(m: Maker) -> Node:
    """Zeros around have the second bias alone."""
    return conv(m, conv(m, m.input("x", 2, 4, 9, 8), 24, (1, 1)), 5, (1, 1), padding=1, name="d")


def scaled_along_space(m: Maker) -> Node:
    y = conv(m, m.input("x", 2, 4, 6), 6, (3,), padding=1)
    return m.make(Op.MUL, y, m.weight("s", 6))


def mixed_channels(m: Maker) -> Node:
    y = conv(m, m.input("x", 2, 4, 6, 4), 24, (1, 1))
    return m.linear(m.reshape(y, 2, 6, 4, 24), 5)


def pools_apart(m: Maker) -> Node:
    return pooled(m, pooled(m, m.input("x", 2, 3, 23), 3, 2), 3)


def largest_of_two_axes(m: Maker) -> Node:
    return pooled(m, pooled(m, m.input("x", 2, 3, 12, 12), 2, op=Op.AMAX), 2, op=Op.AMAX)


def largest_apart(m: Maker) -> Node:
    return pooled(m, pooled(m, m.input("x", 2, 3, 23), 2, 3, Op.AMAX), 2, op=Op.AMAX)


def largest_of_scaled(m: Maker) -> Node:
    return pooled(m, pooled(m, m.input("x", 2, 3, 24), 2, op=Op.AMAX, scale=-2.0), 2, op=Op.AMAX)


def largest_with_other_gradients(m: Maker) -> Node:
    """Equal elements share the gradient of the first ones; of the others the first has it."""
    y = pooled(m, m.input("x", 2, 3, 24), 2, op=Op.AMAX, first=False)
    return pooled(m, y, 2, op=Op.AMAX)


def normed_and_activated(m: Maker) -> Node:
    return m.make(Op.RELU, norm_behind(m))


UNFIT = {
    read_twice: "others read the convolution's results, too",
    over_one_axis: None,
    after_a_relu: None,
    with_an_idle_tap: None,
    pooled_and_read: "others read the convolution's results, too",
    pooled_apart: None,
    in_a_wide_middle: "takes no less time",
    several_taps_behind: None,
    every_second_of_one_tap: None,
    padded_one_tap: None,
    scaled_along_space: None,
    mixed_channels: None,
    pools_apart: "windows of the first pooling do not lie side by side",
    largest_of_two_axes: "of equal elements another one would have the gradient",
    largest_apart: "windows of the first pooling leave elements out",
    largest_of_scaled: "something is computed between",
    largest_with_other_gradients: "something is computed between",
    normed_and_activated: "computed with relu",
}


@pytest.mark.parametrize(
    ("form", "reason"), UNFIT.items(), ids=lambda v: getattr(v, "__name__", "")
)
def test_others_stay_and_the_plan_says_why(form, reason):
    pair = pair_of(form, FINITE, DType.F32, COMPUTE_ALONE)
    assert pair.after.rewritten == ()
    reasons = " ".join(pair.reasons.values())
    assert (reason in reasons) if reason else not reasons


def test_small_convolutions_stay():
    memory_alone = Costs(flops_per_s=1e18, bytes_per_s=1.0)
    pair = pair_of(mean_of_one_tap, dtype=DType.F32, costs=memory_alone)
    assert "takes no less time" in pair.reasons["sum-of-convolution"]


def test_pools_ask_for_exact_products():
    """One result has the error that the mean of several has not, unless products are better."""
    costs = dataclasses.replace(COMPUTE_ALONE, own_products=False)
    pair = pair_of(pool_of_conv, FINITE, costs=costs)
    assert "too large errors" in pair.reasons["pooled-convolution-finite"]


@pytest.mark.parametrize("form", [mean_padded, pool_of_conv, one_tap_behind, norm_behind], **ids)
def test_calls_have_their_price(form):
    """Where launches take longer than the work, several do not take the place of one or two."""
    own = form is not norm_behind
    costs = Costs(flops_per_s=1e15, bytes_per_s=1e15, call_s=1.0, own_products=own)
    pair = pair_of(form, FINITE, DType.F32, costs)
    assert pair.after.rewritten == () and pair.reasons


def test_epilogues_are_free():
    costs = Costs(flops_per_s=1e15, bytes_per_s=1.0, own_products=True)
    pair = pair_of(norm_behind, FINITE, DType.F32, costs)
    assert "in the kernel of the product" in pair.reasons["folded-scale-finite"]


def test_layers_in_a_row_are_rewritten_in_one_pass():
    """Calls behind one that is rewritten are made anew, and known to be what they were."""
    arena = Arena()
    m = Maker(arena)
    y = m.input("x", 2, 4, 30)
    for number in range(4):
        y = conv(m, y, 4, (3,), padding=1, name=f"c{number}")
        y = m.make(Op.MUL, y, m.reshape(m.weight(f"s{number}", 4), 4, 1))
    before = graph(y)
    readers = readers_of(before)
    after = rewrite(before, FOLDED_FINITE, arena, readers=readers, costs=MEMORY_ALONE)
    assert after.fired == (("folded-scale-finite", Numerics.REORDER, 4),)


def test_what_becomes_of_two_nodes_has_unknown_readers():
    arena = Arena()
    m = Maker(arena)
    x = m.input("x", 4)
    one, other, made = (m.make(op, x) for op in (Op.EXP, Op.TANH, Op.SIN))
    readers = readers_of(graph(m.make(Op.ADD, one, other)))
    assert readers.of(one) == readers.of(other) and readers.of(made) is None
    readers.note(made, one)
    assert readers.of(made) == readers.of(one)
    readers.note(made, other)
    assert readers.original(made) is None and readers.of(made) is None
    readers.note(other, one)  # is in the graph already
    assert readers.of(other) is None


def wide_mean(m: Maker) -> Node:
    return over_space(m, conv(m, m.input("x", 2, 16, 24, 24), 16, (3, 3), padding=1))


def wide_pools(m: Maker) -> Node:
    return pooled(m, pooled(m, m.input("x", 4, 8, 64, 64), 2), 2)


def wide_layers(m: Maker) -> Node:
    x = m.input("x", 2, 32, 16, 16)
    return conv(m, conv(m, x, 96, (1, 1)), 16, (1, 1), name="d")


@pytest.mark.parametrize("form", [wide_mean, wide_pools, wide_layers], **ids)
@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
def test_errors_are_no_larger(form, positive):
    original, ours = errors(form, FINITE, 300, positive, COMPUTE_ALONE)
    assert ours <= original * 1.05


def mean_behind_two(m: Maker) -> Node:
    x = m.input("x", 2, 24, 9, 8)
    return over_space(m, conv(m, conv(m, x, 64, (1, 1)), 24, (1, 1), name="d"))


def test_averages_go_first():
    """Layers that a mean is taken of are no product of weights, which the other order makes."""
    made = []
    for phases in (PHASES_FINITE, (tuple(itertools.chain(*PHASES_FINITE)),)):
        arena = Arena()
        before = graph(mean_behind_two(Maker(arena, DType.F32)))
        after = in_rounds(before, RULES, phases, arena, costs=COMPUTE_ALONE).graph
        made.append([n for n in after.nodes() if n.op is Op.CALL])
    ordered, at_once = made
    assert {n.type.shape for n in ordered} == {(2, 64), (2, 24)}
    assert {n.type.shape for n in at_once} == {(24, 24), (1, 24), (2, 24)}


def test_the_same_graph_is_made_every_time():
    texts = set()
    for _ in range(2):
        arena = Arena()
        before = graph(mean_behind_two(Maker(arena, DType.F32)))
        texts.add(str(simplify(before, arena, algebra=FINITE, costs=COMPUTE_ALONE)))
    assert len(texts) == 1
