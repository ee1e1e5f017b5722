"""What rows are given that stream through the whole device: where their packets come from, and what
the walk that stores them reads of other operands for all rows alike, which stays on the chip.
"""

from __future__ import annotations

from ...ir.expr import symbols_of
from ...ir.kernels.kernel import Access, Load, Own, needed_by
from ...ir.kernels.reduction import Folding
from .packet import address_text
from .walk import (
    Function,
    Shared,
    field_of,
    function_of,
    held_loads,
    prefix,
    reads_elements,
    unnamed,
    vector_load,
    walk_function,
    with_coordinates,
)


def kept_loads(folding: Folding) -> dict[Load, str]:
    """Vectors that the last walk alone reads, the same ones of every row, and their names."""
    last, held = folding.steps[-1].walk.kernel, held_loads(folding)
    loads = [d for d in last.definitions if isinstance(d, Load) and d not in held]
    shared = [load for load in loads if _is_of_all_rows(load, folding)]
    names: dict[Own, str] = {}
    for load in shared:
        names.setdefault(unnamed(load), load.name)
    return {load: names[unnamed(load)] for load in shared}


def _is_of_all_rows(load: Load, folding: Folding) -> bool:
    definitions = folding.steps[-1].walk.kernel.definitions
    if load.access is not Access.VECTOR or load.guard or needed_by([load], definitions):
        return False
    of_one = symbols_of(load.address) & {loop.var for loop in folding.kept}
    return reads_elements(load, folding) and not of_one


def kept_type(folding: Folding) -> str:
    return f"{prefix(folding)}_kept<kLanes>" if kept_loads(folding) else "op::NoPacket"


def kept_parts(folding: Folding) -> list[str]:
    """The struct of what rows share of a packet."""
    fields = {name: load for load, name in kept_loads(folding).items()}
    lines = [
        "// What the last pass reads of a packet for all rows alike.",
        "template <int kLanes>",
        f"struct {prefix(folding)}_kept {{",
        *(f"  {field_of(load, name)}" for name, load in fields.items()),
        "};",
    ]
    return ["\n".join(lines)] if fields else []


def keep_function(folding: Folding) -> Function:
    """Loads what `kept_loads` names."""
    loads = {name: load for load, name in kept_loads(folding).items()}
    lines = [f"kept.{name} = {vector_load(load)};" for name, load in loads.items()]
    body = [
        f"{kept_type(folding)} kept;",
        *with_coordinates(folding, lines, [], []),
        "return kept;",
    ]
    return function_of(folding, "keep", kept_type(folding), body, ["Index at"])


def from_function(folding: Folding) -> Function:
    """Where the packet begins that both walks read, of the one operand of which they do."""
    load = next(iter(held_loads(folding)))
    body = [f"return &{load.buffer}[{address_text(load.address)}];"]
    body = with_coordinates(folding, body, [], [])
    return function_of(folding, "from", "const void*", body, ["Index row", "Index at"])


def store_function(folding: Folding) -> Function:
    """Stores a packet of a row."""
    last = len(folding.steps) - 1
    return walk_function(folding, last, Shared(kept_loads(folding), kept_type(folding)))
