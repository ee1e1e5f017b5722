"""Small graphs that several test files build on."""

from __future__ import annotations

from opweld.ir.expr import symbol
from opweld.ir.graph import Arena, Graph, Leaf, Node, Origin, Structure
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

BATCH = symbol("s0")


def tensor(arena: Arena, name: str, *shape, dtype: DType = DType.F32) -> Node:
    return arena.source(Op.INPUT, name, name, TensorType(dtype, shape))


def weight(arena: Arena, path: str, *shape, dtype: DType = DType.F32) -> Node:
    return arena.source(Op.WEIGHT, path.replace(".", "_"), path, TensorType(dtype, shape))


def graph(*outputs: Node, structure: Structure | None = None, origins=(), name="small") -> Graph:
    """The graph of these outputs; inputs and weights in the order of their making."""
    nodes = Graph(name, (), (), outputs, Leaf(0)).nodes()
    inputs, weights = (
        tuple(sorted((n for n in nodes if n.op is op), key=lambda n: n.serial))
        for op in (Op.INPUT, Op.WEIGHT)
    )
    if structure is None:
        leaves = tuple(Leaf(position) for position in range(len(outputs)))
        structure = leaves[0] if len(leaves) == 1 else ("tuple", leaves)
    places = tuple((serial, Origin(*place)) for serial, place in origins)
    return Graph(name, inputs, weights, outputs, structure, places)
