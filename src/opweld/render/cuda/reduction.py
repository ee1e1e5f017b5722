"""Reductions as CUDA C++: what is folded, kernels that walk over rows, launchers.

Along rows a team of threads has a row; across rows a block has neighbouring rows as columns, each
walked by several strips. Where two walks read the same, what a row holds stays in registers if it
fits. A row that is cut is folded in pieces, and a second kernel puts these together in order. In C:
    int <group>_<variant>(operands, extents, int64_t num_rows, int64_t length,
                          [int64_t pieces, void* partials,] int64_t max_offset, int aligned,
                          void* stream)
    int64_t <group>_pieces(int64_t num_rows, int64_t length)    pieces of a row on this device
    int64_t <group>_partial_bytes()                             bytes of what is folded of a piece
The last two are those of a reduction that may be cut, or whose rows all multiprocessors may keep
(cuda_device_rows.py), a piece each; `partials` holds pieces x num_rows of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.kernels.reduction import Fold, Folding, Reduction, Value, Walk
from ..c import compute_type
from ..chunks import has_chunks, takes_chunks
from ..element import element_text, title
from ..layout import folded, head
from .cooperative_rows import DEVICE_PIECES, device_entries, device_instance, device_parts
from .folds import finish_sizes, fold_pieces, folds_struct, tell
from .team_launch import launchers, template_line
from .teams import BLOCKS, SHARED, packet_words, pieces_entries, spread, threads_of
from .thread_per_row import alone_parts
from .walk import (
    Function,
    folds_name,
    held_loads,
    known_name,
    load_function,
    once_function,
    operand_parameters,
    packet_struct,
    packet_type,
    prefix,
    walk_function,
)

# Three operands of 16 bytes: with 64 registers a triplet loss spilled, and ran at 77 instead of
# 110 % of a copy's speed (H200, 2026-11-22, CUDA 13.0).
_WIDE_PACKET = 12
_PIECES = {"NoFolds", "NoPacket", "Walks"}
_LAUNCHED = {"dependents", "launch_early"}
_ALONG = {"Team", "merged", "in_team"}
_ACROSS = {"Strips", "in_columns"}
_ALONE = {"kLeastBlocks", "num_multiprocessors"}
_CUT = _ACROSS | {"CutStrips", "in_strips", "merged_columns", "piece_of", "pieces_for"}


def reduction_pieces(reduction: Reduction) -> set[str]:
    """Names of the device library's pieces that its text uses."""
    steps = reduction.contiguous.steps
    needed = _PIECES | (_CUT if reduction.cut else set())
    for folding in reduction.foldings:
        if folding.alone:
            needed |= _ALONE
            continue
        needed |= _ACROSS if folding.across else _ALONG
        more = spread(folding, reduction)
        needed |= _LAUNCHED | ({"RowOfBlocks"} if BLOCKS in more else set())
        needed |= {"SharedWalks"} if more else set()
    needed |= {"ChunkWalks"} if has_chunks(reduction.contiguous) else set()
    needed |= DEVICE_PIECES if device_instance(reduction) else set()
    for step in steps:
        needed |= fold_pieces(step.walk)
    return needed


def reduction_text(reduction: Reduction) -> str:
    """Everything of one reduction: its functions, what it folds, kernels, entries."""
    folding = reduction.contiguous
    elements = [k.element for k in folding.kernels if k.element.results]
    parts = [
        title(folding.steps[0].walk.kernel, reduction.buffers),
        *(element_text(element, "cuda") for element in elements),
        _known_struct(folding),
        *(folds_struct(folding, n) for n, step in enumerate(folding.steps) if step.walk.folds),
    ]
    if reduction.cut:
        parts.append(pieces_entries(reduction, folds_name(reduction.contiguous, 0)))
    if device_instance(reduction):
        parts.append(device_entries(reduction))
    for each in reduction.foldings:
        parts += alone_parts(each) if each.alone else _folding_parts(each, reduction)
    return "\n\n".join(parts) + "\n"


# --- what is known and what is folded of a row ---


def _known_struct(folding: Folding) -> str:
    lines = ["// What is known of a row after its passes.", f"struct {known_name(folding)} {{"]
    for step in folding.steps:
        known: tuple[Fold | Value, ...] = step.walk.folds
        known += step.once.values if step.once else ()
        lines += [f"  {compute_type(each.dtype)} {each.name};" for each in known]
    return "\n".join([*lines, "};"])


# --- kernels ---


@dataclass(frozen=True, slots=True)
class _Functions:
    load: Function | None
    walks: tuple[Function, ...]
    once: tuple[Function | None, ...]

    @property
    def all(self) -> tuple[Function, ...]:
        found = (self.load, *(f for pair in zip(self.walks, self.once, strict=True) for f in pair))
        return tuple(function for function in found if function)


