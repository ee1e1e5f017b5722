"""Kernels as CUDA C++: an element function, a packet function that moves and calls, two kernels.

Launchers are plain C, so that no torch header is ever read by nvcc:
    int <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                          int64_t num_elems, int64_t max_offset, int aligned, void* stream)
`max_offset` is the largest element offset that any operand reaches: it decides between 32- and
64-bit indices. `aligned` says that every pointer allows 16-byte accesses. The result is a
cudaError_t."""

from __future__ import annotations

from ..device import pieces
from ..ir.expr import Size
from ..ir.kernel import Access, Buffer, Definition, Index, Kernel, Load, Test, Welded
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
    named_in,
    pieces_of,
    storage_pieces,
    store_text,
)

VECTOR_PIECES = {"Vector", "load_vector", "store_vector"}


def cuda_text(kernels: tuple[Welded, ...]) -> str:
    """The whole `.cu` text: the device functions used, then each group's kernels."""
    dtypes = {d for w in kernels for d in dtypes_of(w.contiguous)}
    needed = VECTOR_PIECES | storage_pieces(dtypes)
    for welded in kernels:
        needed |= pieces_of(welded.contiguous.element, approximate=True)
    head = ["#include <cuda_runtime.h>", *pieces(sorted(needed))]
    return "\n".join([*head, *(_group_text(welded) for welded in kernels)])


def _group_text(welded: Welded) -> str:
    kernel = welded.contiguous
    parts = [
        f"// {kernel.name}: {comment_text(kernel.comment)}.",
        element_text(kernel.element, "OPWELD_FN", approximate=True),
        _packet(kernel),
        _kernel(kernel),
        _launcher(kernel),
    ]
    parts += [_packet(welded.strided), _kernel(welded.strided), _launcher(welded.strided)]
    return "\n\n".join(parts) + "\n"


def _literal(value: int) -> str:
    return f"{value}u" if value < 2**32 else f"{value}ull"


def _text(value: Size) -> str:
    return index_text(value, _literal)


def _pointer(buffer: Buffer) -> str:
    const = "" if buffer.written else "const "
    return f"{const}{STORAGE[buffer.dtype]}* __restrict__ {buffer.name}"


def _parameters(kernel: Kernel) -> list[str]:
    return [*map(_pointer, kernel.buffers), *(f"Index {e.name}" for e in kernel.extents)]


def _names(kernel: Kernel) -> list[str]:
    return [b.name for b in kernel.buffers] + [e.name for e in kernel.extents]


def _packet(kernel: Kernel) -> str:
    """The function that handles kLanes neighbouring elements, from `at` on in row-major order."""
    once = [d for d in kernel.definitions if d.access is not Access.LANE]
    each = [d for d in kernel.definitions if d.access is Access.LANE]
    before = [line for d in once for line in _once(d)]
    inside = [line for d in each for line in _each(d)]
    vector = kernel.lanes > 1
    inside += _call_element(kernel) + _put(kernel, vector)
    lines = ["template <int kLanes, typename Index>" if vector else "template <typename Index>"]
    lines.append(f"OPWELD_FN void {_packet_name(kernel)}(")
    lines.append(listed([*_parameters(kernel), "Index at"], 4, ") {"))
    lines += _indented(_coordinates(kernel, "at", before + ([] if vector else inside)) + before, 2)
    lines += _indented(_vector_body(kernel, inside) if vector else inside, 2)
    return "\n".join([*lines, "}"])


def _vector_body(kernel: Kernel, inside: list[str]) -> list[str]:
    lines = [f"op::Vector<{STORAGE[s.dtype]}, kLanes> {s.buffer}_vector;" for s in kernel.stores]
    if not any(d.access is Access.LANE for d in kernel.definitions):
        loop = inside
    else:
        where = ["const Index lane_at = at + lane;"]
        where += _coordinates(kernel, "lane_at", inside, shadow=True)
        loop = where + [line.replace("[at]", "[lane_at]") for line in inside]
    lines += ["#pragma unroll", "for (int lane = 0; lane < kLanes; ++lane) {"]
    lines += [*_indented(loop, 2), "}"]
    return lines + [f"op::store_vector({s.buffer} + at, {s.buffer}_vector);" for s in kernel.stores]


