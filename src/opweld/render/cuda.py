"""Kernels as CUDA C++: an element function, what a thread does with it, kernels, launchers.

The contiguous kernel moves packets: a thread handles kLanes neighbouring elements by 16-byte
accesses, and only the last block has to look where the elements end. The strided kernel handles one
element a thread. Launchers are plain C, so that no torch header is ever read by nvcc:
    int <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                          int64_t num_elems, int64_t max_offset, int aligned, void* stream)
`max_offset` is the largest element offset that any operand reaches: it decides between 32- and
64-bit indices. `aligned` says that every pointer allows 16-byte accesses. The result is a
cudaError_t.
"""

from __future__ import annotations

from ..device import pieces
from ..ir.expr import Size
from ..ir.kernel import Access, Between, Buffer, Definition, Index, Kernel, Load, Test, Welded
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
from .cuda_launch import launcher
from .element import call_element, condition_text, element_text, pieces_of, title
from .layout import call, folded, head, indented

VECTOR_PIECES = {"Vector", "load_vector", "store_vector"}


def cuda_text(kernels: tuple[Welded, ...]) -> str:
    """The whole `.cu` text: the device functions used, then each group's kernels."""
    dtypes = {d for w in kernels for d in dtypes_of(w.contiguous)}
    needed = VECTOR_PIECES | storage_pieces(dtypes)
    for welded in kernels:
        needed |= pieces_of(welded.contiguous.element, "cuda")
    device = ["#include <cuda_runtime.h>", *pieces(sorted(needed))]
    return "\n".join([*device, *(_group_text(welded) for welded in kernels)])


def _group_text(welded: Welded) -> str:
    element = element_text(welded.contiguous.element, "cuda")
    parts = [f"{title(welded.contiguous)}\n\n{element}"]
    for kernel in (welded.contiguous, welded.strided):
        parts += _packet_kernel(kernel) if kernel.lanes > 1 else [_element_kernel(kernel)]
        parts.append(launcher(kernel, _names(kernel)))
    return "\n\n".join(parts) + "\n"


# Indices are unsigned: a division by a constant is cheaper, and a position below zero is out of
# range.
_INDICES = Integers(lambda value: f"{value}u" if value < 2**32 else f"{value}ull")
# As values they are signed, and wide enough for any product.
_VALUES = Integers(str, lambda name: f"int64_t({name})")


def _text(value: Size) -> str:
    return _INDICES.text(value)


def _pointer(buffer: Buffer) -> str:
    const = "" if buffer.written else "const "
    return f"{const}{STORAGE[buffer.dtype]}* __restrict__ {buffer.name}"


def _extents(kernel: Kernel) -> tuple[str, ...]:
    """The integer arguments that the device code of a kernel reads."""
    body = _packet_body(kernel) if kernel.lanes > 1 else _element_body(kernel)
    return named_in(tuple(extent.name for extent in kernel.extents), "\n".join(body))


def _parameters(kernel: Kernel) -> list[str]:
    return [*map(_pointer, kernel.buffers), *(f"Index {name}" for name in _extents(kernel))]


def _names(kernel: Kernel) -> list[str]:
    return [*(buffer.name for buffer in kernel.buffers), *_extents(kernel)]


# --- packets ---


def _packet_kernel(kernel: Kernel) -> list[str]:
    """The function that handles one packet, and the kernel that calls it."""
    packet = f"{kernel.name}_{kernel.variant}_packet"
    function = [
        "template <int kLanes, typename Index>",
        head(f"OPWELD_FN void {packet}", [*_parameters(kernel), "Index at"], " {"),
        *map(folded, indented(_packet_body(kernel), 2)),
        "}",
    ]
    step = f"{kernel.threads} * kLanes"
    block = step if kernel.vectors == 1 else f"{step} * {kernel.vectors}"
    body = [
        f"  const Index first = Index(blockIdx.x) * ({block});",
        "  const Index begin = first + Index(threadIdx.x) * kLanes;",
        f"  if (num_elems - first >= {block}) {{  // all blocks but the last",
        *_full_block(kernel, packet, step),
        "    return;",
        "  }",
        *_last_block(kernel, packet, step),
    ]
    return ["\n".join(function), "\n".join([*_kernel_head(kernel), *body, "}"])]


def _kernel_head(kernel: Kernel) -> list[str]:
    template = "int kLanes, typename Index" if kernel.lanes > 1 else "typename Index"
    bounds = f"__launch_bounds__({kernel.threads})"
    start = f"__global__ void {bounds} {kernel.name}_{kernel.variant}_kernel"
    return [f"template <{template}>", head(start, [*_parameters(kernel), "Index num_elems"], " {")]


def _full_block(kernel: Kernel, packet: str, step: str) -> list[str]:
    if kernel.vectors == 1:
        return [call(f"{packet}<kLanes>", [*_names(kernel), "begin"], 4)]
    return [
        "#pragma unroll",
        f"    for (int k = 0; k < {kernel.vectors}; ++k) {{",
        call(f"{packet}<kLanes>", [*_names(kernel), f"begin + k * ({step})"], 6),
        "    }",
    ]


