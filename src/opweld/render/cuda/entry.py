"""The C function by which the host runs kernels that have a text for each layout: it reads a table
of operands and results, as those of functors do, and chooses.

    int <group>_launch(const TensorView* operands, void* stream)
    int64_t <group>_scratch(const TensorView* operands)    bytes of what parts of rows come to

It returns a cudaError_t, or from -1 on the first operand that does not fit. Memory for parts of
rows is an operand behind all others; sizes that no operand shows are those of one behind the
inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...ir.expr import Size, product, symbols_of
from ...ir.kernels.convolution import Convolving
from ...ir.kernels.kernel import Buffer, Kernel, Pointwise
from ...ir.kernels.reduction import Folding, Reduction, Scan
from ...ir.operator import places_of_sizes, reads_in_place
from ..c import STORAGE, index_text, whole_packets
from ..layout import COLUMNS, call, folded, head
from .cooperative_rows import has_partials
from .reduce_rows import keeps_results

_Of = Kernel | Folding
ByLayout = Pointwise | Reduction | Scan
"""What may have a text for each layout."""
Tabled = ByLayout | Convolving
"""What operators hand a table of tensors over to; others are given what they need of matrices."""


def entry_pieces(lowered: ByLayout) -> set[str]:
    """Names of the device library's pieces that the function uses."""
    types = {STORAGE[buffer.dtype].removeprefix("op::") for buffer in lowered.buffers}
    same = isinstance(lowered, Pointwise) and reads_in_place(lowered)
    return {"Operands", *(f"type_of_{name}" for name in types), *({"lie_alike"} if same else ())}


def given_sizes(lowered: ByLayout) -> tuple[str, ...]:
    """The sizes that no input shows, in the order in which they are given."""
    return tuple(sorted(_needed(lowered) - _shown(lowered).keys()))


def entry(lowered: ByLayout) -> str:
    """The function; before it, where there is memory for parts of rows, the one that tells how
    much.
    """
    table, group = _Table(lowered), lowered.group
    body = [
        *table.sizes(_needed(lowered)),
        *_operands(lowered),
        *_counts(lowered),
        f"  if (call.misfit || {_number(lowered)} == 0) return call.misfit;",
        *([f"  const int64_t pieces = {group}_pieces(num_rows, length);"] if table.cut else []),
        folded(f"  if ({_contiguous_test(lowered, table)}) {{"),
        call(f"  return {_name(lowered.contiguous)}", table.arguments(lowered.contiguous), 2),
        "  }",
        call(f"return {_name(lowered.strided)}", table.arguments(lowered.strided), 2),
    ]
    params = ["const TensorView* operands", "void* stream"]
    start = head(f'extern "C" int {group}_launch', params, " {")
    scratch = [_scratch(lowered, table)] if takes_scratch(lowered) else []
    return "\n".join([*scratch, start, *table.names(body), *body, "}"])


def _operands(lowered: ByLayout) -> list[str]:
    """The statement that looks at all of them."""
    start = "  const op::Operands call(operands, {"
    end = f"}}, {len(_inputs(lowered))});" if given_sizes(lowered) else "});"
    types = [*map(_type, [*_inputs(lowered), *_results(lowered)])]
    line = f"{start}{', '.join(types)}{end}"
    if len(line) <= COLUMNS:
        return [line]
    return [start + f",\n{' ' * len(start)}".join(types) + end]


class _Table:
    """Where the table has what kernels are given."""

    def __init__(self, lowered: ByLayout) -> None:
        self.lowered = lowered
        self.cut = takes_scratch(lowered)
        self.shown = _shown(lowered)
        self.given = given_sizes(lowered)
        places = [*range(len(_inputs(lowered)))]
        behind = len(places) + bool(self.given)
        places += [behind + number for number in range(len(lowered.buffers) - len(places))]
        ordered = [*_inputs(lowered), *_results(lowered)]
        self.place = {b.name: place for b, place in zip(ordered, places, strict=True)}

    def names(self, body: list[str]) -> list[str]:
        """The statement that names the operands and results of a body."""
        text = "\n".join(body)
        used = [name for name in self.place if re.search(rf"\b{name}\.", text)]
        named = ", ".join(f"&{name} = operands[{self.place[name]}]" for name in used)
        return [folded(f"  const TensorView {named};")] if used else []

    def sizes(self, needed: Iterable[str]) -> list[str]:
        """The statements that read sizes."""
        found = list[str]()
        for name in sorted(needed):
            if name in self.shown:
                place, axis = self.shown[name]
                found.append(f"{_inputs(self.lowered)[place].name}.sizes[{axis}]")
            else:
                place = len(_inputs(self.lowered))
                found.append(f"operands[{place}].sizes[{self.given.index(name)}]")
        pairs = zip(sorted(needed), found, strict=True)
        return [f"  const int64_t {name} = {text};" for name, text in pairs]

    def arguments(self, of: _Of) -> list[str]:
        """What a kernel of one layout is given."""
        pointers = [f"{buffer.name}.data" for buffer in of.buffers]
        extents = [
            e.name if e.buffer is None else f"{e.buffer}.strides[{e.axis}]" for e in of.extents
        ]
        counts = ["num_elems"] if isinstance(of, Kernel) else ["num_rows", "length"]
        behind = len(self.place) + bool(self.given)
        partials = ["pieces", f"operands[{behind}].data"] if self.cut else []
        return [*pointers, *extents, *counts, *partials, "call.reach", "call.aligned", "stream"]


