"""A convolution without groups as a matrix product: a row of operand a has what the windows of one
output pixel show of all channels, a row of b one filter. Results lie with their channels last.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Size
from ..expr import product as product_of
from ..graph import Node
from .kernel import Buffer, Extent, Kernel
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
class Convolution:
    """What a call computes from `x` and the `weight` [filters, channels, *kernel], both in memory.

    `axes` are those of x that are its batch, its axes of space and its channels, in this order.
    Of each axis of space there are a stride, the padding before the first pixel and a dilation;
    `out` are the sizes of the result there.
    """

    x: Node
    weight: Node
    axes: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    out: tuple[Size, ...]

    @property
    def reads(self) -> tuple[Node, ...]:
        """The tensors that it reads."""
        return tuple(dict.fromkeys((self.x, self.weight)))

    @property
    def batch(self) -> Size:
        return self.x.type.shape[self.axes[0]]

    @property
    def space(self) -> tuple[Size, ...]:
        return tuple(self.x.type.shape[axis] for axis in self.axes[1:-1])

    @property
    def channels(self) -> Size:
        return self.x.type.shape[self.axes[-1]]

    @property
    def filters(self) -> Size:
        return self.weight.type.shape[0]

    @property
    def kernel(self) -> tuple[Size, ...]:
        return self.weight.type.shape[2:]

    @property
    def rows(self) -> Size:
        """The output pixels."""
        return self.batch * product_of(self.out)

    @property
    def flops(self) -> Size:
        """Two operations a term; those of padding count."""
        return self.rows * self.filters * self.channels * product_of(self.kernel) * 2


@dataclass(frozen=True, slots=True)
class Convolving:
    """A convolution whose elements `epilogue` takes, at row-major positions of the result, whose
    channels are last.

    `x` and `weight` are positions among the group's inputs; the rest is as in Convolution, and
    `columns` one of COLUMNS. `buffers` are all operands and results of the group; the epilogue has
    those that it touches, which must be row-major.
    """

    group: str
    mode: Mode
    columns: int
    x: int
    weight: int
    convolution: Convolution
    buffers: tuple[Buffer, ...]
    epilogue: Kernel
    shape: tuple[Size, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.epilogue,)

    @property
    def touched(self) -> tuple[Buffer, ...]:
        """The buffers of the epilogue, in the order of the group's."""
        return tuple(b for b in self.buffers if b in self.epilogue.buffers)

    @property
    def extents(self) -> tuple[Extent, ...]:
        return self.epilogue.extents
