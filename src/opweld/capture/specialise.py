"""A graph with numbers for its symbolic sizes, and the text by which two graphs are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from opweld.ir.expr import Expr, Size, substitute
from opweld.ir.graph import Graph, Node, Origin
from opweld.ir.ops import Op

from .build import Builder

Sizes = Mapping[str, Size]


def specialise(graph: Graph, sizes: Sizes) -> Graph:
    """The graph at given sizes, in an arena of its own; views that change nothing vanish."""
    return rebuild(graph, sizes, lambda node: node.inputs)


def rebuild(graph: Graph, sizes: Sizes, operands_of: Callable[[Node], tuple[Node, ...]]) -> Graph:
    """A copy in which each node has the operands that `operands_of` gives it."""
    build = Builder()
    made: dict[int, Node] = {}
    for node in graph.nodes():
        operands = [made[n.serial] for n in operands_of(node)]
        made[node.serial] = _rebuilt(node, operands, build, sizes)
    given, origins = dict(graph.origins), dict[int, Origin]()
    for serial, node in made.items():  # several may have become one
        if serial in given:
            origins.setdefault(node.serial, given[serial])
    return replace(
        graph,
        inputs=tuple(made[n.serial] for n in graph.inputs),
        weights=tuple(made[n.serial] for n in graph.weights),
        outputs=tuple(made[n.serial] for n in graph.outputs),
        structure=_substituted(graph.structure, sizes),
        origins=tuple(sorted(origins.items())),
    )


def _rebuilt(node: Node, operands: list[Node], build: Builder, sizes: Sizes) -> Node:
    attrs = _substituted(node.attrs, sizes)
    type = _substituted(node.type, sizes)
    if node.op in (Op.INPUT, Op.WEIGHT):
        return build.arena.source(node.op, attrs.name, attrs.access, type)
    if node.op is Op.CONST:
        return build.const(attrs.value, type.dtype)
    if node.op is Op.IOTA:
        return build.arena.iota(attrs, type.dtype)
    if node.op is Op.CALL:
        return build.arena.call(tuple(operands), attrs)
    if node.op is Op.ITEM:
        return build.arena.item(operands[0], attrs.index, type)
    return _view(node.op, operands, attrs, build)


def _view(op: Op, operands: list[Node], attrs: Any, build: Builder) -> Node:
    if op is Op.RESHAPE:
        return build.reshape(operands[0], attrs.shape)
    if op is Op.EXPAND:
        return build.expand(operands[0], attrs.shape)
    if op is Op.SLICE:
        return build.slice(operands[0], attrs.dim, attrs.start, attrs.length, attrs.step)
    if op is Op.PAD:
        return build.pad(operands[0], attrs.before, attrs.after, attrs.value)
    return build.op(op, *operands, attrs=attrs)


def _substituted(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, Expr):
        return substitute(value, sizes)
    if isinstance(value, tuple):
        return tuple(_substituted(v, sizes) for v in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {f.name: _substituted(getattr(value, f.name), sizes) for f in fields(value)}
    return replace(value, **changed)


def canonical(graph: Graph) -> str:
    """Everything that a graph computes, as text: equal texts are equal computations."""
    order = graph.nodes()
    number = {node.serial: position for position, node in enumerate(order)}
    lines = [_line(node, number) for node in order]
    ends = [number[node.serial] for node in graph.outputs]
    changes = f"{graph.tracked!r} {graph.updates!r}"
    return "\n".join((*lines, f"return {ends} {graph.structure!r} {changes}"))


def _line(node: Node, number: dict[int, int]) -> str:
    operands = [number[n.serial] for n in node.inputs]
    return f"{number[node.serial]} {node.op.value} {operands} {node.attrs!r} {node.type}"
