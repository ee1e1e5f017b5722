"""Matrix products as CUDA C++: prologue and epilogue as functors, the entries that the host calls.

The product itself stands in the device library; here is what becomes of its elements, and how those
of operand a come about where it is computed. In C:
    int64_t <group>_workspace(const void* product, int held)   bytes of one call, if it takes any
    int64_t <group>_held(const void* product)                  bytes of b, if it is kept
    int <group>_contract(const void* product, operands and results of prologue and epilogue, their
                         integers, int64_t max_offset, int aligned,
                         void* workspace, void* held, int changed, void* stream)
`product` is an op::Product: where a and b lie, with the strides of batch, row and sum in elements,
and the extents; a computed operand has no pointer. `max_offset` and `aligned` speak of what
prologue and epilogue touch, as in a launcher; the result is a cudaError_t.
"""

from __future__ import annotations

from ....ir.kernels.kernel import Buffer, Contraction, Kernel
from ....ir.kernels.product import MOST_SQUARES, PARTS, SIDES, Form, FormRow, Mode
from ...c import STORAGE
from ...element import element_text, title
from ...layout import call, head
from ..packet import extents, packet_function, packet_name

MODES = {
    Mode.FAITHFUL: "Faithful",
    Mode.TF32: "Tf32",
    Mode.HALF: "Half",
    Mode.BFLOAT16: "Bfloat16",
}
HOLDING_PIECES = {"held_weights"}


_STORED = {Mode.HALF: "half", Mode.BFLOAT16: "bfloat16"}
"""The type of elements that are no float."""

_FORM_PIECES = {
    Form.RING: "RingRows",
    Form.SLICES: "SliceRows",
    Form.COLUMNS: "ColumnRows",
    Form.SHORT: "ShortSums",
    Form.FMA: "FmaTiles",
}
_LIVE = {"sm90": "LiveSm90", "mma": "LiveMma"}
_TILES = {"sm90": "TilesSm90", "mma": "TilesMma"}


def contraction_pieces(contraction: Contraction) -> set[str]:
    """Names of the device library's pieces that its text uses."""
    forms = {row.form for row in contraction.forms}
    made = "contract_computed" if contraction.prologue else "contract"
    needed = {made, "product_bytes"} if needs_workspace(contraction) else {made}
    needed |= {_FORM_PIECES[form] for form in forms if form in _FORM_PIECES}
    if Form.LIVE in forms:
        needed |= {_LIVE[contraction.family]}
    if Form.TILES in forms:
        needed |= _tile_pieces(contraction)
    if contraction.mode in _STORED:
        needed |= {_STORED[contraction.mode]}
    return needed | HOLDING_PIECES if contraction.held else needed


def _tile_pieces(contraction: Contraction) -> set[str]:
    mode, family = contraction.mode, contraction.family
    if mode in PARTS:
        operand = "HeldOperand" if contraction.held else "NewOperand"
        sums = {"SplitSums"} if family == "sm90" else set()
        return {"SplitTiles", _TILES[family], MODES[mode], operand} | sums
    products = {"WholeSums", *(f"wgmma_{_STORED[mode]}_{columns}" for columns in (128, 256))}
    own = products if family == "sm90" else set()
    return {"WholeTiles", _TILES[family], MODES[mode]} | own


def contraction_text(contraction: Contraction) -> str:
    """Everything of one product: element functions, prologue and epilogue, its entries."""
    kernel = contraction.epilogue
    parts = [
        title(kernel, contraction.buffers),
        *(_prologue_text(contraction.prologue.kernel) if contraction.prologue else []),
        element_text(kernel.element, "cuda"),
        *epilogue_text(kernel),
        _forms(contraction),
        *_size_entries(contraction),
        _entry(contraction),
    ]
    return "\n\n".join(parts) + "\n"


def _forms(contraction: Contraction) -> str:
    """The type of how it is made, with what each form takes."""
    rows = contraction.forms
    told = [f"//   {r.form.value}: {r.range_text(contraction.mode)}" for r in rows[:-1]]
    told.append(f"//   {rows[-1].form.value}: {'all others' if told else 'all'}")
    listed = ",\n    ".join(_form(contraction, row) for row in rows)
    lines = ["// By which form the product is made, the first that takes it:", *told]
    return "\n".join([*lines, f"using {contraction.group}_forms = op::Forms<\n    {listed}>;"])


