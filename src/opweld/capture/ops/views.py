"""ATen's views and movements of data: one row per operator."""

from __future__ import annotations

from typing import Any

from opweld.ir.expr import Size
from opweld.ir.graph import Node
from opweld.ir.ops import Op

from ..call import Call, Lower, NotFused
from .scans import flipped, joined

Nodes = tuple[Node, ...]


def _reshape(call: Call) -> Node:
    if call.overload == "dtype":
        raise NotFused("a reinterpretation of bits is left to the library")
    return call.build.reshape(call.node("self"), call.shape)


def _expand(call: Call) -> Node:
    return call.build.expand(call.node("self"), call.shape)


def _repeat(call: Call) -> Node:
    """[a, b] repeated (m, n) times is [m, a, n, b] with m and n expanded, reshaped."""
    x = call.node("self")
    times = call.values.get("repeats") or call.values["dims"]
    times = (1,) * (x.type.rank - len(times)) + tuple(times)
    padded = (1,) * (len(times) - x.type.rank) + x.type.shape
    split = tuple(s for size in padded for s in (1, size))
    wide = tuple(s for n, size in zip(times, padded, strict=True) for s in (n, size))
    spread = call.build.expand(call.build.reshape(x, split), wide)
    return call.build.reshape(spread, call.shape)


def _repeat_interleave(call: Call) -> Node:
    if call.overload != "self_int" or call.values.get("dim") is None:
        raise NotFused("repeat_interleave with a tensor of counts is left to the library")
    x, dim = call.node("self"), call.dim()
    shape = x.type.shape
    single = (*shape[: dim + 1], 1, *shape[dim + 1 :])
    wide = (*shape[: dim + 1], call.size("repeats"), *shape[dim + 1 :])
    return call.build.reshape(call.build.expand(call.build.reshape(x, single), wide), call.shape)


def _permute(call: Call) -> Node:
    rank = call.node("self").type.rank
    dims = tuple(d % rank for d in call.values["dims"])
    return call.build.permute(call.node("self"), dims)


def _transpose(call: Call) -> Node:
    names = ("dim0", "dim1") if "dim0" in call.values else ("axis0", "axis1")
    return _swapped(call, call.dim(names[0]), call.dim(names[1]))


def _t(call: Call) -> Node:
    return _swapped(call, 0, 1)


def _swapped(call: Call, first: int, second: int) -> Node:
    x = call.node("self")
    if x.type.rank < 2:
        return x
    dims = list(range(x.type.rank))
    dims[first], dims[second] = dims[second], dims[first]
    return call.build.permute(x, tuple(dims))


def _slice(call: Call) -> Node:
    x, dim = call.node("self"), call.dim()
    step = call.number("step")
    start = _from_front(call.values.get("start") or 0, x.type.shape[dim])
    return call.build.slice(x, dim, start, call.shape[dim], int(step))


def _from_front(index: Any, size: Size) -> Size:
    if isinstance(index, int) and index < 0:
        return max(index + size, 0) if isinstance(size, int) else size + index
    return index


def _select(call: Call) -> Node:
    x, dim = call.node("self"), call.dim()
    return _picked(call, x, dim, _from_front(call.size("index"), x.type.shape[dim]))


def _picked(call: Call, x: Node, dim: int, index: Size) -> Node:
    row = call.build.slice(x, dim, index, 1)
    shape = (*x.type.shape[:dim], *x.type.shape[dim + 1 :])
    return call.build.reshape(row, shape)


def _split(call: Call) -> Nodes:
    x, dim = call.node("self"), call.dim()
    parts: list[Node] = []
    start: Size = 0
    for fake in call.fake:
        length = call.symbols.size(fake.shape[dim])
        parts.append(call.build.slice(x, dim, start, length))
        start = start + length
    return tuple(parts)


def _unbind(call: Call) -> Nodes:
    x, dim = call.node("self"), call.dim()
    return tuple(_picked(call, x, dim, index) for index in range(len(call.fake)))


def _flip(call: Call) -> Node:
    rank = call.node("self").type.rank
    return _turned(call, tuple(sorted(d % rank for d in call.values["dims"])))


def _turned(call: Call, dims: tuple[int, ...]) -> Node:
    x = call.node("self")
    return flipped(call.build, x, dims) or call.build.flip(x, dims)


