"""Operands of half, which C++ kernels convert apart from their arithmetic, block by block."""

from __future__ import annotations

from ...ir.expr import Size, coefficient, substitute_unsimplified, symbol
from ...ir.kernels.kernel import Kernel, Load, Store
from ...ir.types import DType
from ..c import Integers, named_in
from ..layout import indented


def blocked(
    var: str, first: str, last: str, element: list[str], loads: list[Load], stores: list[Store]
) -> list[str]:
    """The innermost loop in blocks: `loads` widened before, `stores` narrowed behind."""
    position = [f"const int64_t {var} = block + lane;"] if named_in((var,), str(element)) else []
    body = [
        f"const int64_t rest = {last} - block;",
        "const int64_t count = rest < op::kBlock ? rest : op::kBlock;",
        *(line for load in loads for line in widened(load, var, "block", "count", "op::kBlock")),
        *(f"float {store.buffer}_block[op::kBlock];" for store in stores),
        "#pragma omp simd",
        "for (int64_t lane = 0; lane < count; ++lane) {",
        *indented(position + element, 2),
        "}",
        *(narrowed(store, var, "block", "count") for store in stores),
    ]
    blocks = f"for (int64_t block = {first}; block < {last}; block += op::kBlock) {{"
    return [blocks, *indented(body, 2), "}"]


def half_loads(kernel: Kernel, var: str) -> list[Load]:
    """The loads of half whose elements lie side by side in memory along loop `var`."""
    loads = [d for d in kernel.definitions if isinstance(d, Load) and not d.guard]
    return [d for d in loads if d.dtype is DType.F16 and coefficient(d.address, var) == 1]


def half_stores(kernel: Kernel, var: str) -> list[Store]:
    stores = [store for store in kernel.stores if store.dtype is DType.F16]
    return [store for store in stores if coefficient(store.address, var) == 1]


def block_pieces(loads: list[Load], stores: list[Store]) -> set[str]:
    return ({"widen_block"} if loads else set[str]()) | ({"narrow_block"} if stores else set())


def of_block(load: Load) -> str:
    """What defines an element that was widened with its block."""
    return f"const float {load.name} = {load.name}_block[lane];"


def in_block(store: Store) -> str:
    """What leaves an element to be narrowed with its block."""
    return f"{store.buffer}_block[lane] = value{store.result};"


def widened(load: Load, var: str, block: str, count: str, size: str) -> list[str]:
    """`count` elements from `block` on, of at most `size`."""
    start = f"{load.buffer} + {_at_block(load.address, var, block)}"
    return [
        f"float {load.name}_block[{size}];",
        f"op::widen_block({start}, {count}, {load.name}_block);",
    ]


def narrowed(store: Store, var: str, block: str, count: str) -> str:
    start = f"{store.buffer} + {_at_block(store.address, var, block)}"
    return f"op::narrow_block({store.buffer}_block, {count}, {start});"


def _at_block(address: Size, var: str, block: str) -> str:
    return Integers(str).text(substitute_unsimplified(address, {var: symbol(block)}))
