"""At which places of the iteration space each value of a kernel is evaluated.

A value that is read directly is evaluated where its reader is; one that is read through views and
broadcasts is evaluated at places of its own, once for each different way that leads to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ir.expr import Size
from ..ir.graph import Node
from ..ir.ops import Kind, Op
from ..ir.views import is_free_view
from .uses import computes

Way = tuple[Any, ...]
"""The steps from the iteration space to a value; () is the element itself."""

HERE: Way = ()

# A reshape that mixes axes writes every coordinate in terms of all of them: addresses grow by as
# much as there are axes at each one, and their arithmetic soon costs more than the memory traffic
# saved.
MAX_RESHAPES = 4


def places_of(
    nodes: Sequence[Node], results: Iterable[Node], most: int | None = None
) -> dict[int, frozenset[Way]] | None:
    """The ways to each value that a kernel of `nodes`, in topological order, evaluates or loads.

    `results` are the nodes that it stores; operands are those behind free views. With `most`, None
    if the nodes are evaluated at more than so many places together (a chain of overlapping slices
    or of concatenations can double them at every step), or through more than MAX_RESHAPES reshapes.
    """
    ways: dict[int, set[Way]] = {node.serial: {HERE} for node in results}
    evaluated = 0
    for node in reversed([node for node in nodes if computes(node)]):
        here = ways.setdefault(node.serial, {HERE})
        evaluated += len(here)
        if most is not None and evaluated > most:
            return None
        for index, operand in enumerate(node.inputs):
            source, steps = _steps(node, index, operand)
            found = ways.setdefault(source.serial, set())
            found.update((*way, *steps) for way in here) if steps else found.update(here)
            if most is not None and steps and max(map(_num_reshapes, found)) > MAX_RESHAPES:
                return None
    return {serial: frozenset(found) for serial, found in ways.items()}


def _steps(node: Node, index: int, operand: Node) -> tuple[Node, Way]:
    """The node whose memory an operand shows, and what happens to coordinates on the way to it."""
    steps: list[Any] = []
    if node.kind is not Kind.POINTWISE:
        steps.append((node.op, node.attrs, _which(node, index), node.type.shape))
    elif operand.type.shape != node.type.shape:
        steps.append(operand.type.shape)
    while is_free_view(operand):
        steps.append((operand.op, operand.attrs, operand.inputs[0].type.shape))
        operand = operand.inputs[0]
    return operand, tuple(steps)


def _which(node: Node, index: int) -> Any:
    """What tells ways to one value apart: the operand of a CAT, the index of a GATHER."""
    if node.op is Op.GATHER:
        return index, node.inputs[1].serial
    return index if node.op is Op.CAT else 0


def keeps_order(step: Any) -> bool:
    """Whether a step of a way broadcasts, adds or drops axes, and leaves others in their order."""
    if not step or not isinstance(step[0], Op):
        return True
    op, attrs, shape = step[:3]
    if op is Op.PERMUTE:
        wide = [axis for axis in attrs.dims if shape[axis] != 1]
        return wide == sorted(wide)
    return op in (Op.EXPAND, Op.RESHAPE) and not _mixes(op, attrs, shape)


def _num_reshapes(way: Way) -> int:
    return sum(isinstance(step[0], Op) and _mixes(*step[:3]) for step in way if step)


def _mixes(op: Op, attrs: Any, shape: tuple[Size, ...]) -> bool:
    """Whether a view is a reshape that does more than add or drop axes of size 1."""
    if op is not Op.RESHAPE:
        return False
    return [size for size in attrs.shape if size != 1] != [size for size in shape if size != 1]
