"""Convolutions as functors of one CUDA skeleton (device/conv/convolution.cuh).

A functor says what becomes of an element, and where windows lie.

    int <group>_launch(const TensorView* operands, void* stream)
    int64_t <group>_scratch(const TensorView* operands)    bytes of what is packed
"""

from __future__ import annotations

from math import prod

from ....ir.expr import product
from ....ir.kernels.convolution import INTERVAL, Convolving, Windows
from ....ir.kernels.kernel import Kernel, Multiplied
from ....ir.plan import number_at
from ...c import STORAGE
from ...element import pieces_called, short_title
from ...layout import call, folded, head
from ..pointwise import operand, parameter, statements
from .contraction import MODES


def convolution_pieces(convolving: Convolving) -> set[str]:
    """Names of the device library's pieces that its text uses."""
    buffers = convolving.epilogue.buffers
    types = {f"type_of_{STORAGE[b.dtype].removeprefix('op::')}" for b in buffers}
    called = pieces_called(convolution_text(convolving))
    made = {_functions(convolving)[1], "type_of_float", *_form_pieces(convolving)}
    made |= {"Permuted"} if _is_permuted(convolving) else set()
    return made | types | called - _INSIDE


# Of other pieces, which bring them along.
_INSIDE = {
    "Types",
    "Along",
    "Windowed",
    "Blocks",
    "PlaneWindows",
    "TransposedWindows",
    "convolution_bytes",
    "transposed_bytes",
}


