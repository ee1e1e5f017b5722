"""Which groups compute products again for their gradients, so that less is kept from the forward.

Where the least that takes no longer is too much, what is cheapest to compute again for its bytes
goes first (`torch._functorch.config.activation_memory_budget` chooses so, too, under the name
"greedy").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld.ir.expr import Size
from opweld.ir.graph import Node
from opweld.ir.original import Vjp
from opweld.ir.plan import Group


@dataclass(frozen=True, slots=True)
class Choice:
    """What a group keeps for its gradients, or else the seconds of computing it again."""

    num_bytes: int
    seconds: float


def within(budget: float, choices: Sequence[Choice]) -> list[bool]:
    """For each whether it is computed again, so that the share `budget`, 0 to 1, of all bytes is
    kept at most.
    """
    kept = sum(choice.num_bytes for choice in choices)
    most = budget * kept
    again = [False] * len(choices)
    keeping = [place for place, choice in enumerate(choices) if choice.num_bytes]
    for place in sorted(keeping, key=lambda at: choices[at].seconds / choices[at].num_bytes):
        if kept <= most:
            break
        again[place] = True
        kept -= choices[place].num_bytes
    return again


def saved_of(group: Group, vjp: Vjp) -> tuple[Node, ...]:
    """What a forward keeps for gradients beside operands and results."""
    return tuple(node for node in vjp.kept if node not in group.outputs)


def saved_bytes(saved: Sequence[Node]) -> Size:
    return sum((node.type.size_bytes for node in saved), start=0)
