"""Pieces of the host code's functions: parameters, sizes, shapes, long calls."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.expr import product, symbols_of
from ...ir.kernels.kernel import Gather, Kernel, Load, Pointwise
from ...ir.kernels.reduction import Folding
from ...ir.operator import Operator, reads_in_place
from ...ir.types import DType, TensorType
from ..c import index_text, whole_packets
from ..cpp.statements import picks

SCALAR_TYPES = {
    DType.BOOL: "Bool",
    DType.U8: "Byte",
    DType.I8: "Char",
    DType.I16: "Short",
    DType.I32: "Int",
    DType.I64: "Long",
    DType.F16: "Half",
    DType.BF16: "BFloat16",
    DType.F32: "Float",
    DType.F64: "Double",
}


def references(operator: Operator) -> list[str]:
    """Parameters of the functions that are not registered."""
    names = [a.name for a in operator.arguments] + [r.name for r in operator.results]
    return [f"const Tensor& {n}" for n in names] + [f"int64_t {n}" for n in operator.sizes]


def reads(operator: Operator, needed: frozenset[str]) -> list[str]:
    return [
        f"  const int64_t {r.name} = {operator.arguments[r.argument].name}.size({r.axis});"
        for r in operator.reads
        if r.name in needed
    ]


def all_of(tests: Iterable[str]) -> str:
    return " &&\n      ".join(tests) or "true"


def pointers(kernel: Kernel | Folding) -> list[str]:
    return [f"{b.name}.{'mutable' if b.written else 'const'}_data_ptr()" for b in kernel.buffers]


def extents(kernel: Kernel | Folding) -> list[str]:
    return [e.name if e.buffer is None else f"{e.buffer}.stride({e.axis})" for e in kernel.extents]


def sizes(type: TensorType) -> str:
    """The sizes of a tensor in braces."""
    return f"{{{', '.join(index_text(size, str) for size in type.shape)}}}"


def shape(type: TensorType) -> str:
    return f"std::array<int64_t, {type.rank}>{sizes(type)}"


def scalar_type(type: TensorType) -> str:
    return f"ScalarType::{SCALAR_TYPES[type.dtype]}"


def wrapped(start: str, items: list[str], end: str, indent: int = 4) -> str:
    """A call or declaration, broken over lines where it would be long."""
    text = f"{start}{', '.join(items)}{end}"
    if len(text) + indent <= 96:
        return text
    lines, line = [], ""
    for item in items:
        if line and len(line) + len(item) + indent > 94:
            lines.append(line.rstrip())
            line = ""
        line += f"{item}, "
    lines.append(line.rstrip(", "))
    return start + "\n" + "\n".join(" " * indent + each for each in lines) + end


def sizes_of_run(fused: Pointwise) -> frozenset[str]:
    """Symbolic sizes that running its kernels names."""
    named = (e.name for kernel in fused.kernels for e in kernel.extents)
    tested = (name for size in fused.contiguous.multiples for name in symbols_of(size))
    return frozenset((*named, *tested)) | symbols_of(product(fused.shape))


def contiguous_test(operator: Operator, fused: Pointwise) -> str:
    """Whether the kernel for contiguous operands is right for the tensors of a call."""
    names = [a.name for a in operator.arguments] + [r.name for r in operator.results]
    first = operator.results[0]
    if not reads_in_place(fused):
        whole = whole_packets(fused.contiguous.multiples, fused.contiguous.lanes)
        return all_of([*whole, *(f"{name}.is_contiguous()" for name in names)])
    # Elementwise throughout: any layout that all tensors share will do. The others are one element.
    full = [a.name for a in operator.arguments if a.type.shape == first.type.shape]
    others = full + [r.name for r in operator.results[1:]]
    return all_of(f"host::same_layout({name}, {first.name})" for name in others)


def range_call(kernel: Kernel) -> str:
    """The call of a C++ kernel for the positions from begin to end."""
    arguments = [*pointers(kernel), *extents(kernel), "begin", "end"]
    return called(kernel, f"{kernel.name}_{kernel.variant}(", arguments, ");", 10)


def called(of: Kernel | Folding, start: str, arguments: list[str], end: str, indent: int) -> str:
    """The call of a C++ entry point, which may tell whether indices are in range."""
    start = f"inside &= {start}" if picks(_kernels(of)) else start
    return wrapped(start, arguments, end, indent)


def _kernels(of: Kernel | Folding) -> tuple[Kernel, ...]:
    return (of,) if isinstance(of, Kernel) else of.kernels


def before_gathers(kernel: Kernel | Folding) -> list[str]:
    """What stands before the calls of entry points that read by indices."""
    if not picks(_kernels(kernel)):
        return []
    lines = list[str]()
    for each in _kernels(kernel):
        of_load = {d.name: d.buffer for d in each.definitions if isinstance(d, Load)}
        for pick in (d for d in each.definitions if isinstance(d, Gather)):
            if not isinstance(pick.extent, int) and pick.index in of_load:
                extent = index_text(pick.extent, str)
                lines.append(f"  host::expect_elements({extent}, {of_load[pick.index]});")
    return [*dict.fromkeys(lines), "  host::Inside inside;"]


def behind_gathers(kernel: Kernel | Folding) -> list[str]:
    return ["  inside.require();"] if picks(_kernels(kernel)) else []