def _coordinates(kernel: Kernel, at: str, users: list[str], shadow: bool = False) -> list[str]:
    """Loop variables from the row-major position, those that `users` name."""
    loops = kernel.loops
    used = set(named_in(tuple(loop.var for loop in loops), "\n".join(users)))
    if not used:
        return []
    if len(loops) == 1:
        return [f"const Index {loops[0].var} = {at};"]
    lines: list[str] = []
    rest = at
    for position in range(len(loops) - 1, 0, -1):
        loop = loops[position]
        extent = grouped(_text(loop.extent))
        if loop.var in used:
            lines.append(f"const Index {loop.var} = {rest} % {extent};")
        if not used & {outer.var for outer in loops[:position]}:
            return lines
        next_rest = loops[0].var if position == 1 else f"above_{loop.var}"
        lines.append(f"const Index {next_rest} = {rest} / {extent};")
        rest = next_rest
    return lines


def _once(definition: Definition) -> list[str]:
    """Lines before the loop over lanes."""
    if isinstance(definition, Load):
        pointer = f"{definition.buffer} + "
        if definition.access is Access.FLAT:
            return [f"const auto {definition.name}_vector = op::load_vector<kLanes>({pointer}at);"]
        if definition.access is Access.VECTOR:
            place = f"{pointer}{_text(definition.address)}"
            return [f"const auto {definition.name}_vector = op::load_vector<kLanes>({place});"]
    return _each(definition)


def _each(definition: Definition) -> list[str]:
    """Lines for one element."""
    if isinstance(definition, Index):
        return [f"const int64_t {definition.name} = int64_t({_text(definition.expr)});"]
    if isinstance(definition, Test):
        condition = condition_text(definition.condition, "Index", _literal)
        return [f"const bool {definition.name} = {condition};"]
    return [f"const {compute_type(definition.dtype)} {definition.name} = {_loaded(definition)};"]


def _loaded(load: Load) -> str:
    text = load_text(load.dtype, f"{load.buffer}[{_text(load.address)}]")
    if not load.guard:
        return text
    guard = condition_text(load.guard, "Index", _literal)
    return f"({guard}) ? {text} : {compute_type(load.dtype)}(0)"


def _call_element(kernel: Kernel) -> list[str]:
    arguments = [_argument(definition) for definition in kernel.definitions]
    results = kernel.element.results
    if len(results) == 1:
        call = f"{kernel.element.name}({', '.join(arguments)})"
        return [f"const {compute_type(results[0][0])} value0 = {call};"]
    lines = [f"{compute_type(dtype)} value{i};" for i, (dtype, _) in enumerate(results)]
    arguments += [f"value{i}" for i in range(len(results))]
    return [*lines, f"{kernel.element.name}({', '.join(arguments)});"]


def _argument(definition: Definition) -> str:
    if isinstance(definition, Load) and definition.access in (Access.FLAT, Access.VECTOR):
        return load_text(definition.dtype, f"{definition.name}_vector.lane[lane]")
    return definition.name


def _put(kernel: Kernel, vector: bool) -> list[str]:
    lines = []
    for store in kernel.stores:
        place = (
            f"{store.buffer}_vector.lane[lane]"
            if vector
            else (f"{store.buffer}[{_text(store.address)}]")
        )
        lines.append(f"{place} = {store_text(store.dtype, f'value{store.result}')};")
    return lines


def _packet_name(kernel: Kernel) -> str:
    return f"{kernel.name}_{kernel.variant}_packet"


def _kernel_name(kernel: Kernel) -> str:
    return f"{kernel.name}_{kernel.variant}_kernel"


