"""The host code of a reduction or a scan for the CPU: how many rows, which folding, the pieces of
cut rows.
"""

from __future__ import annotations

from ...ir.expr import symbols_of
from ...ir.kernels.reduction import Folding, Reduction, Scan
from ...ir.operator import Operator
from ..c import index_text, whole_packets
from .parts import (
    all_of,
    before_gathers,
    behind_gathers,
    called,
    extents,
    pointers,
    reads,
    references,
    wrapped,
)


def reduction_run(operator: Operator, reduction: Reduction | Scan) -> str:
    """Chooses the folding by the layouts at this call and runs it."""
    names = [a.name for a in operator.arguments] + [r.name for r in operator.results]
    whole = whole_packets(reduction.contiguous.multiples, reduction.contiguous.lanes)
    call = _whole_rows
    if reduction.cut:
        call = _cut_scan if isinstance(reduction, Scan) else _cut_rows
    lines = [
        wrapped(f"void {operator.name}_run(", references(operator), ") {"),
        *reads(operator, _sizes(reduction)),
        f"  const int64_t num_rows = {index_text(reduction.num_rows, str)};",
        f"  const int64_t length = {index_text(reduction.length, str)};",
        "  if (num_rows == 0) return;",
        *before_gathers(reduction.strided),
        *(_partials(operator) if reduction.cut else []),
        f"  if ({all_of([*whole, *(f'{name}.is_contiguous()' for name in names)])}) {{",
        *call(operator, reduction.contiguous),
        "  } else {",
        *call(operator, reduction.strided),
        "  }",
        *behind_gathers(reduction.strided),
        "}",
    ]
    return "\n".join(lines)


def _sizes(reduction: Reduction | Scan) -> frozenset[str]:
    named = {extent.name for folding in reduction.foldings for extent in folding.extents}
    return frozenset(named | symbols_of(reduction.num_rows) | symbols_of(reduction.length))


def _whole_rows(operator: Operator, folding: Folding) -> list[str]:
    arguments = [*pointers(folding), *extents(folding), "begin", "end"]
    call = called(folding, f"{folding.name}_{folding.variant}(", arguments, ");", 10)
    return _side_by_side("num_rows", "host::rows_a_task(length)", "begin", "end", call)


def _partials(operator: Operator) -> list[str]:
    name, first = operator.name, operator.results[0].name
    return [
        "  const int64_t pieces = host::num_pieces(num_rows, length);",
        f"  const int64_t stride = num_rows * {name}_partial_bytes();",
        f"  const Tensor memory = host::bytes_beside({first}, pieces * stride);",
        "  char* const partials = static_cast<char*>(memory.mutable_data_ptr());",
    ]


def _cut_rows(operator: Operator, folding: Folding) -> list[str]:
    """With pieces, each piece of all rows; without, each row; then each row is finished."""
    operands = [*pointers(folding), *extents(folding)]
    start = f"{folding.name}_{folding.variant}"
    of_piece = ["0", "num_rows", "piece * length / pieces", "(piece + 1) * length / pieces"]
    fold = called(
        folding, f"{start}_fold(", [*operands, *of_piece, "partials + piece * stride"], ");", 12
    )
    place = f"partials + begin * {operator.name}_partial_bytes()"
    whole = called(
        folding, f"{start}_fold(", [*operands, "begin", "end", "0", "length", place], ");", 12
    )
    finishing = [*operands, "begin", "end", "pieces", "num_rows", place]
    finish = called(folding, f"{start}_finish(", finishing, ");", 10)
    pieces = [
        "for (int64_t piece = first; piece < last; ++piece) {",
        f"          {fold}",
        "        }",
    ]
    rows = "host::rows_a_task(length)"
    lines = [
        "    if (pieces > 1) {",
        *_indented(_side_by_side("pieces", "1", "first", "last", "\n".join(pieces))),
        "    } else {",
        *_indented(_side_by_side("num_rows", rows, "begin", "end", whole)),
        "    }",
        *_side_by_side("num_rows", "host::kGrain", "begin", "end", finish),
    ]
    return lines


def _cut_scan(operator: Operator, folding: Folding) -> list[str]:
    """With pieces, each piece is folded, and then scanned after those before; without, each row."""
    operands = [*pointers(folding), *extents(folding)]
    start = f"{folding.name}_{folding.variant}"
    of_piece = ["0", "num_rows", "piece * length / pieces", "(piece + 1) * length / pieces"]
    fold = called(
        folding, f"{start}_fold(", [*operands, *of_piece, "partials + piece * stride"], ");", 12
    )
    after = [*operands, *of_piece, "piece", "num_rows", "partials"]
    scan = called(folding, f"{start}_scan(", after, ");", 12)
    whole = [*operands, "begin", "end", "0", "length", "0", "0", "partials"]
    of_rows = called(folding, f"{start}_scan(", whole, ");", 12)
    each = "for (int64_t piece = first; piece < last; ++piece) {"
    loops = ["\n".join([each, f"          {call}", "        }"]) for call in (fold, scan)]
    rows = _side_by_side("num_rows", "host::rows_a_task(length)", "begin", "end", of_rows)
    return [
        "    if (pieces > 1) {",
        *(line for loop in loops for line in _indented(_of_pieces(loop))),
        "    } else {",
        *_indented(rows),
        "    }",
    ]


def _of_pieces(body: str) -> list[str]:
    return _side_by_side("pieces", "1", "first", "last", body)


def _side_by_side(count: str, grain: str, first: str, last: str, body: str) -> list[str]:
    head = f"torch::stable::parallel_for(0, {count}, {grain}"
    return [
        f"    {head}, [&](int64_t {first}, int64_t {last}) {{",
        f"      {body}",
        "    });",
    ]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
