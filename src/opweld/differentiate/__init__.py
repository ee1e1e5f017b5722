"""A fused group -> the gradients of its operands, as a graph for the stages behind.

One sweep from the results to the operands. What the formulas read of the forward is there already
(the operands and results of the group), is kept by the forward (a matrix product, which costs as
much as a gradient), or is computed again from these, inside the kernels that need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..ir.copying import made_alike
from ..ir.graph import Arena, Graph, Leaf, Node, Origin, reached
from ..ir.operator import Operator, only_tracked
from ..ir.ops import Op
from ..ir.original import Vjp
from ..ir.plan import Group, GroupKind
from . import convolutions, deviations, pointwise, products, shapes, softmax, windows
from .maker import Maker


def differentiate(graph: Graph, group: Group, operator: Operator) -> Vjp | None:
    """The gradients of the operands of `group`, as it is compiled, by the names that `operator`
    has; None where some operation on the way has no row, or all are zero everywhere.
    Attention keeps the gradients of PyTorch: a kernel of it leaves none of its products.
    """
    if any(argument.listed is not None for argument in operator.arguments):
        return None
    if group.kind is GroupKind.ATTENTION:
        return None
    silent = only_tracked(graph, group)
    names = [argument.name for argument in operator.arguments]
    forward = _apart(group, names, dict(graph.origins))
    differentiated = tuple(
        place
        for place, node in enumerate(group.outputs)
        if node.serial not in silent and node.type.dtype.is_float
    )
    results = tuple(forward.results[place] for place in differentiated)
    sweep = _Sweep(forward)
    gradients = sweep.run(results)
    if gradients is None:
        return None
    places = tuple(sorted({at for place in differentiated for at in operator.reached[place]}))
    if not gradients or not gradients.keys() <= {*places}:
        return None
    outputs = tuple(gradients.get(place) or _zero(forward, place) for place in places)
    made, kept = _cut(forward, sweep, outputs)
    return Vjp(made, differentiated, places, kept)


def _zero(forward: _Forward, place: int) -> Node:
    """The gradient of an operand that nothing reaches."""
    m, kind = Maker(forward.arena), forward.operands[place].type
    return m.expanded(forward.arena.const(0.0, kind.dtype), kind.shape)


@dataclass(frozen=True, slots=True)
class _Forward:
    """A group in an arena of its own: `operands` are inputs there; `original` has the group's node
    by the serial of its copy.
    """

    arena: Arena
    operands: tuple[Node, ...]
    results: tuple[Node, ...]
    origins: dict[int, Origin]
    original: dict[int, Node]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return reached(self.results, {node.serial for node in self.operands})


def _apart(group: Group, names: list[str], origins: dict[int, Origin]) -> _Forward:
    arena = Arena()
    made: dict[int, Node] = {}
    for node, name in zip(group.inputs, names, strict=True):
        made[node.serial] = arena.source(Op.INPUT, name, name, node.type)
    operands = tuple(made.values())
    inside = reached(group.outputs, made)
    for node in inside:
        inputs = tuple(made[each.serial] for each in node.inputs)
        made[node.serial] = made_alike(arena, node, inputs)
    by_copy = {made[node.serial].serial: node for node in (*group.inputs, *inside)}
    known = {made[s].serial: origins[s] for s in made if s in origins}
    results = tuple(made[node.serial] for node in group.outputs)
    return _Forward(arena, operands, results, known, by_copy)


@dataclass(slots=True)
class _Sweep:
    """Goes from the results to the operands. `of_results` are the gradients that come in, `parts`
    has what the gradient of each value is the sum of, `origins` the user's lines of new nodes.
    """

    forward: _Forward
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


def _cut(
    forward: _Forward, sweep: _Sweep, outputs: tuple[Node, ...]
) -> tuple[Graph, tuple[Node, ...]]:
    """The graph of the gradients, which begins at what the forward leaves, and the latter."""
    results = {node.serial for node in forward.results}
    given = {node.serial: node for node in (*sweep.of_results, *forward.operands)}
    lasting = {
        node.serial: node for node in forward.nodes if node.serial in results or node.op is Op.CALL
    }
    read = reached(outputs, {**given, **lasting})
    operands = {each.serial for node in read for each in node.inputs}
    kept = [node for serial, node in lasting.items() if serial in operands]
    names = _names([node.attrs.name for node in given.values()], kept)
    sources = [
        forward.arena.source(Op.INPUT, name, name, node.type)
        for name, node in zip(names, kept, strict=True)
    ]
    copies = {**given, **dict(zip((node.serial for node in kept), sources, strict=True))}
    for node in read:
        copies[node.serial] = _on(forward.arena, node, copies)
    made = tuple(copies[node.serial] for node in outputs)
    structure = ("tuple", tuple(Leaf(place) for place in range(len(made))))
    lines = {**forward.origins, **sweep.origins}
    told = {copies[serial].serial: line for serial, line in lines.items() if serial in copies}
    graph = Graph("backward", (*given.values(), *sources), (), made, structure)
    serials = sorted(node.serial for node in graph.nodes() if node.serial in told)
    origins = tuple((serial, told[serial]) for serial in serials)
    kept_originals = tuple(forward.original[node.serial] for node in kept)
    return replace(graph, origins=origins), kept_originals


def _on(arena: Arena, node: Node, copies: Mapping[int, Node]) -> Node:
    """A node on the copies of its operands."""
    inputs = tuple(copies[each.serial] for each in node.inputs)
    return node if inputs == node.inputs else made_alike(arena, node, inputs)


def _names(taken: list[str], nodes: Iterable[Node]) -> list[str]:
    """A name for each of the values that the forward leaves."""
    names: list[str] = []
    for node in nodes:
        wish = name = node.attrs.target.split(".")[1] if node.op is Op.CALL else "result"
        number = 2
        while name in (*taken, *names):
            name, number = f"{wish}_{number}", number + 1
        names.append(name)
    return names