def _kernel(kernel: Kernel) -> str:
    """A block handles kVectors packets a thread; only the last block can be partial."""
    vector = kernel.lanes > 1
    call = ", ".join([*_names(kernel), "at"])
    packet = f"{_packet_name(kernel)}<kLanes>" if vector else _packet_name(kernel)
    template = "template <int kLanes, typename Index>" if vector else "template <typename Index>"
    lanes = " * kLanes" if vector else ""
    per_block = (
        f"{kernel.threads}{lanes} * {kernel.vectors}"
        if kernel.vectors > 1
        else (f"{kernel.threads}{lanes}")
    )
    step = f"{kernel.threads}{lanes}"
    lines = [
        template,
        f"__global__ void __launch_bounds__({kernel.threads}) {_kernel_name(kernel)}(",
        listed([*_parameters(kernel), "Index num_elems"], 4, ") {"),
        f"  const Index first = Index(blockIdx.x) * ({per_block});",
        f"  const Index begin = first + Index(threadIdx.x){lanes};",
        f"  if (num_elems - first >= {per_block}) {{",
        *_full_block(kernel, packet, call, step),
        "    return;",
        "  }",
        f"  for (Index packet = begin; packet < num_elems; packet += {step}) {{",
    ]
    if not vector:
        lines += [f"    {packet}({call.removesuffix('at')}packet);", "  }", "}"]
        return "\n".join(lines)
    one = f"{_packet_name(kernel)}<1>({call})"
    lines += [
        "    if (num_elems - packet >= kLanes) {",
        f"      {packet}({call.removesuffix('at')}packet);",
        "    } else {",
        f"      for (Index at = packet; at < num_elems; ++at) {one};",
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(lines)


def _full_block(kernel: Kernel, packet: str, call: str, step: str) -> list[str]:
    if kernel.vectors == 1:
        return [f"    {packet}({call.removesuffix('at')}begin);"]
    return [
        "#pragma unroll",
        f"    for (int k = 0; k < {kernel.vectors}; ++k) {{",
        f"      {packet}({call.removesuffix('at')}begin + k * ({step}));",
        "    }",
    ]


def _launcher(kernel: Kernel) -> str:
    """The C entry point: picks index width and access width, and launches on the given stream."""
    params = [f"{'' if b.written else 'const '}void* {b.name}" for b in kernel.buffers]
    params += [f"int64_t {e.name}" for e in kernel.extents]
    params += ["int64_t num_elems", "int64_t max_offset", "int aligned", "void* stream"]
    lines = [
        f'extern "C" int {kernel.name}_{kernel.variant}(',
        listed(params, 4, ") {"),
        "  // 32-bit positions must not wrap round in the last, partial block.",
        "  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);",
    ]
    if kernel.lanes > 1:
        lines += [
            "  if (aligned) {",
            *_indented(_choose_width(kernel, str(kernel.lanes)), 4),
            "  } else {",
            *_indented(_choose_width(kernel, "1"), 4),
            "  }",
        ]
    else:
        lines += ["  (void)aligned;", *_indented(_choose_width(kernel, ""), 2)]
    return "\n".join([*lines, "  return int(cudaGetLastError());", "}"])


def _choose_width(kernel: Kernel, lanes: str) -> list[str]:
    return [
        f"if (narrow) {_launch(kernel, lanes, 'unsigned int')};",
        f"else {_launch(kernel, lanes, 'unsigned long long')};",
    ]


def _launch(kernel: Kernel, lanes: str, index: str) -> str:
    per_block = kernel.threads * kernel.vectors * (int(lanes) if lanes else 1)
    template = f"{lanes}, {index}" if lanes else index
    casts = [
        f"static_cast<{'' if b.written else 'const '}{STORAGE[b.dtype]}*>({b.name})"
        for b in kernel.buffers
    ]
    casts += [
        f"{index}({e.name})" if " " not in index else f"({index}){e.name}" for e in kernel.extents
    ]
    count = f"({index})num_elems"
    blocks = f"(unsigned int)((num_elems + {per_block - 1}) / {per_block})"
    launch = f"<<<{blocks}, {kernel.threads}, 0, (cudaStream_t)stream>>>"
    return f"{_kernel_name(kernel)}<{template}>{launch}(\n{listed([*casts, count], 4)})"


def _indented(lines: list[str], spaces: int) -> list[str]:
    return [
        line if line.startswith("#") else " " * spaces + line.replace("\n", "\n" + " " * spaces)
        for line in lines
    ]
