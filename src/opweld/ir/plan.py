"""The plan: which nodes share a kernel, and how each one runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .expr import Size, evaluate, symbols_of
from .expr import product as product_of
from .graph import Graph, Node
from .kernels.attention import Attention
from .kernels.convolution import INTERVAL, Convolution, Halo
from .kernels.product import FormRow, Mode, Product, RowsProduct
from .views import behind_views, is_copy, is_free_view


class GroupKind(enum.Enum):
    POINTWISE = "pointwise"
    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    REDUCTION = "reduction"
    SCAN = "scan"
    ROW_BLOCKS = "row blocks"
    LIBRARY = "library"
    VIEW = "view"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class PointwiseSchedule:
    """`lanes` elements an access, `vectors` accesses in flight a thread, `threads` a block.

    lanes == 1 means that the innermost axis does not allow vectors.
    """

    lanes: int
    vectors: int
    threads: int

    def __str__(self) -> str:
        return f"vector width {self.lanes}, {self.vectors} in flight, {self.threads} threads"


@dataclass(frozen=True, slots=True)
class ContractionSchedule:
    """How the product is made: by the first of the `forms` that takes its run-time sizes, by which
    family of kernels on the tensor cores ("sm90", "mma"); its epilogue takes `lanes` neighbours of
    a row at once.
    """

    mode: Mode
    family: str
    lanes: int
    forms: tuple[FormRow, ...]

    def __str__(self) -> str:
        rows = [f"{row.form.value}: {row.range_text(self.mode)}" for row in self.forms[:-1]]
        by = "; ".join([*rows, f"{self.forms[-1].form.value}: {'others' if rows else 'all'}"])
        return (
            f"mode {self.mode.value}, tensor cores {self.family}, vector width {self.lanes}; {by}"
        )


@dataclass(frozen=True, slots=True)
class ConvolutionSchedule:
    """How a convolution is made: on the tensor cores, in tiles of so many `columns`, its filters;
    with 0, each channel by itself. Its epilogue takes `lanes` neighbours at once. With `rows` the
    taps across, of so many rows below each other, are joined with the channels. Of a transposed
    one the phases along the last axis are `phase_columns` of a filter, or products of their own.
    `width` channels are multiplied under one scale; with `unpacked` those of pixels as they lie,
    with a `halo` those that its patches see come to shared memory once for all taps. Of several
    groups so many are one product, in `joined_groups`.
    """

    mode: Mode
    columns: int
    lanes: int
    rows: int = 0
    phase_columns: int = 1
    width: int = INTERVAL
    unpacked: bool = False
    halo: Halo | None = None
    joined_groups: int = 1

    def __str__(self) -> str:
        how = f"{self.columns} filters a tile" if self.columns else "each channel by itself"
        joined = f", taps of {self.rows} rows together" if self.rows else ""
        if self.phase_columns > 1:
            how = f"{self.columns // self.phase_columns} filters a tile"
            joined += f", {self.phase_columns} phases of each beside each other"
        narrow = f", intervals of {self.width} channels" if self.width != INTERVAL else ""
        narrow += ", pixels as they lie" if self.unpacked else ""
        narrow += f", halos in shared memory, {self.halo}" if self.halo else ""
        narrow += f", {self.joined_groups} groups a product" if self.joined_groups > 1 else ""
        return f"mode {self.mode.value}, {how}{joined}{narrow}, vector width {self.lanes}"


@dataclass(frozen=True, slots=True)
class ReductionSchedule:
    """`lanes` elements an access, `threads` a block. With `cut` a row may be walked in pieces, side
    by side, whose results a second kernel puts together; otherwise one team walks a row as often as
    it must, or keeps it on the chip: in registers, in up to `shared_bytes` of each multiprocessor,
    and on up to `multiprocessors` of them, or on all, which are `device_blocks`. With `alone` each
    row is one thread's, which takes `lanes` of them below each other, of `layers` behind each
    other. With `unpacked` rows of no whole number of accesses are usual, too.
    """

    lanes: int
    threads: int
    cut: bool
    shared_bytes: int = 0
    multiprocessors: int = 1
    alone: bool = False
    layers: int = 1
    device_blocks: int = 0
    unpacked: bool = False

    def __str__(self) -> str:
        ways = f"{', split rows' if self.cut else ''}{', thread per row' if self.alone else ''}"
        layers = f", {self.layers} layers" if self.layers > 1 else ""
        return f"vector width {self.lanes}{layers}, {self.threads} threads{ways}"


@dataclass(frozen=True, slots=True)
class RowBlockSchedule:
    """The most rows of a block."""

    rows: int

    def __str__(self) -> str:
        return f"rows {self.rows}"


@dataclass(frozen=True, slots=True)
class AttentionSchedule:
    """By which family of kernels on the tensor cores ("sm90", "mma") it is made; its epilogue takes
    `lanes` neighbours of a row at once.
    """

    family: str
    lanes: int

    def __str__(self) -> str:
        return f"tensor cores {self.family}, vector width {self.lanes}"


MakingElements = PointwiseSchedule | ContractionSchedule | ConvolutionSchedule | AttentionSchedule
"""Of groups whose results are computed element by element in the end."""
Schedule = (
    PointwiseSchedule
    | ContractionSchedule
    | ConvolutionSchedule
    | AttentionSchedule
    | ReductionSchedule
    | RowBlockSchedule
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a reduction: `axes` of the iteration space `space` make one row, the other axes
    number the rows. `levels` has the reductions that each walk over a row completes; what walk k
    computes may need those of the walks before. There are `num_walks`: one more than levels where
    an element's result needs all reductions.
    """

    space: tuple[Size, ...]
    axes: tuple[int, ...]
    levels: tuple[tuple[Node, ...], ...]
    num_walks: int

    @property
    def kept(self) -> tuple[Size, ...]:
        """The shape of what is computed once a row."""
        return tuple(1 if axis in self.axes else size for axis, size in enumerate(self.space))

    @property
    def num_rows(self) -> Size:
        return product_of(self.kept)

    @property
    def length(self) -> Size:
        """The elements of a row."""
        return product_of(self.space[axis] for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes that must move (each operand read once, each result written once) and operations."""

    bytes: Size
    flops: Size
    limit: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes at the example's sizes: those that must move, and those that a kernel's form moves."""

    must_bytes: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Group:
    """One future kernel, one PyTorch call, or one view.

    `nodes` are in topological order; `inputs` are the values read from memory (sources or results
    of earlier groups), `outputs` the values written. `reason` is one sentence for the reader of the
    plan. `reuse` is the position in `inputs` of an intermediate that nobody reads later and whose
    buffer the first output may take, or None. A CONTRACTION has the call that is its `anchor` and
    the `product` that this computes; all its other nodes are computed from the product's elements,
    but for those of its `prologue`: the POINTWISE group that makes operand a of the product, which
    is computed where the operand is split.
    A CONVOLUTION has the call that is its `anchor` and the `convolution`; all its other nodes are
    computed from the result's elements.
    ATTENTION has as its `anchor` the call that gives the result, and the `attention`; of its other
    nodes some are computed on the way there, the others from the result's elements.
    A REDUCTION has `rows`; each of its results has the shape of the space, or of what is kept of
    it, but for axes of size 1.
    A SCAN has `rows` of one axis, whose one level are the scans; each of its results has the shape
    of the space.
    ROW_BLOCKS has as its `anchor` a call that stays PyTorch's, of `rows_product`, and as its `tail`
    the POINTWISE group that takes the call's memory: the two run in turns, some rows at a time.
    A POINTWISE group has in `held` the positions in `inputs` of operands that repeat along the
    first axes, and that a thread keeps while it goes along these, and in `listed` that of a CAT
    which its kernel is given as a list of tensors, and reads where they lie. The results of a group
    that is `kept` are of one weight alone, and last from call to call. `traffic` is known
    where there are kernels. Where an earlier group's kernel computes it too, `name` is that
    group's, and `planned_name`, otherwise empty, its own. Where that kernel is for any sizes,
    `lifting` is the group as the kernel knows it.
    """

    name: str
    kind: GroupKind
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    schedule: Schedule | None
    estimate: Estimate
    reason: str
    reuse: int | None = None
    anchor: Node | None = None
    product: Product | None = None
    prologue: Group | None = None
    attention: Attention | None = None
    convolution: Convolution | None = None
    rows: Rows | None = None
    rows_product: RowsProduct | None = None
    tail: Group | None = None
    held: tuple[int, ...] = ()
    listed: int | None = None
    kept: bool = False
    traffic: Traffic | None = None
    planned_name: str = ""
    lifting: Lifting | None = None

    @property
    def as_compiled(self) -> Group:
        """The group that its kernel is made from."""
        return self.lifting.group if self.lifting else self

    @property
    def fused(self) -> bool:
        """Whether a kernel of ours computes it."""
        return self.kind not in (GroupKind.LIBRARY, GroupKind.VIEW, GroupKind.LOOP)

    @property
    def only_moves(self) -> bool:
        """Whether all that it does is to copy an operand into another order."""
        *views, last = self.nodes
        return is_copy(last) and all(map(is_free_view, views))

    @property
    def tensor_list(self) -> Node | None:
        """The CAT that the kernel is given as a list of tensors."""
        return None if self.listed is None else self.inputs[self.listed]

    @property
    def tensors(self) -> tuple[Node, ...]:
        """What must be in memory: the inputs, of a list each tensor, behind views of it."""
        each = (in_list(n) if n is self.tensor_list else (n,) for n in self.inputs)
        return tuple(dict.fromkeys(node for nodes in each for node in nodes))


def in_list(cat: Node) -> tuple[Node, ...]:
    """The nodes whose memory the operands of a CAT show."""
    return tuple(map(behind_views, cat.inputs))


@dataclass(frozen=True, slots=True)
class Lifting:
    """A group over named sizes, whose nodes have the serials that they had. `values` are what the
    names stand for here.
    """

    group: Group
    values: tuple[tuple[str, Size], ...]


Sizes = tuple[tuple[str, int], ...]
"""Examples of symbolic sizes."""

TYPICAL_SIZE = 1024  # stands for a symbolic size that has no example


def number_at(value: Size, sizes: Sizes = ()) -> int:
    """The number that a size is at these examples, and at TYPICAL_SIZE where there is none."""
    known = dict(sizes)
    return evaluate(value, {name: known.get(name, TYPICAL_SIZE) for name in symbols_of(value)})


@dataclass(frozen=True, slots=True)
class Conditions:
    """What planning knows beside the graph.

    `sizes` are examples of symbolic sizes. `tf32`: torch's flags allow float32 products of less
    precision, `tf32_convolutions` convolutions. `autocast`: calls run under autocast, which casts
    their operands. `weight_cache`: what is derived from a weight may last from call to call.
    `library_convolutions`: convolutions stay the library's, as their gradients are, beside those of
    norms in training that are to be kernels.
    `host_bound`: calling the convolutions takes the host longer than computing them the device.
    """

    sizes: Sizes = ()
    tf32: bool = False
    tf32_convolutions: bool = False
    autocast: bool = False
    weight_cache: bool = True
    library_convolutions: bool = False
    host_bound: bool = False


NO_CONDITIONS = Conditions()


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups in the order in which they run."""

    graph: Graph
    target: str
    groups: tuple[Group, ...]
