"""The kernel language: a loop nest over an iteration space, loads, one scalar function, stores.

kernel     = name, params, loops, lanes, definition*, element, store*, threads, vectors, turned
param      = Buffer(name, dtype) | Extent(name)
loop       = Loop(var, extent)
definition = Load(name, buffer, address, access, guard) | Index(name, expr, access)
           | Test(name, condition, access) | Gather(name, index, extent, access, guard)
           | Multiplied(name, dtype) | RowScalar(name, dtype)
element    = name, params, let*, results
let        = Let(name, dtype, op, args, attrs)
store      = Store(buffer, address, result)
condition  = Between(expr, low, high)*

Extents are symbolic sizes and strides. Loops stand outermost first. An element is a pure function
of scalars; its arguments are names or constants. All parts of a condition hold together.

A pointwise group becomes two kernels that share their element: one for contiguous operands, one for
any strides. All else about a group (guards of padding, positions of cat) is in the definitions.
A contraction becomes one kernel, the epilogue, which is handed the elements of a matrix product,
and where operand a is computed another, the prologue, which stores nothing.
Attention becomes two kernels in this sense: how a score is computed, and the epilogue.
A reduction becomes walks over rows, each a kernel in this sense: see reduction.py.
Row blocks become the two kernels of their tail, called for some rows at a time.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..expr import Size, gathers_of
from ..ops import Op
from ..types import DType
from .operand import FunctorOperand
from .product import FormRow, Matrix, Mode


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor operand: a pointer to `dtype` elements. `source` is the position among the group's
    inputs, or among its outputs where `written`. Where it is a list of tensors, these are joined
    along the axis `listed`.
    """

    name: str
    dtype: DType
    written: bool
    source: int
    shape: tuple[Size, ...]
    comment: str
    listed: int | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Extent:
    """An integer argument: a symbolic size (`axis` None) or a stride of buffer `buffer` along
    `axis`.
    """

    name: str
    buffer: str | None = None
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    var: str
    extent: Size


@dataclass(frozen=True, slots=True)
class Between:
    """low <= expr < high"""

    expr: Size
    low: Size
    high: Size


Condition = tuple[Between, ...]


class Access(enum.Enum):
    """How the `lanes` neighbouring elements that one thread handles together get their operand.

    FLAT: as one vector at the flat position itself; VECTOR: as one vector at a computed address;
    SAME: all lanes share one scalar; LANE: each lane computes its own address.
    """

    FLAT = "flat"
    VECTOR = "vector"
    SAME = "same"
    LANE = "lane"


@dataclass(frozen=True, slots=True)
class Load:
    """`name = buffer[address]` where `guard` holds, else zero."""

    name: str
    buffer: str
    dtype: DType
    address: Size
    access: Access
    guard: Condition = ()


@dataclass(frozen=True, slots=True)
class Index:
    """`name = expr`, an integer of the iteration space used as a value (of dtype i64)."""

    name: str
    expr: Size
    access: Access


@dataclass(frozen=True, slots=True)
class Test:
    """`name = condition`"""

    name: str
    condition: Condition
    access: Access


@dataclass(frozen=True, slots=True)
class Gather:
    """`name` is the place along an axis of `extent` elements that the number `index`, loaded or an
    Index before, tells: addresses after it name it. Where it `wraps`, places below 0 count from the
    end; for the number `ignored` the place is 0, as it is outside `guard`. `coords` are the address
    of the index: what the place changes with. For a number of no element the kernel stops.
    """

    name: str
    index: str
    coords: tuple[Size, ...]
    extent: Size
    wraps: bool
    ignored: int | None
    access: Access
    guard: Condition = ()


@dataclass(frozen=True, slots=True)
class Multiplied:
    """`name` is the element of the matrix product at this place, before it is rounded to
    `dtype`.
    """

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class RowScalar:
    """`name` is a scalar of the row, known before the row is walked over (see reduction.py)."""

    name: str
    dtype: DType


Own = Load | Index | Test | Gather
"""What has a statement of its own wherever it is used."""

Definition = Own | Multiplied | RowScalar


def expressions_of(definition: Definition) -> list[Size]:
    """All integer expressions over loop variables in a definition."""
    if isinstance(definition, Load):
        return [definition.address, *(b.expr for b in definition.guard)]
    if isinstance(definition, Index):
        return [definition.expr]
    if isinstance(definition, Gather):
        return [*definition.coords, *(b.expr for b in definition.guard)]
    if isinstance(definition, Multiplied | RowScalar):
        return []
    return [between.expr for between in definition.condition]


def needed_by(definitions: Iterable[Definition], given: Iterable[Definition]) -> tuple[Own, ...]:
    """Those of `given`, in order, that the places of `definitions` are told by: picks, and the
    numbers that these are made of.
    """
    names = {p.name for d in definitions for e in expressions_of(d) for p in gathers_of(e)}
    found: list[Own] = []
    for each in reversed(list(given)):
        if isinstance(each, Own) and each.name in names:
            found.append(each)
            names |= {p.name for e in expressions_of(each) for p in gathers_of(e)}
            names |= {each.index} if isinstance(each, Gather) else set()
    return tuple(reversed(found))


def condition_of(definition: Load | Test | Gather) -> Condition:
    """The guard, or what is tested."""
    return definition.condition if isinstance(definition, Test) else definition.guard


@dataclass(frozen=True, slots=True)
class Name:
    """A scalar defined before."""

    text: str


@dataclass(frozen=True, slots=True)
class Const:
    """A scalar constant of the given type, not rounded to 16 bits."""

    value: Any
    dtype: DType


Arg = Name | Const


