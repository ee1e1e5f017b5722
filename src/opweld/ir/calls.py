"""The calls of the user's modules in which nodes of a graph ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .contract import Submodule
from .graph import ModuleCall, Node, Origin
from .ops import Kind
from .plan import Group, Plan

Chain = tuple[ModuleCall, ...]
"""Calls, each in the one before."""


def place_of(nodes: Iterable[Node], origins: Mapping[int, Origin]) -> tuple[Chain | None, Chain]:
    """The calls that all the nodes ran in, and those that only some did.

    Constants do not count: equal ones of several calls are one node. Nor do views beside what is
    computed: a kernel reads through those that were made elsewhere.
    """
    placed = [node for node in nodes if node.inputs and node.serial in origins]
    placed = [node for node in placed if node.kind is not Kind.VIEW] or placed
    chains = [
        tuple(call for call in origins[node.serial].calls if not _is_torchs(call))
        for node in placed
    ]
    if not chains:
        return None, ()
    shared = chains[0]
    for chain in chains[1:]:
        shared = common(shared, chain)
    some = {call.key: call for chain in chains for call in chain[len(shared) :]}
    return shared, tuple(some.values())


def _is_torchs(call: ModuleCall) -> bool:
    return call.type_name.startswith("torch.")


def common(one: Chain, other: Chain) -> Chain:
    length = 0
    while length < min(len(one), len(other)) and one[length].key == other[length].key:
        length += 1
    return one[:length]


def condensing_lines(group: Group, plan: Plan) -> tuple[str, ...]:
    """The user's lines whose calls became the reductions or the scans of a group."""
    places = dict(plan.graph.origins)
    reduced = (n for n in group.nodes if n.kind in (Kind.REDUCTION, Kind.SCAN))
    found = (places[node.serial].place for node in reduced if node.serial in places)
    return tuple(dict.fromkeys(found)) if group.fused else ()


def places_of(group: Group, plan: Plan) -> tuple[str, ...]:
    """The user's lines behind a group, as they stand in their files."""
    origins = dict(plan.graph.origins)
    found = {origins[n.serial].place for n in group.nodes if n.inputs and n.serial in origins}
    parted = sorted((file, int(line)) for file, _, line in (each.rpartition(":") for each in found))
    return tuple(f"{file}:{line}" for file, line in parted)


def module_of(group: Group, plan: Plan, submodule: Submodule | None) -> str:
    """The path of the innermost submodule in which all of a group runs; "" is the model."""
    chain, _ = place_of(group.nodes, dict(plan.graph.origins))
    below = [chain[-1].path] if chain else []
    return ".".join([*([submodule.paths[0]] if submodule else []), *below])
