"""Kernels as C++: an element function and plain loops that g++ vectorises with libmvec.

Entry points are plain C and handle one range of row-major positions, so that the caller can share
the work among threads:
    void <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                           int64_t begin, int64_t end)
"""

from __future__ import annotations

from ..device import pieces
from ..ir.expr import Size
from ..ir.kernel import Buffer, Definition, Index, Kernel, Load, Test, Welded
from .c import (
    STORAGE,
    comment_text,
    compute_type,
    condition_text,
    dtypes_of,
    element_text,
    grouped,
    index_text,
    listed,
    load_text,
    pieces_of,
    storage_pieces,
    store_text,
)


def cpp_text(kernels: tuple[Welded, ...]) -> str:
    """The whole C++ text: the functions used, then each group's loops."""
    dtypes = {d for w in kernels for d in dtypes_of(w.contiguous)}
    needed = storage_pieces(dtypes)
    for welded in kernels:
        needed |= pieces_of(welded.contiguous.element, approximate=False)
    return "\n".join([*pieces(sorted(needed), "cpp"), *(_group_text(welded) for welded in kernels)])


def _group_text(welded: Welded) -> str:
    kernel = welded.contiguous
    parts = [
        f"// {kernel.name}: {comment_text(kernel.comment)}.",
        element_text(kernel.element, "OPWELD_FN", approximate=False),
        _function(kernel),
    ]
    return "\n\n".join([*parts, _function(welded.strided)]) + "\n"


def _text(value: Size) -> str:
    return index_text(value, str)


def _function(kernel: Kernel) -> str:
    params = [f"{'' if b.written else 'const '}void* {b.name}_data" for b in kernel.buffers]
    params += [f"int64_t {e.name}" for e in kernel.extents]
    lines = [
        f'extern "C" void {kernel.name}_{kernel.variant}(',
        listed([*params, "int64_t begin", "int64_t end"], 4, ") {"),
        *(f"  {_typed(buffer)}" for buffer in kernel.buffers),
    ]
    body = _rows(kernel) if len(kernel.loops) > 1 else _flat(kernel)
    return "\n".join([*lines, *body, "}"])


def _typed(buffer: Buffer) -> str:
    pointer = f"{'' if buffer.written else 'const '}{STORAGE[buffer.dtype]}*"
    return f"{pointer} __restrict__ {buffer.name} = static_cast<{pointer}>({buffer.name}_data);"


def _flat(kernel: Kernel) -> list[str]:
    var = kernel.loops[0].var
    return [
        "#pragma omp simd",
        f"  for (int64_t {var} = begin; {var} < end; ++{var}) {{",
        *(f"    {line}" for line in _element_lines(kernel)),
        "  }",
    ]


def _rows(kernel: Kernel) -> list[str]:
    """A range of positions is a part of a row, whole rows, and a part of a row."""
    inner = kernel.loops[-1]
    extent = grouped(_text(inner.extent))
    return [
        "  for (int64_t at = begin; at < end;) {",
        *(f"    {line}" for line in _outer_coordinates(kernel)),
        f"    const int64_t first = at % {extent};",
        f"    const int64_t rest = {extent} - first;",
        "    const int64_t last = first + (rest < end - at ? rest : end - at);",
        "#pragma omp simd",
        f"    for (int64_t {inner.var} = first; {inner.var} < last; ++{inner.var}) {{",
        *(f"      {line}" for line in _element_lines(kernel)),
        "    }",
        "    at += last - first;",
        "  }",
    ]


def _outer_coordinates(kernel: Kernel) -> list[str]:
    lines = [f"const int64_t row = at / {grouped(_text(kernel.loops[-1].extent))};"]
    rest = "row"
    for position in range(len(kernel.loops) - 2, 0, -1):
        loop = kernel.loops[position]
        extent = grouped(_text(loop.extent))
        lines.append(f"const int64_t {loop.var} = {rest} % {extent};")
        lines.append(f"const int64_t above_{loop.var} = {rest} / {extent};")
        rest = f"above_{loop.var}"
    return [*lines, f"const int64_t {kernel.loops[0].var} = {rest};"]


def _element_lines(kernel: Kernel) -> list[str]:
    lines = [_definition(d) for d in kernel.definitions]
    names = [d.name for d in kernel.definitions]
    results = kernel.element.results
    if len(results) == 1:
        call = f"{kernel.element.name}({', '.join(names)})"
        lines.append(f"const {compute_type(results[0][0])} value0 = {call};")
    else:
        lines += [f"{compute_type(dtype)} value{i};" for i, (dtype, _) in enumerate(results)]
        names += [f"value{i}" for i in range(len(results))]
        lines.append(f"{kernel.element.name}({', '.join(names)});")
    for store in kernel.stores:
        value = store_text(store.dtype, f"value{store.result}")
        lines.append(f"{store.buffer}[{_text(store.address)}] = {value};")
    return lines


def _definition(definition: Definition) -> str:
    if isinstance(definition, Index):
        return f"const int64_t {definition.name} = {_text(definition.expr)};"
    if isinstance(definition, Test):
        condition = condition_text(definition.condition, "uint64_t", str)
        return f"const bool {definition.name} = {condition};"
    return f"const {compute_type(definition.dtype)} {definition.name} = {_loaded(definition)};"


def _loaded(load: Load) -> str:
    text = load_text(load.dtype, f"{load.buffer}[{_text(load.address)}]")
    if not load.guard:
        return text
    guard = condition_text(load.guard, "uint64_t", str)
    return f"({guard}) ? {text} : {compute_type(load.dtype)}(0)"
