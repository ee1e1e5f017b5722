"""Which matrix products a kernel of ours makes, in which mode, and why the others are the
library's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from ...ir.graph import Graph, Node, arena_of
from ...ir.kernels.attention import Attention
from ...ir.kernels.convolution import Convolution
from ...ir.kernels.product import SKINNY, Mode, Product, even_strides
from ...ir.measured import NO_TABLE, Maker, ProductClass, Table
from ...ir.ops import Op
from ...ir.plan import Conditions, number_at
from ...ir.types import DType
from ...ir.views import behind_views
from ...target import Target
from ..attention.function import is_function, of_function
from ..attention.scores import LEAST_QUERIES, NoAttention, is_short, users_in
from ..attention.written import written_out
from ..cost import estimate_product, held_bytes, splits_itself, square_side
from ..fusion import Cluster, fuse
from ..layouts.asked import asked_channels_last
from ..measured import maker_of, measured, product_class
from ..uses import Made, uses_of
from .depthwise import lies_in_planes
from .recognised import MODES, NoProduct, is_product, product_of
from .windows import (
    convolution_of,
    estimate_convolution,
    has_bias,
    is_convolution,
    mode_of,
    require_form,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """By the call's serial: the products and attention that become kernels, the modes of products,
    what speaks for each, and why others are refused. What follows the products of `alone` is
    another kernel's. `classes` has those whose choice is by figures.
    """

    products: dict[int, Made] = field(default_factory=dict)
    modes: dict[int, Mode] = field(default_factory=dict)
    accepted: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    alone: set[int] = field(default_factory=set)
    classes: dict[int, ProductClass] = field(default_factory=dict)

    @property
    def with_epilogue(self) -> frozenset[int]:
        """The calls whose kernels compute what follows them, too."""
        return frozenset(self.modes.keys() & self.products.keys() - self.alone)


def choose_products(
    graph: Graph, target: Target, conditions: Conditions, table: Table = NO_TABLE
) -> Choice:
    """The products of a graph that are faster than the library's: as measured where the table has a
    row, and else as estimated.
    """
    if not target.products:
        return Choice()
    choice = Choice()
    _choose_attention(choice, graph, target, conditions)
    _choose_convolutions(choice, graph, target, conditions)
    inside = {serial for made in _attention_in(choice) for serial in made.inner}
    taken = inside | {*choice.products}
    calls = [node for node in graph.nodes() if is_product(node) and node.serial not in taken]
    for call in calls:
        try:
            product = choice.products[call.serial] = _product(call, conditions)
            choice.modes[call.serial] = _mode(call, product, target, conditions)
        except NoProduct as reason:
            choice.products.pop(call.serial, None)
            choice.refused[call.serial] = f"a matrix product of the library's: {reason}"
    for cluster in fuse(uses_of(graph, choice.products)):
        if cluster.anchor is not None and cluster.anchor.serial in choice.modes:
            made = choice.products[cluster.anchor.serial]
            if isinstance(made, Product):
                _compare(choice, cluster, cluster.anchor, target, conditions, table)
            else:
                _compare_convolution(choice, cluster, cluster.anchor, target, conditions)
    return choice


def _attention_in(choice: Choice) -> list[Attention]:
    return [made for made in choice.products.values() if isinstance(made, Attention)]


def _choose_attention(choice: Choice, graph: Graph, target: Target, conditions: Conditions) -> None:
    """All that a kernel can make: no score is written to memory."""
    users, arena = users_in(graph), arena_of(graph)
    for call in graph.nodes():
        try:
            found = of_function(call, users, arena) or written_out(call, users)
            if found is not None:
                _require_gain(call, found, target, conditions)
                choice.products[call.serial] = found
                scores = number_at(found.scores_bytes, conditions.sizes)
                choice.accepted[call.serial] = f"{scores / 1e6:.1f} MB of scores stay on the chip"
        except NoAttention as reason:
            choice.refused[call.serial] = f"attention of the library's: {reason}"


def _choose_convolutions(
    choice: Choice, graph: Graph, target: Target, conditions: Conditions
) -> None:
    """All that a kernel can make: those whose channels are last, where the plan has put them, and
    those of each channel by itself whose channels come before their space.
    """
    asked = asked_channels_last(graph)
    for call in filter(is_convolution, graph.nodes()):
        try:
            made = convolution_of(call)
            is_in_planes = lies_in_planes(call, made) and call.serial not in asked
            made = replace(made, in_planes=is_in_planes)
            if (call.attrs.channels_last or made.in_planes) and has_bias(call):
                raise NoProduct("it has a bias, which nothing reads")
            mode = mode_of(call, made, target, conditions)
            require_form(made, mode)
            _require_layout(call, made, conditions)
            choice.products[call.serial], choice.modes[call.serial] = made, mode
        except NoProduct as reason:
            choice.refused[call.serial] = f"a convolution of the library's: {reason}"


def _require_layout(call: Node, made: Convolution, conditions: Conditions) -> None:
    if conditions.library_convolutions:
        raise NoProduct("norms take statistics here, for a training step")
    if call.attrs.channels_last or made.in_planes:
        return
    raise NoProduct("by the estimate a kernel and copies into its order gain nothing")


def _compare_convolution(
    choice: Choice, cluster: Cluster, anchor: Node, target: Target, conditions: Conditions
) -> None:
    """Keeps the convolution if its kernel and what that saves are faster than the library."""
    made = choice.products[anchor.serial]
    assert isinstance(made, Convolution), "it is one"
    tail = [node for node in cluster.nodes if node is not anchor]
    mode = choice.modes[anchor.serial]
    times = estimate_convolution(anchor, made, tail, target, conditions, mode)
    rest = " and a kernel for the rest" if tail else ""
    figures = f"about {_us(times.ours)} us, the library{rest} {_us(times.library)} us"
    if made.in_planes:
        figures = f"as planes, its channels before its space, {figures}"
    if made.transposed:
        figures = f"as {prod(made.stride)} of stride 1 {figures}"
    if conditions.host_bound:
        figures += ", where the host takes longer to call than the device to compute"
    if times.is_ours_better:
        choice.accepted[anchor.serial] = figures
        return
    del choice.products[anchor.serial]
    choice.refused[anchor.serial] = (
        f"a convolution that gains nothing as a kernel of ours: {figures}"
    )


def _require_gain(call: Node, found: Attention, target: Target, conditions: Conditions) -> None:
    if conditions.autocast:
        raise NoAttention("autocast casts its operands")
    if conditions.tf32:
        raise NoAttention("torch's flags allow products of less precision, which are faster")
    if Mode.FAITHFUL not in target.products:
        raise NoAttention("there is no kernel for it on this target")
    if number_at(found.queries, conditions.sizes) < LEAST_QUERIES:
        raise NoAttention("of few rows, which are bound by reading keys and values")
    if target.tensor_cores == "sm90" and is_function(call) and is_short(found, conditions.sizes):
        raise NoAttention("of so few keys, for which it is faster")


def _product(call: Node, conditions: Conditions) -> Product:
    if conditions.autocast:
        raise NoProduct("autocast casts its operands")
    product = product_of(call)
    is_split_weight = behind_views(product.b).op is Op.WEIGHT and call.type.dtype is DType.F32
    return replace(product, held=is_split_weight and conditions.weight_cache)


def _mode(call: Node, product: Product, target: Target, conditions: Conditions) -> Mode:
    mode = MODES[call.type.dtype]
    if mode is Mode.FAITHFUL and conditions.tf32:
        mode = Mode.TF32
    if mode not in target.products:
        raise NoProduct(f"there is no kernel for it in mode {mode.value} yet")
    if mode in (Mode.HALF, Mode.BFLOAT16):
        _require_tiles(product, mode, conditions)
    return mode


def _require_tiles(product: Product, mode: Mode, conditions: Conditions) -> None:
    """That the copy engine reads both operands of 16 bits where they are, tile by tile."""
    few = min(number_at(size, conditions.sizes) for size in (product.m, product.n))
    if few <= SKINNY[mode]:
        raise NoProduct("of few rows of 16 bits")
    for node, axes in ((product.a, product.a_axes), (product.b, product.b_axes)):
        *outer, inner = even_strides(axes, node.type.shape) or (0, 0, 0)
        if inner != 1 or any(not isinstance(s, int) or s % _ALIGNED for s in outer):
            raise NoProduct("its 16-bit operands do not lie as the copy engine reads them")


_ALIGNED = 8  # in values, what strides are multiples of: 16 bytes


def is_ours(
    call: Node, tail: list[Node], target: Target, conditions: Conditions, table: Table = NO_TABLE
) -> bool:
    """Whether a product with these operations after it would be a kernel of ours."""
    try:
        product = _product(call, conditions)
        mode = _mode(call, product, target, conditions)
    except NoProduct:
        return False
    return _compared(call, product, mode, tail, target, conditions, table).faster


# What a product by itself must save to be worth its compiling and its text, of a thousand lines and
# more. What follows one saves a launch besides.
_LEAST_GAIN_US = 3.0


@dataclass(frozen=True, slots=True)
class _Compared:
    """A product of ours beside the library's, and whether it is better alone; `figures` says by
    how much.
    """

    faster: bool
    alone: bool
    figures: str
    shape: ProductClass


def _compared(
    anchor: Node,
    product: Product,
    mode: Mode,
    tail: list[Node],
    target: Target,
    conditions: Conditions,
    table: Table,
) -> _Compared:
    times = estimate_product(anchor, product, mode, tail, target, conditions.sizes)
    alone = times.apart < times.fused
    ours, library = min(times.fused, times.apart), times.library
    rest = " and a kernel for the rest" if tail else ""
    figures = f"about {_us(ours)} us, the library{rest} {_us(library)} us"
    if alone:
        figures = f"about {_us(ours)} us with a kernel for the rest, as one {_us(times.fused)}"
        figures += f", the library and that kernel {_us(library)} us"
    shape = product_class(product, mode, tail, conditions.sizes)
    maker, row = maker_of(shape, target, table), table.row(target.measured_as, shape)
    if maker is None:
        least_us = 0.0 if tail else _LEAST_GAIN_US
        return _Compared(ours + least_us < library, alone, figures, shape)
    beaten = "a kernel of ours" if row and row.against is Maker.OURS else f"the library{rest}"
    figures = f"{measured(row)} of {beaten}" if row else figures
    return _Compared(maker is Maker.OURS, alone, figures, shape)


def _compare(
    choice: Choice,
    cluster: Cluster,
    anchor: Node,
    target: Target,
    conditions: Conditions,
    table: Table,
) -> None:
    """Keeps the product if its kernel and what that saves are faster than the library."""
    serial = anchor.serial
    product, mode = choice.products[serial], choice.modes[serial]
    assert isinstance(product, Product), "only products are compared"
    tail = [node for node in cluster.nodes if node is not anchor]
    found = _compared(anchor, product, mode, tail, target, conditions, table)
    choice.classes[serial], figures = found.shape, found.figures
    if found.faster:
        if found.alone:
            choice.alone.add(serial)
        side = square_side(product, mode, target, conditions.sizes)
        kept = 0 if side else held_bytes(product, mode)
        memory = f"; {kept / 1e6:.1f} MB are kept of the weight, split again only where it changed"
        if splits_itself(product, mode, conditions.sizes):
            figures += "; both operands are split as they are multiplied"
        if side:
            figures += "; small enough for the CUDA cores, which split nothing"
        choice.accepted[serial] = figures + (memory if kept else "")
        return
    del choice.products[serial]
    choice.refused[serial] = f"a matrix product that gains nothing as a kernel of ours: {figures}"


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