def _cat(call: Call) -> Node:
    rank = len(call.shape)
    # Eager skips empty one-dimensional tensors, whatever the rank of the others.
    nodes = [n for n in call.nodes("tensors") if n.type.shape != (0,) or rank == 1]
    cast = [call.build.cast(n, call.dtype) for n in nodes]
    dim = call.dim(rank=rank)
    return joined(call.build, cast, dim) or call.build.cat(cast, dim)


def _stack(call: Call) -> Node:
    dim = call.dim(rank=len(call.shape))
    parts = []
    for node in call.nodes("tensors"):
        shape = node.type.shape
        cast = call.build.cast(node, call.dtype)
        parts.append(call.build.reshape(cast, (*shape[:dim], 1, *shape[dim:])))
    return call.build.cat(parts, dim)


def _side_by_side(axis: int) -> Lower:
    """hstack (axis 1) and vstack (axis 0): tensors of low rank become rows first."""

    def lower(call: Call) -> Node:
        parts = [_at_least(call, n, 2 - axis) for n in call.nodes("tensors")]
        cast = [call.build.cast(n, call.dtype) for n in parts]
        return call.build.cat(cast, min(axis, len(call.shape) - 1))

    return lower


def _at_least(call: Call, node: Node, rank: int) -> Node:
    missing = (1,) * (rank - node.type.rank)
    return call.build.reshape(node, missing + node.type.shape)


def _meshgrid(call: Call) -> Nodes:
    """Each vector along its own axis, expanded over the others."""
    nodes = call.nodes("tensors")
    order = list(range(len(nodes)))
    if call.values.get("indexing", "ij") == "xy":
        order[:2] = order[1::-1]
    grids = []
    for node, fake, axis in zip(nodes, call.fake, order, strict=True):
        shape = tuple(call.symbols.size(s) for s in fake.shape)
        line = [1] * len(nodes)
        along = (*line[:axis], node.type.num_elems, *line[axis + 1 :])
        grids.append(call.build.expand(call.build.reshape(node, along), shape))
    return tuple(grids)


def _reversed(axis: int) -> Lower:
    return lambda call: _turned(call, (axis,))


