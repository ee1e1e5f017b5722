"""Scans as CUDA C++: what is scanned and carried, kernels that walk once over rows, launchers.

Along rows a team of threads has a row; across rows a block has neighbouring rows as columns, each
scanned by several strips. Where rows are cut in pieces, a block along them keeps one in registers,
and blocks tell each other what theirs come to; across rows each piece is folded first, by the same
kernel without its second half, and then scanned from what the pieces before it come to. In C:
    int <group>_<variant>(operands, extents, int64_t num_rows, int64_t length,
                          [int64_t pieces, void* partials,] int64_t max_offset, int aligned,
                          void* stream)
    int64_t <group>_pieces(int64_t num_rows, int64_t length)    pieces of a row on this device
    int64_t <group>_partial_bytes()                             bytes of what a piece comes to
The last two are those of scans that may be cut; `partials` holds pieces x num_rows of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import Size
from ...ir.kernels.reduction import Folding, Scan
from ..element import element_text, title
from ..layout import broken, call, folded, head
from ..scan_state import (
    carry_name,
    carry_struct,
    known_struct,
    scanned_folds,
    state_bytes,
    state_struct,
    struct_pieces,
)
from .scan_pieces import piece_entries, piece_kernel, piece_launcher, piece_lines
from .scan_walk import steps, ways
from .teams import pieces_entries
from .walk import (
    Function,
    casts,
    folds_name,
    held_loads,
    integers,
    known_name,
    load_function,
    operand_parameters,
    packet_struct,
    packet_type,
    pointers,
    prefix,
    walk_function,
)

# Fewer rows than this leave room for as many threads as a block can have for each, and fewer
# columns for as many strips.
_MANY_ROWS = 1056
_MANY_COLUMNS = 16384
_COLUMNS = 32
# Strips of blocks that are wide, and the columns from which there are enough such blocks.
_WIDE_BLOCKS = ((4, 32768), (1, 270336))
# Shared memory of a block, in bytes.
_SHARED_BYTES = 48 * 1024
# Single elements that a thread has of a chunk, and elements of a column.
_ITEMS_ALONG, _ITEMS_ACROSS = 4, 4
# Elements of so many columns at once that keep memory busy.
_ITEMS_OF_LANES = {2: 4, 4: 4}
# Bytes of an element's state of which a thread can have several.
_SMALL_STATE = 8


@dataclass(frozen=True, slots=True)
class _Instance:
    """`team` threads a row or strips a column, each of which takes `items` packets of `lanes`."""

    team: int
    items: int
    lanes: int
    index: str


def scan_pieces(scan: Scan) -> set[str]:
    """Names of the device library's pieces that its text uses."""
    folds = scanned_folds(scan.contiguous)
    needed = {"NoPacket"}.union(*(struct_pieces(fold) for fold in folds))
    needed |= {"ScanAcross" if scan.contiguous.across else "ScanAlong"}
    if scan.cut:
        across = scan.contiguous.across
        needed |= {"piece_of", "pieces_for"} if across else {"ScanPiece", "scan_pieces_for"}
    return needed


def scan_text(scan: Scan) -> str:
    """Everything of one group of scans: its functions, its structs, kernels, entries."""
    folding = scan.contiguous
    parts = [
        title(folding.steps[0].walk.kernel, scan.buffers),
        *(element_text(kernel.element, "cuda") for kernel in folding.kernels),
        known_struct(folding),
        state_struct(folding),
        carry_struct(folding),
    ]
    if scan.cut:
        across = folding.across
        parts.append(pieces_entries(scan, carry_name(folding)) if across else piece_entries(scan))
    for each in scan.foldings:
        parts += _folding_parts(each, scan)
    return "\n\n".join(parts) + "\n"