def _folding_parts(folding: Folding, reduction: Reduction) -> list[str]:
    numbers = range(len(folding.steps))
    functions = _Functions(
        load_function(folding) if held_loads(folding) else None,
        tuple(walk_function(folding, n) for n in numbers),
        tuple(once_function(folding, n) for n in numbers),
    )
    names = {name for function in functions.all for name in function.operands}
    ordered = [*(b.name for b in folding.buffers), *(e.name for e in folding.extents)]
    operands = tuple(name for name in ordered if name in names)
    parts = [packet_struct(folding)] if functions.load else []
    parts += [function.text for function in functions.all]
    parts.append(_kernel(folding, functions, operands, reduction))
    if reduction.cut:
        parts.append(_finish_kernel(folding, functions.once[0], operands))
    instance = device_instance(reduction)
    if instance and folding is reduction.contiguous:
        walk, once = functions.walks[0], functions.once[0]
        parts += device_parts(reduction, instance, walk, once, operands)
    return [*parts, *launchers(folding, operands, reduction)]


def _kernel(
    folding: Folding, functions: _Functions, operands: tuple[str, ...], reduction: Reduction
) -> str:
    cut, more = reduction.cut, spread(folding, reduction)
    params = [*operand_parameters(folding, operands), "Index num_rows", "Index length"]
    if cut:
        params += ["Index piece", f"{folds_name(folding, 0)}* __restrict__ partials"]
    team = "kStrips" if folding.across else "kTeam"
    index = "uint64_t" if takes_registers(folding, cut) else "Index"
    shape = threads_of(folding, cut)
    bounds = f"op::{shape}Threads<{team}>, op::{shape}Blocks<{team}, {index}>"
    body = _across_start(folding, cut) if folding.across else _along_start(folding, cut, more)
    body += _load_lines(functions.load)
    for number, step in enumerate(folding.steps):
        body += _walk_lines(folding, functions.walks[number], number)
        if step.walk.folds:
            once = functions.once[number]
            if folding.across:
                body += _across_end(once, number, step.walk, cut)
            else:
                body += _along_end(once, number, step.walk, cut, BLOCKS in more)
    if BLOCKS in more:
        body.append("  Row::end();")
    lines = [
        template_line(folding, reduction),
        f"__global__ void __launch_bounds__({bounds})",
        head(f"{prefix(folding)}_kernel", params, " {"),
        "  op::griddepcontrol_wait();",
        *map(folded, body),
        "}",
    ]
    return "\n".join(lines)


def takes_registers(folding: Folding, cut: bool) -> bool:
    """Whether more than 64 are needed, as by wide indices: by chunks of float64 or places, of as
    many rows as there are lanes, or (by 13, says ptxas of CUDA 13.0) of pieces of 16-bit values,
    and by wide packets of which several are under way.
    """
    folds = (fold for step in folding.steps for fold in step.walk.folds)
    wide = any(fold.dtype.itemsize_bytes > 4 for fold in folds)
    if has_chunks(folding):
        return wide or folding.across or (cut and folding.lanes > 4)
    return len(folding.steps) == 1 and packet_words(folding) >= _WIDE_PACKET


def _range(cut: bool) -> list[str]:
    if not cut:
        return ["  const Index first = 0, last = length;"]
    return [
        "  const Index first = blockIdx.y * piece;",
        "  const Index last = first + piece < length ? first + piece : length;",
    ]


def _along_start(folding: Folding, cut: bool, more: tuple[str, ...]) -> list[str]:
    team, rank = "kTeam", "threadIdx.x % kTeam"
    if BLOCKS in more:
        team, rank = "Row::kThreads", "Row::rank()"
    shared = f", {SHARED}" if more else ""
    kind = "op::SharedWalks" if more else _walks(folding)
    walks = f"{kind}<{team} * kLanes, kLanes, kItems, {packet_type(folding)}, Index{shared}>"
    return [
        *(["  using Row = op::RowOfBlocks<kTeam, kBlocks>;"] if BLOCKS in more else []),
        f"  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / {team};",
        "  if (row >= num_rows) return;",
        f"  const int rank = {rank};",
        *_range(cut),
        f"  {known_name(folding)} known;",
        f"  {walks} walks(",
        "      first + rank * kLanes, last);",
    ]


def _across_start(folding: Folding, cut: bool) -> list[str]:
    deep = ", 2" if has_chunks(folding) else ""
    return [
        f"  constexpr int kColumns = op::{threads_of(folding, cut)}Threads<kStrips> / kStrips;",
        "  const int strip = threadIdx.x / kColumns;",
        "  const Index row = (Index(blockIdx.x) * kColumns + threadIdx.x % kColumns) * kLanes;",
        "  const bool inside = row < num_rows;",
        *_range(cut),
        f"  {known_name(folding)} known[kLanes];",
        f"  {_walks(folding)}<kStrips, kLanes, kItems, {packet_type(folding)}, Index{deep}> walks(",
        "      first + strip, inside ? last : 0);",
    ]


