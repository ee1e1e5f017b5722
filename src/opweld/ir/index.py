"""Index maps: where an element of a view stands in what it is a view of, and where one of a row."""

from __future__ import annotations

from collections.abc import Collection

from .expr import Bounds, Picked, Size, picked, quotient, remainder, symbol
from .graph import Node
from .ops import Op
from .types import contiguous_strides

Coords = tuple[Size, ...]


def align(coords: Coords, shape: tuple[Size, ...]) -> Coords:
    """Coordinates in an operand of `shape` that broadcasts to the space of `coords`."""
    tail = coords[len(coords) - len(shape) :]
    return tuple(0 if size == 1 else c for c, size in zip(tail, shape, strict=True))


def through_view(view: Node, coords: Coords, bounds: Bounds) -> Coords:
    """Coordinates in the operand of a PERMUTE, EXPAND, RESHAPE, SLICE, FLIP or WINDOW, and in what
    a GATHER reads.
    """
    operand = view.inputs[0].type.shape
    match view.op:
        case Op.PERMUTE:
            places = dict(zip(view.attrs.dims, coords, strict=True))
            return tuple(places[dim] for dim in range(len(operand)))
        case Op.EXPAND:
            return align(coords, operand)
        case Op.RESHAPE:
            return _reshaped(coords, view.type.shape, operand, bounds)
        case Op.SLICE:
            moved = coords[view.attrs.dim] * view.attrs.step + view.attrs.start
            return _with(coords, view.attrs.dim, moved)
        case Op.FLIP:
            flipped = (
                operand[d] - 1 - c if d in view.attrs.dims else c for d, c in enumerate(coords)
            )
            return tuple(flipped)
        case Op.WINDOW:
            dim, attrs = view.attrs.dim, view.attrs
            place = coords[dim] * attrs.step + coords[dim + 1] * attrs.dilation
            return (*coords[:dim], place, *coords[dim + 2 :])
        case Op.GATHER:
            return _picked(view, coords)
    raise AssertionError(f"{view.op.value} is no view with one operand")


def _reshaped(
    coords: Coords, shape: tuple[Size, ...], operand: tuple[Size, ...], bounds: Bounds
) -> Coords:
    """Coordinates in the operand of a RESHAPE. Only axes that it splits or joins are mixed: a
    coordinate that a guard alone keeps within its axis does not reach into others.
    """
    if 0 in shape:
        return (0,) * len(operand)  # it has no element
    found: list[Size] = []
    for ours, theirs in _matching_axes(shape, operand):
        position = flatten(coords[ours], shape[ours])
        found += unflatten(position, operand[theirs], bounds)
    return tuple(found)


def _matching_axes(left: tuple[Size, ...], right: tuple[Size, ...]) -> list[tuple[slice, slice]]:
    """Neighbouring axes of two shapes that have as many elements, as few as can be each time."""
    first: dict[Size, int] = {}
    total: Size = 1
    for end, size in enumerate(right, start=1):
        total = total * size
        first.setdefault(total, end)
    parts, start, begin = list[tuple[slice, slice]](), 0, 0
    total = 1
    for end, size in enumerate(left, start=1):
        total = total * size
        stop = first.get(total, 0)
        if size != 1 and stop > begin:
            parts.append((slice(start, end), slice(begin, stop)))
            start, begin = end, stop
    if begin < len(right) or start < len(left):
        parts.append((slice(start, len(left)), slice(begin, len(right))))
    return parts


def _picked(pick: Node, coords: Coords) -> Coords:
    dim, (source, index) = pick.attrs.dim, (operand.type.shape for operand in pick.inputs)
    held = Picked(gather_name(pick), _within(index, coords), source[dim])
    return _with(_within(source, coords), dim, picked(held))


def _within(shape: tuple[Size, ...], coords: Coords) -> Coords:
    return tuple(0 if size == 1 else c for c, size in zip(coords, shape, strict=True))


def gather_name(pick: Node) -> str:
    """What the index of a GATHER holds, as expressions name it before it has been read."""
    return f"pick{pick.serial}"


def _with(coords: Coords, dim: int, value: Size) -> Coords:
    return (*coords[:dim], value, *coords[dim + 1 :])


def flatten(coords: Coords, shape: tuple[Size, ...]) -> Size:
    """The row-major position of `coords`."""
    position: Size = 0
    for coordinate, stride in zip(coords, contiguous_strides(shape), strict=True):
        position = position + coordinate * stride
    return position


def unflatten(position: Size, shape: tuple[Size, ...], bounds: Bounds) -> Coords:
    """The coordinates of a row-major position."""
    if 0 in shape:
        return (0,) * len(shape)  # it has no element
    coords: list[Size] = []
    first = True
    for size, stride in zip(shape, contiguous_strides(shape), strict=True):
        if size == 1:
            coords.append(0)
            continue
        whole = quotient(position, stride, bounds)
        coords.append(whole if first else remainder(whole, size, bounds))
        first = False
    return tuple(coords)


def space_coords(space: tuple[Size, ...], axes: Collection[int]) -> Coords:
    """The coordinates of an element: `r<axis>` where its row goes along, `i<axis>` elsewhere."""
    return tuple(
        0 if size == 1 else symbol(f"{'r' if axis in axes else 'i'}{axis}")
        for axis, size in enumerate(space)
    )


def row_coords(space: tuple[Size, ...], axes: Collection[int]) -> Coords:
    """The coordinates of what is computed once for a row."""
    coords = space_coords(space, axes)
    return tuple(0 if axis in axes else c for axis, c in enumerate(coords))


def result_coords(
    shape: tuple[Size, ...], space: tuple[Size, ...], axes: Collection[int]
) -> Coords | None:
    """Where a tensor of `shape` has its element of a row, or else of an element of the space; None
    if its sizes, but for those that are 1, are those of neither.
    """
    wanted = [size for size in shape if size != 1]
    for coords in (row_coords(space, axes), space_coords(space, axes)):
        sized = [(c, size) for c, size in zip(coords, space, strict=True) if c != 0]
        if [size for _, size in sized] == wanted:
            places = iter(sized)
            return tuple(0 if size == 1 else next(places)[0] for size in shape)
    return None


def space_bounds(space: tuple[Size, ...], axes: Collection[int]) -> dict[str, Size]:
    """The extent of each variable of `space_coords`."""
    coords = space_coords(space, axes)
    return {str(c): size for c, size in zip(coords, space, strict=True) if c != 0}


def is_across(space: tuple[Size, ...], axes: Collection[int]) -> bool:
    """Whether neighbours in memory belong to different rows: the innermost axis is a kept one."""
    wide = [axis for axis, size in enumerate(space) if size != 1]
    return bool(wide) and wide[-1] not in axes


def cat_pieces(cat: Node, coords: Coords) -> list[tuple[Node, Size, Coords]]:
    """Each operand of a CAT, where it begins along the axis, and the coordinates in it."""
    dim, found = cat.attrs.dim, []
    start: Size = 0
    for operand in cat.inputs:
        found.append((operand, start, (*coords[:dim], coords[dim] - start, *coords[dim + 1 :])))
        start = start + operand.type.shape[dim]
    return found


def within_padding(pad: Node, coords: Coords) -> Coords:
    """Coordinates in the operand of a PAD, which has the place only where they are inside it."""
    moved = (c - before for c, before in zip(coords, pad.attrs.before, strict=True))
    return align(tuple(moved), pad.inputs[0].type.shape)