def _folding_parts(folding: Folding, scan: Scan) -> list[str]:
    load = load_function(folding) if held_loads(folding) else None
    functions = [walk_function(folding, number) for number in range(2)]
    every = [function for function in (load, *functions) if function]
    names = {name for function in every for name in function.operands}
    ordered = [*(b.name for b in folding.buffers), *(e.name for e in folding.extents)]
    operands = tuple(name for name in ordered if name in names)
    kernel = (_across_kernel if folding.across else _along_kernel)(
        folding, scan, load, functions, operands
    )
    parts = [packet_struct(folding)] if load else []
    parts += [function.text for function in every]
    parts += [kernel, _template(folding, scan, operands)]
    if scan.cut and not folding.across:
        parts.append(piece_kernel(folding, scan, load, functions, operands))
        parts.append(piece_launcher(folding, operands))
    return [*parts, _entry(folding, scan, operands)]


# --- kernels ---


def _along_kernel(
    folding: Folding,
    scan: Scan,
    load: Function | None,
    functions: list[Function],
    operands: tuple[str, ...],
) -> str:
    carry = carry_name(folding)
    body = [
        "  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;",
        "  if (row >= num_rows) return;",
        f"  const op::ScanAlong<kTeam, kItems, kLanes, {ways(scan)}, Index> scan(",
        "      length / kLanes);",
        f"  {carry} carry = {carry}::nothing();",
        *_walk(folding, load, functions),
    ]
    return _kernel(folding, operands, body)


def _across_kernel(
    folding: Folding,
    scan: Scan,
    load: Function | None,
    functions: list[Function],
    operands: tuple[str, ...],
) -> str:
    carry = carry_name(folding)
    each_lane = ["#pragma unroll", "  for (int lane = 0; lane < kLanes; ++lane) {"]
    body = [
        f"  constexpr int kColumns = {_threads(folding)} / kTeam;",
        "  const Index row = (Index(blockIdx.x) * kColumns + threadIdx.x % kColumns) * kLanes;",
        "  const bool inside = row < num_rows;",
        *_range(scan.cut),
        f"  const op::ScanAcross<kTeam, kColumns, kItems, kLanes, {ways(scan)}, Index> scan(",
        "      first, last, length, inside);",
        f"  {carry} carry[kLanes];",
        *each_lane,
        f"    carry[lane] = {carry}::nothing();",
    ]
    if scan.cut:
        body += [
            "    if (kStores && inside) {",
            "      for (int k = 0; k < blockIdx.y; ++k) {",
            "        carry[lane].follow(partials[k * num_rows + row + lane]);",
            "      }",
            "    }",
        ]
    body += ["  }", *_walk(folding, load, functions, "kStores, ")]
    if scan.cut:
        body += [
            "  if (kStores || !inside || threadIdx.x >= kColumns) return;",
            "  const Index at = blockIdx.y * num_rows + row;",
            "  for (int lane = 0; lane < kLanes; ++lane) partials[at + lane] = carry[lane];",
        ]
    return _kernel(folding, operands, body, scan.cut)


def _range(cut: bool) -> list[str]:
    if not cut:
        return ["  const Index first = 0, last = length;"]
    return [
        "  const Index first = blockIdx.y * piece;",
        "  const Index last = first + piece < length ? first + piece : length;",
    ]


def _walk(
    folding: Folding, load: Function | None, functions: list[Function], stores: str = ""
) -> list[str]:
    types = f"{folds_name(folding, 0)}, {known_name(folding)}, {stores}{packet_type(folding)}"
    return [
        *steps(load, functions),
        f"  scan.template walk<{types}>(carry, load, scanned, after);",
    ]


def _kernel(folding: Folding, operands: tuple[str, ...], body: list[str], cut: bool = False) -> str:
    params = [*operand_parameters(folding, operands), "Index num_rows", "Index length"]
    if cut:
        params += ["Index piece", f"{carry_name(folding)}* __restrict__ partials"]
    stores = "bool kStores, " if folding.across else ""
    lines = [
        f"template <int kTeam, int kItems, int kLanes, {stores}typename Index>",
        *_bounds(folding),
        head(f"{prefix(folding)}_kernel", params, " {"),
        *(folded(line) for text in body for line in text.split("\n")),
        "}",
    ]
    return "\n".join(lines)