@dataclass(frozen=True, slots=True)
class Let:
    """`name = op(args)`. `operands` is the dtype that the arguments have, `dtype` the result's;
    both are storage types: 16-bit floats calculate in float32 and are rounded only by CAST and by
    stores. A `rounded` product or quotient is not contracted with what is added to it.
    """

    name: str
    dtype: DType
    op: Op
    args: tuple[Arg, ...]
    operands: DType
    attrs: Any
    comment: str = ""
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class Element:
    """The scalar function of a group: all that is computed for one element of its outputs."""

    name: str
    params: tuple[tuple[str, DType], ...]
    body: tuple[Let, ...]
    results: tuple[tuple[DType, Arg], ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Result `result` of the element goes to `buffer[address]`."""

    buffer: str
    dtype: DType
    address: Size
    result: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch. `lanes` elements of the innermost loop are moved by one access where > 1. Each
    thread goes through the first `turned` loops itself, and keeps what it reads in all their turns.
    `multiples` are sizes that must be whole numbers of `lanes`, which numbers among them are.
    """

    name: str
    variant: str
    comment: str
    buffers: tuple[Buffer, ...]
    extents: tuple[Extent, ...]
    loops: tuple[Loop, ...]
    definitions: tuple[Definition, ...]
    element: Element
    stores: tuple[Store, ...]
    lanes: int
    vectors: int
    threads: int
    turned: int = 0
    multiples: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class Pointwise:
    """The kernels of one group: `contiguous` for row-major operands, `strided` for any strides.

    `shape` is the iteration space (and the shape of every output). `operands` are what is read in
    the order of buffers; None where their axes do not say which elements are read.
    """

    group: str
    contiguous: Kernel
    strided: Kernel
    shape: tuple[Size, ...]
    operands: tuple[FunctorOperand, ...] | None = None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.contiguous, self.strided

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All operands and results of the group."""
        return self.strided.buffers


@dataclass(frozen=True, slots=True)
class Factor:
    """One operand of a product: the position among the group's inputs, None where it is computed,
    and its axes there.
    """

    source: int | None
    axes: Matrix


@dataclass(frozen=True, slots=True)
class Prologue:
    """How operand a is computed where it is split: the result of `kernel` at row-major positions.
    `strides` are those of its batches, rows and sums among these.
    """

    kernel: Kernel
    strides: tuple[Size, Size, Size]


@dataclass(frozen=True, slots=True)
class Contraction:
    """A matrix product whose elements `epilogue` takes, at row-major positions of the result.

    `buffers` are all operands and results of the group; epilogue and prologue have those that they
    touch, which must be row-major. `held`: the device keeps its form of b from call to call. The
    first of the `forms` that takes the sizes of a call makes it.
    """

    group: str
    mode: Mode
    family: str
    forms: tuple[FormRow, ...]
    a: Factor
    b: Factor
    held: bool
    buffers: tuple[Buffer, ...]
    epilogue: Kernel
    shape: tuple[Size, ...]
    prologue: Prologue | None = None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.epilogue, self.prologue.kernel) if self.prologue else (self.epilogue,)

    @property
    def touched(self) -> tuple[Buffer, ...]:
        """The buffers of its kernels, each once."""
        return tuple(b for b in self.buffers if any(b in each.buffers for each in self.kernels))

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The integers of its kernels, each once."""
        return tuple(dict.fromkeys(e for each in self.kernels for e in each.extents))


@dataclass(frozen=True, slots=True)
class Attending:
    """Attention whose elements `epilogue` takes, at row-major positions of the result.

    `scores` has one iteration for each variable of the batch (the first loops), row, key and value
    of a row: what it loads as `q`, `k` and `v`, rows of `depth`, `depth` and `columns` values, and
    the score of their product, which is `factor` > 0 times that where `factor` is given. Batches
    that differ in `alone` variables only have the same k and v. `place` is the position of an
    element of the result. `family` is that of the kernels on the tensor cores. See
    `ir/kernels/attention.py`.
    """

    group: str
    family: str
    scores: Kernel
    q: str
    k: str
    v: str
    depth: int
    columns: int
    alone: tuple[str, ...]
    factor: float | None
    causal: bool
    zeros: bool
    place: Size
    buffers: tuple[Buffer, ...]
    epilogue: Kernel
    shape: tuple[Size, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.scores, self.epilogue)

    @property
    def batch(self) -> tuple[Loop, ...]:
        return self.scores.loops[:-3]

    @property
    def shared(self) -> tuple[Loop, ...]:
        """The variables by which k and v differ."""
        return tuple(loop for loop in self.batch if loop.var not in self.alone)

    @property
    def rows(self) -> tuple[Loop, Loop, Loop]:
        """The loops over rows of q, over rows of k, and along a row."""
        rows, keys, inner = self.scores.loops[-3:]
        return rows, keys, inner

    def address(self, name: str) -> Size:
        """Where `q`, `k` or `v` is loaded."""
        loads = (d for d in self.scores.definitions if isinstance(d, Load) and d.name == name)
        return next(loads).address


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """A library's product of rows, and the kernels that run on its results block by block.

    `a`, `b` and `added` are positions among the group's inputs; the product is alpha * (a b) +
    beta * added, with b as [n, k] where `turned`. It is made in the memory of the first result,
    which is the tail's operand `product`, too. `rows` are the most of a block. `buffers` are all
    operands and results of the group, those of the tail by the names that they have there.
    """

    group: str
    a: int
    b: int
    turned: bool
    added: int | None
    alpha: int | float
    beta: int | float
    rows: int
    product: str
    buffers: tuple[Buffer, ...]
    tail: Pointwise

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.tail.kernels

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.tail.shape
