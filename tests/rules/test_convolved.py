"""Convolutions whose results are averaged, pooled or multiplied, against PyTorch on both graphs."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from tests.rules.linear_graphs import Maker, feeds_of, values_of
from tests.rules.rewritten import disagreeing, errors, pair_of, require_same
from tests.unit.ir.graphs import BATCH, graph

from opweld.ir.attrs import CallAttrs, Operand, PermuteAttrs, ReduceAttrs, WindowAttrs
from opweld.ir.graph import Arena, Node
from opweld.ir.ops import Op
from opweld.ir.plan import number_at
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.costs import Costs
from opweld.ir.rules.rewrite import Numerics, readers_of, rewrite
from opweld.ir.types import DType, TensorType
from opweld.simplify import simplify
from opweld.simplify.products.convolved.folded import FOLDED_FINITE
from opweld.simplify.rounds import in_rounds
from opweld.simplify.rules import PHASES_FINITE, RULES

FINITE = Algebra.FINITE
MEMORY_ALONE = Costs(flops_per_s=1e15, bytes_per_s=1.0)
COMPUTE_ALONE = Costs(flops_per_s=1e9, bytes_per_s=1e15, own_products=True)


def conv(
    m: Maker,
    x: Node,
    filters: int,
    taps: tuple[int, ...],
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    name: str = "c",
    transposed: bool = False,
    extra: int = 0,
) -> Node:
    """As a layer is captured, with a bias; its sizes are PyTorch's own."""
    channels, rank = x.type.shape[1], len(taps)
    shape = (channels, filters, *taps) if transposed else (filters, channels, *taps)
    weight, bias = m.weight(f"{name}.weight", *shape), m.weight(f"{name}.bias", filters)
    sizes = tuple([n] * rank for n in (stride, padding, dilation))
    kind = f"conv{'_transpose' if transposed else ''}{rank}d"
    function = getattr(torch.nn.functional, kind)
    more = {"output_padding": extra} if transposed else {}
    empty = torch.empty(1, *x.type.shape[1:]), torch.empty(shape)
    made = function(*empty, stride=sizes[0], padding=sizes[1], dilation=sizes[2], **more)
    result = TensorType(x.type.dtype, (x.type.shape[0], *made.shape[1:]))
    strides = tuple(map(tuple, sizes))
    if transposed:
        arguments = (*map(Operand, range(3)), *strides[:2], (extra,) * rank, 1, strides[2])
    else:
        arguments = (*map(Operand, range(3)), *strides)
    target = f"aten.{kind}.{'input' if kind == 'conv_transpose2d' else 'default'}"
    return m.arena.call((x, weight, bias), CallAttrs(target, arguments, (), (result,), ""))


def over_space(m: Maker, y: Node) -> Node:
    return m.sum(y, *range(2, y.type.rank))


def pooled(m: Maker, y: Node, width: int, step: int | None = None, op: Op = Op.SUM) -> Node:
    """As pooling is captured, without what it divides by."""
    num = y.type.rank - 2
    sizes = y.type.shape
    for axis in reversed(range(num)):
        count = (sizes[axis + 2] - width) // (step or width) + 1
        y = m.make(Op.WINDOW, y, attrs=WindowAttrs(axis + 2, count, step or width, width))
    front = tuple(3 + 2 * axis for axis in range(num))
    dims = (*front, 0, 1, *(2 + 2 * axis for axis in range(num)))
    y = m.make(Op.PERMUTE, y, attrs=PermuteAttrs(dims))
    made = m.make(op, y, attrs=ReduceAttrs(tuple(range(num)), op is Op.AMAX))
    return m.reshape(made, *made.type.shape[num:])


def mean_padded(m: Maker) -> Node:
    return over_space(m, conv(m, m.input("x", 2, 3, 7, 6), 5, (3, 3), padding=1))


def mean_scaled(m: Maker) -> Node:
    y = over_space(m, m.make(Op.MUL, conv(m, m.input("x", 2, 3, 9), 5, (4,)), m.number(0.5)))
    return m.make(Op.DIV, y, m.number(6.0))


def mean_strided(m: Maker) -> Node:
    return over_space(m, conv(m, m.input("x", 2, 3, 9, 8), 5, (3, 2), stride=2, padding=1))


