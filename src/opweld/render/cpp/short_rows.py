"""Operands of half in short rows, which are walked side by side: a strip of rows is one piece of
memory, which is converted at once. Lanes then step over floats, as g++ does in vectors; over 16
bits it does not.
"""

from __future__ import annotations

from ...ir.expr import Size, coefficient, substitute_unsimplified, symbol
from ...ir.kernels.kernel import Kernel, Load, Store
from ...ir.kernels.reduction import Folding
from ...ir.types import DType
from .statements import text_of


def strip_loads(folding: Folding, kernel: Kernel) -> list[Load]:
    """The loads of half whose rows follow each other in memory."""
    loads = [d for d in kernel.definitions if isinstance(d, Load) and not d.guard]
    return [d for d in loads if _in_strips(folding, d.dtype, d.address)]


def strip_stores(folding: Folding, kernel: Kernel) -> list[Store]:
    return [s for s in kernel.stores if _in_strips(folding, s.dtype, s.address)]


def _in_strips(folding: Folding, dtype: DType, address: Size) -> bool:
    row, *others = folding.reduced
    if dtype is not DType.F16 or others or not isinstance(row.extent, int):
        return False
    steps = coefficient(address, folding.kept[-1].var), coefficient(address, row.var)
    return steps == (row.extent, 1)


def before_strip(folding: Folding, loads: list[Load], stores: list[Store]) -> list[str]:
    elems = text_of(folding.reduced[0].extent)
    lines = []
    for load in loads:
        place = f"{load.buffer} + {_start(folding, load.address)}"
        lines.append(f"float {load.name}_strip[kLanes * {elems}];")
        lines.append(f"op::widen_block({place}, count * {elems}, {load.name}_strip);")
    return lines + [f"float {store.buffer}_strip[kLanes * {elems}];" for store in stores]


def behind_strip(folding: Folding, stores: list[Store]) -> list[str]:
    elems = text_of(folding.reduced[0].extent)
    places = [f"{store.buffer} + {_start(folding, store.address)}" for store in stores]
    return [
        f"op::narrow_block({store.buffer}_strip, count * {elems}, {place});"
        for store, place in zip(stores, places, strict=True)
    ]


def of_strip(folding: Folding, load: Load) -> str:
    return f"const float {load.name} = {load.name}_strip[{_within(folding)}];"


def in_strip(folding: Folding, store: Store) -> str:
    return f"{store.buffer}_strip[{_within(folding)}] = value{store.result};"


def _within(folding: Folding) -> str:
    row = folding.reduced[0]
    return text_of(symbol("lane") * row.extent + symbol(row.var))


def _start(folding: Folding, address: Size) -> str:
    first: dict[str, Size] = {folding.kept[-1].var: symbol("strip"), folding.reduced[0].var: 0}
    return text_of(substitute_unsimplified(address, first))
