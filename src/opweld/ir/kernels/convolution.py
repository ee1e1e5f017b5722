"""Convolutions, of all channels together or of each with filters of its own. One of all channels is
a matrix product: a row of operand a has what the windows of one output pixel show, a row of b one
filter. Results lie with their channels last.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Size
from ..expr import product as product_of
from ..graph import Node
from .kernel import Buffer, Kernel
from .product import Mode

COLUMNS = (64, 128)
"""How many filters a tile of the tensor cores has."""
INTERVAL = 64
"""Channels that share a scale."""
MOST_TAPS = 64
"""The most positions of a kernel: of each output pixel one mask says which are in the image."""
MOST_STRIDE = 8
"""The largest step of the copy engine."""
FAR = {1: 128, 2: 128, 3: 16}
"""How far windows may reach beyond the image, by the axes of space: what the copy engine takes."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The sizes of a convolution, and of each axis of space a stride, the padding before the first
    pixel and a dilation. `axes` are those of the input that are its batch, its axes of space and
    its channels, in this order; `out` are the sizes of the result in space. A filter sees `seen`
    channels.
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

    @property
    def rows(self) -> Size:
        """The output pixels."""
        return self.batch * product_of(self.out)

    @property
    def flops(self) -> Size:
        """Two operations a term; those of padding count."""
        return self.rows * self.filters * self.seen * product_of(self.kernel) * 2


@dataclass(frozen=True, slots=True)
class Convolution:
    """What a call computes from `x` and the `weight` [filters, channels, *kernel], both in memory;
    `depthwise`: a filter sees one channel. See Windows for the rest.
    """

    x: Node
    weight: Node
    axes: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    out: tuple[Size, ...]
    depthwise: bool = False

    @property
    def reads(self) -> tuple[Node, ...]:
        """The tensors that it reads."""
        return tuple(dict.fromkeys((self.x, self.weight)))

    @property
    def windows(self) -> Windows:
        """It without its operands."""
        batch, *space, channels = (self.x.type.shape[axis] for axis in self.axes)
        filters, _, *kernel = self.weight.type.shape
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
            1 if self.depthwise else channels,
        )


@dataclass(frozen=True, slots=True)
class Convolving:
    """A convolution, whose result has its channels last, and what becomes of each element.

    `x` and `weight` are positions among the group's inputs; `columns` is one of COLUMNS, or 0 for a
    depthwise convolution. `epilogue` takes an element at a place of the result, over operands of
    any strides; `axes` has for each of these those of the result that its own lie along. `order`
    has, for each axis of `shape`, that of the tensors which it writes.
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

    @property
    def depthwise(self) -> bool:
        """Whether each filter sees one channel: no tiles of the tensor cores."""
        return not self.columns

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.epilogue,)
