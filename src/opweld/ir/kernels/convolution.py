"""Convolutions, of all channels together or of each with filters of its own. One of all channels is
a matrix product: a row of operand a has what the windows of one output pixel show, a row of b one
filter. A transposed one is as many such products as its strides have phases. Results lie with their
channels last, but for those of planes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import gcd

from ..expr import Size
from ..expr import product as product_of
from ..graph import Node
from .kernel import Buffer, Kernel
from .product import Mode

COLUMNS = (64, 128)
"""How many filters a tile of the tensor cores has."""
INTERVAL = 64
"""Channels that share a scale, where they are not few."""
WIDTHS = (16, 32, INTERVAL)
"""How many channels an interval may have; where values have two parts, the most."""
MOST_ALONG_AXES = 64
"""The most positions of a kernel along its three axes together, of which those that a convolution
has not have one: of each output pixel one mask says which of them are in the image.
"""
MOST_STRIDE = 8
"""The largest step of the copy engine."""
FAR = {1: 128, 2: 128, 3: 16}
"""How far windows may reach beyond the image, by the axes of space: what the copy engine takes."""
TRANSPOSED = {
    "aten.conv_transpose1d.default": 1,
    "aten.conv_transpose2d.input": 2,
    "aten.conv_transpose3d.input": 3,
}
"""The operators of transposed convolutions, and along how many axes of space. Their weights are
[channels, filters, *kernel].
"""
MOST_PHASES = 32
"""The most phases of a transposed convolution: its kernels are given the numbers of each."""
PHASE_COLUMNS = (2, 4, 8)
"""How many columns of a tile the phases along the last axis may be, for each filter."""


class Blocks(Enum):
    """How the 128 output pixels of a block lie, and the blocks of a patch: a line along the last
    axis, or a column of lines of 8; of two the other behind it or beside it, or the next along the
    first of three axes. Names are those of conv/halo.cuh.
    """

    LINE = "kLine"
    COLUMNS = "kColumns"
    DEEP_COLUMNS = "kDeepColumns"


@dataclass(frozen=True, slots=True)
class Halo:
    """The patches of output pixels whose halos come to shared memory: of `count` blocks."""

    blocks: Blocks
    count: int

    def patch(self, block: int) -> tuple[int, int, int]:
        """Output pixels along three axes, of blocks of so many."""
        sizes = [1, 1, block] if self.blocks is Blocks.LINE else [1, block // 8, 8]
        sizes[0 if self.blocks is Blocks.DEEP_COLUMNS else 2] *= self.count
        deep, high, wide = sizes
        return deep, high, wide

    def __str__(self) -> str:
        return f"patches of {self.count} {_BLOCKS[self.blocks]}"


_BLOCKS = {
    Blocks.LINE: "times 128 pixels of a line",
    Blocks.COLUMNS: "times 16 lines of 8 pixels",
    Blocks.DEEP_COLUMNS: "times 16 lines of 8 pixels behind each other",
}


def has_mask(*kernel: int) -> bool:
    """Whether one mask has the positions along all axes of a kernel."""
    return sum(kernel) + 3 - len(kernel) <= MOST_ALONG_AXES


@dataclass(frozen=True, slots=True)
class Phase:
    """Along an axis, the output pixels of a transposed convolution that are the `first` and every
    stride-th from there on: they are a convolution of stride 1 with so many taps. Its `padding` is
    below 0 where the first window begins inside of the image.
    """

    first: int
    taps: int
    padding: int
    dilation: int


def phases_along(kernel: int, stride: int, padding: int, dilation: int) -> tuple[Phase, ...]:
    """The phases of an axis. Tap k brings pixel i to output pixel i stride - padding + k dilation:
    the taps of one phase are evenly spaced.
    """
    spacing = stride // gcd(stride, dilation)

    def phase(first: int) -> Phase:
        taps = [k for k in range(kernel) if (first + padding - k * dilation) % stride == 0]
        before = (taps[-1] * dilation - first - padding) // stride if taps else 0
        return Phase(first, len(taps), before, dilation * spacing // stride)

    return tuple(map(phase, range(stride)))


@dataclass(frozen=True, slots=True)
class Windows:
    """The sizes of a convolution, and of each axis of space a stride, the padding before the first
    pixel and a dilation. `axes` are those of the input that are its batch, its axes of space and
    its channels, in this order; `out` are the sizes of the result in space. A filter sees `seen`
    channels. Of a `transposed` one stride, padding and dilation are of pixels of the result.
    """

    axes: tuple[int, ...]
    batch: Size
    space: tuple[Size, ...]
    channels: Size
    filters: Size
    kernel: tuple[Size, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    out: tuple[Size, ...]
    seen: Size
    transposed: bool = False

    @property
    def rows(self) -> Size:
        """The output pixels."""
        return self.batch * product_of(self.out)

    @property
    def flops(self) -> Size:
        """Two operations a term; those of padding count."""
        pixels = self.batch * product_of(self.space) if self.transposed else self.rows
        return pixels * self.filters * self.seen * product_of(self.kernel) * 2

    @property
    def phases(self) -> tuple[tuple[Phase, ...], ...]:
        """Those of a transposed convolution along each axis of space."""
        kernel = (size for size in self.kernel if isinstance(size, int))
        axes = zip(kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple(phases_along(*axis) for axis in axes)


@dataclass(frozen=True, slots=True)
class Convolution:
    """What a call computes from `x` and the `weight` [filters, channels, *kernel], both in memory;
    `depthwise`: a filter sees one channel; else one of `groups` of all channels. One `in_planes`
    has a result whose channels come before its space. Of a `transposed` one the weight is
    [channels, filters, *kernel]. See Windows for the rest.
    """

    x: Node
    weight: Node
    axes: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    out: tuple[Size, ...]
    depthwise: bool = False
    transposed: bool = False
    in_planes: bool = False
    groups: int = 1

    @property
    def reads(self) -> tuple[Node, ...]:
        """The tensors that it reads."""
        return tuple(dict.fromkeys((self.x, self.weight)))

    @property
    def windows(self) -> Windows:
        """It without its operands."""
        batch, *space, channels = (self.x.type.shape[axis] for axis in self.axes)
        filters, seen, *kernel = self.weight.type.shape
        if self.transposed:
            filters = seen
        return Windows(
            self.axes,
            batch,
            tuple(space),
            channels,
            filters,
            tuple(kernel),
            self.stride,
            self.padding,
            self.dilation,
            self.out,
            1 if self.depthwise else seen if self.groups > 1 else channels,
            self.transposed,
        )


@dataclass(frozen=True, slots=True)
class Convolving:
    """A convolution, whose result has its channels last or is `in_planes`, and what becomes of each
    element.

    `x` and `weight` are positions among the group's inputs; `columns` is one of COLUMNS, or 0 for a
    depthwise convolution. `epilogue` takes an element at a place of the result, over operands of
    any strides; `axes` has for each of these those of the result that its own lie along. `order`
    has, for each axis of `shape`, that of the first tensor which it writes. Of `rows` rows the taps
    across are joined with the channels; 0 for none. Of a transposed one the phases along the last
    axis of space are `phase_columns` of each filter; 1 where they are products of their own.
    `width` channels share a scale, one of WIDTHS; with `unpacked` pixels are multiplied as they
    lie, without scales; with a `halo` those that patches see come to shared memory once. `groups`
    are all of the convolution, and how many of them are one product.
    """

    group: str
    mode: Mode
    columns: int
    lanes: int
    x: int
    weight: int
    windows: Windows
    buffers: tuple[Buffer, ...]
    epilogue: Kernel
    axes: tuple[tuple[int, ...], ...]
    shape: tuple[Size, ...]
    order: tuple[int, ...]
    rows: int = 0
    phase_columns: int = 1
    width: int = INTERVAL
    in_planes: bool = False
    unpacked: bool = False
    halo: Halo | None = None
    groups: tuple[int, int] = (1, 1)

    @property
    def depthwise(self) -> bool:
        """Whether each filter sees one channel: no tiles of the tensor cores."""
        return not self.columns

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.epilogue,)
