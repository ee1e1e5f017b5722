"""Pieces of the host code's functions: parameters, sizes, shapes, long calls."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.kernel import Kernel
from ..ir.operator import Operator
from ..ir.reduction import Folding
from ..ir.types import DType, TensorType
from .c import index_text

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


def shape(type: TensorType) -> str:
    sizes = ", ".join(index_text(size, str) for size in type.shape)
    return f"std::array<int64_t, {type.rank}>{{{sizes}}}"


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
