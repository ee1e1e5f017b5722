"""Only what the outputs need: where little of a value is read, no more of it is computed.

From the outputs back, each value is asked for the region that its readers together need; then each
is computed of the regions of its operands, and views are taken of what is there. So one token of
the last layer's result is one token of its products, its norms and its residual, up to what other
tokens are needed for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...ir.expr import product
from ...ir.graph import Arena, Graph, Node, Origin
from ...ir.ops import Kind, Op
from ...ir.rules.rewrite import Effect, Numerics, Rewritten, Simplified
from ..names import name_of
from .calls import call_demand, call_in_part, flops_of
from .demands import Demand, demand_of
from .regions import Region, hull, part_of, shape_of, text_of, whole, worthwhile

NAME = "needed-outputs"
TEXT = (
    f"{NAME}: slice[q](f(x...)) -> f(slices of x...) if nothing else of f(x...) is read, at most"
    " half of it is, and a reduction, a scan, a product or attention is behind it, for f that are"
    " pointwise, reductions or scans along other axes, views, products, attention  [reorder]"
)
_HEAVY = (Kind.REDUCTION, Kind.SCAN, Kind.OPAQUE)


def only_needed(graph: Graph, arena: Arena) -> Simplified:
    """`graph` without what no output needs of its reductions, scans and calls."""
    wanted = _wanted(graph)
    nodes = sorted(graph.nodes(), key=lambda node: node.serial)
    in_part = [n for n in nodes if n.kind in _HEAVY and wanted[n.serial] != whole(n.type.shape)]
    if not in_part:
        return Simplified(graph, ())
    rebuilding = _Rebuilding(arena, wanted)
    for node in nodes:
        rebuilding.add(node)
    places = dict(graph.origins)
    outputs = tuple(rebuilding.made[node.serial] for node in graph.outputs)
    origins = rebuilding.origins(nodes, places)
    result = replace(graph, outputs=outputs, origins=())
    kept = tuple((n.serial, origins[n.serial]) for n in _sorted(result) if n.serial in origins)
    rewritten = tuple(
        _effect(n, wanted[n.serial], places) for n in in_part if n.kind is Kind.OPAQUE
    )
    fired = ((NAME, Numerics.REORDER, len(in_part)),)
    return Simplified(replace(result, origins=kept), fired, rewritten)


def _sorted(graph: Graph) -> list[Node]:
    return sorted(graph.nodes(), key=lambda node: node.serial)


def _demand(node: Node) -> Demand | None:
    return call_demand(node) if node.op is Op.CALL else demand_of(node)


def _wanted(graph: Graph) -> dict[int, Region]:
    """By serial the region of each value that is computed."""
    asked: dict[int, Region] = {n.serial: whole(n.type.shape) for n in graph.outputs}
    found: dict[int, Region] = {}
    for node in reversed(_sorted(graph)):
        all_of_it = whole(node.type.shape)
        demand = _demand(node) if node.inputs else None
        if demand is None or _has_nothing(node):
            found[node.serial] = all_of_it
            needed = tuple(whole(operand.type.shape) for operand in node.inputs)
        else:
            region = worthwhile(asked.get(node.serial, all_of_it), node.type.shape)
            found[node.serial] = region = demand.widened(node, region)
            needed = demand.needs(node, region)
        for operand, region in zip(node.inputs, needed, strict=True):
            before = asked.get(operand.serial, region)
            asked[operand.serial] = hull(before, region, operand.type.shape)
    return found


def _has_nothing(node: Node) -> bool:
    """Whether it is empty, or of an empty operand: there is no first element."""
    return any(size == 0 for n in (node, *node.inputs) for size in n.type.shape)


@dataclass(slots=True)
class _Rebuilding:
    """`made` has each node's region of `wanted`. Calls keep their order, by serial."""

    arena: Arena
    wanted: dict[int, Region]
    made: dict[int, Node] = field(default_factory=dict)
    called_anew: bool = False

    def add(self, node: Node) -> None:
        if not node.inputs and node.op is not Op.CALL:
            self.made[node.serial] = node
            return
        own, demand = self.wanted[node.serial], _demand(node)
        if demand is None:
            regions = tuple(whole(operand.type.shape) for operand in node.inputs)
        else:
            regions = demand.needs(node, own)
        pairs = zip(node.inputs, regions, strict=True)
        operands = tuple(self._part(operand, region) for operand, region in pairs)
        self.made[node.serial] = self._computed(node, operands, own, demand)

    def _part(self, node: Node, region: Region) -> Node:
        return part_of(self.made[node.serial], self.wanted[node.serial], region, self.arena)

    def _computed(
        self, node: Node, operands: tuple[Node, ...], own: Region, demand: Demand | None
    ) -> Node:
        if node.op is Op.CALL:
            return self._called(node, operands, own)
        if operands == node.inputs and own == whole(node.type.shape):
            return node
        if node.op is Op.ITEM:
            return self.arena.item(operands[0], node.attrs.index, node.type)
        assert demand is not None, f"{node!r} has a row"
        return self.arena.make(node.op, *operands, attrs=demand.attrs(node, own))

    def _called(self, node: Node, operands: tuple[Node, ...], own: Region) -> Node:
        if operands == node.inputs and not self.called_anew:
            return node
        self.called_anew = True
        if own == whole(node.type.shape):
            return self.arena.call(operands, node.attrs)
        return call_in_part(node, operands, own, self.arena)

    def origins(self, nodes: list[Node], places: dict[int, Origin]) -> dict[int, Origin]:
        """Of the nodes that were made; a slice of an operand has the place of its first reader."""
        found = dict(places)
        for node in nodes:
            waiting = [self.made[node.serial]] if node.serial in places else []
            while waiting:
                new = waiting.pop()
                if new.serial not in found and new.inputs:
                    found[new.serial] = places[node.serial]
                    waiting += new.inputs
        return found


def _effect(node: Node, region: Region, places: dict[int, Origin]) -> Rewritten:
    shape, part = node.type.shape, shape_of(region)
    place = places.get(node.serial)
    text = name_of(node, 1)
    saved = (product(shape) - product(part)) * node.type.dtype.itemsize_bytes
    effect = Effect(
        text,
        f"{text}{text_of(region, shape)}, of which no more is read",
        flops_of(node, shape),
        flops_of(node, part),
        saved,
    )
    return Rewritten(NAME, Numerics.REORDER, place.place if place else "", effect)
