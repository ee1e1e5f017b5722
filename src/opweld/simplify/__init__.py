"""From a graph to one of fewer and canonical nodes that means the same."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Arena, Graph
from ..ir.rules.algebra import Algebra
from ..ir.rules.costs import NO_COSTS, Costs
from ..ir.rules.rewrite import Simplified
from .needed_outputs.only_needed import NAME as NEEDED
from .outputs import keep_fresh
from .rounds import in_rounds
from .rules import LINEAR, LINEAR_FINITE, RULES, phases


def simplify(
    graph: Graph,
    arena: Arena,
    enabled: frozenset[str] | None = None,
    algebra: Algebra = Algebra.EXACT,
    costs: Costs = NO_COSTS,
) -> Simplified:
    """`graph` rewritten by every rule that `algebra` allows, or by those of them named in
    `enabled`. Between forms that mean the same `costs` decide.

    Common subexpressions are one node already, by interning, and nodes that no output needs are
    gone. An output that was computed stays so: it never becomes an input itself. Values keep what
    each fired rule promises, and derivatives are autograd's (see `ir.rewrite`).

    Raises KeyError for a name in `enabled` that is no rule.
    """
    if enabled is not None:
        known = {rule.name for rule in (*RULES, *LINEAR, *LINEAR_FINITE)} | {NEEDED}
        unknown = sorted(enabled - known)
        if unknown:
            raise KeyError(f"no rule is named {', '.join(unknown)}")
    rules, *linear = (
        tuple(rule for rule in own if enabled is None or rule.name in enabled)
        for own in (RULES, *phases(algebra))
    )
    needed = algebra is not Algebra.OFF and (enabled is None or NEEDED in enabled)
    result = in_rounds(graph, rules, tuple(linear), arena, needed, costs)
    return replace(result, graph=keep_fresh(graph, result.graph, arena))
