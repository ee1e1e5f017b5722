"""Kernels that several variants of a file have in common: later ones take those of the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from .graph import Graph
from .kernel import RowBlocks
from .operator import Operator, only_tracked, operator_of, operators_of
from .original import Part
from .plan import Group
from .reduction import Lowered

Kept = tuple[Group, Lowered]


def sharing(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts, with the names and the kernels of equal groups in earlier ones.

    Two groups of one part stay two: an operator keeps the forms of few weights.
    """
    known: dict[str, list[Kept]] = {}
    return tuple(_shared(part, known) for part in parts)


def kernels_of(parts: Iterable[Part]) -> tuple[Lowered, ...]:
    """The kernels of a file, each once."""
    return tuple({lowered.group: lowered for part in parts for lowered in part.kernels}.values())


def welds_of(parts: Iterable[Part]) -> list[tuple[Graph, Group, Lowered, Operator]]:
    """The operators of a file with their graphs, groups and kernels, each once."""
    found: dict[str, tuple[Graph, Group, Lowered, Operator]] = {}
    for part in parts:
        for weld in operators_of(part.plan.groups, part.kernels):
            found.setdefault(weld[2].name, (part.plan.graph, *weld))
    return list(found.values())


def _shared(part: Part, known: dict[str, list[Kept]]) -> Part:
    kernels = iter(part.kernels)
    num_taken: Counter[str] = Counter()
    groups: list[Group] = []
    lowereds: list[Lowered] = []
    for group in part.plan.groups:
        if group.welded:
            lowered = next(kernels)
            key = _key(group, lowered, only_tracked(part.plan.graph, group))
            alike = known.setdefault(key, [])
            if num_taken[key] == len(alike):
                alike.append((group, lowered))
            first, lowered = alike[num_taken[key]]
            num_taken[key] += 1
            group = _named_as(group, first)
            lowereds.append(lowered)
        groups.append(group)
    plan = replace(part.plan, groups=tuple(groups))
    return replace(part, plan=plan, kernels=tuple(lowereds))


def _key(group: Group, lowered: Lowered, silent: frozenset[int]) -> str:
    """All that a group's texts are made from but for its name: 0.0 and -0.0 differ in it.

    No gradient comes from the results that are `silent`.
    """
    tracked = [node.serial in silent for node in group.outputs]
    made: list[object] = [group.schedule, lowered, operator_of(group, lowered), tracked]
    names = [group.name]
    if group.tail is not None and isinstance(lowered, RowBlocks):
        made.append(operator_of(group.tail, lowered.tail))
        names.append(group.tail.name)
    text = repr(made)
    for position, name in enumerate(names):
        text = text.replace(name, f"<{position}>")
    return text


def _named_as(group: Group, first: Group) -> Group:
    if group.tail is None or first.tail is None:
        return replace(group, name=first.name)
    return replace(group, name=first.name, tail=replace(group.tail, name=first.tail.name))
