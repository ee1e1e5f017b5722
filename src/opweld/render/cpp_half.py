"""Operands of half, which C++ kernels convert apart from their arithmetic, block by block."""

from __future__ import annotations

from ..ir.expr import Size, coefficient, substitute, symbol
from ..ir.kernel import Kernel, Load, Store
from ..ir.types import DType
from .c import Integers, named_in
from .cpp_loops import rows_are_short
from .layout import indented


def blocked(kernel: Kernel, first: str, last: str, element: list[str]) -> list[str]:
    """The innermost loop in blocks: widened before, narrowed behind."""
    var = kernel.loops[-1].var
    position = [f"const int64_t {var} = block + lane;"] if named_in((var,), str(element)) else []
    body = [
        f"const int64_t rest = {last} - block;",
        "const int64_t count = rest < op::kBlock ? rest : op::kBlock;",
        *(line for load in half_loads(kernel) for line in _widened(kernel, load)),
        *(f"float {store.buffer}_block[op::kBlock];" for store in half_stores(kernel)),
        "#pragma omp simd",
        "for (int64_t lane = 0; lane < count; ++lane) {",
        *indented(position + element, 2),
        "}",
        *(_narrowed(kernel, store) for store in half_stores(kernel)),
    ]
    blocks = f"for (int64_t block = {first}; block < {last}; block += op::kBlock) {{"
    return [blocks, *indented(body, 2), "}"]


def half_loads(kernel: Kernel) -> list[Load]:
    """The loads whose elements lie side by side in memory, and are of half."""
    if rows_are_short(kernel):
        return []
    loads = [d for d in kernel.definitions if isinstance(d, Load) and not d.guard]
    return [d for d in loads if d.dtype is DType.F16 and _lies_side_by_side(kernel, d.address)]


def half_stores(kernel: Kernel) -> list[Store]:
    if rows_are_short(kernel):
        return []
    stores = [store for store in kernel.stores if store.dtype is DType.F16]
    return [store for store in stores if _lies_side_by_side(kernel, store.address)]


def _lies_side_by_side(kernel: Kernel, address: Size) -> bool:
    return coefficient(address, kernel.loops[-1].var) == 1


def block_pieces(kernel: Kernel) -> set[str]:
    widened = {"widen_block"} if half_loads(kernel) else set[str]()
    return widened | ({"narrow_block"} if half_stores(kernel) else set[str]())


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
    return Integers(str).text(substitute(address, {kernel.loops[-1].var: symbol("block")}))
