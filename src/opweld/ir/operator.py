"""The operator that a fused group becomes: its arguments, results and memory layouts.

operator(tensors..., sizes...) -> results. The host code registers it and the emitted file calls it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from .attrs import CopyAttrs
from .expr import Expr, Size, name_of, symbols_of
from .graph import Graph, Node
from .kernels.kernel import Definition, Load, Pointwise, RowBlocks
from .kernels.reduction import Lowered
from .ops import Kind, Op
from .plan import Group, GroupKind
from .types import TensorType


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor operand, by the name that the kernels give it; or a list of tensors, of the type
    that they have joined along the axis `listed`.
    """

    name: str
    type: TensorType
    listed: int | None = None

    def tensor(self, text: str) -> str:
        """The text of a tensor, in C++ or Python: of a list, its first."""
        return text if self.listed is None else f"{text}[0]"


@dataclass(frozen=True, slots=True)
class Result:
    """`like` is the argument whose layout it takes, as elementwise results do; None: row-major, or
    where it is `in_format`, with its channels last if CHANNELS_LAST is not 0.
    """

    name: str
    type: TensorType
    like: int | None
    in_format: bool = False


CHANNELS_LAST = "channels_last"
"""The size that says whether the first image among the inputs has its channels last in memory."""


_IMAGE_RANK = 4


def image_of(graph: Graph) -> Node | None:
    """The first image among the inputs."""
    return next((node for node in graph.inputs if node.type.rank == _IMAGE_RANK), None)


@dataclass(frozen=True, slots=True)
class SizeRead:
    """The size `name` is that of argument `argument` along `axis`."""

    name: str
    argument: int
    axis: int


@dataclass(frozen=True, slots=True)
class Operator:
    """`reads` are the symbolic sizes that arguments show, `sizes` those passed as integers.

    `reuse` is the argument whose memory the first result may take, or None. `reached` has for each
    result the arguments that its gradient reaches: no gradient goes through integers or bools.
    """

    name: str
    arguments: tuple[Argument, ...]
    reads: tuple[SizeRead, ...]
    sizes: tuple[str, ...]
    results: tuple[Result, ...]
    reuse: int | None
    reached: tuple[tuple[int, ...], ...]


def operators_of(
    groups: Iterable[Group], kernels: Iterable[Lowered]
) -> list[tuple[Group, Lowered, Operator]]:
    """The operators of fused groups, as they are compiled, given with their kernels; a tail has
    its own before that of its group.
    """
    pairs: list[tuple[Group, Lowered]] = []
    fused = (group.as_compiled for group in groups if group.fused)
    for group, lowered in zip(fused, kernels, strict=True):
        if isinstance(lowered, RowBlocks) and group.tail is not None:
            pairs.append((group.tail, lowered.tail))
        pairs.append((group, lowered))
    return [(group, lowered, operator_of(group, lowered)) for group, lowered in pairs]


def operator_of(group: Group, fused: Lowered) -> Operator:
    """The operator of a fused group."""
    buffers = fused.buffers
    read = sorted((b for b in buffers if not b.written), key=_source)
    named_out = [b.name for b in sorted((b for b in buffers if b.written), key=_source)]
    arguments = tuple(
        Argument(buffer.name, node.type, buffer.listed)
        for buffer, node in zip(read, group.inputs, strict=True)
    )
    results = tuple(
        Result(name, node.type, _like(group, node), _is_in_format(node))
        for name, node in zip(named_out, group.outputs, strict=True)
    )
    needed = _symbols(group)
    reads = _reads(arguments, needed)
    sizes = tuple(sorted(needed - {read.name for read in reads}))
    sizes += (CHANNELS_LAST,) if any(result.in_format for result in results) else ()
    reached = tuple(_reached(group, node) for node in group.outputs)
    return Operator(group.name, arguments, reads, sizes, results, group.reuse, reached)


def _is_in_format(node: Node) -> bool:
    return isinstance(node.attrs, CopyAttrs) and node.type.rank == _IMAGE_RANK


def _reached(group: Group, result: Node) -> tuple[int, ...]:
    place = {node.serial: index for index, node in enumerate(group.inputs)}
    found: set[int] = set()
    seen: set[int] = set()
    waiting = [result]
    while waiting:
        node = waiting.pop()
        if node.serial in seen or not node.type.dtype.is_float:
            continue
        seen.add(node.serial)
        if node.serial in place:
            found.add(place[node.serial])
        else:
            waiting.extend(node.inputs)
    return tuple(sorted(found))


def operator_over(group: Group, names: tuple[str, ...]) -> Operator:
    """The operator of a group that several kernels compute; results have no layout of its own."""
    pairs = zip(names, group.inputs, strict=True)
    arguments = tuple(Argument(name, node.type) for name, node in pairs)
    needed = _symbols(group)
    reads = _reads(arguments, needed)
    sizes = tuple(sorted(needed - {read.name for read in reads}))
    sizes += (CHANNELS_LAST,) if any(map(_is_in_format, group.nodes)) else ()
    reached = tuple(_reached(group, node) for node in group.outputs)
    return Operator(group.name, arguments, reads, sizes, (), None, reached)


