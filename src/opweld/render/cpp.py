"""Kernels as C++: an element function and plain loops that g++ vectorises.

Entry points are plain C and handle one range of row-major positions, so that the caller can share
the work among threads:
    void <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                           int64_t begin, int64_t end)
"""

from __future__ import annotations

from ..device import pieces
from ..ir.expr import Bounds, Size, at_least_zero, coefficient, substitute, symbol, upper
from ..ir.kernel import Between, Buffer, Definition, Index, Kernel, Load, Store, Test, Welded
from ..ir.types import DType
from .c import (
    STORAGE,
    Integers,
    compute_type,
    constant,
    dtypes_of,
    grouped,
    load_text,
    named_in,
    storage_pieces,
    store_text,
)
from .element import call_element, element_text, guard_text, pieces_of, title
from .layout import folded, head, indented


def cpp_text(kernels: tuple[Welded, ...]) -> str:
    """The whole C++ text: the functions used, then each group's loops."""
    dtypes = {d for w in kernels for d in dtypes_of(w.contiguous)}
    needed = storage_pieces(dtypes)
    for welded in kernels:
        needed |= pieces_of(welded.contiguous.element, "cpp")
        needed |= _block_pieces(welded.contiguous) | _block_pieces(welded.strided)
    return "\n".join([*pieces(sorted(needed), "cpp"), *(_group_text(welded) for welded in kernels)])