def mean_dilated(m: Maker) -> Node:
    return over_space(m, conv(m, m.input("x", 2, 3, 4, 9, 9), 5, (1, 3, 2), dilation=2, padding=2))


def mean_of_one_tap(m: Maker) -> Node:
    return over_space(m, conv(m, m.input("x", 2, 3, 5, 6), 5, (1, 1), stride=2, padding=1))


def mean_transposed(m: Maker) -> Node:
    x = m.input("x", 2, 3, 7, 6)
    return over_space(m, conv(m, x, 5, (3, 4), stride=2, padding=1, transposed=True, extra=1))


def mean_of_any_batch(m: Maker) -> Node:
    return over_space(m, conv(m, m.input("x", BATCH, 3, 7, 6), 5, (3, 3), padding=1))


MEANS = (
    mean_padded,
    mean_scaled,
    mean_strided,
    mean_dilated,
    mean_of_one_tap,
    mean_transposed,
    mean_of_any_batch,
)


def pool_of_conv(m: Maker) -> Node:
    return pooled(m, conv(m, m.input("x", 2, 3, 9, 8), 5, (3, 3), padding=1), 2)


def pool_of_strided(m: Maker) -> Node:
    return pooled(m, conv(m, m.input("x", 2, 3, 17, 16), 5, (3, 3), stride=2, padding=1), 2)


def pool_of_overlapping_windows(m: Maker) -> Node:
    return pooled(m, conv(m, m.input("x", 2, 3, 40), 5, (5,), padding=2), 3, 2)


def pool_of_one_tap(m: Maker) -> Node:
    return pooled(m, conv(m, m.input("x", 2, 6, 9, 8), 5, (1, 1)), 2)


def pool_of_transposed(m: Maker) -> Node:
    x = m.input("x", 2, 3, 7, 6)
    return pooled(m, conv(m, x, 5, (3, 3), stride=2, padding=1, transposed=True), 2)


def pool_of_doubled(m: Maker) -> Node:
    """Zeros are needed at the end alone."""
    x = m.input("x", 2, 3, 7, 6)
    return pooled(m, conv(m, x, 5, (3, 3), stride=2, padding=1, transposed=True, extra=1), 2)


def wide_pool_of_transposed(m: Maker) -> Node:
    x = m.input("x", 2, 3, 9)
    return pooled(m, conv(m, x, 5, (4,), stride=2, padding=0, transposed=True), 4)


def pool_of_cut_transposed(m: Maker) -> Node:
    """The first elements of x are of no matter."""
    x = m.input("x", 2, 3, 9)
    return pooled(m, conv(m, x, 5, (2,), stride=2, padding=3, transposed=True), 2)


POOLS = (
    pool_of_conv,
    pool_of_strided,
    pool_of_overlapping_windows,
    pool_of_one_tap,
    pool_of_transposed,
    pool_of_doubled,
    wide_pool_of_transposed,
    pool_of_cut_transposed,
)


def channels_last(m: Maker, y: Node) -> Node:
    y = m.reshape(y, *y.type.shape[:2], y.type.shape[2] * y.type.shape[3])
    return m.make(Op.PERMUTE, y, attrs=PermuteAttrs((0, 2, 1)))


def normed(m: Maker, y: Node) -> Node:
    """By channel, as eval batch norm is captured."""
    size = y.type.shape[1]
    ones = (1,) * (y.type.rank - 2)
    mean, scale, shift = (m.reshape(m.weight(n, size), size, *ones) for n in ("mean", "s", "t"))
    return m.make(Op.ADD, m.make(Op.MUL, m.make(Op.SUB, y, mean), scale), shift)


def one_tap_behind(m: Maker) -> Node:
    return conv(m, conv(m, m.input("x", 2, 4, 9, 8), 24, (3, 3), padding=1), 5, (1, 1), name="d")


def with_a_norm_between(m: Maker) -> Node:
    hidden = normed(m, conv(m, m.input("x", 2, 4, 9, 8), 24, (1, 1), stride=2))
    return conv(m, hidden, 5, (1, 1), name="d")


def layer_behind(m: Maker) -> Node:
    return m.linear(channels_last(m, conv(m, m.input("x", 2, 4, 9, 8), 24, (1, 1))), 5)


