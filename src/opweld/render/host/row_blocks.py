"""The host code of row blocks: the library's product of some rows, then the tail's kernels."""

from __future__ import annotations

from ...ir.kernels.kernel import RowBlocks
from ...ir.operator import Operator
from .parts import contiguous_test, range_call, reads, references, sizes_of_run, wrapped


def row_blocks_run(operator: Operator, tail: Operator, blocks: RowBlocks) -> str:
    """Makes the product in the memory of the first result, which its tail then overwrites."""
    first = operator.results[0].name
    lines = [
        wrapped(f"void {operator.name}_run(", references(operator), ") {"),
        *reads(operator, sizes_of_run(blocks.tail)),
        f"  const Tensor& {blocks.product} = {first};",
        f"  const bool alike = {contiguous_test(tail, blocks.tail)};",
        "  const auto tail = [&](int64_t begin, int64_t end) {",
        "    if (alike) {",
        f"      {range_call(blocks.tail.contiguous)}",
        "    } else {",
        f"      {range_call(blocks.tail.strided)}",
        "    }",
        "  };",
        f"  const host::RowsProduct product{{{_product(operator, blocks)}}};",
        f"  host::row_blocks<{blocks.rows}>(product, tail);",
        "}",
    ]
    return "\n".join(lines)


def _product(operator: Operator, blocks: RowBlocks) -> str:
    """The members of the device library's RowsProduct."""
    names = [argument.name for argument in operator.arguments]
    items = [
        f"host::as_rows({names[blocks.a]})",
        f"host::as_columns({names[blocks.b]}, {'true' if blocks.turned else 'false'})",
        "nullptr" if blocks.added is None else f"&{names[blocks.added]}",
        repr(float(blocks.beta)),
        repr(float(blocks.alpha)),
        f"host::as_rows({operator.results[0].name})",
    ]
    return wrapped("", items, "", 6)
