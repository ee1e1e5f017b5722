"""A fused group -> the gradients of its operands, as a graph for the stages behind.

One sweep from the results to the operands. What the formulas read of the forward is there already
(the operands and results of the group), is kept by the forward (see kept.py), or is computed again
from these, inside the kernels that need it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from ..ir.graph import Graph, Leaf, Node, Origin, arena_of
from ..ir.operator import Operator, only_tracked
from ..ir.ops import Op
from ..ir.original import Vjp
from ..ir.plan import Group, GroupKind, Sizes
from . import convolutions, deviations, pointwise, products, shapes, softmax, windows
from .cut import cut
from .forward import Forward, apart
from .kept import kept_values
from .maker import Maker


def differentiate(
    graph: Graph,
    group: Group,
    operator: Operator,
    sizes: Sizes = (),
    again: bool = False,
    staying: Container[int] = (),
) -> Vjp | None:
    """The gradients of the operands of `group`, as it is compiled, by the names that `operator`
    has; None where some operation on the way has no row, or all are zero everywhere.

    `sizes` are examples of symbolic sizes. With `again`, products are computed again, too, and
    nothing is kept but operands and the results whose places are `staying`, which somebody else
    keeps. So they are of attention, as a kernel of it leaves none of its products.
    """
    if any(argument.listed is not None for argument in operator.arguments):
        return None
    again = again or group.kind is GroupKind.ATTENTION
    silent = only_tracked(graph, group)
    names = [argument.name for argument in operator.arguments]
    forward = apart(group, names, dict(graph.origins))
    differentiated = tuple(
        place
        for place, node in enumerate(group.outputs)
        if node.serial not in silent and node.type.dtype.is_float
    )
    sweep = _Sweep(forward)
    gradients = sweep.run(tuple(forward.results[place] for place in differentiated))
    if gradients is None:
        return None
    places = tuple(sorted({at for place in differentiated for at in operator.reached[place]}))
    if not gradients or not gradients.keys() <= {*places}:
        return None
    outputs = tuple(gradients.get(place) or _zero(forward, place) for place in places)
    kept = kept_values(forward, sweep.of_results, outputs, sizes, not again, staying)
    lines = {**forward.origins, **sweep.origins}
    made = cut(forward, sweep.of_results, outputs, kept, lines)
    arena = arena_of(graph, Graph(group.name, (), (), group.outputs, Leaf(0)))
    originals = forward.originals(kept, arena)
    return Vjp(made, differentiated, places, originals)


def _zero(forward: Forward, place: int) -> Node:
    """The gradient of an operand that nothing reaches."""
    m, kind = Maker(forward.arena), forward.operands[place].type
    return m.expanded(forward.arena.const(0.0, kind.dtype), kind.shape)


@dataclass(slots=True)
class _Sweep:
    """Goes from the results to the operands. `of_results` are the gradients that come in, `parts`
    has what the gradient of each value is the sum of, `origins` the user's lines of new nodes.
    """

    forward: Forward
    of_results: list[Node] = field(default_factory=list)
    parts: dict[int, list[Node]] = field(default_factory=dict)
    origins: dict[int, Origin] = field(default_factory=dict)

    def run(self, results: tuple[Node, ...]) -> dict[int, Node] | None:
        """The gradients of the operands by their places; None where a row is missing."""
        arena, nodes = self.forward.arena, self.forward.nodes
        m = Maker(arena)
        for place, node in enumerate(results):
            name = f"grad_{place}" if len(results) > 1 else "grad"
            gradient = arena.source(Op.INPUT, name, name, node.type)
            self.of_results.append(gradient)
            self._give(node, gradient)
        towards = self._towards_operands(nodes)
        for node in reversed(nodes):
            if node.serial not in towards or node.serial not in self.parts:
                continue
            first = arena.next_serial
            given = _passed_on(m, node, self._total(m, node))
            if given is None:
                return None
            for operand, part in given:
                if operand.serial in towards:
                    self._give(operand, m.summed_to(part, operand.type.shape))
            self._note(node, first, arena.next_serial)
        return {
            place: self._total(m, node)
            for place, node in enumerate(self.forward.operands)
            if node.serial in self.parts
        }

    def _give(self, node: Node, part: Node) -> None:
        self.parts.setdefault(node.serial, []).append(part)

    def _total(self, m: Maker, node: Node) -> Node:
        first, *others = self.parts[node.serial]
        for each in others:
            first = m.add(first, each)
        return first

    def _towards_operands(self, nodes: Iterable[Node]) -> frozenset[int]:
        """The floating values that an operand is behind."""
        found = {n.serial for n in self.forward.operands if n.type.dtype.is_float}
        for node in nodes:
            if node.type.dtype.is_float and any(each.serial in found for each in node.inputs):
                found.add(node.serial)
        return frozenset(found)

    def _note(self, node: Node, first: int, end: int) -> None:
        origin = self.forward.origins.get(node.serial)
        if origin is not None:
            told = origin._replace(line=f"d({origin.line.strip()})")
            self.origins.update(dict.fromkeys(range(first, end), told))


def _passed_on(m: Maker, node: Node, g: Node) -> list[tuple[Node, Node]] | None:
    """What reaches the operands of a node, or of what it is the last step of."""
    steps = (softmax.passed_on, deviations.passed_on, windows.passed_on)
    known = next((found for step in steps if (found := step(m, node, g))), None)
    if known is not None:
        return [known]
    if node.op is Op.CALL:
        parts = convolutions.parts_of(m, node, g) or products.parts_of(m, node, g)
    elif node.op in shapes.ROWS:
        parts = shapes.ROWS[node.op](m, node, g)
    else:
        parts = pointwise.parts_of(m, node, g)
    if parts is None:
        return None
    pairs = zip(node.inputs, parts, strict=True)
    return [(operand, part) for operand, part in pairs if part is not None]