def convolution_text(convolving: Convolving) -> str:
    """The functor of a group, and the C functions that run it."""
    group, kernel, windows = convolving.group, convolving.epilogue, convolving.windows
    rank, space = len(convolving.shape), len(windows.out)
    axes = [*convolving.axes, *(tuple(range(rank)) for _ in kernel.stores)]
    operands = [operand(b, along) for b, along in zip(kernel.buffers, axes, strict=True)]
    numbers = (windows.axes, windows.stride, windows.padding, windows.dilation)
    listed = ", ".join(f"{{{', '.join(map(str, each))}}}" for each in numbers)
    given = _free("product", {b.name for b in kernel.buffers})
    params = [f"float {given}", *map(parameter, kernel.buffers)]
    name, (x, weight, own, workspace) = f"{group}_element", _table(convolving)
    by = f"<{name}, {_form(convolving)}>"
    view, convolve, bytes_ = _functions(convolving)
    scratch, given_bytes = f"op::{bytes_}{by}({x}, {weight}, {own[-1]})", [f"{workspace}.data"]
    if convolving.in_planes:
        scratch, given_bytes = "0", []
    columns = f", {convolving.phase_columns}" if convolving.phase_columns > 1 else ""
    lines = [
        short_title(kernel, convolving.buffers),
        f"struct {name} {{",
        folded(f"  using Operands = op::Types<{', '.join(operands)}>;"),
        f"  static constexpr int kRank = {rank}, kWidth = {convolving.lanes};",
        *_known_order(convolving),
        folded(f"  static constexpr op::{view}<{space}{columns}> kWindows{{{listed}}};"),
        head("  OPWELD_FN void of", params, " {"),
        *statements(kernel, {_multiplied(kernel): given}),
        "  }",
        "};",
        f'extern "C" int64_t {group}_scratch(const TensorView* operands) {{',
        folded(f"  return {scratch};"),
        "}",
        f'extern "C" int {group}_launch(const TensorView* operands, void* stream) {{',
        call(f"return op::{convolve}{by}", [x, weight, _list(own), *given_bytes, "stream"], 2),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _known_order(convolving: Convolving) -> list[str]:
    """That filters of a pixel are neighbours in memory, not pixels of a filter, where that is known
    and tiles ask for it."""
    if _is_permuted(convolving) or convolving.depthwise or convolving.in_planes:
        return []
    return ["  static constexpr bool kMayBeAcross = false;"]


def _functions(convolving: Convolving) -> tuple[str, str, str]:
    """What says where windows lie, what convolves, and what tells its scratch memory, if any."""
    if convolving.windows.transposed:
        return "TransposedWindows", "convolve_transposed", "transposed_bytes"
    if convolving.in_planes:
        return "PlaneWindows", "convolve_planes", ""
    return "Windowed", "convolve", "convolution_bytes"


def _free(name: str, taken: set[str]) -> str:
    return name if name not in taken else _free(f"{name}_", taken)


def _multiplied(kernel: Kernel) -> str:
    return next(d.name for d in kernel.definitions if isinstance(d, Multiplied))


def _form_pieces(convolving: Convolving) -> set[str]:
    if convolving.in_planes:
        return {"PlaneTiles" if _has_plane_tiles(convolving.windows) else "AnyPlanes"}
    if convolving.depthwise:
        tiles = "TapTiles" if _is_made_to_measure(convolving.windows) else "AnyTaps"
        return {"DepthwiseForm", tiles}
    if convolving.unpacked:
        return {"OneTapTiles", f"wgmma_tf32_{convolving.columns}"}
    if convolving.halo:
        return {"HaloTiles"}
    narrow = {"wgmma_half_64_typed"} if convolving.columns == 64 else set[str]()
    tiles = "JoinedTiles" if convolving.rows else "WindowTiles"
    grouped = {"GroupTiles"} if convolving.groups[0] > 1 else set[str]()
    return {tiles, MODES[convolving.mode], *narrow, *grouped}


# What the tiles of a depthwise convolution take (depthwise_tiles.cuh): taps, and columns of a tile.
_MOST_TAPS, _MOST_ACROSS = 850, 64


def _is_made_to_measure(windows: Windows) -> bool:
    """Whether a depthwise convolution is made by tiles of its own taps."""
    sizes = (*windows.kernel, windows.channels)
    if windows.filters != windows.channels or any(not isinstance(size, int) for size in sizes):
        return False
    wide, across = number_at(windows.kernel[-1]), windows.dilation[-1]
    high = number_at(windows.kernel[-2]) if len(windows.kernel) > 1 else 1
    down = windows.dilation[-2] if high > 1 else across
    columns = 7 if windows.stride[-1] == 1 else 4
    columns_read = (columns - 1) * windows.stride[-1] + (wide - 1) * across + 1
    return (
        down == across
        and number_at(product(windows.kernel)) <= _MOST_TAPS
        and columns_read <= _MOST_ACROSS
    )


# The same of planes (plane_tiles.cuh): taps with gaps in shared memory, of each row up to 3.
_MOST_REACH, _MOST_PLANE_TAPS, _PLANE_COLUMNS = 64, 1500, 4


def _has_plane_tiles(windows: Windows) -> bool:
    """Whether a convolution of planes is made by tiles of its own taps."""
    if any(not isinstance(size, int) for size in windows.kernel):
        return False
    *lines, wide = map(number_at, windows.kernel)
    reach = (_PLANE_COLUMNS - 1) * windows.stride[-1] + (wide - 1) * windows.dilation[-1] + 1
    return reach <= _MOST_REACH and prod(lines) * (wide + 3) <= _MOST_PLANE_TAPS


def _planes_form(windows: Windows) -> str:
    if not _has_plane_tiles(windows):
        return "op::AnyPlanes"
    ones = [1] * (3 - len(windows.kernel))
    kernel, stride, dilation = (
        [*ones, *each] for each in (windows.kernel, windows.stride, windows.dilation)
    )
    numbers = [*kernel, *stride[1:], *dilation[1:], windows.padding[-1]]
    return f"op::PlaneTiles<{', '.join(map(str, numbers))}>"


def _depthwise_form(windows: Windows) -> str:
    if not _is_made_to_measure(windows):
        return "op::DepthwiseForm<op::AnyTaps>"
    kernel = [*[1] * (3 - len(windows.kernel)), *windows.kernel]
    stride = [*[1] * (3 - len(windows.stride)), *windows.stride]
    numbers = [*kernel, *stride[1:], windows.dilation[-1], windows.channels]
    return f"op::DepthwiseForm<op::TapTiles<{', '.join(map(str, numbers))}>>"


def _form(convolving: Convolving) -> str:
    if convolving.in_planes:
        return _planes_form(convolving.windows)
    if convolving.depthwise:
        return _depthwise_form(convolving.windows)
    if convolving.unpacked:
        return f"op::OneTapTiles<{convolving.columns}>"
    if halo := convolving.halo:
        blocks = f"op::Blocks::{halo.blocks.value}, {halo.count}"
        return f"op::HaloTiles<{convolving.columns}, {convolving.width}, {blocks}>"
    space = max(len(convolving.windows.out), 2)  # one axis is two, of which one is 1
    numbers = [space, convolving.columns]
    numbers += [convolving.rows] if convolving.rows else []
    numbers += [convolving.width] if convolving.width != INTERVAL else []
    tiles = "JoinedTiles" if convolving.rows else "WindowTiles"
    form = f"op::{tiles}<op::{MODES[convolving.mode]}, {', '.join(map(str, numbers))}>"
    groups, joined = convolving.groups
    return f"op::GroupTiles<{form}, {groups}, {joined}>" if groups > 1 else form


def _table(convolving: Convolving) -> tuple[str, str, list[str], str]:
    """Where the table of operands has the input, the weight, what the functor takes, and memory."""
    inputs = sum(not b.written for b in convolving.buffers)
    x, weight, workspace = (
        f"operands[{place}]" for place in (convolving.x, convolving.weight, len(convolving.buffers))
    )
    own = []
    for b in convolving.epilogue.buffers:
        each = f"operands[{b.source + inputs * b.written}]"
        own.append(_in_order(each, convolving) if b.written and b.source == 0 else each)
    return x, weight, own, workspace


def _in_order(result: str, convolving: Convolving) -> str:
    """The first result with its axes in the order in which they are computed."""
    if not _is_permuted(convolving):
        return result
    return f"op::Permuted<{', '.join(map(str, convolving.order))}>({result})"


def _is_permuted(convolving: Convolving) -> bool:
    return convolving.order != tuple(range(len(convolving.shape)))


def _list(items: list[str]) -> str:
    return f"{{{', '.join(items)}}}"
