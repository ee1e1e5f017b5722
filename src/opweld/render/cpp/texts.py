"""Kernels as C++: an element function and plain loops that g++ vectorises.

Entry points are plain C and handle one range of row-major positions, so that the caller can share
the work among threads:
    void <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                           int64_t begin, int64_t end)
Those of reductions are in cpp_reduction.py, those of scans in cpp_scan.py.
"""

from __future__ import annotations

from ...device import pieces
from ...ir.expr import Size
from ...ir.kernels.kernel import Kernel, Load, RowBlocks, Store
from ...ir.kernels.reduction import Lowered, Reduction, Scan
from ..c import dtypes_of, storage_pieces
from ..element import call_element, element_text, pieces_of, place_pieces, title
from ..layout import folded, head, indented
from .half import block_pieces, blocked, half_loads, half_stores, in_block, of_block
from .loops import plain, rows, rows_are_short, short_rows
from .reduction import reduction_pieces, reduction_text
from .rounding import Ours, rounded_once
from .scan import scan_pieces, scan_text
from .statements import checked, definition_text, parameters, stored, text_of, typed


def cpp_texts(lowered: tuple[Lowered, ...]) -> tuple[str, list[str]]:
    """The functions used, and each group's loops. Products are the library's here, so of row blocks
    it has the tail.
    """
    tails = (each.tail if isinstance(each, RowBlocks) else each for each in lowered)
    ours = [rounded_once(each) for each in tails if isinstance(each, Ours)]
    needed = set[str]().union(*map(_pieces, ours), *(place_pieces(each.kernels) for each in ours))
    return "\n".join(pieces(sorted(needed), "cpp")), [_group_text(each) for each in ours]


def _pieces(lowered: Ours) -> set[str]:
    if isinstance(lowered, Reduction):
        return reduction_pieces(lowered)
    if isinstance(lowered, Scan):
        return scan_pieces(lowered)
    needed = storage_pieces(dtypes_of(lowered.contiguous))
    needed |= pieces_of(lowered.contiguous.element, "cpp")
    return needed.union(*(block_pieces(*_halves(kernel)) for kernel in lowered.kernels))


def _group_text(lowered: Ours) -> str:
    if isinstance(lowered, Reduction):
        return reduction_text(lowered)
    if isinstance(lowered, Scan):
        return scan_text(lowered)
    element = element_text(lowered.contiguous.element, "cpp")
    parts = [
        f"{title(lowered.contiguous, lowered.buffers)}\n\n{element}",
        _function(lowered.contiguous),
        _function(lowered.strided),
    ]
    return "\n\n".join(parts) + "\n"


def _function(kernel: Kernel) -> str:
    returns, body = checked([kernel], _loops(kernel))
    lines = [
        head(
            f'extern "C" {returns} {kernel.name}_{kernel.variant}',
            [*parameters(kernel.buffers, kernel.extents), "int64_t begin", "int64_t end"],
            " {",
        ),
        *(f"  {typed(buffer)}" for buffer in kernel.buffers),
    ]
    return "\n".join([*lines, *map(folded, indented(body, 2)), "}"])


def _loops(kernel: Kernel) -> list[str]:
    element = _element_lines(kernel)
    if rows_are_short(kernel):
        return short_rows(kernel, element)
    loads, stores = _halves(kernel)

    def innermost(first: str, last: str) -> list[str]:
        var = kernel.loops[-1].var
        if not loads and not stores:
            return plain(var, first, last, element)
        return blocked(var, first, last, element, loads, stores)

    if len(kernel.loops) == 1:
        return innermost("begin", "end")
    return rows(kernel.loops, innermost, "begin", "end")


def _halves(kernel: Kernel) -> tuple[list[Load], list[Store]]:
    """The loads and stores of half that are converted in blocks."""
    if rows_are_short(kernel):
        return [], []
    var = kernel.loops[-1].var
    return half_loads(kernel, var), half_stores(kernel, var)


def _element_lines(kernel: Kernel) -> list[str]:
    loads, stores = _halves(kernel)

    def place(address: Size) -> str:
        """In a loop over many rows the row-major position has a name."""
        named = rows_are_short(kernel) and address == kernel.stores[0].address
        return "place" if named else text_of(address)

    lines = [
        of_block(d) if d in loads else definition_text(d, kernel, place) for d in kernel.definitions
    ]
    lines += call_element(kernel, [name for name, _ in kernel.element.params])
    return lines + [in_block(s) if s in stores else stored(s, place) for s in kernel.stores]