def only_tracked(graph: Graph, group: Group) -> frozenset[int]:
    """The serials of a group's results that only buffers take, or go towards, also by a call that
    stops gradients: none comes from them.
    """
    if not graph.changed:
        return frozenset()
    inside = {node.serial for node in group.nodes}
    others = (n for n in graph.nodes() if n.serial not in inside and not _detaches(n))
    read = {operand.serial for node in others for operand in node.inputs}
    places = [place for each in graph.tracked for place in each.towards]
    places += [each.value for each in graph.updates]
    tracked = {graph.outputs[place].serial for place in places}
    tracked |= {n.inputs[0].serial for n in graph.nodes() if _detaches(n)}
    return frozenset(tracked & inside - graph.handed_out - read)


def _detaches(node: Node) -> bool:
    return node.op is Op.CALL and node.attrs.target == "aten.detach.default"


def _source(buffer: Any) -> int:
    return int(buffer.source)


def _symbols(group: Group) -> frozenset[str]:
    """Every symbolic size that the types and attributes of the group and its operands name."""
    found: set[str] = set()
    for node in (*group.inputs, *group.nodes):
        found |= {name for size in node.type.shape for name in symbols_of(size)}
    for node in group.nodes:
        found |= _symbols_in(node.attrs)
    return frozenset(found)


def _symbols_in(value: Any) -> set[str]:
    if isinstance(value, Expr):
        return set(symbols_of(value))
    if isinstance(value, tuple):
        return {name for item in value for name in _symbols_in(item)}
    if is_dataclass(value):
        return {n for f in fields(value) for n in _symbols_in(getattr(value, f.name))}
    return set()


def _reads(arguments: tuple[Argument, ...], needed: frozenset[str]) -> tuple[SizeRead, ...]:
    shapes = [(argument.type.shape, argument.listed) for argument in arguments]
    return tuple(SizeRead(n, *at) for n, at in places_of_sizes(shapes).items() if n in needed)


def places_of_sizes(
    operands: Iterable[tuple[tuple[Size, ...], int | None]],
) -> dict[str, tuple[int, int]]:
    """The operand and the axis that show each size, of operands given by their shapes; those of
    lists, along the axis of the second number, show none there.
    """
    found: dict[str, tuple[int, int]] = {}
    for position, (shape, listed) in enumerate(operands):
        for axis, size in enumerate(shape):
            if axis != listed and (name := name_of(size)):
                found.setdefault(name, (position, axis))
    return found


# Of what a GATHER has gathered: neighbours are next to each other whatever it was gathered from.
_ROW_MAJOR = -1


def _like(group: Group, node: Node) -> int | None:
    """The first operand that PyTorch's elementwise operations would take the layout from; what is
    made from a matrix product, or from attention, is row-major as that is.
    """
    if _is_in_format(node):
        return None
    if group.kind in (GroupKind.CONTRACTION, GroupKind.CONVOLUTION, GroupKind.ATTENTION):
        return None
    if group.tail is not None:
        return _like_of_tail(group, group.tail, node)
    found = _layout_of(group, node)
    return None if found == _ROW_MAJOR else found


def _layout_of(group: Group, node: Node) -> int | None:
    """The operand whose layout a value of a kernel has in eager PyTorch, where that is known: that
    of the first operand that has one, and so on; each value is looked at once.
    """
    left, seen = [node], set[int]()
    while left:
        node = left.pop()
        if node.serial in seen or node is group.tensor_list:
            continue
        seen.add(node.serial)
        if node in group.inputs:
            return group.inputs.index(node)
        if node.op is Op.GATHER:
            return _ROW_MAJOR
        if node.kind is Kind.POINTWISE:
            same = (each for each in reversed(node.inputs) if each.type.shape == node.type.shape)
            left += same
    return None


def _like_of_tail(group: Group, tail: Group, node: Node) -> int | None:
    """The first result is where the product was, which is row-major."""
    like = _like(tail, node)
    if node is group.outputs[0] or like is None or like == tail.reuse:
        return None
    return group.inputs.index(tail.inputs[like])


def reads_in_place(fused: Pointwise) -> bool:
    """Whether every operand is read where the result is written, or is one element.

    Such a kernel's contiguous form is right for any layout that its tensors share. An operand of
    another shape is at the same place only where all are contiguous: a flattened one, say.
    """
    place = fused.contiguous.stores[0].address
    results = [buffer.shape for buffer in fused.buffers if buffer.written]
    alike = {b.name for b in fused.buffers if not b.written and b.shape == results[0]}

    def in_place(load: Definition) -> bool:
        if not isinstance(load, Load) or load.guard:
            return False
        return load.address == 0 or (load.address == place and load.buffer in alike)

    same = all(shape == results[0] for shape in results)
    return same and all(map(in_place, fused.contiguous.definitions))