def _threads(folding: Folding) -> str:
    if folding.across:
        return f"op::kScanThreads<kTeam, kLanes, {folds_name(folding, 0)}>"
    return "op::kTeamThreads<kTeam>"


def _bounds(folding: Folding) -> list[str]:
    if not folding.across:
        bounds = f"{_threads(folding)}, op::kTeamBlocks<kTeam, Index>"
        return [f"__global__ void __launch_bounds__({bounds})"]
    blocks = f"op::kScanBlocks<kTeam, kLanes, {folds_name(folding, 0)}, Index>"
    return ["__global__ void", f"__launch_bounds__({_threads(folding)},", f"    {blocks})"]


# --- launchers ---


def _template(folding: Folding, scan: Scan, operands: tuple[str, ...]) -> str:
    """Launches an instance; with pieces it runs twice, to fold them and to scan them."""
    cut = scan.cut and folding.across
    params = [
        *pointers(folding, operands),
        *(f"int64_t {name}" for name in (*integers(folding, operands), "num_rows", "length")),
        *(["int64_t pieces", "void* partials"] if cut else []),
        "cudaStream_t stream",
    ]
    arguments = [*casts(folding, operands), "Index(num_rows)", "Index(length)"]
    if cut:
        arguments += ["Index(piece)", f"static_cast<{carry_name(folding)}*>(partials)"]
    grid = "dim3(blocks, pieces)" if cut else "blocks"
    name = f"{prefix(folding)}_kernel<kTeam, kItems, kLanes"
    fold = [
        "  const int64_t piece = op::piece_of(length, pieces, 1);",
        "  if (pieces > 1) {",
        *broken("    const auto fold =", f"{name}, false, Index>;"),
        call(f"fold<<<{grid}, kThreads, 0, stream>>>", arguments, 4),
        "  }",
    ]
    stores = ", true" if folding.across else ""
    lines = [
        "template <int kTeam, int kItems, int kLanes, typename Index>",
        head(f"static void {prefix(folding)}_launch", params, " {"),
        f"  constexpr int kThreads = {_threads(folding)};",
        f"  constexpr int64_t kRows = kThreads / kTeam{' * kLanes' if folding.across else ''};",
        "  const unsigned int blocks = (num_rows + kRows - 1) / kRows;",
        *(fold if cut else []),
        *broken("  const auto kernel =", f"{name}{stores}, Index>;"),
        call(f"kernel<<<{grid}, kThreads, 0, stream>>>", arguments, 2),
        "}",
    ]
    return "\n".join(lines)


def _entry(folding: Folding, scan: Scan, operands: tuple[str, ...]) -> str:
    rows = ["num_rows", "length"]
    pieces = ["pieces", "partials"] if scan.cut else []
    stream, cut = "static_cast<cudaStream_t>(stream)", list[str]()
    if pieces and not folding.across:
        cut = piece_lines(folding, scan, [*operands, *rows, "partials", stream])
    params = [
        *pointers(folding, tuple(b.name for b in folding.buffers)),
        *(f"int64_t {name}" for name in (*(e.name for e in folding.extents), *rows)),
        *(["int64_t pieces", "void* partials"] if pieces else []),
        *("int64_t max_offset", "int aligned", "void* stream"),
    ]
    lines = [
        head(f"static int {prefix(folding)}", params, " {"),
        "  // 32-bit positions must not wrap round behind the last element.",
        "  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);",
        *cut,
        *map(folded, _choice(folding, scan)),
        call("launch", [*operands, *rows, *(pieces if folding.across else []), stream], 2),
        "  return int(cudaGetLastError());",
        "}",
    ]
    return "\n".join(lines)


