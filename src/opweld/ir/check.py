"""Whether a value that passes between stages is well formed.

`check` runs after every stage, in production too: what one stage hands on, the next may rely on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import singledispatch
from itertools import chain
from typing import Any

from .attrs import (
    CallAttrs,
    CatAttrs,
    FlipAttrs,
    GatherAttrs,
    ItemAttrs,
    Operand,
    PadAttrs,
    ShapeAttrs,
    SliceAttrs,
    SourceAttrs,
    WindowAttrs,
)
from .contract import Capture, Variant
from .expr import Size, symbols_of
from .graph import Graph, Leaf, Node, Record, Structure, parts_of
from .infer import TypeRule
from .kernels.check import (
    InvalidKernel,
    check_attending,
    check_contraction,
    check_convolving,
    check_fused,
    check_kernel,
    check_reduction,
    check_row_blocks,
    check_scan,
)
from .kernels.convolution import Convolving
from .kernels.kernel import Attending, Contraction, Kernel, Pointwise, RowBlocks
from .kernels.reduction import Reduction, Scan
from .ops import OPS, Op
from .plan import Group, Plan
from .types import ShapeMismatch, TensorType

__all__ = ["InvalidCapture", "InvalidGraph", "InvalidKernel", "InvalidPlan", "check"]


class InvalidGraph(ValueError):
    """A graph that breaks a rule; the text names the node and the rule."""


class InvalidPlan(ValueError):
    """A plan whose groups do not compute its graph; the text names the group and the node."""


class InvalidCapture(ValueError):
    """A capture whose contract and graph disagree; the text names the input or weight."""


@singledispatch
def check(value: object) -> None:
    """Raises InvalidGraph, InvalidPlan, InvalidKernel or InvalidCapture where `value` is malformed.

    Takes a Graph, Plan, Kernel, Pointwise, Contraction, Convolving, Reduction, Scan, RowBlocks,
    Variant or Capture; anything else is a TypeError.
    """
    raise TypeError(f"{type(value).__name__} has no check")


@check.register
def _(value: Kernel) -> None:
    check_kernel(value)


@check.register
def _(value: Pointwise) -> None:
    check_fused(value)


@check.register
def _(value: Attending) -> None:
    check_attending(value)


@check.register
def _(value: Contraction) -> None:
    check_contraction(value)


@check.register
def _(value: Convolving) -> None:
    check_convolving(value)


@check.register
def _(value: Reduction) -> None:
    check_reduction(value)


@check.register
def _(value: Scan) -> None:
    check_scan(value)


@check.register
def _(value: RowBlocks) -> None:
    check_row_blocks(value)


@check.register
def _(value: Capture) -> None:
    for variant in value.variants:
        check_variant(variant)


@check.register
def check_variant(value: Variant) -> None:
    check_graph(value.graph)
    symbols = {fact.name for fact in value.contract.symbols}
    for node in value.graph.nodes():
        free = _symbols_of_type(node.type) - symbols
        if free:
            raise InvalidCapture(f"size {min(free)} of {node!r} has no fact in the contract")
    _check_facts(value)


@check.register
def check_graph(value: Graph) -> None:
    nodes = _acyclic((*value.inputs, *value.weights, *value.outputs))
    _check_sources(value, nodes)
    for node in nodes:
        _check_node(node)
    towards = (place for each in value.tracked for place in each.towards)
    leaves = (*_leaves(value.structure), *towards, *(each.value for each in value.updates))
    if sorted(set(leaves)) != list(range(len(value.outputs))):
        raise InvalidGraph(f"the structure has leaves {leaves} for {len(value.outputs)} outputs")
    _check_tracked(value)
    _check_updates(value)


@check.register
def check_plan(value: Plan) -> None:
    check_graph(value.graph)
    needed = {node.serial for node in value.graph.nodes()}
    written: dict[int, str] = {}
    for group in value.groups:
        _check_group(group, needed, written)
        written.update((node.serial, group.name) for node in group.outputs)
    for node in value.graph.outputs:
        if not _is_given(node) and node.serial not in written:
            raise InvalidPlan(f"no group writes the output {node!r}")
    _check_reuse(value)


def _acyclic(roots: tuple[Node, ...]) -> tuple[Node, ...]:
    """All nodes below the roots, operands first. Raises InvalidGraph for a cycle or two arenas."""
    order: dict[int, Node] = {}
    entered: set[int] = set()
    stack: list[tuple[Node, Iterator[Node]]] = [(r, iter(r.inputs)) for r in reversed(roots)]
    while stack:
        node, operands = stack[-1]
        entered.add(node.serial)
        missing = next((n for n in operands if n.serial not in order), None)
        if missing is not None and missing.serial in entered:
            raise InvalidGraph(f"{missing!r} needs its own result")
        if missing is not None and node.serial not in order:
            stack.append((missing, iter(missing.inputs)))
            continue
        stack.pop()
        order.setdefault(node.serial, node)
        for known in (node, *node.inputs):
            if order[known.serial] is not known:
                raise InvalidGraph(f"{known!r}, {order[known.serial]!r} come from two arenas")
    return tuple(order.values())


def _check_sources(graph: Graph, nodes: tuple[Node, ...]) -> None:
    for op, listed in ((Op.INPUT, graph.inputs), (Op.WEIGHT, graph.weights)):
        for node in (*listed, *(n for n in nodes if n.op is op)):
            if node.op is not op or node not in listed:
                raise InvalidGraph(f"{node!r} and the graph's list of {op.value}s disagree")
        accesses = [node.attrs.access for node in listed if isinstance(node.attrs, SourceAttrs)]
        if len(set(accesses)) != len(accesses):
            raise InvalidGraph(f"two {op.value}s have the same access: {', '.join(accesses)}")


def _check_tracked(graph: Graph) -> None:
    """Each buffer is a weight, and those of statistics are as large as what they go towards."""
    weights = {node.attrs.access: node.type for node in graph.weights}
    for each in graph.tracked:
        unknown = [buffer for buffer in each.buffers if buffer not in weights]
        if unknown:
            raise InvalidGraph(f"{unknown[0]} is tracked and no weight")
        if each.momentum is None and each.count is None:
            raise InvalidGraph(f"{each.mean} is an average over calls that nothing counts")
        for buffer, place in zip((each.mean, each.variance), each.towards, strict=True):
            if weights[buffer].num_elems != graph.outputs[place].type.num_elems:
                raise InvalidGraph(f"{buffer} and output {place} differ in size")


def _check_updates(graph: Graph) -> None:
    """Each buffer is a weight of its value's type, which nothing else changes."""
    weights = {node.attrs.access: node.type for node in graph.weights}
    for each in graph.updates:
        if each.buffer not in weights:
            raise InvalidGraph(f"{each.buffer} is updated and no weight")
        if weights[each.buffer] != graph.outputs[each.value].type:
            raise InvalidGraph(f"{each.buffer} and output {each.value} differ in type")
    updated = [each.buffer for each in graph.updates]
    statistics = {buffer for each in graph.tracked for buffer in each.buffers}
    if len(set(updated) - statistics) < len(updated):
        raise InvalidGraph("a buffer is updated twice")


