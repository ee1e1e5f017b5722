"""Which convolutions a kernel of ours makes, in which mode, and why others are the library's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod
from typing import Any

from ...ir.attrs import Operand
from ...ir.expr import Size
from ...ir.expr import product as product_of
from ...ir.graph import Node
from ...ir.kernels.convolution import (
    COLUMNS,
    FAR,
    INTERVAL,
    MOST_STRIDE,
    TRANSPOSED,
    Convolution,
)
from ...ir.kernels.product import PARTS, Mode
from ...ir.ops import Op
from ...ir.plan import Conditions, ConvolutionSchedule, Sizes, number_at
from ...ir.types import DType
from ...target import Target
from .depthwise import estimate_depthwise, lanes_of_depthwise, lies_in_planes
from .joined import TILES_AT_ONCE, Joined, joined_groups, joining, tile_us, width_of
from .one_tap_and_halos import by_halos, estimate_unpacked, halos_us, is_unpacked, schedule_unpacked
from .recognised import NoProduct
from .tap_by_tap import OUT_OF_RANGE, is_near, why_not_taps
from .transposed import TRANSPOSED_PLACES, phase_columns, products_of_phases, require_phases

SPACES = {
    f"aten.conv{rank}d.{form}": rank for rank in (1, 2, 3) for form in ("default", "padding")
} | TRANSPOSED
"""The operators that convolve, and along how many axes of space."""
_PLACES = {"stride": 3, "padding": 4, "dilation": 5, "groups": 6}


def is_convolution(call: Node) -> bool:
    """Whether the call is of an operator that convolves."""
    return call.op is Op.CALL and call.attrs.target in SPACES


def is_transposed(call: Node) -> bool:
    """Whether a convolution is a transposed one."""
    return call.attrs.target in TRANSPOSED


def convolution_of(call: Node) -> Convolution:
    """The convolution that a call computes, whatever order its axes are in. Raises NoProduct."""
    rank = SPACES[call.attrs.target]
    x, weight = (_operand(call, place) for place in (0, 1))
    if x.type.rank != rank + 2:
        raise NoProduct("its input has no batch")
    order = tuple(range(rank + 2))
    axes = order if call.attrs.channels_last else (0, *order[2:], 1)
    shape = call.type.shape
    out = shape[1:-1] if call.attrs.channels_last else shape[2:]
    stride, dilation = (_of_space(call, name, rank, 1) for name in ("stride", "dilation"))
    kernel = weight.type.shape[2:]
    padding = _padding(call, kernel, dilation, rank)
    transposed = is_transposed(call)
    while x.op is Op.PERMUTE or (_pads_with_zeros(x, axes) and not transposed):
        if x.op is Op.PERMUTE:
            axes = tuple(x.attrs.dims[axis] for axis in axes)
        else:
            padding = tuple(n + x.attrs.before[a] for n, a in zip(padding, axes[1:-1], strict=True))
        x = x.inputs[0]
    groups = _argument(call, "groups", 1)
    channels = x.type.shape[axes[-1]]
    if transposed:
        _require_transposed(call, groups, stride, dilation)
    depthwise = groups != 1 and groups == channels
    made = Convolution(x, weight, axes, stride, padding, dilation, out, depthwise, transposed)
    return made if depthwise else replace(made, groups=groups)


def _pads_with_zeros(x: Node, axes: tuple[int, ...]) -> bool:
    """Whether it puts zeros around the space of an image, as a convolution's own padding does."""
    if x.op is not Op.PAD or x.attrs.value != 0:
        return False
    before, after = x.attrs.before, x.attrs.after
    others = {n for each in (before, after) for n in (each[axes[0]], each[axes[-1]])}
    return others == {0} and all(isinstance(n, int) for n in before)