def _last_block(kernel: Kernel, packet: str, step: str) -> list[str]:
    """Element by element: a packet would reach over the end."""
    if kernel.vectors == 1:
        return [
            "  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {",
            call(f"{packet}<1>", [*_names(kernel), "at"], 4),
            "  }",
        ]
    return [
        f"  for (Index next = begin; next < num_elems; next += {step}) {{",
        "    for (Index at = next; at < num_elems && at < next + kLanes; ++at) {",
        call(f"{packet}<1>", [*_names(kernel), "at"], 6),
        "    }",
        "  }",
    ]


def _packet_body(kernel: Kernel) -> list[str]:
    """What a thread does for kLanes neighbouring elements, from row-major position `at` on."""
    once = [d for d in kernel.definitions if d.access is not Access.LANE]
    each = [d for d in kernel.definitions if d.access is Access.LANE]
    before = [line for d in once for line in _once(d, kernel)]
    inside = [_definition(d, kernel) for d in each]
    inside += call_element(kernel, _arguments(kernel))
    for store in kernel.stores:
        value = store_text(store.dtype, f"value{store.result}")
        inside.append(f"{store.buffer}_vector.lane[lane] = {value};")
    if each:
        of_lane = _coordinates(kernel, "lane_at", inside)
        inside = [*(["const Index lane_at = at + lane;"] if of_lane else []), *of_lane, *inside]
    vectors = [f"op::Vector<{STORAGE[s.dtype]}, kLanes> {s.buffer}_vector;" for s in kernel.stores]
    stores = [f"op::store_vector({s.buffer} + at, {s.buffer}_vector);" for s in kernel.stores]
    loop = ["#pragma unroll", "for (int lane = 0; lane < kLanes; ++lane) {"]
    body = [*before, *vectors, *loop, *indented(inside, 2), "}", *stores]
    return [*_coordinates(kernel, "at", before), *body]


def _once(definition: Definition, kernel: Kernel) -> list[str]:
    """Lines before the loop over lanes."""
    if not isinstance(definition, Load) or definition.access is Access.SAME:
        return [_definition(definition, kernel)]
    # The index is summed before it meets the pointer: unsigned, a part of it may be below zero.
    flat = definition.access is Access.FLAT
    place = (
        f"{definition.buffer} + at"
        if flat
        else f"&{definition.buffer}[{_text(definition.address)}]"
    )
    return [f"const auto {definition.name}_vector = op::load_vector<kLanes>({place});"]


def _arguments(kernel: Kernel) -> list[str]:
    of_vector = {
        d.name: load_text(d.dtype, f"{d.name}_vector.lane[lane]")
        for d in kernel.definitions
        if isinstance(d, Load) and d.access in (Access.FLAT, Access.VECTOR)
    }
    return [of_vector.get(name, name) for name, _ in kernel.element.params]


# --- single elements ---


def _element_kernel(kernel: Kernel) -> str:
    """One thread an element, at any strides."""
    lines = [
        f"  const Index at = Index(blockIdx.x) * {kernel.threads} + threadIdx.x;",
        "  if (at >= num_elems) return;",
        *map(folded, indented(_element_body(kernel), 2)),
        "}",
    ]
    return "\n".join([*_kernel_head(kernel), *lines])


def _element_body(kernel: Kernel) -> list[str]:
    body = [_definition(d, kernel) for d in kernel.definitions]
    body += call_element(kernel, [name for name, _ in kernel.element.params])
    for store in kernel.stores:
        value = store_text(store.dtype, f"value{store.result}")
        body.append(f"{store.buffer}[{_text(store.address)}] = {value};")
    return [*_coordinates(kernel, "at", body), *body]


# --- definitions ---


def _coordinates(kernel: Kernel, at: str, users: list[str]) -> list[str]:
    """Loop variables from the row-major position, those that `users` name."""
    loops = kernel.loops
    used = set(named_in(tuple(loop.var for loop in loops), "\n".join(users)))
    if len(loops) == 1:
        return [f"const Index {loops[0].var} = {at};"] if used else []
    lines: list[str] = []
    rest = at
    for position in range(len(loops) - 1, 0, -1):
        loop = loops[position]
        extent = grouped(_text(loop.extent))
        if loop.var in used:
            lines.append(f"const Index {loop.var} = {rest} % {extent};")
        if not used & {outer.var for outer in loops[:position]}:
            return lines
        above = loops[0].var if position == 1 else f"above_{loop.var}"
        lines.append(f"const Index {above} = {rest} / {extent};")
        rest = above
    return lines


def _definition(definition: Definition, kernel: Kernel) -> str:
    """The statement that defines it for one element."""
    name = definition.name
    if isinstance(definition, Index):
        return f"const int64_t {name} = {_VALUES.text(definition.expr)};"
    if isinstance(definition, Test):
        return f"const bool {name} = {condition_text(definition, kernel, _between)};"
    text = load_text(definition.dtype, f"{definition.buffer}[{_text(definition.address)}]")
    if definition.guard:
        nothing = constant(0, definition.dtype)
        text = f"{condition_text(definition, kernel, _between)} ? {text} : {nothing}"
    return f"const {compute_type(definition.dtype)} {name} = {text};"


def _between(between: Between) -> str:
    # low <= expr < high as one unsigned comparison: below low it wraps round to a huge number.
    return f"{_text(between.expr - between.low)} < {_text(between.high - between.low)}"