def _choice(folding: Folding, scan: Scan) -> list[str]:
    """Statements that define `launch`: few instances for what is rare, huge or without vectors."""
    lanes, single = folding.lanes, folding.variant != "contiguous"
    huge = _Instance(8 if folding.across else 256, 1, 1, "uint64_t")
    lines = [f"  auto launch = {_name(folding, huge)};"]
    narrow = ["  if (narrow) {", *_by_shape(folding, scan.length, 1, single), "  }"]
    if lanes == 1 or (folding.across and not _fits(folding, 8, lanes)):
        return [*lines, *narrow]
    whole = f"num_rows % {lanes} == 0" if folding.across else f"length % {lanes} == 0"
    if folding.across:
        # Of few columns each thread takes one, so that there are enough blocks.
        whole += f" && num_rows >= {_MANY_COLUMNS}"
    wide = _Instance(huge.team, 1, lanes, "uint64_t")
    return [
        *lines,
        f"  if (aligned && {whole}) {{",
        "    if (narrow) {",
        *(f"  {line}" for line in _by_shape(folding, scan.length, lanes, single)),
        "    } else {",
        f"      launch = {_name(folding, wide)};",
        "    }",
        "  } else if (narrow) {",
        *narrow[1:],
    ]


def _by_shape(folding: Folding, length: Size, lanes: int, single: bool) -> list[str]:
    """The assignment of the instance for packets of so many lanes."""
    if folding.across:
        return _across_by_shape(folding, lanes)
    items = _ITEMS_ALONG if lanes == 1 and state_bytes(folding) <= _SMALL_STATE else 1
    teams = [(8, 8 * items), (32, 256 * items), (256, None)]
    if isinstance(length, int):
        packets = length // lanes
        teams = [next((t, None) for t, most in teams if most is None or packets <= most)]
    if single:
        teams = teams[-1:]
    lines = list[str]()
    for team, most in teams:
        name = _name(folding, _Instance(team, items, lanes, "uint32_t"))
        start = f"if (length <= {most * lanes}) " if most else ""
        lines.append(f"    {'else ' if lines else ''}{start}launch = {name};")
    if teams[-1][0] == 256 and not single:
        wide = _name(folding, _Instance(1024, items, lanes, "uint32_t"))
        long = f" && length > {1024 * items * lanes}"
        lines.append(f"    if (num_rows < {_MANY_ROWS}{long}) launch = {wide};")
    return lines


def _across_by_shape(folding: Folding, lanes: int) -> list[str]:
    small = state_bytes(folding) <= _SMALL_STATE
    items = max(_ITEMS_ACROSS // lanes, 1) * (2 if small else 1)
    if small:
        items = _ITEMS_OF_LANES.get(lanes, items)
    lines = [f"    launch = {_name(folding, _Instance(8, items, lanes, 'uint32_t'))};"]
    if lanes > 1:
        return lines
    if _fits(folding, 32, 1):
        name = _name(folding, _Instance(32, items, 1, "uint32_t"))
        few = f"num_rows < {_MANY_COLUMNS} && length > {8 * items}"
        lines.append(f"    if ({few}) launch = {name};")
    for strips, many in _WIDE_BLOCKS if small else ():
        name = _name(folding, _Instance(strips, items, 1, "uint32_t"))
        lines.append(f"    if (num_rows >= {many}) launch = {name};")
    return lines


def _fits(folding: Folding, strips: int, lanes: int) -> bool:
    """Whether what the strips of all columns come to fits into shared memory, twice."""
    return 2 * strips * _COLUMNS * lanes * state_bytes(folding) <= _SHARED_BYTES


def _name(folding: Folding, instance: _Instance) -> str:
    numbers = f"{instance.team}, {instance.items}, {instance.lanes}, {instance.index}"
    return f"{prefix(folding)}_launch<{numbers}>"