def _require_transposed(
    call: Node, groups: int, stride: tuple[int, ...], dilation: tuple[int, ...]
) -> None:
    """That it is none of groups, and that PyTorch computes it in eager. Raises NoProduct."""
    if groups != 1:
        raise NoProduct("it is transposed and has groups")
    more = _of_space(call, "output_padding", len(stride), 0)
    if any(n >= max(steps) for n, *steps in zip(more, stride, dilation, strict=True)):
        raise NoProduct("PyTorch refuses its output_padding: a stride or dilation must be larger")


def _operand(call: Node, place: int) -> Node:
    return call.inputs[call.attrs.arguments[place].index]


def _argument(call: Node, name: str, default: Any) -> Any:
    places = TRANSPOSED_PLACES if is_transposed(call) else _PLACES
    arguments, place = call.attrs.arguments, places[name]
    return (
        arguments[place] if len(arguments) > place else dict(call.attrs.keywords).get(name, default)
    )


def _of_space(call: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    given = _argument(call, name, default)
    values = tuple(given) if isinstance(given, Sequence) else (given,)
    return values * rank if len(values) == 1 else values


def _padding(
    call: Node, kernel: tuple[Size, ...], dilation: tuple[int, ...], rank: int
) -> tuple[int, ...]:
    """Before the first pixel: "same" puts what is odd behind the last."""
    given = _argument(call, "padding", 0)
    if given == "valid":
        return (0,) * rank
    if given == "same":
        offsets = (
            (number_at(size) - 1) * step for size, step in zip(kernel, dilation, strict=True)
        )
        return tuple(max_offset // 2 for max_offset in offsets)
    return _of_space(call, "padding", rank, 0)


def has_bias(call: Node) -> bool:
    """Whether the call adds a bias."""
    return len(call.attrs.arguments) > 2 and isinstance(call.attrs.arguments[2], Operand)


def mode_of(call: Node, made: Convolution, target: Target, conditions: Conditions) -> Mode:
    """In which mode a kernel of ours makes it; one channel at a time is float32, as PyTorch's.
    Raises NoProduct.
    """
    if call.type.dtype is not DType.F32 or any(n.type.dtype is not DType.F32 for n in call.inputs):
        raise NoProduct("there is no kernel for its dtype yet")
    if conditions.autocast:
        raise NoProduct("autocast casts its operands")
    mode = Mode.TF32 if conditions.tf32_convolutions else Mode.FAITHFUL
    if made.depthwise and target.language == "cuda":
        return Mode.FAITHFUL
    if target.tensor_cores != "sm90" or mode not in target.products:
        raise NoProduct("there is no kernel for it on this target yet")
    return mode


def require_form(made: Convolution, mode: Mode) -> None:
    """That the kernel takes it in this mode. Raises NoProduct."""
    windows = made.windows
    sizes = (*windows.kernel, windows.channels, windows.filters)
    if any(not isinstance(size, int) for size in sizes):
        raise NoProduct("its weight has no fixed size")
    if made.depthwise:
        return
    if made.transposed:
        return require_phases(made)
    if is_unpacked(made, mode):
        return
    if found := joining(made, mode):
        return _require_joined(made, found)
    if reason := why_not_taps(made):
        raise NoProduct(reason)


def _require_joined(made: Convolution, found: Joined) -> None:
    """As require_form, where taps are joined: packing them sees to windows, but for their depth."""
    if found.max_offset >= FAR[len(made.out)]:
        raise NoProduct("its windows are out of the copy engine's range")
    if len(made.out) == 3 and (not is_near(made, 1) or made.stride[0] > MOST_STRIDE):
        raise NoProduct(OUT_OF_RANGE)


def is_ours_in_planes(call: Node, target: Target, conditions: Conditions, followed: bool) -> bool:
    """Whether a kernel of ours would make it as it lies, its channels before its space."""
    try:
        made, mode = made_and_mode(call, target, conditions)
    except NoProduct:
        return False
    made = replace(made, in_planes=lies_in_planes(call, made))
    times = _times(call, made, mode, followed, target, conditions)
    return made.in_planes and times.is_ours_better


def is_ours(call: Node, target: Target, conditions: Conditions, followed: bool) -> bool:
    """Whether a convolution, `followed` by something or not, would be a kernel of ours whose input
    and result have their channels last.
    """
    try:
        made, mode = made_and_mode(call, target, conditions)
    except NoProduct:
        return False
    return _times(call, made, mode, followed, target, conditions).is_ours_better


def made_and_mode(call: Node, target: Target, conditions: Conditions) -> tuple[Convolution, Mode]:
    """What a kernel of ours would compute, and how. Raises NoProduct."""
    made = convolution_of(call)
    mode = mode_of(call, made, target, conditions)
    require_form(made, mode)
    return made, mode


def library_takes_channels_last(call: Node, in_step: bool = False) -> bool:
    """Whether the plan has calls of the library compute a convolution with its channels last: those
    of two axes of space, and of three in a step of training (of eager's of 3-D blocks 9.6 ms, not
    13.8; H200, 2026-11-29), else these were not tried. PyTorch makes an input of one axis
    contiguous. A transposed one with a mean behind it took 0.108 ms so, not 0.078 (H100,
    2026-11-26).
    """
    spaces = (2, 3) if in_step else (2,)
    return SPACES[call.attrs.target] in spaces and not is_transposed(call)


def gain_of_ours(call: Node, target: Target, conditions: Conditions, followed: bool) -> float:
    """Microseconds that a kernel of ours saves, `followed` by something or not."""
    times = _times(call, *made_and_mode(call, target, conditions), followed, target, conditions)
    return times.library - times.ours


def _times(
    call: Node,
    made: Convolution,
    mode: Mode,
    followed: bool,
    target: Target,
    conditions: Conditions,
) -> ConvolutionTimes:
    tail = (call,) if followed else ()
    return estimate_convolution(call, made, tail, target, conditions, mode)


def schedule_of(
    made: Convolution, mode: Mode, channels_first: bool = False, sizes: Sizes = ()
) -> ConvolutionSchedule:
    """The tile that takes less time, at these sizes where it matters how many tiles there are, and
    as many neighbours at once as divide the filters; for a result that lies with its
    `channels_first` in memory, or last.
    """
    if made.depthwise:
        return ConvolutionSchedule(mode, 0, lanes_of_depthwise(made))
    filters = number_at(made.windows.filters)
    lanes = next(lanes for lanes in (4, 2, 1) if filters % lanes == 0)
    if is_unpacked(made, mode):
        return schedule_unpacked(made, mode, lanes)
    if made.groups > 1:
        return joined_groups(made, mode).schedule(mode, lanes)
    phases = 1
    if made.transposed:
        phases = phase_columns(made, channels_first, partial(_tiles, made, mode))
    us, columns = _tiles(made, mode, filters * phases, _positions(made, phases))
    together = channels_first or lanes == 4  # pixels of a channel, or channels of a pixel
    if together and (way := by_halos(made, mode, us, sizes, channels_first)) is not None:
        return ConvolutionSchedule(mode, way.columns, lanes, width=way.width, halo=way.halo)
    joined, (_, width) = joining(made, mode), _intervals(made, mode, 1)
    rows = joined.rows if joined else 0
    return ConvolutionSchedule(mode, columns, lanes, rows, phases, width)


def _tiles(made: Convolution, mode: Mode, filters: int, positions: float) -> tuple[float, int]:
    """Microseconds of tiles that sum so many positions of the kernel, and their columns. Of few
    intervals narrow ones, whose ends are under way while others are summed; of many the wide ones,
    which read pixels once for more filters.
    """
    intervals, width = _intervals(made, mode, positions)

    return min(
        (-(-filters // columns) * tile_us(mode, columns, width, intervals), columns)
        for columns in COLUMNS
    )


def _positions(made: Convolution, columns: int) -> float:
    """Those of the kernel that a tile sums; of a transposed one, in the mean of its phases."""
    taps = number_at(product_of(made.windows.kernel))
    if not made.transposed:
        return taps
    products = products_of_phases(made, columns, ())
    return sum(taps for _, taps in products) / len(products)


def _intervals(made: Convolution, mode: Mode, positions: float) -> tuple[float, int]:
    """How many intervals a sum of so many positions of the kernel has, or of all where taps are
    joined, and how many channels one has.
    """
    if found := joining(made, mode):
        return found.intervals, found.width
    if made.groups > 1:
        found_groups = joined_groups(made, mode)
        return positions * found_groups.intervals, found_groups.width
    channels = number_at(made.windows.channels)
    width = width_of(channels, mode)
    return positions * -(-channels // width), width


# Microseconds of launches; the library's rates with channels last (118 to 284 TFLOP/s where TF32 is
# allowed), and its share of a copy's (H100).
_LAUNCHES_US = 8.0
_LIBRARY_RATES = {Mode.TF32: 185e12, Mode.FAITHFUL: 45e12}
_LIBRARY_SHARE, _LIBRARY_US = 0.55, 5.0
# What the host takes to call a convolution of ours with its tail, one of the library's, and another
# kernel (ResNet-50 replayed, 8 images; benchmarks/results/host-time-h200-and-h100.log).
HOST_OURS_US, HOST_LIBRARY_US, HOST_KERNEL_US = 17.0, 45.0, 8.0
# Of fewer channels it takes longer: 3 have 26 TFLOP/s, 16 have 68, 32 have 119 to 172 (H200).
_LIBRARY_CHANNELS = 40
# Transposed ones of three axes and many taps: cuDNN's "indexed" kernels took 2.5, 9.9 and 5.1 ms
# for 105, 125 and 75 taps of 16, 32 and 40 channels, 7, 67 and 49 GFLOP (TF32 allowed; H200).
_LIBRARY_TAPS, _INDEXED_RATE = 32, 13e12
# Calls of one and three axes of space keep PyTorch's order: cuDNN moves x and the result besides.
# At these rates three of one axis take 1.04, 0.49 and 0.73 ms, two of three 0.92 and 0.54; measured
# 1.24, 0.72 and 0.52, and 1.20 and 0.73 (TF32 allowed; H200, 2026-11-24).
_MOVES = 2  # a read and a write
# Groups of several channels are a kernel of their own: 8 channels, 3x3 taps, 16 TFLOP/s with
# channels last, 80 of one tap 11 (H200, 2026-11-29).
_GROUPED_RATE = 14e12
# Rows of a tile; the shortest sums that are made in parts where there are few tiles.
_ROWS, _LEAST_IN_PARTS = 128, 8


@dataclass(frozen=True, slots=True)
class ConvolutionTimes:
    """Microseconds of a convolution and its tail: as a kernel of ours, and as the library's call
    with a kernel for the tail. Of two axes of space the call gets its channels last.
    """

    ours: float
    library: float

    @property
    def is_ours_better(self) -> bool:
        """Whether ours is faster, or as fast within the error of the estimate: one form of kernels
        for all layers is less text, and the library's calls have host code of their own.
        """
        return self.ours < 1.2 * self.library


def estimate_convolution(
    call: Node,
    made: Convolution,
    tail: Sequence[Node],
    target: Target,
    conditions: Conditions,
    mode: Mode = Mode.TF32,
) -> ConvolutionTimes:
    """How long a convolution takes, at examples of symbolic sizes; where the host takes longer to
    call it than the device to compute it, and so for the others of a graph, how long that is.
    """
    times = estimate_on_device(call, made, tail, target, conditions.sizes, mode)
    if not conditions.host_bound:
        return times
    called_us = HOST_LIBRARY_US + (HOST_KERNEL_US if tail else 0.0)
    return ConvolutionTimes(max(times.ours, HOST_OURS_US), max(times.library, called_us))


def estimate_on_device(
    call: Node, made: Convolution, tail: Sequence[Node], target: Target, sizes: Sizes, mode: Mode
) -> ConvolutionTimes:
    """How long the device alone takes, at these sizes."""
    if made.depthwise:
        return ConvolutionTimes(*estimate_depthwise(call, made, bool(tail), target, sizes))
    read_us, written_us = (
        number_at(node.type.size_bytes, sizes) / target.copy_bytes_per_s * 1e6
        for node in (made.x, call)
    )
    if is_unpacked(made, mode):
        columns = schedule_of(made, mode).columns
        ours = _LAUNCHES_US + estimate_unpacked(made, columns, read_us + written_us, sizes)
    else:
        packed_us = _packing_us(made, mode, read_us, target, sizes)
        summed_us = _sums_us(made, mode, target, sizes)
        ours = _LAUNCHES_US + packed_us + max(summed_us, written_us)
    multiplied_us = number_at(made.windows.flops, sizes) / _library_rate(made, mode) * 1e6
    library = _LIBRARY_US + max(multiplied_us, (read_us + written_us) / _LIBRARY_SHARE)
    if not library_takes_channels_last(call):
        library += _MOVES * (read_us + written_us)
    return ConvolutionTimes(ours, library + (2 * written_us + 2.0 if tail else 0.0))


def _library_rate(made: Convolution, mode: Mode) -> float:
    """Operations a second of the library's kernel."""
    if made.groups > 1:
        return _GROUPED_RATE
    channels, kernel = number_at(made.windows.channels), made.windows.kernel
    rate = _LIBRARY_RATES[mode] * min(channels / _LIBRARY_CHANNELS, 1.0) ** 0.8
    if made.transposed and len(kernel) == 3 and number_at(product_of(kernel)) > _LIBRARY_TAPS:
        rate = min(rate, _INDEXED_RATE * min(channels / INTERVAL, 1.0))
    return rate


def _packing_us(
    made: Convolution, mode: Mode, read_us: float, target: Target, sizes: Sizes
) -> float:
    """Reading x, and writing its intervals of channels; of joined taps each output pixel has its
    own, which are read again.
    """
    if found := joining(made, mode):
        values = 2 * number_at(made.windows.rows, sizes) * found.packed * found.width
    else:
        pixels = number_at(made.windows.batch * product_of(made.windows.space), sizes)
        products = made.groups // schedule_of(made, mode).joined_groups
        values = int(pixels * prod(_intervals(made, mode, 1)) * products)
    return read_us + values * 2 * PARTS[mode] / target.copy_bytes_per_s * 1e6


def lost_with_channels_last(call: Node, target: Target, conditions: Conditions) -> float:
    """Microseconds that a kernel of ours takes longer where its result has its channels last."""
    made, mode = made_and_mode(call, target, conditions)
    if made.depthwise or is_unpacked(made, mode):
        return 0.0
    last, first = (_sums_us(made, mode, target, conditions.sizes, way) for way in (False, True))
    return last - first


def _sums_us(
    made: Convolution, mode: Mode, target: Target, sizes: Sizes, channels_first: bool = True
) -> float:
    """Of the tiles, in half waves where there are few, as sums are then made in parts."""
    windows, schedule = made.windows, schedule_of(made, mode, channels_first, sizes)
    if schedule.halo is not None:
        return halos_us(made, schedule, sizes, channels_first) / target.multiprocessors
    columns = schedule.columns
    rows, taps = (number_at(n, sizes) for n in (windows.rows, product_of(windows.kernel)))
    products = [(rows, taps)]
    if made.transposed:
        products = products_of_phases(made, schedule.phase_columns, sizes)
    across = -(-number_at(windows.filters) * schedule.phase_columns // columns)
    tiles = [
        (-(-rows // _ROWS) * across, _intervals(made, mode, taps)[0]) for rows, taps in products
    ]
    count = sum(each for each, _ in tiles)
    intervals = sum(each * depth for each, depth in tiles) / max(count, 1)
    waves = count / (target.multiprocessors * TILES_AT_ONCE[columns])
    if waves < 2:
        waves = ceil(2 * waves) / 2
    if intervals < _LEAST_IN_PARTS:
        waves = max(waves, 1.0)
    tile = tile_us(mode, columns, schedule.width, intervals)
    return waves * TILES_AT_ONCE[columns] * tile
