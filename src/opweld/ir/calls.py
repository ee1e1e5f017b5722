"""The calls of the user's modules in which nodes of a graph ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .graph import ModuleCall, Node, Origin
from .ops import Kind

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
