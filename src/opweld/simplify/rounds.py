"""Rules that make a graph simple, and those that change what is computed, in turns."""

from __future__ import annotations

from ..ir.graph import Arena, Graph
from ..ir.rules.rewrite import Fired, Rule, RulesDoNotEnd, Simplified, readers_of, rewrite
from .needed_outputs.only_needed import only_needed

MOST_ROUNDS = 100
"""Of rules that change what is computed, each of which may make room for others."""


def in_rounds(
    graph: Graph,
    simple: tuple[Rule, ...],
    linear: tuple[Rule, ...],
    arena: Arena,
    needed: bool = False,
) -> Simplified:
    """`graph` rewritten by both until none fits; what is `needed` alone is computed, if it is to be
    so. Raises RulesDoNotEnd.
    """
    result = rewrite(graph, simple, arena)
    for _ in range(MOST_ROUNDS):
        part = only_needed(result.graph, arena) if needed else Simplified(result.graph, ())
        changed = rewrite(part.graph, linear, arena, readers=readers_of(part.graph))
        if not changed.fired and not part.fired:
            return result
        again = rewrite(changed.graph, simple, arena)
        fired = _joined(result.fired, part.fired, changed.fired, again.fired)
        rewritten = result.rewritten + part.rewritten + changed.rewritten
        result = Simplified(again.graph, fired, rewritten)
    names = ", ".join(name for name, _, _ in result.fired)
    raise RulesDoNotEnd(f"rules make room for one another: {names}")


def _joined(*rounds: Fired) -> Fired:
    """Rules that acted in some round, in the order of their first time."""
    numerics = {name: promise for fired in rounds for name, promise, _ in fired}
    counts = dict.fromkeys(numerics, 0)
    for fired in rounds:
        for name, _, count in fired:
            counts[name] += count
    return tuple((name, numerics[name], count) for name, count in counts.items())
