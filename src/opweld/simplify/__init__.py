"""From a graph to one of fewer and canonical nodes that means the same."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Arena, Graph
from ..ir.rules.rewrite import Simplified, rewrite
from .outputs import keep_fresh
from .rules import RULES


def simplify(graph: Graph, arena: Arena, enabled: frozenset[str] | None = None) -> Simplified:
    """`graph` rewritten by every rule, or by those named in `enabled`.

    Common subexpressions are one node already, by interning, and nodes that no output needs are
    gone. An output that was computed stays so: it never becomes an input itself. Values keep what
    each fired rule promises, and derivatives are autograd's (see `ir.rewrite`).

    Raises KeyError for a name in `enabled` that is no rule.
    """
    if enabled is not None:
        unknown = sorted(enabled - {rule.name for rule in RULES})
        if unknown:
            raise KeyError(f"no rule is named {', '.join(unknown)}")
    rules = tuple(rule for rule in RULES if enabled is None or rule.name in enabled)
    result = rewrite(graph, rules, arena)
    return replace(result, graph=keep_fresh(graph, result.graph, arena))