def behind_a_layer(m: Maker) -> Node:
    hidden = m.linear(m.input("x", 2, 30, 4), 24)
    hidden = m.make(Op.PERMUTE, hidden, attrs=PermuteAttrs((0, 2, 1)))
    return conv(m, hidden, 5, (1,), name="d")


def layer_behind_views(m: Maker) -> Node:
    """Tokens of all sequences in a row."""
    hidden = m.linear(m.input("x", 5, 12, 4), 24, "one", bias=False)
    return m.linear(m.reshape(hidden, 60, 24), 5, "two", bias=False)


MERGED = (
    one_tap_behind,
    with_a_norm_between,
    layer_behind,
    behind_a_layer,
    layer_behind_views,
)


def norm_behind(m: Maker) -> Node:
    return normed(m, conv(m, m.input("x", 2, 4, 9, 8), 6, (3, 3), padding=1))


def norm_behind_a_layer(m: Maker) -> Node:
    y = m.linear(m.input("x", 300, 4), 6)
    y = m.make(Op.MUL, m.make(Op.SUB, y, m.weight("mean", 6)), m.weight("s", 6))
    return m.make(Op.ADD, y, m.make(Op.MUL, y, m.number(0.5)))


def norm_behind_a_transposed(m: Maker) -> Node:
    x = m.input("x", 2, 4, 9, 8)
    return normed(m, conv(m, x, 6, (3, 3), stride=2, padding=1, transposed=True))


def norm_without_a_bias(m: Maker) -> Node:
    weight = m.weight("c.weight", 6, 4, 3)
    return normed(m, m.call("conv1d.default", (2, 6, 38), m.input("x", 2, 4, 40), weight))


FOLDED = (norm_behind, norm_behind_a_layer, norm_behind_a_transposed, norm_without_a_bias)


def pool_of_pool(m: Maker) -> Node:
    y = pooled(m, m.input("x", 2, 3, 13, 12), 2)
    return pooled(m, y, 3, 2)


def mean_pool_of_pool(m: Maker) -> Node:
    x = m.input("x", 2, 3, 25)
    halves = m.make(Op.MUL, m.sum(windows(m, x, 2), 0), m.number(0.5))
    shifted = m.make(Op.ADD, m.reshape(halves, 2, 3, 12), m.number(1.0))
    shifted = m.make(Op.SUB, shifted, m.number(3.0))
    return pooled(m, shifted, 3)


def windows(m: Maker, x: Node, width: int) -> Node:
    count = x.type.shape[2] // width
    y = m.make(Op.WINDOW, x, attrs=WindowAttrs(2, count, width, width))
    return m.make(Op.PERMUTE, y, attrs=PermuteAttrs((3, 0, 1, 2)))


def largest_of_largest(m: Maker) -> Node:
    y = pooled(m, m.input("x", 2, 3, 23), 3, 2, Op.AMAX)
    return pooled(m, y, 4, 3, Op.AMAX)


POOLINGS = (pool_of_pool, largest_of_largest)

NAMES = {
    **dict.fromkeys(MEANS, "sum-of-convolution"),
    **dict.fromkeys(POOLS, "pooled-convolution"),
    **dict.fromkeys(MERGED, "merged-layers"),
    **dict.fromkeys(FOLDED, "folded-scale"),
    pool_of_pool: "sum-of-pooling",
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


def mixed_channels(m: Maker) -> Node:
    y = conv(m, m.input("x", 2, 4, 6, 4), 24, (1, 1))
    return m.linear(m.reshape(y, 2, 6, 4, 24), 5)


def pools_apart(m: Maker) -> Node:
    return pooled(m, pooled(m, m.input("x", 2, 3, 23), 3, 2), 3)


def largest_of_two_axes(m: Maker) -> Node:
    return pooled(m, pooled(m, m.input("x", 2, 3, 12, 12), 2, op=Op.AMAX), 2, op=Op.AMAX)


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
    mixed_channels: None,
    pools_apart: "windows of the first pooling do not lie side by side",
    largest_of_two_axes: "of equal elements another one would have the gradient",
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
    original, ours = errors(form, FINITE, 6, positive, COMPUTE_ALONE)
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
