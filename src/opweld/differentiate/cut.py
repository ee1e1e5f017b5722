"""The graph of the gradients, cut where what the forward keeps begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..ir.copying import made_alike
from ..ir.graph import Arena, Graph, Leaf, Node, Origin, reached
from ..ir.ops import Op
from .forward import Forward


def cut(
    forward: Forward,
    gradients: Sequence[Node],
    outputs: tuple[Node, ...],
    kept: tuple[Node, ...],
    lines: Mapping[int, Origin],
) -> Graph:
    """The graph of the gradients `outputs` of operands, whose inputs are those of results, the
    operands, and the values `kept`; `lines` are of the user's, by the serials of nodes.
    """
    given = {node.serial: node for node in (*gradients, *forward.operands)}
    names = _names([node.attrs.name for node in given.values()], kept, forward)
    sources = [
        forward.arena.source(Op.INPUT, name, name, node.type)
        for name, node in zip(names, kept, strict=True)
    ]
    copies = {**given, **dict(zip((node.serial for node in kept), sources, strict=True))}
    for node in reached(outputs, copies):
        copies[node.serial] = _on(forward.arena, node, copies)
    made = tuple(copies[node.serial] for node in outputs)
    structure = ("tuple", tuple(Leaf(place) for place in range(len(made))))
    told = {copies[serial].serial: line for serial, line in lines.items() if serial in copies}
    graph = Graph("backward", (*given.values(), *sources), (), made, structure)
    serials = sorted(node.serial for node in graph.nodes() if node.serial in told)
    return replace(graph, origins=tuple((serial, told[serial]) for serial in serials))


def _on(arena: Arena, node: Node, copies: Mapping[int, Node]) -> Node:
    """A node on the copies of its operands."""
    inputs = tuple(copies[each.serial] for each in node.inputs)
    return node if inputs == node.inputs else made_alike(arena, node, inputs)


def _names(taken: list[str], nodes: Iterable[Node], forward: Forward) -> list[str]:
    """A name for each of the values that the forward leaves."""
    names: list[str] = []
    for node in nodes:
        wish = name = _name(node, forward)
        number = 2
        while name in (*taken, *names):
            name, number = f"{wish}_{number}", number + 1
        names.append(name)
    return names


def _name(node: Node, forward: Forward) -> str:
    if node in forward.results:
        return "result"
    return str(node.attrs.target.split(".")[1]) if node.op is Op.CALL else node.op.value