def _pad(call: Call) -> Node:
    if call.values.get("mode", "constant") != "constant":
        raise NotFused(f"padding by {call.values['mode']} is left to the library")
    x = call.node("self")
    widths = list(call.values["pad"])
    value = call.values.get("value")
    before: list[Size] = [0] * x.type.rank
    after: list[Size] = [0] * x.type.rank
    for position in range(len(widths) // 2):
        axis = x.type.rank - 1 - position
        before[axis], after[axis] = widths[2 * position], widths[2 * position + 1]
    return _padded(call, x, before, after, 0 if value is None else value)


def _padded(call: Call, x: Node, before: list[Any], after: list[Any], value: Any) -> Node:
    """Negative widths cut; that happens first."""
    if not all(isinstance(width, int) for width in (*before, *after)):
        raise NotFused("padding by a symbolic width is left to the library")
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        length = x.type.shape[axis] + min(low, 0) + min(high, 0)
        x = call.build.slice(x, axis, max(-low, 0), length)
    kept = tuple(tuple(max(w, 0) for w in widths) for widths in (before, after))
    element = call.const(value).attrs.value
    return call.build.pad(x, kept[0], kept[1], element)


def _roll(call: Call) -> Node:
    x = call.node("self")
    shifts, dims = call.values["shifts"], call.values["dims"]
    if not dims:
        flat = call.build.reshape(x, (x.type.num_elems,))
        return call.build.reshape(_rolled(call, flat, 0, shifts[0]), x.type.shape)
    for dim, shift in zip(dims, shifts, strict=True):
        x = _rolled(call, x, dim % x.type.rank, shift)
    return x


def _rolled(call: Call, x: Node, dim: int, shift: Any) -> Node:
    size = x.type.shape[dim]
    if not isinstance(size, int) or not isinstance(shift, int):
        raise NotFused("a roll along a symbolic axis is left to the library")
    shift = shift % size if size else 0
    if not shift:
        return x
    tail = call.build.slice(x, dim, size - shift, shift)
    return call.build.cat([tail, call.build.slice(x, dim, 0, size - shift)], dim)


def _select_scatter(call: Call) -> Node:
    x, dim = call.node("self"), call.dim()
    index = _from_front(call.size("index"), x.type.shape[dim])
    shape = (*x.type.shape[:dim], 1, *x.type.shape[dim + 1 :])
    return _replaced(call, dim, index, call.build.reshape(call.operand("src"), shape))


def _slice_scatter(call: Call) -> Node:
    if call.number("step") != 1:
        raise NotFused("a strided write is left to the library")
    x, dim = call.node("self"), call.dim()
    start = _from_front(call.values.get("start") or 0, x.type.shape[dim])
    return _replaced(call, dim, start, call.operand("src"))


def _replaced(call: Call, dim: int, start: Size, src: Node) -> Node:
    """`self` with the part of axis `dim` that begins at `start` replaced by `src`."""
    x = call.node("self")
    length, size = src.type.shape[dim], x.type.shape[dim]
    if length == size:
        return src
    end = start + length
    parts = [call.build.slice(x, dim, 0, start), src, call.build.slice(x, dim, end, size - end)]
    return call.build.cat([p for p in parts if p.type.shape[dim] != 0], dim)


def _copy(call: Call) -> Node:
    return call.build.expand(call.operand("src"), call.shape)


def _unfold(call: Call) -> Node:
    """Windows of an axis; what is in one lies along a new last axis."""
    x, dim = call.node("self"), call.dim("dimension")
    width, step = int(call.number("size")), int(call.number("step"))
    if x.type.rank == 0:
        return call.build.reshape(x, call.shape)
    parted = call.build.window(x, dim, call.shape[dim], step, width)
    rest = (axis for axis in range(parted.type.rank) if axis != dim + 1)
    return call.build.permute(parted, (*rest, dim + 1))


def _pixel_shuffle(call: Call) -> Node:
    """[*, c * r * r, h, w] -> [*, c, h * r, w * r]."""
    factor = call.number("upscale_factor")
    *batch, channels, height, width = call.shape
    rank = len(batch)
    split = (*batch, channels, factor, factor, call.node("self").type.shape[-2])
    x = call.build.reshape(call.node("self"), (*split, call.node("self").type.shape[-1]))
    moved = (rank, rank + 3, rank + 1, rank + 4, rank + 2)
    x = call.build.permute(x, (*range(rank), *moved))
    return call.build.reshape(x, (*batch, channels, height, width))


def _broadcast_tensors(call: Call) -> Nodes:
    nodes = zip(call.nodes("tensors"), call.fake, strict=True)
    sizes = call.symbols.size
    return tuple(call.build.expand(n, tuple(map(sizes, fake.shape))) for n, fake in nodes)


VIEWS: dict[str, Lower] = {
    "view": _reshape,
    "reshape": _reshape,
    "_unsafe_view": _reshape,
    "_reshape_alias": _reshape,
    "view_as": _reshape,
    "reshape_as": _reshape,
    "flatten": _reshape,
    "unflatten": _reshape,
    "ravel": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "expand": _expand,
    "expand_as": _expand,
    "broadcast_to": _expand,
    "broadcast_tensors": _broadcast_tensors,
    "repeat": _repeat,
    "tile": _repeat,
    "repeat_interleave": _repeat_interleave,
    "permute": _permute,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "swapdims": _transpose,
    "t": _t,
    "slice": _slice,
    "select": _select,
    "split": _split,
    "split_with_sizes": _split,
    "chunk": _split,
    "tensor_split": _split,
    "unbind": _unbind,
    "flip": _flip,
    "cat": _cat,
    "concat": _cat,
    "stack": _stack,
    "hstack": _side_by_side(1),
    "vstack": _side_by_side(0),
    "meshgrid": _meshgrid,
    "fliplr": _reversed(1),
    "flipud": _reversed(0),
    "constant_pad_nd": _pad,
    "pad": _pad,
    "roll": _roll,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "copy": _copy,
    "pixel_shuffle": _pixel_shuffle,
    "unfold": _unfold,
}
# Rows whose result shares memory with their first operand, in eager and here.
ALIASING = frozenset(
    ("view", "_unsafe_view", "_reshape_alias", "view_as", "unflatten", "squeeze", "unsqueeze")
    + ("expand", "expand_as", "broadcast_to", "permute", "transpose", "swapaxes", "swapdims")
    + ("t", "slice", "select", "split", "split_with_sizes", "chunk", "tensor_split", "unbind")
    + ("alias", "detach", "broadcast_tensors", "meshgrid", "unfold")
    + ("view_as_real", "view_as_complex", "real", "imag", "_conj")
)
SHARING = frozenset((Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SLICE, Op.WINDOW))
# Those of them that may lie otherwise in memory than row by row.
REORDERING = SHARING - {Op.RESHAPE}
