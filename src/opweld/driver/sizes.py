"""Examples of sizes: those of the call that a model file shows."""

from __future__ import annotations

from opweld.ir.expr import evaluate
from opweld.ir.original import Part
from opweld.ir.plan import Group, Sizes


def sizes_of(part: Part, group: Group | None = None) -> Sizes:
    """What the names of sizes of a forward stand for, those too that only the kernel of a group has
    which is for any sizes.
    """
    known = {fact.name: fact.example for fact in part.variant.contract.symbols}
    own = group.lifting.values if group is not None and group.lifting else ()
    return (*known.items(), *((name, evaluate(size, known)) for name, size in own))