def _group_text(welded: Welded) -> str:
    element = element_text(welded.contiguous.element, "cpp")
    parts = [
        f"{title(welded.contiguous)}\n\n{element}",
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
    body = _rows(kernel) if len(kernel.loops) > 1 else _flat(kernel)
    return "\n".join([*lines, *map(folded, indented(body, 2)), "}"])


def _typed(buffer: Buffer) -> str:
    pointer = f"{'' if buffer.written else 'const '}{STORAGE[buffer.dtype]}*"
    return f"{pointer} __restrict__ {buffer.name} = static_cast<{pointer}>({buffer.name}_data);"


def _flat(kernel: Kernel) -> list[str]:
    return _loop(kernel, "begin", "end")


def _rows(kernel: Kernel) -> list[str]:
    """A range of positions is a part of a row, whole rows, and a part of a row."""
    inner = kernel.loops[-1]
    extent = grouped(_text(inner.extent))
    body = [
        *_outer_coordinates(kernel),
        f"const int64_t first = at % {extent};",
        "const int64_t stop = first + (end - at);",
        f"const int64_t last = stop < {extent} ? stop : {extent};",
        *_loop(kernel, "first", "last"),
        "at += last - first;",
    ]
    return ["for (int64_t at = begin; at < end;) {", *indented(body, 2), "}"]


def _outer_coordinates(kernel: Kernel) -> list[str]:
    """The loop variables above a row, from the row's number."""
    row = f"at / {grouped(_text(kernel.loops[-1].extent))}"
    if len(kernel.loops) == 2:
        return [f"const int64_t {kernel.loops[0].var} = {row};"]
    lines = [f"const int64_t row = {row};"]
    rest = "row"
    for position in range(len(kernel.loops) - 2, 0, -1):
        loop = kernel.loops[position]
        extent = grouped(_text(loop.extent))
        above = kernel.loops[0].var if position == 1 else f"above_{loop.var}"
        lines.append(f"const int64_t {loop.var} = {rest} % {extent};")
        lines.append(f"const int64_t {above} = {rest} / {extent};")
        rest = above
    return lines


def _loop(kernel: Kernel, first: str, last: str) -> list[str]:
    """The innermost loop: plain, or in blocks where operands of half are converted apart."""
    var = kernel.loops[-1].var
    if not _half_loads(kernel) and not _half_stores(kernel):
        return [
            "#pragma omp simd",
            f"for (int64_t {var} = {first}; {var} < {last}; ++{var}) {{",
            *indented(_element_lines(kernel), 2),
            "}",
        ]
    lines = _element_lines(kernel)
    position = [f"const int64_t {var} = block + lane;"] if named_in((var,), str(lines)) else []
    body = [
        f"const int64_t rest = {last} - block;",
        "const int64_t count = rest < op::kBlock ? rest : op::kBlock;",
        *(line for load in _half_loads(kernel) for line in _widened(kernel, load)),
        *(f"float {store.buffer}_block[op::kBlock];" for store in _half_stores(kernel)),
        "#pragma omp simd",
        "for (int64_t lane = 0; lane < count; ++lane) {",
        *indented(position + lines, 2),
        "}",
        *(_narrowed(kernel, store) for store in _half_stores(kernel)),
    ]
    blocks = f"for (int64_t block = {first}; block < {last}; block += op::kBlock) {{"
    return [blocks, *indented(body, 2), "}"]


def _half_loads(kernel: Kernel) -> list[Load]:
    """The loads whose elements lie side by side in memory, and are of half."""
    loads = [d for d in kernel.definitions if isinstance(d, Load) and not d.guard]
    return [d for d in loads if d.dtype is DType.F16 and _lies_side_by_side(kernel, d.address)]


def _half_stores(kernel: Kernel) -> list[Store]:
    stores = [store for store in kernel.stores if store.dtype is DType.F16]
    return [store for store in stores if _lies_side_by_side(kernel, store.address)]


def _lies_side_by_side(kernel: Kernel, address: Size) -> bool:
    return coefficient(address, kernel.loops[-1].var) == 1


def _block_pieces(kernel: Kernel) -> set[str]:
    widened = {"widen_block"} if _half_loads(kernel) else set[str]()
    return widened | ({"narrow_block"} if _half_stores(kernel) else set[str]())


def _widened(kernel: Kernel, load: Load) -> list[str]:
    start = f"{load.buffer} + {_at_block(kernel, load.address)}"
    return [
        f"float {load.name}_block[op::kBlock];",
        f"op::widen_block({start}, count, {load.name}_block);",
    ]


def _narrowed(kernel: Kernel, store: Store) -> str:
    start = f"{store.buffer} + {_at_block(kernel, store.address)}"
    return f"op::narrow_block({store.buffer}_block, count, {start});"


def _at_block(kernel: Kernel, address: Size) -> str:
    return _text(substitute(address, {kernel.loops[-1].var: symbol("block")}))


def _element_lines(kernel: Kernel) -> list[str]:
    widened, narrowed = _half_loads(kernel), _half_stores(kernel)
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
        lines.append(f"{store.buffer}[{_text(store.address)}] = {value};")
    return lines


def _definition(definition: Definition, kernel: Kernel) -> str:
    name = definition.name
    if isinstance(definition, Index):
        return f"const int64_t {name} = {_text(definition.expr)};"
    bounds = {loop.var: loop.extent for loop in kernel.loops}

    def between(each: Between) -> str:
        return _between(each, bounds)

    if isinstance(definition, Test):
        return f"const bool {name} = {' && '.join(map(between, definition.condition))};"
    text = load_text(definition.dtype, f"{definition.buffer}[{_text(definition.address)}]")
    if definition.guard:
        nothing = constant(0, definition.dtype)
        text = f"{guard_text(definition, kernel, between)} ? {text} : {nothing}"
    return f"const {compute_type(definition.dtype)} {name} = {text};"


def _between(between: Between, bounds: Bounds) -> str:
    """The comparisons that do not hold anyway."""
    expr = _text(between.expr)
    tests = []
    if not at_least_zero(between.expr - between.low, bounds):
        tests.append(f"{expr} >= {_text(between.low)}")
    if not at_least_zero(between.high - 1 - upper(between.expr, bounds), bounds):
        tests.append(f"{expr} < {_text(between.high)}")
    return " && ".join(tests) or "true"
