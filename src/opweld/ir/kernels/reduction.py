"""A reduction as kernels: walks over the elements of a row, and scalars of the row between them.

folding    = name, params, kept, reduced, across, lanes, threads, step+
step       = walk, once | walk
walk       = kernel over kept and reduced loops, fold*
fold       = Fold(name, op, dtype, result)
once       = kernel over kept loops, value*
value      = Value(name, dtype, result)

The kept loops number the rows, the reduced loops the elements of one row. A walk's kernel is
evaluated for every element: its element's first results are folded over the row, one by each fold,
the others are stored. What comes once after a walk is evaluated for the row: from folds and values
so far it computes the values that later steps read, and what is stored of them. Both read what is
known of the row by `RowScalar` definitions. The last walk of a folding may have no folds, and then
nothing comes after it.

A scan becomes one walk in two halves: what is scanned of an element, and what is computed from the
scans, which its second kernel reads by `RowScalar` definitions, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Size, divides_given, is_multiple
from ..ops import Op
from ..types import DType
from .convolution import Convolving
from .kernel import Attending, Buffer, Contraction, Extent, Kernel, Loop, Pointwise, RowBlocks


@dataclass(frozen=True, slots=True)
class Fold:
    """`name` is what `op` makes of the element's result `result` over the row, of type `dtype`.

    For ARGMAX and ARGMIN it is the row-major position in the reduced loops, for all others of the
    operand's type.
    """

    name: str
    op: Op
    dtype: DType
    result: int


@dataclass(frozen=True, slots=True)
class Value:
    """`name` is result `result` of what is computed once for the row."""

    name: str
    dtype: DType
    result: int


@dataclass(frozen=True, slots=True)
class Walk:
    """One pass over the elements of a row."""

    kernel: Kernel
    folds: tuple[Fold, ...]


@dataclass(frozen=True, slots=True)
class Once:
    """What is computed for the row after a walk. Its kernel's element may have no results."""

    kernel: Kernel
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Step:
    walk: Walk
    once: Once | None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """In the order in which they are evaluated."""
        return (self.walk.kernel, *((self.once.kernel,) if self.once else ()))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Element k + step of a row is element k of the next, in loop `var`, where the next is that in
    the kept loop `kept`, of so many `rows`; `lanes` of them are one thread's.
    """

    var: str
    step: int
    kept: str
    rows: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Folding:
    """The steps of one launch, for row-major operands or for any strides.

    `lanes` neighbouring elements are moved by one access where > 1: neighbours in the innermost
    reduced loop, or, where `across`, in the innermost kept loop, so that they belong to as many
    rows. Every kernel in the steps has the same loops, buffers, lanes and threads. `shared_bytes`
    and `multiprocessors` are how much of the chip a row may take to be read only once, where blocks
    of a cluster have it; or all multiprocessors have it together, which are `device_blocks`.

    Rows that are `alone` are short, walked once, and each one thread's. With `overlaps`, outermost
    first, a thread takes `lanes` rows together, neighbours in these kept loops, which share what
    they read.

    Where a row is `scanned` there are two steps: what the first one folds is known, so far, to each
    element in the second, which stores; both take an element in one walk.
    """

    name: str
    variant: str
    buffers: tuple[Buffer, ...]
    extents: tuple[Extent, ...]
    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    across: bool
    steps: tuple[Step, ...]
    lanes: int
    threads: int
    shared_bytes: int = 0
    multiprocessors: int = 1
    device_blocks: int = 0
    alone: bool = False
    overlaps: tuple[Overlap, ...] = ()
    scanned: bool = False
    multiples: tuple[Size, ...] = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels in the order in which they are evaluated."""
        return tuple(kernel for step in self.steps for kernel in step.kernels)

    def divides(self, size: Size) -> bool:
        """Whether a size is a whole number of packets at every launch."""
        given = divides_given(self.lanes, size, self.tested)
        return given or is_multiple(self.lanes, size, self.multiples)

    @property
    def tested(self) -> Size | None:
        """The size of which a launch tests that it is a whole number of packets: what a scan counts
        by one loop.
        """
        counted = self.kept if self.across else self.reduced
        return counted[0].extent if self.scanned and len(counted) == 1 else None


@dataclass(frozen=True, slots=True)
class Reduction:
    """The kernels of one group; `contiguous` is for row-major operands, `strided` for any strides.

    `num_rows` and `length` are the sizes of the kept and of the reduced loops. With `cut` there is
    one walk, whose rows may be folded in pieces. `axes` are for each buffer the axes of the space
    along which its own lie, where that is all there is to tell about their places: see
    lower/axes.py. Rows that are `unpacked` have instances of their own. Results that are `kept` are
    those of a weight alone, which last from call to call.
    """

    group: str
    contiguous: Folding
    strided: Folding
    num_rows: Size
    length: Size
    cut: bool
    axes: tuple[tuple[int, ...], ...] | None = None
    unpacked: bool = False
    kept: bool = False

    @property
    def foldings(self) -> tuple[Folding, ...]:
        return self.contiguous, self.strided

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.contiguous.kernels + self.strided.kernels

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All operands and results of the group."""
        return self.strided.buffers


@dataclass(frozen=True, slots=True)
class Scan:
    """The kernels of one group of scans; `contiguous` is for row-major operands, `strided` for any
    strides. The one reduced loop of each folding goes along the scan.

    In `reverse` rows are taken from their ends; with `exclusive` an element knows what those before
    it give. With `cut` rows may be scanned in pieces, once each piece has been folded.
    """

    group: str
    contiguous: Folding
    strided: Folding
    num_rows: Size
    length: Size
    reverse: bool
    exclusive: bool
    cut: bool

    @property
    def foldings(self) -> tuple[Folding, ...]:
        return self.contiguous, self.strided

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.contiguous.kernels + self.strided.kernels

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All operands and results of the group."""
        return self.strided.buffers


Lowered = Pointwise | Contraction | Convolving | Attending | Reduction | Scan | RowBlocks
