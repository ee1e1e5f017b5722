"""Matrix products as CUDA C++: prologue and epilogue as functors, the entries that the host calls.

The product itself stands in the device library; here is what becomes of its elements, and how those
of operand a come about where it is computed. In C:
    int64_t <group>_workspace(batches, rows, columns, inner, int held)   bytes of one call
    int64_t <group>_held(batches, rows, columns, inner)                  bytes of b as it is kept
    int <group>_contract(a and its strides, b and its strides, extents, operands and results of
                         prologue and epilogue, their integers, int64_t max_offset, int aligned,
                         void* workspace, void* held, int changed, void* stream)
Strides are those of batch, row and sum, in elements; a computed operand has no pointer.
`max_offset` and `aligned` speak of what prologue and epilogue touch, as in a launcher; the result
is a cudaError_t.
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
    made = "contract_computed" if contraction.prologue else "contract"
    name = _mode_name(contraction)
    needed = {made, f"tensor_cores_{contraction.family}", name}
    needed |= {f"live_{contraction.family}"} if name.endswith("Live") else set()
    return needed | HOLDING_PIECES if contraction.held else needed


def contraction_text(contraction: Contraction) -> str:
    """Everything of one product: element functions, prologue and epilogue, its entries."""
    kernel = contraction.epilogue
    parts = [
        title(kernel, contraction.buffers),
        *(_prologue_text(contraction.prologue.kernel) if contraction.prologue else []),
        element_text(kernel.element, "cuda"),
        *epilogue_text(kernel),
        _size_entries(contraction),
        _entry(contraction),
    ]
    return "\n\n".join(parts) + "\n"


def _mode(contraction: Contraction) -> str:
    return f"op::{_mode_name(contraction)}"


def _mode_name(contraction: Contraction) -> str:
    """Where both operands are new at each call, kernels may split them themselves."""
    name = MODES[contraction.mode]
    new = not contraction.held and contraction.prologue is None
    return f"{name}Live" if new and contraction.mode is Mode.FAITHFUL else name


def _prologue_text(kernel: Kernel) -> list[str]:
    """How the elements of operand a are computed: the function of one, of a packet, a functor."""
    handed = "float (&computed)[kCount]"
    about = "// Operand a: kCount neighbours of one row, from position `at` on."
    return [
        element_text(kernel.element, "cuda"),
        packet_function(kernel, (handed.replace("kCount", "kLanes"),)),
        _functor(kernel, about, handed),
    ]


def epilogue_text(kernel: Kernel) -> list[str]:
    """What becomes of the elements of a result: a function of a packet, and a functor of it."""
    handed = "const float (&product)[kCount]"
    about = "// What becomes of the product: kCount neighbours of one row, from position `at` on."
    packet = packet_function(kernel, (handed.replace("kCount", "kLanes"),))
    return [packet, _functor(kernel, about, handed)]


def _functor(kernel: Kernel, about: str, handed: str) -> str:
    """`handed`: the parameter for the values of a packet."""
    values = handed[handed.index("&") + 1 : handed.index(")")]
    pointers = [f"{pointer_to(b)} {b.name};" for b in kernel.buffers]
    arguments = [b.name for b in kernel.buffers]
    arguments += [f"Index({name})" for name in extents(kernel)]
    packet = f"{packet_name(kernel)}<kCount>"
    lines = [
        about,
        f"struct {epilogue_name(kernel)} {{",
        f"  static constexpr int kLanes = {kernel.lanes};  // the most neighbours at once",
        *(f"  {line}" for line in pointers),
        *(f"  int64_t {name};" for name in extents(kernel)),
        "",
        "  template <int kCount, typename Index>",
        f"  __device__ __forceinline__ void operator()(Index at, {handed}) const {{",
        call(packet, [*arguments, "at", values], 4),
        "  }",
        "};",
    ]
    return "\n".join(lines)


def epilogue_name(kernel: Kernel) -> str:
    """The name of its functor, or of a prologue's."""
    return f"{kernel.name}_{kernel.variant}"


def pointer_to(buffer: Buffer) -> str:
    """The type of a pointer to its elements."""
    return f"{'' if buffer.written else 'const '}{STORAGE[buffer.dtype]}*"


def _size_entries(contraction: Contraction) -> str:
    mode, name = _mode(contraction), contraction.group
    computed = "computed_" if contraction.prologue else ""
    extents_text = [f"int64_t {name}" for name in EXTENTS]
    product = f"  const op::Product product{{{{}}, {{}}, {', '.join(EXTENTS)}}};"
    lines = [
        head(f'extern "C" int64_t {name}_workspace', [*extents_text, "int held"], " {"),
        product,
        f"  return op::{computed}workspace_bytes<{mode}>(product, held);",
        "}",
        "",
        head(f'extern "C" int64_t {name}_held', extents_text, " {"),
        product,
        f"  return op::held_bytes<{mode}>(product);",
        "}",
    ]
    return "\n".join(lines)


def _entry(contraction: Contraction) -> str:
    kernel, prologue = contraction.epilogue, contraction.prologue
    data = {"a": "nullptr" if prologue else "a_data", "b": "b_data"}
    a, b = (
        f"{{{data[side]}, {', '.join(s for s in STRIDES if s.startswith(side))}}}" for side in "ab"
    )
    made = "contract_computed" if prologue else "contract"
    given = ["product", "memory", *(["operand"] if prologue else []), "epilogue"]
    given += ["narrow", "aligned", "stream"]
    lines = [
        head(f'extern "C" int {kernel.name}_contract', entry_parameters(contraction), " {"),
        f"  const op::Product product{{{a},",
        f"                            {b},",
        f"                            {', '.join(EXTENTS)}}};",
        "  const op::Memory memory{workspace, held, changed};",
        *([_construction("operand", prologue.kernel)] if prologue else []),
        _construction("epilogue", kernel),
        "  // 32-bit positions must not wrap round.",
        "  const bool narrow = num_batches * num_rows * num_columns < (1ll << 31) &&",
        *(
            ["                      num_batches * num_rows * num_inner < (1ll << 31) &&"]
            if prologue
            else []
        ),
        "                      max_offset < (1ll << 31);",
        call(f"return op::{made}<{_mode(contraction)}>", given, 2),
        "}",
    ]
    return "\n".join(lines)


def _construction(variable: str, kernel: Kernel) -> str:
    """The definition of a functor."""
    values = [f"static_cast<{pointer_to(b)}>({b.name})" for b in kernel.buffers]
    values += extents(kernel)
    start = f"  const {epilogue_name(kernel)} {variable}{{"
    line = f"{start}{', '.join(values)}}};"
    if len(line) <= 100:
        return line
    return "\n".join([start, *(f"      {value}," for value in values), "  };"])


def entry_parameters(contraction: Contraction) -> list[str]:
    """The parameters of the entry that makes the product, with their types."""
    a, b = (
        [f"const void* {side}_data", *(f"int64_t {s}" for s in STRIDES if s.startswith(side))]
        for side in "ab"
    )
    buffers = contraction.touched
    return [
        *(a[1:] if contraction.prologue else a),
        *b,
        *(f"int64_t {name}" for name in EXTENTS),
        *(f"{'' if b.written else 'const '}void* {b.name}" for b in buffers),
        *(f"int64_t {extent.name}" for extent in contraction.extents),
        *("int64_t max_offset", "int aligned"),
        *("void* workspace", "void* held", "int changed", "void* stream"),
    ]