def _check_node(node: Node) -> None:
    spec = OPS[node.op]
    if spec.arity not in (-1, len(node.inputs)):
        raise InvalidGraph(f"{node!r} has {len(node.inputs)} operands, its row says {spec.arity}")
    if not isinstance(node.attrs, spec.attrs):
        raise InvalidGraph(f"{node!r} has {type(node.attrs).__name__}, not {spec.attrs.__name__}")
    reason = _bad_attrs(node) or _bad_type(node)
    if reason:
        raise InvalidGraph(f"{node!r}: {reason}")


def _bad_type(node: Node) -> str | None:
    expected = _expected_type(node)
    if isinstance(expected, str):
        return expected
    if any(isinstance(size, int) and size < 0 for size in node.type.shape):
        return f"a size of {node.type} is negative"
    return None if expected == node.type else f"has type {node.type}, its row says {expected}"


def _expected_type(node: Node) -> TensorType | str:
    """The type by the node's row, or why there is none."""
    if node.op in (Op.INPUT, Op.WEIGHT):
        return node.type
    if node.op in (Op.CONST, Op.IOTA):
        return TensorType(node.type.dtype, () if node.op is Op.CONST else (node.attrs.length,))
    if isinstance(node.attrs, CallAttrs):
        tensors = [result for result in node.attrs.results if result is not None]
        return tensors[0] if tensors else node.type
    if isinstance(node.attrs, ItemAttrs):
        return _item_type(node)
    try:
        return OPS[node.op].infer(tuple(operand.type for operand in node.inputs), node.attrs)
    except (TypeRule, ShapeMismatch) as error:
        return str(error)


