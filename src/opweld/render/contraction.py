"""Matrix products as CUDA C++: the epilogue as a functor, and the entries that the host calls.

The product itself stands in the device library; here is what becomes of its elements. In C:
    int64_t <group>_workspace(batches, rows, columns, inner, int held)   bytes of one call
    int64_t <group>_held(batches, rows, columns, inner)                  bytes of b as it is kept
    int <group>_contract(a and its strides, b and its strides, extents, operands and results of the
                         epilogue, its integers, int64_t max_offset, int aligned,
                         void* workspace, void* held, int changed, void* stream)
Strides are those of batch, row and sum, in elements. `max_offset` and `aligned` speak of what the
epilogue touches, as in a launcher; the result is a cudaError_t.
"""

from __future__ import annotations

from ..ir.kernel import Buffer, Contraction, Kernel
from ..ir.product import Mode
from .c import STORAGE
from .element import element_text, title
from .layout import call, head
from .packet import extents, packet_function, packet_name

MODES = {
    Mode.FAITHFUL: "Faithful",
    Mode.TF32: "Tf32",
    Mode.HALF: "Half",
    Mode.BFLOAT16: "Bfloat16",
}
HOLDING_PIECES = {"held_weights"}

STRIDES = tuple(f"{side}_stride{axis}" for side in "ab" for axis in range(3))
EXTENTS = ("num_batches", "num_rows", "num_columns", "num_inner")


def contraction_pieces(contraction: Contraction) -> set[str]:
    """Names of the device library's pieces that its text uses."""
    needed = {"contract", f"tensor_cores_{contraction.family}", MODES[contraction.mode]}
    return needed | HOLDING_PIECES if contraction.held else needed


def contraction_text(contraction: Contraction) -> str:
    """Everything of one product: its element function, its epilogue, its entries."""
    kernel = contraction.epilogue
    mode = f"op::{MODES[contraction.mode]}"
    parts = [
        f"{title(kernel, contraction.buffers)}\n\n{element_text(kernel.element, 'cuda')}",
        *epilogue_text(kernel),
        _size_entries(kernel, mode),
        _entry(kernel, mode),
    ]
    return "\n\n".join(parts) + "\n"


def epilogue_text(kernel: Kernel) -> list[str]:
    """What becomes of the elements of a result: a function of a packet, and a functor of it."""
    return [packet_function(kernel, ("const float (&product)[kLanes]",)), _functor(kernel)]


def _functor(kernel: Kernel) -> str:
    pointers = [f"{pointer_to(b)} {b.name};" for b in kernel.buffers]
    arguments = [b.name for b in kernel.buffers]
    arguments += [f"Index({name})" for name in extents(kernel)]
    packet = f"{packet_name(kernel)}<kCount>"
    lines = [
        "// What becomes of the product: kCount neighbours of one row, from position `at` on.",
        f"struct {epilogue_name(kernel)} {{",
        f"  static constexpr int kLanes = {kernel.lanes};  // the most neighbours at once",
        *(f"  {line}" for line in pointers),
        *(f"  int64_t {name};" for name in extents(kernel)),
        "",
        "  template <int kCount, typename Index>",
        "  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount])"
        " const {",
        call(packet, [*arguments, "at", "product"], 4),
        "  }",
        "};",
    ]
    return "\n".join(lines)


def epilogue_name(kernel: Kernel) -> str:
    """The name of its functor."""
    return f"{kernel.name}_{kernel.variant}"


def pointer_to(buffer: Buffer) -> str:
    """The type of a pointer to its elements."""
    return f"{'' if buffer.written else 'const '}{STORAGE[buffer.dtype]}*"


def _size_entries(kernel: Kernel, mode: str) -> str:
    extents_text = [f"int64_t {name}" for name in EXTENTS]
    product = f"  const op::Product product{{{{}}, {{}}, {', '.join(EXTENTS)}}};"
    lines = [
        head(f'extern "C" int64_t {kernel.name}_workspace', [*extents_text, "int held"], " {"),
        product,
        f"  return op::workspace_bytes<{mode}>(product, held);",
        "}",
        "",
        head(f'extern "C" int64_t {kernel.name}_held', extents_text, " {"),
        product,
        f"  return op::held_bytes<{mode}>(product);",
        "}",
    ]
    return "\n".join(lines)


def _entry(kernel: Kernel, mode: str) -> str:
    operands = [f"static_cast<{pointer_to(b)}>({b.name})" for b in kernel.buffers]
    a, b = (
        f"{{{side}_data, {', '.join(s for s in STRIDES if s.startswith(side))}}}" for side in "ab"
    )
    lines = [
        head(f'extern "C" int {kernel.name}_contract', entry_parameters(kernel), " {"),
        f"  const op::Product product{{{a},",
        f"                            {b},",
        f"                            {', '.join(EXTENTS)}}};",
        "  const op::Memory memory{workspace, held, changed};",
        _construction(epilogue_name(kernel), [*operands, *extents(kernel)]),
        "  // 32-bit positions must not wrap round.",
        "  const bool narrow = num_batches * num_rows * num_columns < (1ll << 31) &&",
        "                      max_offset < (1ll << 31);",
        f"  return op::contract<{mode}>(product, memory, epilogue, narrow, aligned, stream);",
        "}",
    ]
    return "\n".join(lines)


def _construction(name: str, values: list[str]) -> str:
    line = f"  const {name} epilogue{{{', '.join(values)}}};"
    if len(line) <= 100:
        return line
    return "\n".join(
        [f"  const {name} epilogue{{", *(f"      {value}," for value in values), "  };"]
    )


def entry_parameters(kernel: Kernel) -> list[str]:
    """The parameters of the entry that makes the product, with their types."""
    a, b = (
        [f"const void* {side}_data", *(f"int64_t {s}" for s in STRIDES if s.startswith(side))]
        for side in "ab"
    )
    operands = [f"{'' if b.written else 'const '}void* {b.name}" for b in kernel.buffers]
    return [
        *a,
        *b,
        *(f"int64_t {name}" for name in EXTENTS),
        *operands,
        *(f"int64_t {extent.name}" for extent in kernel.extents),
        *("int64_t max_offset", "int aligned"),
        *("void* workspace", "void* held", "int changed", "void* stream"),
    ]
