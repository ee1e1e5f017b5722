"""Graphs of convolutions and layers that are averaged, pooled, merged or scaled."""

from __future__ import annotations

import torch
from tests.rules.linear_graphs import Maker
from tests.unit.ir.graphs import BATCH

from opweld.ir.attrs import CallAttrs, Operand, PermuteAttrs, ReduceAttrs, WindowAttrs
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import TensorType


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


def pooled(
    m: Maker,
    y: Node,
    width: int,
    step: int | None = None,
    op: Op = Op.SUM,
    first: bool | None = None,
    scale: float | None = None,
) -> Node:
    """As pooling is captured; averages are scaled before the view."""
    first = op is Op.AMAX if first is None else first
    num = y.type.rank - 2
    sizes = y.type.shape
    for axis in reversed(range(num)):
        count = (sizes[axis + 2] - width) // (step or width) + 1
        y = m.make(Op.WINDOW, y, attrs=WindowAttrs(axis + 2, count, step or width, width))
    front = tuple(3 + 2 * axis for axis in range(num))
    dims = (*front, 0, 1, *(2 + 2 * axis for axis in range(num)))
    y = m.make(Op.PERMUTE, y, attrs=PermuteAttrs(dims))
    made = m.make(op, y, attrs=ReduceAttrs(tuple(range(num)), first))
    if scale is not None:
        made = m.make(Op.MUL, made, m.number(scale))
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
    return pooled(m, pooled(m, m.input("x", 2, 3, 25), 2, scale=0.5), 3)


def largest_of_largest(m: Maker) -> Node:
    y = pooled(m, m.input("x", 2, 3, 23), 3, 2, Op.AMAX)
    return pooled(m, y, 4, 3, Op.AMAX)


POOLINGS = (pool_of_pool, mean_pool_of_pool, largest_of_largest)