def _scratch(lowered: ByLayout, table: _Table) -> str:
    group = lowered.group
    body = [
        *table.sizes(_symbols(_row_sizes(lowered))),
        *_counts(lowered),
        f"  return {group}_pieces(num_rows, length) * num_rows * {group}_partial_bytes();",
    ]
    start = f'extern "C" int64_t {group}_scratch(const TensorView* operands) {{'
    return "\n".join([start, *table.names(body), *body, "}"])


def _name(of: _Of) -> str:
    return f"{of.name}_{of.variant}"


def _type(buffer: Buffer) -> str:
    sizes = ", ".join(index_text(size, str) for size in buffer.shape)
    return f"{{op::type_of<{STORAGE[buffer.dtype]}>, {{{sizes}}}}}"


def _inputs(lowered: ByLayout) -> list[Buffer]:
    return sorted((b for b in lowered.buffers if not b.written), key=lambda b: b.source)


def _results(lowered: ByLayout) -> list[Buffer]:
    return sorted((b for b in lowered.buffers if b.written), key=lambda b: b.source)


def takes_scratch(lowered: Tabled) -> bool:
    """Whether kernels are given memory: for what they pack, or fold of pieces."""
    if isinstance(lowered, Convolving) or keeps_results(lowered):
        return True
    return not isinstance(lowered, Pointwise) and has_partials(lowered)


def _row_sizes(lowered: ByLayout) -> list[Size]:
    return [] if isinstance(lowered, Pointwise) else [lowered.num_rows, lowered.length]


def _counts(lowered: ByLayout) -> list[str]:
    if isinstance(lowered, Pointwise):
        return [f"  const int64_t num_elems = {index_text(product(lowered.shape), str)};"]
    rows, length = (index_text(size, str) for size in (lowered.num_rows, lowered.length))
    return [f"  const int64_t num_rows = {rows};", f"  const int64_t length = {length};"]


def _number(lowered: ByLayout) -> str:
    return "num_elems" if isinstance(lowered, Pointwise) else "num_rows"


def _symbols(sizes: Iterable[Size]) -> set[str]:
    return {name for size in sizes for name in symbols_of(size)}


def _needed(lowered: ByLayout) -> set[str]:
    """The sizes by their names, that are in the function."""
    kernels: list[_Of] = [lowered.contiguous, lowered.strided]
    named = {e.name for each in kernels for e in each.extents if e.buffer is None}
    shapes = _symbols(size for buffer in lowered.buffers for size in buffer.shape)
    tested = _symbols(lowered.contiguous.multiples)
    whole = lowered.shape if isinstance(lowered, Pointwise) else ()
    return named | shapes | tested | _symbols([*_row_sizes(lowered), *whole])


def _shown(lowered: ByLayout) -> dict[str, tuple[int, int]]:
    """The input and the axis that show each size."""
    return places_of_sizes((buffer.shape, buffer.listed) for buffer in _inputs(lowered))


def _contiguous_test(lowered: ByLayout, table: _Table) -> str:
    """Whether the kernel for contiguous operands is right for a call."""
    of = lowered.contiguous
    whole = whole_packets(of.multiples, of.lanes)
    if not isinstance(lowered, Pointwise) or not reads_in_place(lowered):
        return " && ".join(["call.contiguous", *whole])
    # Elementwise throughout: any layout that all tensors share will do. The others are one element.
    shape = _results(lowered)[0].shape
    alike = [table.place[b.name] for b in lowered.buffers if b.written or b.shape == shape]
    return f"op::lie_alike(operands, {{{', '.join(map(str, alike))}}})"