def _item_type(node: Node) -> TensorType | str:
    call = node.inputs[0].attrs
    if not isinstance(call, CallAttrs):
        return "is the item of something that is not a call"
    index = node.attrs.index
    result = call.results[index] if 0 <= index < len(call.results) else None
    return result if result is not None else f"result {index} of the call is no tensor"


def _bad_attrs(node: Node) -> str | None:
    attrs, shape = node.attrs, node.inputs[0].type.shape if node.inputs else ()
    if isinstance(attrs, SliceAttrs):
        return _bad_slice(attrs, shape)
    if isinstance(attrs, CatAttrs):
        return _bad_cat(attrs, node)
    if isinstance(attrs, WindowAttrs):
        return _bad_window(attrs, shape)
    if isinstance(attrs, GatherAttrs):
        return _bad_gather(attrs, node)
    if isinstance(attrs, FlipAttrs):
        distinct = len(set(attrs.dims)) == len(attrs.dims)
        return None if distinct and _axes(attrs.dims, shape) else f"no axes {attrs.dims}"
    if isinstance(attrs, PadAttrs):
        widths = (*attrs.before, *attrs.after)
        return "a padding is negative" if any(_negative(w) for w in widths) else None
    if isinstance(attrs, ShapeAttrs) and node.op is Op.EXPAND:
        return None if len(attrs.shape) >= len(shape) else "an expansion lowers the rank"
    if isinstance(attrs, CallAttrs):
        return _bad_operands(attrs, len(node.inputs))
    return None


def _bad_slice(attrs: SliceAttrs, shape: tuple[Size, ...]) -> str | None:
    if not _axes((attrs.dim,), shape):
        return f"no axis {attrs.dim}"
    if attrs.step < 1 or _negative(attrs.start) or _negative(attrs.length):
        return "start and length must not be negative, the step at least 1"
    size, last = shape[attrs.dim], attrs.start + (attrs.length - 1) * attrs.step
    if isinstance(size, int) and isinstance(last, int) and attrs.length and last >= size:
        return f"element {last} of an axis of {size}"
    return None


def _bad_window(attrs: WindowAttrs, shape: tuple[Size, ...]) -> str | None:
    if not _axes((attrs.dim,), shape):
        return f"no axis {attrs.dim}"
    if _negative(attrs.count) or attrs.step < 1 or attrs.width < 1 or attrs.dilation < 1:
        return "the count must not be negative, step, width and dilation at least 1"
    size, end = shape[attrs.dim], (attrs.width - 1) * attrs.dilation
    last = (attrs.count - 1) * attrs.step + end
    if isinstance(size, int) and isinstance(last, int) and attrs.count and last >= size:
        return f"element {last} of an axis of {size}"
    return None


def _bad_cat(attrs: CatAttrs, node: Node) -> str | None:
    shapes = [operand.type.shape for operand in node.inputs]
    if not shapes or not all(_axes((attrs.dim,), shape) for shape in shapes):
        return f"an operand has no axis {attrs.dim}"
    others = {shape[: attrs.dim] + shape[attrs.dim + 1 :] for shape in shapes}
    return None if len(others) == 1 else f"operands differ beside axis {attrs.dim}"


def _bad_gather(attrs: GatherAttrs, node: Node) -> str | None:
    source, index = (operand.type for operand in node.inputs)
    if not _axes((attrs.dim,), source.shape) or source.rank != index.rank:
        return f"no axis {attrs.dim} of both operands"
    size = source.shape[attrs.dim]
    empty = size == 0 and not any(each == 0 for each in index.shape)
    return "nothing can be read along an axis of 0" if empty else None


