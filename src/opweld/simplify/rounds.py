"""Rules that make a graph simple, and those that change what is computed, in turns."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Arena, Graph
from ..ir.rules.costs import NO_COSTS, Costs
from ..ir.rules.rewrite import (
    Fired,
    Rule,
    RulesDoNotEnd,
    Simplified,
    not_rewritten,
    readers_of,
    rewrite,
)
from .needed_outputs.only_needed import only_needed

MOST_ROUNDS = 100
"""Of rules that change what is computed, each of which may make room for others."""


def in_rounds(
    graph: Graph,
    simple: tuple[Rule, ...],
    phases: tuple[tuple[Rule, ...], ...],
    arena: Arena,
    needed: bool = False,
    costs: Costs = NO_COSTS,
) -> Simplified:
    """`graph` rewritten by rules that make it `simple`, and by the first of the `phases` of which
    one fits, until none does; what is `needed` alone is computed, if it is to be so. Between forms
    that mean the same `costs` decide. Raises RulesDoNotEnd.
    """
    result = rewrite(graph, simple, arena)
    for _ in range(MOST_ROUNDS):
        part = only_needed(result.graph, arena) if needed else Simplified(result.graph, ())
        changed = _changed(part.graph, phases, arena, costs)
        if not changed.fired and not part.fired:
            rules = tuple(rule for phase in phases for rule in phase)
            return replace(result, left=not_rewritten(result.graph, rules, arena, costs))
        again = rewrite(changed.graph, simple, arena)
        fired = _joined(result.fired, part.fired, changed.fired, again.fired)
        rewritten = result.rewritten + part.rewritten + changed.rewritten
        result = Simplified(again.graph, fired, rewritten)
    names = ", ".join(name for name, _, _ in result.fired)
    raise RulesDoNotEnd(f"rules make room for one another: {names}")


def _changed(
    graph: Graph, phases: tuple[tuple[Rule, ...], ...], arena: Arena, costs: Costs
) -> Simplified:
    """What the first phase of which a rule fits makes of a graph."""
    readers = readers_of(graph)
    for rules in phases:
        changed = rewrite(graph, rules, arena, readers=readers, costs=costs)
        if changed.fired:
            return changed
    return Simplified(graph, ())


def _joined(*rounds: Fired) -> Fired:
    """Rules that acted in some round, in the order of their first time."""
    numerics = {name: promise for fired in rounds for name, promise, _ in fired}
    counts = dict.fromkeys(numerics, 0)
    for fired in rounds:
        for name, _, count in fired:
            counts[name] += count
    return tuple((name, numerics[name], count) for name, count in counts.items())
