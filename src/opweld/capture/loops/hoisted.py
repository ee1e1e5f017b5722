"""What turns compute of their parts alone, for all turns at once and before the loop.

A linear layer of each step's input is one product of all of them: x_t W^T is part t of x W^T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from opweld.ir.copying import Copier
from opweld.ir.graph import Arena, Graph, Node, Origin, arena_of
from opweld.ir.loop import Loop, Parts
from opweld.ir.ops import Op
from opweld.ir.types import TensorType

_LINEAR = "aten.linear.default"


@dataclass(frozen=True, slots=True)
class Hoisted:
    """A loop and its operands; `origins` are those of what was moved before it."""

    loop: Loop
    operands: tuple[Node, ...]
    origins: Mapping[int, Origin]


def hoisted(arena: Arena, loop: Loop, operands: tuple[Node, ...]) -> Hoisted:
    """The loop without the linear layers that read nothing but parts of one tensor."""
    body = loop.body
    sources = (*body.inputs, *body.weights)
    given = {node.serial: operand for node, operand in zip(sources, operands, strict=True)}
    parts = {
        node.serial: part
        for node, part in zip(body.inputs[loop.carried :], loop.parts, strict=False)
    }
    carried = {node.serial for node in body.inputs[: loop.carried]}
    moved = [
        node for node in body.nodes() if _is_of_parts(node, parts, given.keys() - carried, given)
    ]
    if not moved:
        return Hoisted(loop, operands, {})
    inner = arena_of(body)
    instead = {
        node.serial: inner.source(Op.INPUT, f"moved{n}", f"moved{n}", node.type)
        for n, node in enumerate(moved)
    }
    origins = dict(body.origins)
    new = Copier(inner, lambda node, _: instead.get(node.serial), dict(origins)).copied(body)
    whole = {node.serial: _of_all(arena, node, given) for node in moved}
    found = _with_inputs(loop, new, [(instead[n.serial], parts[n.inputs[0].serial]) for n in moved])
    known = given | {instead[node.serial].serial: whole[node.serial] for node in moved}
    taken = tuple(known[n.serial] for n in (*found.body.inputs, *found.body.weights))
    places = {whole[n.serial].serial: origins[n.serial] for n in moved if n.serial in origins}
    return Hoisted(found, taken, places)


def _is_of_parts(
    node: Node, parts: Mapping[int, Parts], fixed: set[int], given: Mapping[int, Node]
) -> bool:
    if node.op is not Op.CALL or node.attrs.target != _LINEAR:
        return False
    x, *weights = node.inputs
    part = parts.get(x.serial)
    if part is None or part.length or abs(part.step) != 1:
        return False
    features_stay = part.axis < given[x.serial].type.rank - 1
    same = all(each.serial in fixed and each.serial not in parts for each in weights)
    return features_stay and same


def _of_all(arena: Arena, node: Node, given: Mapping[int, Node]) -> Node:
    """The layer of the tensor that the parts are of."""
    operands = tuple(given[operand.serial] for operand in node.inputs)
    shape = (*operands[0].type.shape[:-1], node.type.shape[-1])
    return arena.call(operands, replace(node.attrs, results=(TensorType(node.type.dtype, shape),)))


def _with_inputs(loop: Loop, body: Graph, moved: list[tuple[Node, Parts]]) -> Loop:
    """The loop with the inputs that its body still reads, and those of what was moved."""
    read = {operand.serial for node in body.nodes() for operand in node.inputs}
    read |= {node.serial for node in body.outputs}
    count = loop.carried + len(loop.parts)
    pairs = zip(loop.body.inputs[loop.carried : count], loop.parts, strict=True)
    parts = [*((node, part) for node, part in pairs if node.serial in read), *moved]
    fixed = [node for node in loop.body.inputs[count:] if node.serial in read]
    inputs = (*loop.body.inputs[: loop.carried], *(node for node, _ in parts), *fixed)
    weights = tuple(node for node in loop.body.weights if node.serial in read)
    return replace(
        loop,
        body=replace(body, inputs=inputs, weights=weights),
        parts=tuple(part for _, part in parts),
    )
