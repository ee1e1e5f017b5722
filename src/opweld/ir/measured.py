"""Which schedule was measured to be the fastest: rows for a class of shapes on a target.

    row      = target, shape class, schedule, what it took, what it beat, and where from
    class    = PointwiseClass(dtype, elems, reads, writes, limit)
             | ProductClass(mode, m, n, k, batches, held, tail)
    schedule = PointwiseSchedule | Maker

The sizes of a class are exponents: those of the powers of two nearest to them, so that a row serves
its neighbours.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .kernels.product import Mode
from .plan import PointwiseSchedule
from .types import DType


class Maker(enum.Enum):
    """Who makes a matrix product and what follows it: a kernel of ours, or the library's call and
    kernels for the rest. Tiles and the parts of k are chosen at run time.
    """

    OURS = "ours"
    LIBRARY = "library"

    def __str__(self) -> str:
        return self.value


Schedule = PointwiseSchedule | Maker


@dataclass(frozen=True, slots=True)
class PointwiseClass:
    """Groups of pointwise operations: `dtype` is the widest type among operands and results,
    2^elems the size of the iteration space, `reads` and `writes` the number of operands and
    results, `limit` what bounds the group by its estimate.
    """

    dtype: DType
    elems: int
    reads: int
    writes: int
    limit: str

    kind = "pointwise"

    @property
    def type_text(self) -> str:
        return self.dtype.value

    def __str__(self) -> str:
        return f"elems 2^{self.elems} reads {self.reads} writes {self.writes} limit {self.limit}"


@dataclass(frozen=True, slots=True)
class ProductClass:
    """Matrix products of 2^batches times 2^m by 2^n with 2^k terms a sum. `held`: b is a weight
    whose form for our kernels is kept; `tail`: operations follow that our kernel makes.
    """

    mode: Mode
    m: int
    n: int
    k: int
    batches: int
    held: bool
    tail: bool

    kind = "contraction"

    @property
    def type_text(self) -> str:
        return self.mode.value

    def __str__(self) -> str:
        sizes = f"m 2^{self.m} n 2^{self.n} k 2^{self.k} batches 2^{self.batches}"
        return f"{sizes} {'held' if self.held else 'live'} {'tail' if self.tail else 'plain'}"


ShapeClass = PointwiseClass | ProductClass


@dataclass(frozen=True, slots=True)
class Measured:
    """`schedule` took `us` microseconds where `against` took `against_us`, in one run on `device`
    on `date` (ISO) under this version of torch; `command` repeats it.
    """

    target: str
    shape: ShapeClass
    schedule: Schedule
    us: float
    against: Schedule
    against_us: float
    device: str
    date: str
    torch: str
    command: str

    @property
    def key(self) -> tuple[str, ShapeClass]:
        return self.target, self.shape


@dataclass(frozen=True, slots=True)
class Table:
    """What planning knows of measured schedules, at most one row for each target and class.

    `tried` schedules are taken whatever the rows say, and nothing is said of them in the plan: they
    are about to be measured.
    """

    rows: tuple[Measured, ...] = ()
    tried: tuple[tuple[ShapeClass, Schedule], ...] = ()

    def row(self, target: str, shape: ShapeClass) -> Measured | None:
        return next((row for row in self.rows if row.key == (target, shape)), None)

    def trial(self, shape: ShapeClass) -> Schedule | None:
        return next((schedule for each, schedule in self.tried if each == shape), None)


NO_TABLE = Table()


@dataclass(frozen=True, slots=True)
class Tunable:
    """The groups of a plan that share a class, the schedule that they have, and all that they may
    have, that one first.
    """

    shape: ShapeClass
    groups: tuple[str, ...]
    current: Schedule
    schedules: tuple[Schedule, ...]


def nearest_power(size: int) -> int:
    """The exponent of the power of two nearest to `size` by ratio: 2^e serves sizes from 2^(e-1/2)
    up to, and without, 2^(e+1/2). 0 for sizes below 2.
    """
    if size < 2:
        return 0
    low = size.bit_length() - 1
    return low + (size * size >= 1 << (2 * low + 1))


def is_launchable(schedule: PointwiseSchedule) -> bool:
    """Whether a kernel can have it: lanes are a power of two, threads whole warps or one."""
    lanes, threads = schedule.lanes, schedule.threads
    return (
        lanes in (1, 2, 4, 8, 16, 32, 64)
        and 1 <= schedule.vectors <= 8
        and (threads == 1 or (threads % 32 == 0 and 32 <= threads <= 1024))
    )