def _form(contraction: Contraction, row: FormRow) -> str:
    mode = f"op::{MODES[contraction.mode]}"
    match row.form:
        case Form.RING:
            return f"op::FewRows<op::RingRows<{row.rows}>>"
        case Form.SLICES:
            return f"op::FewRows<op::SliceRows<{_bool(row.across)}>>"
        case Form.COLUMNS:
            return f"op::FewRows<op::ColumnRows<{row.rows}, {_bool(row.packed)}>>"
        case Form.SHORT:
            return "op::ShortSums"
        case Form.LIVE:
            return f"op::LiveTiles<op::{_LIVE[contraction.family]}>"
        case Form.TILES if contraction.mode in PARTS:
            operand = "op::HeldOperand" if contraction.held else "op::NewOperand"
            return f"op::SplitTiles<{mode}, {operand}, op::{_TILES[contraction.family]}>"
        case Form.TILES:
            return f"op::WholeTiles<{mode}, op::{_TILES[contraction.family]}>"
        case Form.FMA:
            few = f", {row.side}, {MOST_SQUARES}" if row.side < SIDES[-1] else ""
            return f"op::FmaTiles<{_storage(contraction)}{few}>"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _storage(contraction: Contraction) -> str:
    return f"op::{_STORED[contraction.mode]}" if contraction.mode in _STORED else "float"


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


def _size_entries(contraction: Contraction) -> list[str]:
    name, forms = contraction.group, f"{contraction.group}_forms"
    entries = []
    if needs_workspace(contraction):
        begin = head(f'extern "C" int64_t {name}_workspace', size_parameters(), " {")
        entries.append(f"{begin}\n  return op::workspace_bytes<{forms}>(product, held);\n}}")
    if contraction.held:
        begin = head(f'extern "C" int64_t {name}_held', held_parameters(), " {")
        entries.append(f"{begin}\n  return op::held_bytes<{forms}>(product);\n}}")
    return entries


def _entry(contraction: Contraction) -> str:
    kernel, prologue = contraction.epilogue, contraction.prologue
    made = f"contract_computed<{contraction.group}_forms>"
    if prologue is None:
        made = f"contract<{contraction.group}_forms, {_storage(contraction)}>"
    given = ["product", "{workspace, held, changed}", *(["operand"] if prologue else [])]
    given += ["epilogue", "max_offset", "aligned", "stream"]
    lines = [
        head(f'extern "C" int {kernel.name}_contract', entry_parameters(contraction), " {"),
        *([_construction("operand", prologue.kernel)] if prologue else []),
        _construction("epilogue", kernel),
        call(f"return op::{made}", given, 2),
        "}",
    ]
    return "\n".join(lines)


def _construction(variable: str, kernel: Kernel) -> str:
    """The definition of a functor of a kernel."""
    values = [f"static_cast<{pointer_to(b)}>({b.name})" for b in kernel.buffers]
    values += extents(kernel)
    start = f"  const {epilogue_name(kernel)} {variable}{{"
    line = f"{start}{', '.join(values)}}};"
    if len(line) <= 100:
        return line
    return "\n".join([start, *(f"      {value}," for value in values), "  };"])


def needs_workspace(contraction: Contraction) -> bool:
    """Whether one of its forms takes memory for a call."""
    return any(row.form not in (Form.FMA, Form.SHORT) for row in contraction.forms)


def size_parameters() -> list[str]:
    """The parameters of the entry that says how much workspace the product takes, with their
    types.
    """
    return ["const void* product", "int held"]


def held_parameters() -> list[str]:
    """The parameters of the entry that says how much the kept form of b takes."""
    return ["const void* product"]


def entry_parameters(contraction: Contraction) -> list[str]:
    """The parameters of the entry that makes the product."""
    return [
        "const void* product",
        *(f"{'' if b.written else 'const '}void* {b.name}" for b in contraction.touched),
        *(f"int64_t {extent.name}" for extent in contraction.extents),
        *("int64_t max_offset", "int aligned"),
        *("void* workspace", "void* held", "int changed", "void* stream"),
    ]