def _walks(folding: Folding) -> str:
    return "op::ChunkWalks" if has_chunks(folding) else "op::Walks"


def _load_lines(load: Function | None) -> list[str]:
    if load is None:
        return ["  const auto load = [](Index) { return op::NoPacket(); };"]
    return [
        "  const auto load = [&](Index at) {",
        "    return " + load.call(["row", "at"], 4).lstrip(),
        "  };",
        "  walks.hold(load);",
    ]


def _walk_lines(folding: Folding, walk: Function, number: int) -> list[str]:
    chunks = takes_chunks(folding.steps[number].walk)
    pooled = chunks and not folding.across  # the lanes of a packet are one row's
    visit = "walk_chunks" if chunks else "walk"
    return [
        "",
        f"  {folds_name(folding, number)} folds{number}[{'1' if pooled else 'kLanes'}];",
        f"  walks.{visit}(folds{number}, load, [&](const auto& packet, Index at, auto& folds) {{",
        walk.call(["row", "at", "packet", "known", "folds"], 4),
        "  });",
    ]


def _along_end(
    once: Function | None, number: int, walk: Walk, cut: bool, several: bool
) -> list[str]:
    folded = "Row::folded" if several else "op::in_team<kTeam>"
    lines = [f"  const auto row_folds{number} = {folded}(op::merged(folds{number}));"]
    if cut:
        lines += [
            "  if (gridDim.y > 1) {",
            "    if (rank == 0) partials[blockIdx.y * num_rows + row] = row_folds0;",
            "    return;",
            "  }",
        ]
    lines.append(f"  {tell(f'row_folds{number}', 'known', walk)}")
    return [*lines, once.call(["row", "rank == 0", "known"], 2)] if once else lines


_EACH_LANE = ["#pragma unroll", "  for (int lane = 0; lane < kLanes; ++lane) {"]


def _across_end(once: Function | None, number: int, walk: Walk, cut: bool) -> list[str]:
    lines = [f"  op::in_columns<kStrips, kColumns, 8192>(folds{number});"]
    if cut:
        lines += [
            "  if (gridDim.y > 1) {",
            "    if (!inside || strip > 0) return;",
            "    const Index at = blockIdx.y * num_rows + row;",
            "    for (int lane = 0; lane < kLanes; ++lane) partials[at + lane] = folds0[lane];",
            "    return;",
            "  }",
        ]
    lines += [*_EACH_LANE, f"    {tell(f'folds{number}[lane]', 'known[lane]', walk)}"]
    if once:
        lines.append("    if (inside) {")
        lines.append(once.call(["row + lane", "strip == 0", "known[lane]"], 6))
        lines.append("    }")
    return [*lines, "  }"]


def _finish_kernel(folding: Folding, once: Function | None, operands: tuple[str, ...]) -> str:
    """Puts the pieces of each row together: threads of a column have a row, strips its pieces."""
    assert once is not None, "what is cut is stored at the end"
    folds = folds_name(folding, 0)
    walk, params = folding.steps[0].walk, operand_parameters(folding, once.operands)
    params += [f"Index {name}" for name in finish_sizes(walk)]
    params.append(f"const {folds}* __restrict__ partials")
    name = f"{prefix(folding)}_finish_kernel"
    lines = [
        "template <int kThreads, typename Index>",
        "__global__ void __launch_bounds__(kThreads, op::kLeastBlocks<kThreads, Index>)",
        head(name, [*params, "int columns"], " {"),
        "  op::griddepcontrol_wait();",
        "  const Index strip = threadIdx.x / columns, strips = kThreads / columns;",
        "  const Index row = Index(blockIdx.x) * columns + threadIdx.x % columns;",
        "  const bool inside = row < num_rows;",
        "  const Index count = inside && strip < pieces ? (pieces - strip - 1) / strips + 1 : 0;",
        "  const op::Walks<1, 1, 0, op::NoPacket, Index> walks(0, count);",
        "  const auto load = [](Index) { return op::NoPacket(); };",
        f"  {folds} row_folds[1];",
        "  walks.walk(row_folds, load, [&](const auto&, Index at, auto& folds) {",
        "    folds[0].merge(partials[(strip + at * strips) * num_rows + row]);",
        "  });",
        "  const auto merged = op::in_strips<kThreads>(row_folds[0], columns);",
        "  if (!inside || strip > 0) return;",
        f"  {known_name(folding)} known;",
        f"  {tell('merged', 'known', walk)}",
        once.call(["row", "true", "known"], 2),
        "}",
    ]
    return "\n".join(lines)
