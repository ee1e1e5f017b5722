"""Kernels as C++: an element function and plain loops that g++ vectorises.

Entry points are plain C and handle one range of row-major positions, so that the caller can share
the work among threads:
    void <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                           int64_t begin, int64_t end)
"""

from __future__ import annotations

from ..device import pieces
from ..ir.expr import Bounds, Size, at_least_zero, upper
from ..ir.kernel import (
    Between,
    Buffer,
    Definition,
    Index,
    Kernel,
    Lowered,
    Multiplied,
    RowBlocks,
    Test,
    Welded,
)
from ..ir.types import DType
from .c import (
    STORAGE,
    Integers,
    compute_type,
    constant,
    dtypes_of,
    load_text,
    storage_pieces,
    store_text,
)
from .cpp_half import block_pieces, blocked, half_loads, half_stores
from .cpp_loops import plain, rows, rows_are_short, short_rows
from .element import call_element, condition_text, element_text, pieces_of, title
from .layout import folded, head, indented


def cpp_text(lowered: tuple[Lowered, ...]) -> str:
    """The whole C++ text: the functions used, then each group's loops. Products are the library's
    here, so of row blocks it has the tail.
    """
    tails = (each.tail if isinstance(each, RowBlocks) else each for each in lowered)
    kernels = [welded for welded in tails if isinstance(welded, Welded)]
    dtypes = {d for w in kernels for d in dtypes_of(w.contiguous)}
    needed = storage_pieces(dtypes)
    for welded in kernels:
        needed |= pieces_of(welded.contiguous.element, "cpp")
        needed |= block_pieces(welded.contiguous) | block_pieces(welded.strided)
    return "\n".join([*pieces(sorted(needed), "cpp"), *(_group_text(welded) for welded in kernels)])


def _group_text(welded: Welded) -> str:
    element = element_text(welded.contiguous.element, "cpp")
    parts = [
        f"{title(welded.contiguous, welded.buffers)}\n\n{element}",
        _function(welded.contiguous),
        _function(welded.strided),
    ]
    return "\n\n".join(parts) + "\n"


def _text(value: Size) -> str:
    return Integers(str).text(value)


def _function(kernel: Kernel) -> str:
    params = [f"{'' if b.written else 'const '}void* {b.name}_data" for b in kernel.buffers]
    params += [f"int64_t {e.name}" for e in kernel.extents]
    lines = [
        head(
            f'extern "C" void {kernel.name}_{kernel.variant}',
            [*params, "int64_t begin", "int64_t end"],
            " {",
        ),
        *(f"  {_typed(buffer)}" for buffer in kernel.buffers),
    ]
    return "\n".join([*lines, *map(folded, indented(_loops(kernel), 2)), "}"])


def _typed(buffer: Buffer) -> str:
    # g++ 12 vectorises no loop that reads bool.
    element = "uint8_t" if buffer.dtype is DType.BOOL else STORAGE[buffer.dtype]
    pointer = f"{'' if buffer.written else 'const '}{element}*"
    return f"{pointer} __restrict__ {buffer.name} = static_cast<{pointer}>({buffer.name}_data);"


def _loops(kernel: Kernel) -> list[str]:
    element = _element_lines(kernel)
    if rows_are_short(kernel):
        return short_rows(kernel, element)
    in_blocks = half_loads(kernel) or half_stores(kernel)

    def innermost(first: str, last: str) -> list[str]:
        loop = blocked if in_blocks else plain
        return loop(kernel, first, last, element)

    return rows(kernel, innermost) if len(kernel.loops) > 1 else innermost("begin", "end")


def _element_lines(kernel: Kernel) -> list[str]:
    widened, narrowed = half_loads(kernel), half_stores(kernel)
    lines = [
        f"const float {d.name} = {d.name}_block[lane];" if d in widened else _definition(d, kernel)
        for d in kernel.definitions
    ]
    lines += call_element(kernel, [name for name, _ in kernel.element.params])
    for store in kernel.stores:
        if store in narrowed:
            lines.append(f"{store.buffer}_block[lane] = value{store.result};")
            continue
        value = store_text(store.dtype, f"value{store.result}")
        lines.append(f"{store.buffer}[{_place(store.address, kernel)}] = {value};")
    return lines


# A branch in the second comparison would keep g++ from making vectors of the loop.
_BOTH = " & "


def _place(address: Size, kernel: Kernel) -> str:
    """An address; in a loop over many rows the row-major position has a name."""
    named = rows_are_short(kernel) and address == kernel.stores[0].address
    return "place" if named else _text(address)


def _definition(definition: Definition, kernel: Kernel) -> str:
    name = definition.name
    assert not isinstance(definition, Multiplied), "products are the library's here"
    if isinstance(definition, Index):
        return f"const int64_t {name} = {_text(definition.expr)};"
    bounds = {loop.var: loop.extent for loop in kernel.loops}

    def between(each: Between) -> str:
        return _between(each, bounds)

    if isinstance(definition, Test):
        return f"const bool {name} = {condition_text(definition, kernel, between, _BOTH)};"
    text = load_text(definition.dtype, f"{definition.buffer}[{_place(definition.address, kernel)}]")
    if definition.dtype is DType.BOOL:
        text += " != 0"
    if definition.guard:
        nothing = constant(0, definition.dtype)
        text = f"{condition_text(definition, kernel, between, _BOTH)} ? {text} : {nothing}"
    return f"const {compute_type(definition.dtype)} {name} = {text};"


def _between(between: Between, bounds: Bounds) -> str:
    """The comparisons that do not hold anyway."""
    expr = _text(between.expr)
    tests = []
    if not at_least_zero(between.expr - between.low, bounds):
        tests.append(f"({expr} >= {_text(between.low)})")
    if not at_least_zero(between.high - 1 - upper(between.expr, bounds), bounds):
        tests.append(f"({expr} < {_text(between.high)})")
    return _BOTH.join(tests) or "true"
