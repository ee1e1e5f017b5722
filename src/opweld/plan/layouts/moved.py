"""A graph whose convolutions have their channels last, and what reads them is computed so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import dropwhile, takewhile

from ...ir.attrs import (
    CallAttrs,
    CastAttrs,
    CatAttrs,
    CopyAttrs,
    FlipAttrs,
    GivenBackAttrs,
    Operand,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ShapeAttrs,
)
from ...ir.copying import Copier, give_origin
from ...ir.expr import Size
from ...ir.graph import Arena, Graph, Node, Origin, arena_of
from ...ir.operator import image_of
from ...ir.ops import Kind, Op
from ...ir.types import TensorType
from ...ir.views import behind_views, is_free_view, memory_of, views_above_memory
from ..products.patches import as_product
from ..products.windows import is_transposed
from .asked import asked_channels_last, is_asked_channels_last

FOLLOWING = frozenset(f"aten.upsample_{way}2d.vec" for way in ("nearest", "bilinear", "bicubic"))
"""Calls of one tensor that PyTorch computes in the order of their operand; those of one and three
axes of space copy what lies otherwise than it does by default.
"""
# An image is moved by PyTorch: 0.036 ms of 2.1 for ResNet-18, where a kernel of ours takes 0.018
# and 300 lines (batch 64; H100, 2026-11-26).
_FEW_CHANNELS, _MOVES = 8, "into another layout"

Order = tuple[int, ...]


def channels_last(rank: int) -> Order:
    """Which axis of a tensor (batch, channels, *space) stands where."""
    return (0, *range(2, rank), 1)


@dataclass(slots=True)
class Moved:
    """A copy of a graph: `permuted` has the nodes that stand for some of the old ones, by serial,
    with the order of their axes; `copies` are what moves a tensor, and `given` the results that are
    moved. `returned` are those whose memory the caller gets, `shown` has what views of it show.
    Those of the chosen convolutions that are `ours` take their input in any order, but for those of
    each channel by itself; those of `patches` become matrix products. `convolutions` are what the
    chosen ones became; `tails` are those, and what is computed of their elements, that are given
    back at once, at their `ends`; `images` are results that keep eager's order without being moved.
    """

    arena: Arena
    chosen: frozenset[int]
    ours: frozenset[int]
    patches: frozenset[int]
    returned: frozenset[int]
    shown: Mapping[int, Node]
    has_image: bool
    origins: dict[int, Origin]
    asked: frozenset[int]
    images: frozenset[int]
    tails: Mapping[int, int]
    ends: frozenset[int]
    convolutions: dict[int, Node] = field(default_factory=dict)
    permuted: dict[int, tuple[Node, Order]] = field(default_factory=dict)
    copies: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    graph: Graph = field(init=False)

    @staticmethod
    def of(
        graph: Graph,
        chosen: frozenset[int],
        ours: frozenset[int],
        patches: frozenset[int],
        given_back: frozenset[int] = frozenset(),
        images: frozenset[int] = frozenset(),
    ) -> Moved:
        """What the convolutions `given_back` give, and what is computed of its elements alone, is
        given back at once; that of others goes on in their order. `images` are results of the
        graph that keep, without being moved, the order that they have in eager.
        """
        returned = frozenset(memory_of(node, graph).serial for node in graph.outputs)
        views = (view for each in graph.outputs for view in views_above_memory(each, graph))
        shown = {view.serial: memory for view, memory in views}
        given, origins = (returned, shown, image_of(graph) is not None), dict(graph.origins)
        asked = asked_channels_last(graph)
        ends = _tails(graph, given_back, returned)
        moved = Moved(arena_of(graph), chosen, ours, patches, *given, origins, asked, images, *ends)
        copied = Copier(moved.arena, moved._instead, moved.origins).copied(graph)
        moved.graph = replace(copied, outputs=moved._without_order(graph, copied.outputs))
        return moved

    def _without_order(self, graph: Graph, outputs: tuple[Node, ...]) -> tuple[Node, ...]:
        """The outputs; statistics of channels, which buffers go towards, are as they were made."""
        old = graph.outputs
        towards = {old[place].serial for each in graph.tracked for place in each.towards}
        towards -= graph.handed_out | {old[each.value].serial for each in graph.updates}
        towards &= self.permuted.keys()
        pairs = zip(old, outputs, strict=True)
        return tuple(self.permuted[o.serial][0] if o.serial in towards else n for o, n in pairs)

    def read_across(self, graph: Graph) -> list[Node]:
        """What kernels of tails read of each element beside their own."""
        found = []
        for node in graph.nodes():
            if node.serial in self.tails and node.serial not in self.chosen:
                own = self.tails[node.serial]
                found += [
                    operand
                    for operand in node.inputs
                    if self.tails.get(operand.serial) != own
                    and operand.type.shape == node.type.shape
                ]
        return found

    def is_permuted(self, node: Node) -> bool:
        """Whether its elements lie in another order than those of the old node."""
        if node.serial not in self.permuted:
            return False
        _, order = self.permuted[node.serial]
        return not _lies_alike(node.type.shape, order)

    def _shows_given(self, node: Node) -> bool:
        """Whether the caller gets this view of what is put into another order for it."""
        return node.serial in self.shown and self.is_permuted(self.shown[node.serial])

    def _shows_permuted(self, node: Node) -> bool:
        """Whether a view, or what it shows, lies in another order: a user may permute it back."""
        while node.serial not in self.permuted and is_free_view(node):
            node = node.inputs[0]
        return self.is_permuted(node)

    def _instead(self, node: Node, operands: tuple[Node, ...]) -> Node | None:
        new = self._permuted(node, operands) if not self._shows_given(node) else None
        if new is not None:
            made, order = new
            if node.serial in self.origins:
                self.origins.setdefault(made.serial, self.origins[node.serial])
            if node.serial in self.chosen:
                self.convolutions[node.serial] = made
            back = self._back(made, order)
            if node.serial in self.ends:
                attrs = GivenBackAttrs(back.type.dtype)
                return self.arena.make(Op.CAST, back, attrs=attrs) if back is not made else made
            self.permuted[node.serial] = new
            if node.serial in self.returned and self.is_permuted(node):
                return self._given(node, back)
            return back
        if node.serial in self.images:
            if node.op is Op.CALL:
                return self._given(node, self.arena.call(operands, node.attrs))
            return self._given(node, self.arena.make(node.op, *operands, attrs=node.attrs))
        if node.op is not Op.CALL:
            return None
        # Calls see tensors as they always did.
        plain = tuple(
            self._copy(new) if self._shows_permuted(old) else new
            for old, new in zip(node.inputs, operands, strict=True)
        )
        return None if plain == operands else self.arena.call(plain, node.attrs)

    def _permuted(self, node: Node, operands: tuple[Node, ...]) -> tuple[Node, Order] | None:
        if node.serial in self.chosen:
            return self._convolution(node, operands), channels_last(node.type.rank)
        found = [self.permuted[old.serial] for old in node.inputs if old.serial in self.permuted]
        if not found:
            return None
        made, order = found[0]
        if node.op is Op.CALL:
            return self._following(node, made, order)
        if node.kind is Kind.POINTWISE and len(order) == node.type.rank:
            pairs = zip(node.inputs, operands, strict=True)
            given = (self._broadcast(old, new, order) for old, new in pairs)
            return self.arena.make(node.op, *given, attrs=node.attrs), order
        if node.op is Op.CAT:
            pairs = zip(node.inputs, operands, strict=True)
            given = (self._operand(old, new, order) for old, new in pairs)
            along = CatAttrs(order.index(node.attrs.dim))
            return self.arena.make(Op.CAT, *given, attrs=along), order
        if len(node.inputs) > 1:
            return None
        if node.op is Op.FLIP:
            flipped = FlipAttrs(tuple(sorted(order.index(axis) for axis in node.attrs.dims)))
            return self.arena.make(Op.FLIP, made, attrs=flipped), order
        if node.op is Op.EXPAND and node.type.rank == len(order):
            shape = ShapeAttrs(_of(node.type.shape, order))
            return self.arena.make(Op.EXPAND, made, attrs=shape), order
        if node.kind is Kind.REDUCTION:
            axes = tuple(order.index(axis) for axis in node.attrs.axes)
            if axes != tuple(sorted(axes)) and _counts_places(node):
                return None
            axes = tuple(sorted(axes))
            condensed = ReduceAttrs(axes, node.attrs.first)
            return self.arena.make(node.op, made, attrs=condensed), order
        if node.op is Op.PAD:
            before, after = (_of(side, order) for side in (node.attrs.before, node.attrs.after))
            padding = PadAttrs(before, after, node.attrs.value)
            return self.arena.make(Op.PAD, made, attrs=padding), order
        if node.op is Op.SLICE:
            part = replace(node.attrs, dim=order.index(node.attrs.dim))
            return self.arena.make(Op.SLICE, made, attrs=part), order
        if node.op is Op.WINDOW:
            windows = replace(node.attrs, dim=order.index(node.attrs.dim))
            return self.arena.make(Op.WINDOW, made, attrs=windows), _parted(order, node.attrs.dim)
        if node.op is Op.PERMUTE:
            return self._of_permute(node, made, order)
        if node.op is Op.RESHAPE:
            return self._without_axes(node, made, order)
        return None

    def _of_permute(self, node: Node, made: Node, order: Order) -> tuple[Node, Order]:
        """What the user, or a pool, puts first stays there, before what is in order."""
        dims: Order = node.attrs.dims
        kept = sum(1 for _ in takewhile(lambda place: dims[place] > place, range(len(dims))))
        rest = [dims.index(axis) for axis in order if dims.index(axis) >= kept]
        its = (*range(kept), *rest)
        moved = PermuteAttrs(tuple(order.index(dims[axis]) for axis in its))
        return self.arena.make(Op.PERMUTE, made, attrs=moved), its

    def _without_axes(self, node: Node, made: Node, order: Order) -> tuple[Node, Order] | None:
        """A reshape that leaves out axes of size 1, or adds some behind."""
        before, after = (
            [axis for axis, size in enumerate(each.type.shape) if size != 1]
            for each in (node.inputs[0], node)
        )
        sizes = [node.inputs[0].type.shape[axis] for axis in before]
        if sizes != [node.type.shape[axis] for axis in after]:
            return None
        became = dict(zip(before, after, strict=True))
        its = tuple(became[axis] for axis in order if axis in became)
        ones = tuple(axis for axis in range(node.type.rank) if axis not in after)
        last = channels_last(node.type.rank) if node.type.rank > 2 else ()
        usual = tuple(axis for axis in last if axis in its)
        its = last if last and its == usual else (*its, *ones)
        return self._reshaped(made, _of(node.type.shape, its)), its

    def _convolution(self, node: Node, operands: tuple[Node, ...]) -> Node:
        if node.serial in self.patches:
            product = as_product(self.arena, node, *operands)
            give_origin(self.origins, node, product.inputs[0], product)
            return product
        as_it_lies = node.serial in self.ours and not sees_one_channel(node)
        order = channels_last(node.type.rank)
        given = self._operand(node.inputs[0], operands[0], order, as_it_lies)
        result = TensorType(node.type.dtype, _of(node.type.shape, order))
        attrs = replace(node.attrs, results=(result,), channels_last=True)
        return self.arena.call((given, *operands[1:]), attrs)

    def _following(self, node: Node, made: Node, order: Order) -> tuple[Node, Order] | None:
        """A call that PyTorch computes in any order, in this one."""
        if node.attrs.target not in FOLLOWING or order != channels_last(node.type.rank):
            return None
        result = TensorType(node.type.dtype, _of(node.type.shape, order))
        attrs = replace(node.attrs, results=(result,), channels_last=True)
        return self.arena.call((made, *node.inputs[1:]), attrs), order

    def _given(self, node: Node, back: Node) -> Node:
        """A result in the order that it has in eager."""
        dtype = back.type.dtype
        asked = node.serial in self.asked
        attrs = CopyAttrs(dtype, asked) if self.has_image else CastAttrs(dtype)
        copy = self.arena.make(Op.CAST, back, attrs=attrs)
        self.copies.add(copy.serial)
        self.given.add(node.serial)
        return copy

    def _operand(self, old: Node, new: Node, order: Order, as_it_lies: bool = False) -> Node:
        made, its = self.permuted.get(old.serial, (None, ()))
        if made is not None and its == order:
            return made
        if new.type.rank == 0:
            return new
        shape = (*(1,) * (len(order) - new.type.rank), *new.type.shape)
        new = self._reshaped(new, shape)
        if order == tuple(range(len(order))):
            return new
        view = self.arena.make(Op.PERMUTE, new, attrs=PermuteAttrs(order))
        few = sum(size != 1 for size in shape) <= 2
        lies_so = order == channels_last(4) and is_asked_channels_last(new)
        return view if few or as_it_lies or lies_so else self._copy(view)

    def _broadcast(self, old: Node, new: Node, order: Order) -> Node:
        """An operand of what is computed by element: of lower rank where its order stays then."""
        shape = (*(1,) * (len(order) - new.type.rank), *new.type.shape)
        alike = old.serial not in self.permuted and _lies_alike(shape, order)
        if new.type.rank == 0 or not alike:
            return self._operand(old, new, order)
        sizes = dropwhile(lambda size: size == 1, _of(shape, order))
        return self._reshaped(new, tuple(sizes) or (1,))

    def _back(self, node: Node, order: Order) -> Node:
        """The node as it was in the old graph."""
        back = tuple(order.index(axis) for axis in range(len(order)))
        if back == tuple(range(len(order))):
            return node
        return self.arena.make(Op.PERMUTE, node, attrs=PermuteAttrs(back))

    def _reshaped(self, node: Node, shape: tuple[Size, ...]) -> Node:
        if node.type.shape == shape:
            return node
        if node.op is Op.RESHAPE:
            return self._reshaped(node.inputs[0], shape)
        return self.arena.make(Op.RESHAPE, node, attrs=ShapeAttrs(shape))

    def _copy(self, node: Node) -> Node:
        """A view as a tensor of its own, in the order of its axes."""
        source = behind_views(node)
        if source.serial in self.copies:
            return node
        if source.kind is Kind.SOURCE and node.type.shape[-1] in range(_FEW_CHANNELS):
            moving = CallAttrs("aten.contiguous.default", (Operand(0),), (), (node.type,), _MOVES)
            copy = self.arena.call((node,), moving)
        else:
            copy = self.arena.make(Op.CAST, node, attrs=CastAttrs(node.type.dtype))
        self.copies.add(copy.serial)
        return copy


def _tails(
    graph: Graph, convolutions: frozenset[int], returned: frozenset[int]
) -> tuple[dict[int, int], frozenset[int]]:
    """These convolutions and what is computed of their elements, each with the last convolution
    before it, and where that comes to its ends: values that something else reads. What the graph
    itself returns is given back in any case.
    """
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes():
        for operand in node.inputs:
            readers.setdefault(operand.serial, []).append(node)
    tails, ends = {serial: serial for serial in convolutions}, set[int]()
    for node in graph.nodes():  # operands come before what reads them
        before = [
            tails[n.serial] for n in node.inputs if n.serial in tails and n.serial not in ends
        ]
        if node.kind is Kind.POINTWISE and before:
            tails[node.serial] = max(before)
        if node.serial not in tails or node.serial in returned:
            continue
        alike = (
            reader.kind is Kind.POINTWISE and reader.type.shape == node.type.shape
            for reader in readers[node.serial]
        )
        if not all(alike):
            ends.add(node.serial)
    return tails, frozenset(ends)


def _counts_places(node: Node) -> bool:
    """Whether the first of equal elements is another in another order of the axes."""
    return node.op in (Op.ARGMAX, Op.ARGMIN) or node.attrs.first


def _parted(order: Order, dim: int) -> Order:
    """The order in which one axis has become two."""
    parts = ((a,) if a < dim else (dim, dim + 1) if a == dim else (a + 1,) for a in order)
    return tuple(axis for part in parts for axis in part)


def _lies_alike(shape: tuple[Size, ...], order: Order) -> bool:
    """Whether its elements lie as they did: the order moves axes of size 1 alone."""
    moving = [axis for axis in order if shape[axis] != 1]
    return moving == sorted(moving)


def _of(shape: tuple[Size, ...], order: Order) -> tuple[Size, ...]:
    return tuple(shape[axis] for axis in order)


def has_groups(node: Node) -> bool:
    """Whether cuDNN has kernels of its own for it."""
    x, weight = (node.inputs[node.attrs.arguments[place].index] for place in (0, 1))
    if is_transposed(node):
        return False
    return bool(x.type.shape[1] != weight.type.shape[1])


def sees_one_channel(node: Node) -> bool:
    """Whether each of its filters does, of several."""
    weight = node.inputs[node.attrs.arguments[1].index]
    return has_groups(node) and weight.type.shape[1] == 1
