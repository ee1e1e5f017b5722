"""Which threads walk over the rows of a reduction: instances of its kernels, and their launchers.

An instance is a number of threads a row (along) or of strips a column (across), and of packets
that a thread keeps in registers between walks, or 0. A row takes the first instance that reaches
it. Of a known length an instance is made to measure: long rows also stay in shared memory, and on
several multiprocessors, whose blocks are a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.expr import Size
from ..ir.kernel import Access, Load
from ..ir.reduction import Folding, Reduction
from .chunks import CHUNKED, has_chunks
from .cuda_folds import finish_sizes
from .layout import COLUMNS, call, folded, head
from .walk import (
    ARG,
    casts,
    folds_name,
    held_loads,
    integers,
    once_function,
    packet_type,
    pointers,
    prefix,
)

# Registers for packets and for what is computed of the lanes of one, of the 64 that each of 1024
# threads has. Two a lane hold softmax in 16 bits without spilling.
_REGISTERS = 40
_REGISTERS_A_LANE = 2
# So many more where two blocks share a multiprocessor with them, and one would have it without: up
# to 32 bytes a thread may spill, and softmax of 393216 elements reaches 69 instead of 58 % of a
# copy's speed (H200, 2026-11-22, CUDA 13.0).
_MORE_REGISTERS = 8
# Shared memory of a block, in bytes.
_SHARED_BYTES = 48 * 1024
# The least that is worth a block of its own, in elements of a row.
_LEAST_ALONG = 4096
_LEAST_ACROSS = 256
# So many columns keep every multiprocessor busy with a block that takes several a thread.
_MANY_COLUMNS = 16384
# Columns of a block in which each is walked by several strips, and where they are cut in pieces:
# with as many the middle axis of 128x4096x4095 is summed at 95 instead of 89 % of a copy's speed,
# and its extremes are found at 92 instead of 84 % (H200, 2026-11-22, CUDA 13.0).
_COLUMNS, _CUT_COLUMNS, _CUT_THREADS = 32, 64, 512


# Threads of a block that has a multiprocessor for itself, or shares it with another one.
_WHOLE, _HALF = 1024, 512
# Shared memory of a multiprocessor that the system takes for each block.
_RESERVED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class _Instance:
    """`team` threads or strips, `items` packets in registers (0: none), for rows of up to `most`
    packets or of any number. `lanes`, where those of the packets at hand are not taken. `shared`
    packets more of each thread are in shared memory; `blocks` of `team` threads have a row.
    """

    team: int
    items: int
    most: int | None = None
    lanes: int | None = None
    shared: int = 0
    blocks: int = 1


def _loops(folding: Folding, cut: bool, lanes: int) -> list[_Instance]:
    """Instances that load again in every walk. Where a row may be cut, blocks stay small."""
    if not folding.across:
        # Chunks take more registers than there are for 1024 threads.
        team = 256 if cut else _HALF if has_chunks(folding) else 1024
        return [_Instance(8, 0, 32), _Instance(32, 0, 512), _Instance(team, 0)]
    if cut or not _fits_wide(folding) or (has_chunks(folding) and lanes > 1):
        return [_Instance(1, 0, 8), _Instance(8, 0)]
    return [_Instance(1, 0, 8), _Instance(8, 0, 512), _Instance(32, 0)]


def _few(folding: Folding) -> list[_Instance]:
    """For what is rare: operands that allow no vectors, and huge ones."""
    if folding.across:
        return [_Instance(8, 0)]
    return [_Instance(32, 0, 1024), _Instance(256, 0)]


def _many(folding: Folding, cut: bool, lanes: int) -> list[_Instance]:
    """For packets of so many lanes, the shortest rows first."""
    if folding.variant != "contiguous":
        return _few(folding)
    items = _most_items(folding, lanes)
    if items < 2:
        return _loops(folding, cut, lanes)
    shapes = _across(folding, items) if folding.across else _along(items)
    held = [_Instance(team, kept, team * kept) for team, kept in shapes]
    if folding.across and lanes > 1:
        # Longer columns fit when a thread keeps single elements.
        strips, kept = shapes[-1][0], _most_items(folding, 1)
        held.append(_Instance(strips, kept, strips * kept, lanes=1))
    return [*held, _Instance(shapes[-1][0], 0)]


def _along(items: int) -> list[tuple[int, int]]:
    quarter, half = max(items // 4, 1), items // 2
    small = [(8, half), (32, quarter), (32, items)]
    return [*small, (256, quarter), (256, items), (1024, half), (1024, items)]


def _to_measure(folding: Folding, packets: int, lanes: int) -> _Instance | None:
    """For rows of so many packets, if they fit on the chip."""
    items = _fitting_items(folding, lanes)
    if folding.across or folding.variant != "contiguous" or items < 2:
        return None
    # The fewest threads: rows that wait at barriers of their own wait less. (Softmax of 2048 to
    # 32768 elements reaches 97 to 100 % of a copy's speed, with twice the threads 71 to 88 %; H200,
    # 2026-11-22, CUDA 13.0; 128 threads with 8 packets of a row of 4096 elements gain 1 % over 256,
    # and a cross-entropy 7 %.)
    half = items // 2
    few = max(half, min(items, 8))
    for team, most in ((8, half), (32, items), (128, few), (256, items), (_HALF, items)):
        if packets <= team * most:
            return _Instance(team, max(-(-packets // team), 1), packets)
    more = items + _MORE_REGISTERS // packet_words(folding, lanes)
    for team, share, held in ((_HALF, 2, items), (_HALF, 2, more), (_WHOLE, 1, items)):
        room = folding.shared_bytes // share - _RESERVED_BYTES - _folded_bytes(folding)
        shared = max(room // (team * _held_bytes(folding, lanes)), 0)
        blocks = 1
        while blocks <= folding.multiprocessors:
            each = -(-packets // (team * blocks))
            if each <= held + shared:
                return _Instance(team, held, packets, None, max(each - held, 0), blocks)
            blocks *= 2
    return None


def stay_on_chip(reduction: Reduction, num_rows: int, length: int) -> bool:
    """Whether row-major rows are kept there between their walks."""
    folding, cut = reduction.contiguous, reduction.cut
    lanes, among = folding.lanes, num_rows if folding.across else length
    few_columns = folding.across and not cut and num_rows < _MANY_COLUMNS
    if num_rows * length >= 2**31:
        choices = _few(folding)
    elif among % lanes == 0 and not (few_columns and lanes > 1):
        measured = _measured(folding, reduction.length, lanes)
        choices = [measured] if measured else _many(folding, cut, lanes)
    else:
        lanes = 1
        choices = _many(folding, cut, 1) if folding.across and not cut else _few(folding)
    packets = length if folding.across else length // lanes
    return _reaching(choices, packets)[0].items > 0


def _across(folding: Folding, items: int) -> list[tuple[int, int]]:
    return [(1, items), (8, items), *([(32, items)] if _fits_wide(folding) else [])]


def _most_items(folding: Folding, lanes: int) -> int:
    """Packets that a thread may keep: a power of two, or 0."""
    fitting = _fitting_items(folding, lanes)
    return max((2**n for n in range(6) if 2**n <= fitting), default=0)


def _fitting_items(folding: Folding, lanes: int) -> int:
    """The packets that a thread has registers for."""
    if len(folding.steps) == 1:
        return 0  # nothing is read twice
    if has_chunks(folding):
        return 0  # such folds are for rows that are too long
    words = packet_words(folding, lanes)
    free = _REGISTERS - _REGISTERS_A_LANE * lanes
    return min(32, free // words) if words else 0


def packet_words(folding: Folding, lanes: int | None = None) -> int:
    """The registers of a packet, of the folding's lanes or of so many."""
    return sum(_words(load, lanes or folding.lanes) for load in _packet(folding))