def _bad_operands(attrs: CallAttrs, arity: int) -> str | None:
    words = (*attrs.arguments, *(value for _, value in attrs.keywords))
    used = sorted(set(_operand_indices(words)))
    return None if used == list(range(arity)) else f"the call uses operands {used} of {arity}"


def _operand_indices(argument: Any) -> Iterator[int]:
    if isinstance(argument, Operand):
        yield argument.index
    if isinstance(argument, tuple):
        yield from chain.from_iterable(map(_operand_indices, argument))


def _axes(dims: tuple[int, ...], shape: tuple[Size, ...]) -> bool:
    return all(0 <= dim < len(shape) for dim in dims)


def _negative(size: Size) -> bool:
    return isinstance(size, int) and size < 0


def _leaves(structure: Structure) -> Iterator[int]:
    if isinstance(structure, Leaf):
        yield structure.index
        return
    if not isinstance(structure, Record) and structure[0] not in ("tuple", "list", "dict", "const"):
        raise InvalidGraph(f"the structure has an unknown part {structure[0]!r}")
    yield from chain.from_iterable(map(_leaves, parts_of(structure)))


def _is_given(node: Node) -> bool:
    return node.op in (Op.INPUT, Op.WEIGHT)


def _check_group(group: Group, needed: set[int], written: dict[int, str]) -> None:
    for node in group.tensors:
        if not _is_given(node) and node.serial not in written:
            raise InvalidPlan(f"{group.name} reads {node!r}, which no earlier group writes")
    known = {node.serial for node in group.inputs}
    for node in group.nodes:
        _check_member(group, node, needed, known)
        known.add(node.serial)
    members = {node.serial for node in group.nodes}
    for node in group.outputs:
        if node.serial not in members and node.op is not Op.CONST:
            raise InvalidPlan(f"{group.name} writes {node!r}, which it does not compute")
        if node.serial in written:
            raise InvalidPlan(f"{group.name} and {written[node.serial]} both write {node!r}")


def _check_member(group: Group, node: Node, needed: set[int], known: set[int]) -> None:
    if node.serial not in needed:
        raise InvalidPlan(f"{group.name} computes {node!r}, which the graph does not need")
    for operand in node.inputs:
        if operand.serial not in known and operand.op not in (Op.CONST, Op.IOTA):
            raise InvalidPlan(f"{group.name} computes {node!r} without its operand {operand!r}")


def _check_reuse(plan: Plan) -> None:
    final = {node.serial for node in plan.graph.outputs}
    for position, group in enumerate(plan.groups):
        if group.reuse is None:
            continue
        if not 0 <= group.reuse < len(group.inputs):
            raise InvalidPlan(f"{group.name} reuses input {group.reuse}, which it does not have")
        taken = group.inputs[group.reuse]
        later = chain.from_iterable(g.tensors for g in plan.groups[position + 1 :])
        if _is_given(taken) or taken.serial in final or taken in later:
            raise InvalidPlan(f"{group.name} takes the buffer of {taken!r}, which is still needed")


def _check_facts(variant: Variant) -> None:
    contract = variant.contract
    inputs = {fact.access: fact.type for fact in contract.inputs}
    weights = {fact.path: fact.type for fact in contract.weights}
    weights |= {_path(fact.access): fact.type for fact in contract.assigned if fact.type}
    for nodes, facts in ((variant.graph.inputs, inputs), (variant.graph.weights, weights)):
        for node in nodes:
            access = node.attrs.access
            if facts.get(access if facts is inputs else _path(access), None) != node.type:
                raise InvalidCapture(f"{access} is {node.type} in the graph, else in the contract")


def _path(access: str) -> str:
    """The dotted name of what `self.layers[0].weight` or `self._modules['a b'].weight` reaches."""
    steps = re.sub(r"\.(_modules|_parameters|_buffers)(?=\[)", "", access)
    return re.sub(r"\[['\"]?(.*?)['\"]?\]", r".\1", steps).removeprefix("self.")


def _symbols_of_type(type: TensorType) -> frozenset[str]:
    return frozenset(chain.from_iterable(symbols_of(size) for size in type.shape))
