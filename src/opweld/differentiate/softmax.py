"""Gradients of a softmax and its relatives, past the largest element that they take off."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.graph import Arena, Node
from ..ir.ops import Op
from ..ir.rules.pattern import Apply, Match, matches
from ..ir.rules.softmax import LOG_SOFTMAX, LOGSUMEXP, SAME_AXES, SOFTMAX, axes_of, operand_of
from .maker import Maker

Axes = tuple[int, ...]


def _softmax(m: Maker, y: Node, x: Node, g: Node, axes: Axes) -> Node:
    weighted = m.mul(g, y)
    return m.sub(weighted, m.mul(y, m.reduced(Op.SUM, weighted, axes)))


def _log_softmax(m: Maker, y: Node, x: Node, g: Node, axes: Axes) -> Node:
    return m.sub(g, m.mul(m(Op.EXP, y), m.reduced(Op.SUM, g, axes)))


def _logsumexp(m: Maker, y: Node, x: Node, g: Node, axes: Axes) -> Node:
    return m.mul(g, m(Op.EXP, m.sub(x, y)))


_Formula = Callable[[Maker, Node, Node, Node, Axes], Node]
_FORMS: tuple[tuple[tuple[Apply, ...], _Formula], ...] = (
    (SOFTMAX, _softmax),
    (LOG_SOFTMAX, _log_softmax),
    (LOGSUMEXP, _logsumexp),
)


def passed_on(m: Maker, node: Node, g: Node) -> tuple[Node, Node] | None:
    """The operand of a softmax whose last step is `node`, and what reaches it; None for others."""
    for forms, formula in _FORMS:
        for form in forms:
            for bindings in matches(form, node, {}):
                match = Match(node, bindings, Arena())
                if SAME_AXES.holds(match):
                    x = operand_of(match)
                    return x, formula(m, node, x, g, axes_of(match))
    return None