def _packet(folding: Folding) -> list[Load]:
    """What is kept of a packet."""
    return list({name: load for load, name in held_loads(folding).items()}.values())


def _held_bytes(folding: Folding, lanes: int) -> int:
    """The bytes of a packet in shared memory, at most: each part with all possible padding."""
    return sum(-(-4 * _words(load, lanes) // 16) * 16 for load in _packet(folding))


def spread(folding: Folding, reduction: Reduction) -> tuple[str, ...]:
    """The parameters that a kernel has for rows that take shared memory, or several blocks."""
    instance = _measured(folding, reduction.length, folding.lanes)
    if instance is None or not (instance.shared or instance.blocks > 1):
        return ()
    return (SHARED, BLOCKS) if instance.blocks > 1 else (SHARED,)


SHARED, BLOCKS = "kShared", "kBlocks"
_NO_SPREAD = {SHARED: 0, BLOCKS: 1}


def _measured(folding: Folding, length: Size, lanes: int) -> _Instance | None:
    """The instance made to measure for packets of so many lanes, if the length is known."""
    if not isinstance(length, int) or length % lanes:
        return None
    return _to_measure(folding, length // lanes, lanes)


def _words(load: Load, lanes: int) -> int:
    size = load.dtype.itemsize_bytes
    if load.access in (Access.FLAT, Access.VECTOR):
        return max(size * lanes // 4, 1)
    return max(size // 4, 1) * (1 if load.access is Access.SAME else lanes)


def threads_of(folding: Folding, cut: bool) -> str:
    """The names of the constants that have the shape of a launch begin so."""
    if not folding.across:
        return "kTeam"
    return "kCutStrips" if cut and _fits_cut(folding) else "kStrips"


def _fits_cut(folding: Folding) -> bool:
    """Whether the folds of as many threads as cut columns ask for fit into shared memory."""
    return _CUT_THREADS * _folds_bytes(folding, 0) <= _SHARED_BYTES


def _fits_wide(folding: Folding) -> bool:
    """Whether the folds of 1024 threads fit into shared memory."""
    most = max(_folds_bytes(folding, n) for n in range(len(folding.steps)))
    return 1024 * most <= _SHARED_BYTES


def _folded_bytes(folding: Folding) -> int:
    """The shared memory that a block's folds take: those of its warps, and of the block."""
    steps = range(len(folding.steps))
    return sum((_WHOLE // 32 + 1) * _folds_bytes(folding, number) for number in steps)


def _folds_bytes(folding: Folding, number: int) -> int:
    """The bytes of what a walk folds, at most: each with all the padding there can be."""
    folds = folding.steps[number].walk.folds
    return sum(_STATE_BYTES.get(fold.op, 8) for fold in folds)


_STATE_BYTES = {**dict.fromkeys(ARG, 16), **dict.fromkeys(CHUNKED, 24)}


# --- texts ---


def launchers(folding: Folding, operands: tuple[str, ...], reduction: Reduction) -> list[str]:
    """The template that launches, and the entry point that chooses among its instances."""
    parts = [_template(folding, operands, reduction)]
    if reduction.cut:
        parts.append(_finish_template(folding))
    return [*parts, _entry(folding, operands, reduction)]


def _template(folding: Folding, operands: tuple[str, ...], reduction: Reduction) -> str:
    team = "kStrips" if folding.across else "kTeam"
    cut, more = reduction.cut, spread(folding, reduction)
    params = [
        *pointers(folding, operands),
        *(f"int64_t {name}" for name in (*integers(folding, operands), "num_rows", "length")),
        *(["int64_t pieces", "void* partials"] if cut else []),
        "cudaStream_t stream",
    ]
    arguments = [*casts(folding, operands), "Index(num_rows)", "Index(length)"]
    if cut:
        arguments += ["Index(piece)", f"static_cast<{folds_name(folding, 0)}*>(partials)"]
    lanes = 1 if folding.across else "kLanes"
    grid = "dim3(blocks, pieces)" if cut else "blocks"
    names = ", ".join((team, "kItems", "kLanes", "Index", *more))
    name = f"{prefix(folding)}_kernel<{names}>"
    launch, shared = f"kernel<<<{grid}, kThreads, 0, stream>>>", list[str]()
    if more:
        shared = [f"  const int64_t shared = kShared * kThreads * sizeof({packet_type(folding)});"]
        arguments = ["kernel", "blocks", "kThreads", "shared", "stream", *arguments]
        launch = f"op::launch_held<{BLOCKS if BLOCKS in more else 1}>"
    lines = [
        template_line(folding, reduction),
        head(f"static void {prefix(folding)}_launch", params, " {"),
        f"  constexpr int kThreads = op::{threads_of(folding, cut)}Threads<{team}>;",
        f"  constexpr int64_t kRows = kThreads / {team}{' * kLanes' if folding.across else ''};",
        "  const unsigned int blocks = (num_rows + kRows - 1) / kRows;",
        *([f"  const int64_t piece = op::piece_of(length, pieces, {lanes});"] if cut else []),
        *_broken("  const auto kernel =", f"{name};"),
        *shared,
        call(launch, arguments, 2),
        "}",
    ]
    return "\n".join(lines)


def template_line(folding: Folding, reduction: Reduction) -> str:
    """The parameters of a kernel and of its launcher. Those that spread rows have defaults."""
    team = "kStrips" if folding.across else "kTeam"
    more = "".join(f", int {name} = {_NO_SPREAD[name]}" for name in spread(folding, reduction))
    return folded(f"template <int {team}, int kItems, int kLanes, typename Index{more}>")


def _finish_template(folding: Folding) -> str:
    once, sizes = once_function(folding, 0), finish_sizes(folding.steps[0].walk)
    assert once is not None, "what is cut is stored at the end"
    params = [
        *pointers(folding, once.operands),
        *(f"int64_t {name}" for name in integers(folding, once.operands)),
        *(f"int64_t {name}" for name in sizes),
        *("const void* partials", "cudaStream_t stream"),
    ]
    arguments = [*casts(folding, once.operands), *(f"Index({name})" for name in sizes)]
    arguments.append(f"static_cast<const {folds_name(folding, 0)}*>(partials)")
    name = f"{prefix(folding)}_finish_kernel<kStrips, Index>"
    lines = [
        "template <typename Index>",
        head(f"static void {prefix(folding)}_finish", params, " {"),
        f"  constexpr int kStrips = {32 if _fits_wide(folding) else 8};",
        "  constexpr int kThreads = op::kStripsThreads<kStrips>;",
        "  constexpr int64_t kRows = kThreads / kStrips;",
        "  const unsigned int blocks = (num_rows + kRows - 1) / kRows;",
        *_broken("  const auto kernel =", f"{name};"),
        call("kernel<<<blocks, kThreads, 0, stream>>>", arguments, 2),
        "}",
    ]
    return "\n".join(lines)


def _entry(folding: Folding, operands: tuple[str, ...], reduction: Reduction) -> str:
    rows = ["num_rows", "length"]
    pieces = ["pieces", "partials"] if reduction.cut else []
    every = tuple(b.name for b in folding.buffers)
    params = [
        *pointers(folding, every),
        *(f"int64_t {name}" for name in (*(e.name for e in folding.extents), *rows)),
        *(["int64_t pieces", "void* partials"] if pieces else []),
        *("int64_t max_offset", "int aligned", "void* stream"),
    ]
    stream = "static_cast<cudaStream_t>(stream)"
    lines = [
        head(f'extern "C" int {prefix(folding)}', params, " {"),
        "  // 32-bit positions must not wrap round behind the last element.",
        "  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);",
        *map(folded, _choice(folding, reduction)),
        call("launch", [*operands, *rows, *pieces, stream], 2),
    ]
    if pieces:
        once, sizes = once_function(folding, 0), finish_sizes(folding.steps[0].walk)
        name = f"{prefix(folding)}_finish"
        lines += [
            "  if (pieces > 1) {",
            folded(f"    auto finish = narrow ? {name}<uint32_t> : {name}<uint64_t>;"),
            call("finish", [*(once.operands if once else ()), *sizes, "partials", stream], 4),
            "  }",
        ]
    return "\n".join([*lines, "  return int(cudaGetLastError());", "}"])


def _choice(folding: Folding, reduction: Reduction) -> list[str]:
    """Statements that define `launch`. Of a known length one instance is compiled, not all."""
    length, lanes = reduction.length, folding.lanes
    measured = _measured(folding, length, lanes)
    many = [measured] if measured else _many(folding, reduction.cut, lanes)
    few = _few(folding)
    single = _reaching(few, length)
    start = f"  auto launch = {_instance(folding, single[-1], 1, 'uint64_t')};"
    if lanes == 1:
        narrow = _branches(folding, _reaching(many, length), 1, "uint32_t", "length")
        return [start, "  if (narrow) {", *narrow, *_otherwise_wide(folding, single), "  }"]
    packets = "length" if folding.across else f"length / {lanes}"
    count = length // lanes if isinstance(length, int) and not folding.across else length
    whole = f"num_rows % {lanes} == 0" if folding.across else f"length % {lanes} == 0"
    if folding.across and not reduction.cut:
        # Of few columns each thread takes one, so that there are enough blocks.
        whole += f" && num_rows >= {_MANY_COLUMNS}"
        scattered = _reaching(_many(folding, reduction.cut, 1), length)
    else:
        scattered = single
    narrow = _branches(folding, _reaching(many, count), lanes, "uint32_t", packets)
    wide = _branches(folding, _reaching(few, count), lanes, "uint64_t", packets)
    return [
        start,
        f"  if (aligned && {whole}) {{",
        "    if (narrow) {",
        *(f"  {line}" for line in narrow),
        "    } else {",
        *(f"  {line}" for line in wide),
        "    }",
        "  } else if (narrow) {",
        *_branches(folding, scattered, 1, "uint32_t", "length"),
        *_otherwise_wide(folding, single),
        "  }",
    ]


def _otherwise_wide(folding: Folding, choices: list[_Instance]) -> list[str]:
    """What is launched by wide indices and single elements, but for the start's instance."""
    if len(choices) == 1:
        return []
    return ["  } else {", *_branches(folding, choices, 1, "uint64_t", "length")]


def _reaching(choices: list[_Instance], packets: Size) -> list[_Instance]:
    """Those that rows of so many packets may need."""
    if not isinstance(packets, int):
        return choices
    return [c for c in choices if c.most is None or packets <= c.most][:1]


def _branches(
    folding: Folding, choices: list[_Instance], lanes: int, index: str, packets: str
) -> list[str]:
    """The first instance that reaches."""
    *short, last = choices
    lines = list[str]()
    for choice in short:
        start = f"    {'else ' if lines else ''}if ({packets} <= {choice.most})"
        lines += _broken(start, f"launch = {_instance(folding, choice, lanes, index)};")
    start = "    else" if short else "   "
    return [*lines, *_broken(start, f"launch = {_instance(folding, last, lanes, index)};")]


def _broken(start: str, rest: str) -> list[str]:
    """A statement on one line, or its rest on a second."""
    line = f"{start} {rest}"
    # Two columns are for the branches that stand in another one.
    if len(line) <= COLUMNS - 2:
        return [line]
    indent = len(start) - len(start.lstrip())
    return [start, f"{' ' * (indent + 4)}{rest}"]


def _instance(folding: Folding, choice: _Instance, lanes: int, index: str) -> str:
    numbers = [f"{choice.team}", f"{choice.items}", f"{choice.lanes or lanes}", index]
    if choice.shared or choice.blocks > 1:
        numbers.append(f"{choice.shared}")
    if choice.blocks > 1:
        numbers.append(f"{choice.blocks}")
    return f"{prefix(folding)}_launch<{', '.join(numbers)}>"


def columns_and_least(folding: Folding) -> tuple[int, int]:
    """The rows of a block of cut rows, and the least elements of a piece."""
    if not folding.across:
        return 1, _LEAST_ALONG
    columns = _CUT_COLUMNS if _fits_cut(folding) else _COLUMNS
    return columns * folding.lanes, _LEAST_ACROSS


def pieces_entries(reduction: Reduction) -> str:
    """In how many pieces a row is cut, and the bytes of one piece."""
    folding = reduction.contiguous
    columns, least = columns_and_least(folding)
    blocks = f"(num_rows + {columns - 1}) / {columns}" if folding.across else "num_rows"
    lines = [
        f'extern "C" int64_t {reduction.group}_pieces(int64_t num_rows, int64_t length) {{',
        f"  return op::pieces_for({blocks}, length, {least});",
        "}",
        "",
        f'extern "C" int64_t {reduction.group}_partial_bytes() {{',
        f"  return sizeof({folds_name(folding, 0)});",
        "}",
    ]
    return "\n".join(lines)
