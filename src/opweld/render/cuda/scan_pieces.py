"""Rows scanned in one pass: blocks keep pieces of them in registers, and tell each other what these
come to (LookBack and ScanPiece in scan_cuda.cuh).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import divides, substitute
from ...ir.kernels.kernel import Access, Load
from ...ir.kernels.reduction import Folding, Scan
from ...ir.ops import Op
from ..layout import broken, call, folded, head
from ..scan_state import carry_name, scanned_folds, state_bytes
from .scan_walk import steps, ways
from .teams import cut_entries
from .walk import (
    Function,
    casts,
    folds_name,
    integers,
    known_name,
    operand_parameters,
    packet_type,
    pointers,
    prefix,
)

# Elements of a piece of what takes several instructions to combine; rows of two times as many are
# cut in pieces.
_PIECE = 8192
# Registers of the states of a thread. What a multiprocessor has under way while pieces wait for
# others is what it keeps: with 64, two blocks keep 128 KB, and with 32, three keep 96 (sums of four
# rows of 2^28: 2.47 and 2.77 ms, of 64 of 2^22 0.565 and 0.594). What takes long to combine gains
# by more blocks (the largest so far of four rows: 3.42 ms, and 3.72 with 64). Single elements pass
# through 17 KB of shared memory, and more spill. (H200, 2026-11-23, CUDA 13.0.)
_REGISTERS, _REGISTERS_OF_SLOW, _REGISTERS_OF_SINGLES = 64, 32, 16
_QUICK = (Op.CUMSUM, Op.CUMPROD)
# Threads of a block, most of one of what is slow, and of one of states of more than so many words.
_THREADS, _MOST_THREADS, _MOST_WIDE, _WIDE_STATE = 256, 1024, 512, 4


@dataclass(frozen=True, slots=True)
class PieceInstance:
    """`threads` of a block, each of which keeps `items` packets of `lanes`."""

    threads: int
    items: int
    lanes: int

    @property
    def elems(self) -> int:
        return self.threads * self.items * self.lanes


def piece_instance(folding: Folding, lanes: int) -> PieceInstance:
    """For packets of so many lanes."""
    words = max(state_bytes(folding) // 4, 1)
    if lanes == 1:
        return PieceInstance(_THREADS, max(_REGISTERS_OF_SINGLES // words, 1), 1)
    if words == 1 and all(fold.op in _QUICK for fold in scanned_folds(folding)):
        return PieceInstance(_THREADS, _REGISTERS // lanes, lanes)
    items = max(_REGISTERS_OF_SLOW // (words * lanes), 1)
    most = _MOST_THREADS if words <= _WIDE_STATE else _MOST_WIDE
    return PieceInstance(_power_of_two(_PIECE // (items * lanes), most), items, lanes)


def _power_of_two(number: int, most: int) -> int:
    """The greatest one up to both."""
    return 1 << (min(number, most).bit_length() - 1)


def smallest_piece(folding: Folding) -> int:
    """The elements of a piece, of whatever packets the operands at a launch allow."""
    return min(piece_instance(folding, lanes).elems for lanes in (1, folding.lanes))


def piece_entries(scan: Scan) -> str:
    """In how many pieces a row is cut at most, and the bytes that each takes."""
    folding = scan.contiguous
    pieces = f"num_rows, length, {_PIECE}, {smallest_piece(folding)}"
    slot = f"op::LookBack<{carry_name(folding)}, 32>::Slot"
    return cut_entries(scan.group, f"op::scan_pieces_for({pieces})", f"2 * sizeof({slot})")


def piece_kernel(
    folding: Folding,
    scan: Scan,
    load: Function | None,
    functions: list[Function],
    operands: tuple[str, ...],
) -> str:
    """Each block takes the next piece."""
    carry = carry_name(folding)
    params = [*operand_parameters(folding, operands), "Index num_rows", "Index length"]
    params += ["unsigned pieces", "void* partials"]
    types = f"{folds_name(folding, 0)}, {known_name(folding)}, {packet_type(folding)}, {carry}"
    rest = "true" if _may_have_rest(folding, scan) else "false"
    lines = [
        "template <int kTeam, int kItems, int kLanes, typename Index>",
        "__global__ void",
        "__launch_bounds__(kTeam, op::kPieceBlocks<kTeam, kItems * kLanes, Index>)",
        head(f"{prefix(folding)}_piece_kernel", params, " {"),
        f"  const op::LookBack<{carry}, kTeam> before(partials, pieces, num_rows);",
        "  const unsigned block = before.block();",
        "  const Index row = block % num_rows, piece = block / num_rows;",
        f"  const op::ScanPiece<kTeam, kItems, kLanes, {ways(scan)}, {rest}, Index> scan(",
        "      piece * (kTeam * kItems), length);",
        *steps(load, functions, any_lanes=True),
        f"  const auto carried = [&](const {carry}& mine) {{",
        "    return before.carried(mine, row, piece);",
        "  };",
        f"  scan.template walk<{types}>(load, scanned, carried, after);",
        "}",
    ]
    return "\n".join(folded(line) for text in lines for line in text.split("\n"))


def piece_launcher(folding: Folding, operands: tuple[str, ...]) -> str:
    """Launches an instance for rows in pieces."""
    params = [
        *pointers(folding, operands),
        *(f"int64_t {name}" for name in (*integers(folding, operands), "num_rows", "length")),
        *("void* partials", "cudaStream_t stream"),
    ]
    arguments = [*casts(folding, operands), "Index(num_rows)", "Index(length)"]
    arguments += ["(unsigned int)count", "partials"]
    before = f"op::LookBack<{carry_name(folding)}, kTeam>"
    name = f"{prefix(folding)}_piece_kernel<kTeam, kItems, kLanes, Index>;"
    lines = [
        "template <int kTeam, int kItems, int kLanes, typename Index>",
        head(f"static void {prefix(folding)}_piece_launch", params, " {"),
        "  constexpr int64_t kPiece = kTeam * kItems * kLanes;",
        "  const int64_t count = (length + kPiece - 1) / kPiece;",
        f"  const int64_t bytes = {before}::bytes(count, num_rows);",
        "  cudaMemsetAsync(partials, 0, bytes, stream);",
        "  const unsigned int blocks = num_rows * count;",
        *broken("  const auto kernel =", name),
        call("kernel<<<blocks, kTeam, 0, stream>>>", arguments, 2),
        "}",
    ]
    return "\n".join(lines)


def piece_lines(folding: Folding, scan: Scan, given: list[str]) -> list[str]:
    """Of an entry: what it does with rows in pieces."""
    lines = [
        "  if (pieces > 1) {",
        *_chosen("    auto in_pieces =", folding, 1),
    ]
    if folding.lanes > 1 and folding.variant == "contiguous":
        whole = f"length % {folding.lanes} == 0"
        if _may_have_rest(folding, scan) and _is_aligned_alone(folding):
            whole = f"(num_rows == 1 || {whole})"
        lines += [
            f"    if (aligned && {whole}) {{",
            *_chosen("      in_pieces =", folding, folding.lanes),
            "    }",
        ]
    return [*lines, call("in_pieces", given, 4), "    return int(cudaGetLastError());", "  }"]


def _may_have_rest(folding: Folding, scan: Scan) -> bool:
    """Whether a row may not be a whole number of packets."""
    return not divides(folding.lanes, scan.length)


def _is_aligned_alone(folding: Folding) -> bool:
    """Whether packets of a row that is the only one are aligned, whatever its length is."""
    of_loops = {loop.var: 0 for loop in (*folding.kept, *folding.reduced)}
    kernels = [step.walk.kernel for step in folding.steps]
    places = [store.address for kernel in kernels for store in kernel.stores]
    for kernel in kernels:
        loads = [d for d in kernel.definitions if isinstance(d, Load)]
        places += [load.address for load in loads if load.access is Access.VECTOR]
    return all(divides(folding.lanes, substitute(place, of_loops, {})) for place in places)


def _chosen(start: str, folding: Folding, lanes: int) -> list[str]:
    of = piece_instance(folding, lanes)
    name = f"{prefix(folding)}_piece_launch<{of.threads}, {of.items}, {of.lanes}"
    indent = " " * (len(start) - len(start.lstrip()) + 4)
    return [f"{start} narrow ? {name}, uint32_t>", f"{indent}: {name}, uint64_t>;"]
