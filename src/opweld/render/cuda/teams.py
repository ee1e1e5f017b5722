"""Which threads walk over the rows of a reduction: instances of its kernels.

An instance is a number of threads a row (along) or of strips a column (across), and of packets
that a thread keeps in registers between walks, or 0. A row takes the first instance that reaches
it. Of a known length an instance is made to measure: long rows also stay in shared memory, and on
several multiprocessors, whose blocks are a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import Size
from ...ir.kernels.kernel import Access, Load
from ...ir.kernels.reduction import Folding, Reduction, Scan
from ..chunks import CHUNKED, has_chunks
from .walk import ARG, held_loads

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
# The least that is worth a block of its own, in elements of a row: along rows as many as a block of
# 256 threads loads at once, of vectors or of single elements.
_LEAST_ALONG, _LEAST_SINGLE = 4096, 2048
_LEAST_ACROSS = 256
# Blocks of cut rows that a multiprocessor gets: so many, and more where long rows are folded along
# (pieces_for in fold_cuda.cuh); columns lose by it (sums of 256: 104 and 99 % of a copy's speed;
# H200, 2026-11-23, CUDA 13.0), and each piece of a scan reads what all before it come to.
LEAST_BLOCKS_EACH, _MOST_BLOCKS_EACH = 8, 64
# Columns whose folds take long to merge: as many blocks as a multiprocessor holds at once, of any
# length (statistics of 401408x64 in 43 us by four, 75 by eight; H200, 2026-11-29, CUDA 13.0).
_BLOCKS_AT_ONCE, _LEAST_OF_CHUNKS = 2, 128
# So many columns keep every multiprocessor busy with a block that takes several a thread.
MANY_COLUMNS = 16384
# Columns of a block in which each is walked by several strips, and where they are cut in pieces:
# with as many the middle axis of 128x4096x4095 is summed at 95 instead of 89 % of a copy's speed,
# and its extremes are found at 92 instead of 84 % (H200, 2026-11-22, CUDA 13.0).
_COLUMNS, _CUT_COLUMNS, _CUT_THREADS = 32, 64, 512


# Threads of a block that has a multiprocessor for itself, or shares it with another one.
_WHOLE, _HALF = 1024, 512
# Shared memory of a multiprocessor that the system takes for each block.
_RESERVED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Instance:
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


def _loops(folding: Folding, cut: bool, lanes: int) -> list[Instance]:
    """Instances that load again in every walk. Where a row may be cut, blocks stay small."""
    if not folding.across:
        # Chunks take more registers than there are for 1024 threads.
        team = 256 if cut else _HALF if has_chunks(folding) else 1024
        return [Instance(8, 0, 32), Instance(32, 0, 512), Instance(team, 0)]
    if cut or not fits_wide(folding) or (has_chunks(folding) and lanes > 1):
        return [Instance(1, 0, 8), Instance(8, 0)]
    return [Instance(1, 0, 8), Instance(8, 0, 512), Instance(32, 0)]


def for_rare(folding: Folding) -> list[Instance]:
    """For what is rare: operands that allow no vectors, and huge ones."""
    if folding.across:
        return [Instance(8, 0)]
    return [Instance(32, 0, 1024), Instance(256, 0)]


def for_packets(folding: Folding, cut: bool, lanes: int) -> list[Instance]:
    """For packets of so many lanes, the shortest rows first."""
    if folding.variant != "contiguous":
        return for_rare(folding)
    items = _most_items(folding, lanes)
    if items < 2:
        return _loops(folding, cut, lanes)
    shapes = _across(folding, items) if folding.across else _along(items)
    held = [Instance(team, kept, team * kept) for team, kept in shapes]
    if folding.across and lanes > 1:
        # Longer columns fit when a thread keeps single elements.
        strips, kept = shapes[-1][0], _most_items(folding, 1)
        held.append(Instance(strips, kept, strips * kept, lanes=1))
    return [*held, Instance(shapes[-1][0], 0)]


def _along(items: int) -> list[tuple[int, int]]:
    quarter, half = max(items // 4, 1), items // 2
    small = [(8, half), (32, quarter), (32, items)]
    return [*small, (256, quarter), (256, items), (1024, half), (1024, items)]


def _to_measure(folding: Folding, packets: int, lanes: int) -> Instance | None:
    """For rows of so many packets, if they fit on the chip."""
    items = _fitting_items(folding, lanes)
    if folding.across or folding.variant != "contiguous" or items < 2:
        return None
    # The fewest threads: rows that wait at barriers of their own wait less. (Softmax of 2048 to
    # 32768 elements reaches 97 to 100 % of a copy's speed, with twice the threads 71 to 88 %; H200,
    # 2026-11-22, CUDA 13.0; 128 threads with 8 packets of a row of 4096 elements gain 1 % over 256,
    # and a cross-entropy 7 %; 16 threads gain 1 % over 8 and 32 for rows of 128 and 256.)
    few = max(items // 2, min(items, 8))
    shapes = ((8, min(items, 2)), (16, min(items, 4)), (32, items), (128, few), (256, items))
    for team, most in (*shapes, (_HALF, items)):
        if packets <= team * most:
            return Instance(team, max(-(-packets // team), 1), packets)
    more = items + _MORE_REGISTERS // packet_words(folding, lanes)
    for team, share, held in ((_HALF, 2, items), (_HALF, 2, more), (_WHOLE, 1, items)):
        room = folding.shared_bytes // share - _RESERVED_BYTES - _folded_bytes(folding)
        shared = max(room // (team * _held_bytes(folding, lanes)), 0)
        blocks = 1
        while blocks <= folding.multiprocessors:
            each = -(-packets // (team * blocks))
            if each <= held + shared:
                return Instance(team, held, packets, None, max(each - held, 0), blocks)
            blocks *= 2
    return None


def stay_on_chip(reduction: Reduction, num_rows: int, length: int) -> bool:
    """Whether row-major rows are kept there between their walks."""
    folding, cut = reduction.contiguous, reduction.cut
    lanes, among = folding.lanes, num_rows if folding.across else length
    few_columns = folding.across and not cut and num_rows < MANY_COLUMNS
    if num_rows * length >= 2**31:
        choices = for_rare(folding)
    elif among % lanes == 0 and not (few_columns and lanes > 1):
        measured = made_to_measure(folding, reduction.length, lanes)
        choices = [measured] if measured else for_packets(folding, cut, lanes)
    else:
        lanes = 1
        choices = for_packets(folding, cut, 1) if folding.across and not cut else for_rare(folding)
    packets = length if folding.across else length // lanes
    return reaching(choices, packets)[0].items > 0


def _across(folding: Folding, items: int) -> list[tuple[int, int]]:
    return [(1, items), (8, items), *([(32, items)] if fits_wide(folding) else [])]


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
    instance = made_to_measure(folding, reduction.length, folding.lanes)
    if instance is None or not (instance.shared or instance.blocks > 1):
        return ()
    return (SHARED, BLOCKS) if instance.blocks > 1 else (SHARED,)


SHARED, BLOCKS = "kShared", "kBlocks"


def made_to_measure(folding: Folding, length: Size, lanes: int) -> Instance | None:
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


def fits_wide(folding: Folding) -> bool:
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


def cut_threads(folding: Folding) -> int:
    """Threads of a block of cut columns, each walked by several strips."""
    return _CUT_THREADS if _fits_cut(folding) else 256


def finish_threads(folding: Folding) -> int:
    """Threads of a block that puts pieces together."""
    return 1024 if fits_wide(folding) else 256


def columns_and_least(folding: Folding) -> tuple[int, int]:
    """The rows of a block of cut rows, and the least elements of a piece."""
    if not folding.across:
        return 1, _LEAST_ALONG if folding.lanes > 1 else _LEAST_SINGLE
    columns = _CUT_COLUMNS if _fits_cut(folding) else _COLUMNS
    return columns * folding.lanes, _LEAST_OF_CHUNKS if has_chunks(folding) else _LEAST_ACROSS


def most_blocks_each(reduction: Reduction | Scan) -> int:
    """Blocks of cut rows that a multiprocessor gets at most."""
    if not isinstance(reduction, Reduction):
        return LEAST_BLOCKS_EACH
    if not reduction.contiguous.across:
        return _MOST_BLOCKS_EACH
    return _BLOCKS_AT_ONCE if has_chunks(reduction.contiguous) else LEAST_BLOCKS_EACH


def pieces_entries(reduction: Reduction | Scan, partial: str) -> str:
    """In how many pieces a row is cut, and the bytes of one: of a struct of the text, `partial`."""
    folding = reduction.contiguous
    columns, least = columns_and_least(folding)
    blocks = f"(num_rows + {columns - 1}) / {columns}" if folding.across else "num_rows"
    given = f"{blocks}, num_rows, length, {least}, {most_blocks_each(reduction)}"
    return cut_entries(reduction.group, f"op::pieces_for({given})", f"sizeof({partial})")


def cut_entries(group: str, pieces: str, size: str) -> str:
    """What the host asks of a group whose rows may be cut, each an expression of C++."""
    lines = [
        f"static int64_t {group}_pieces(int64_t num_rows, int64_t length) {{",
        f"  return {pieces};",
        "}",
        "",
        f"static int64_t {group}_partial_bytes() {{",
        f"  return {size};",
        "}",
    ]
    return "\n".join(lines)


def reaching(choices: list[Instance], packets: Size) -> list[Instance]:
    """Those that rows of so many packets may need."""
    if not isinstance(packets, int):
        return choices
    return [c for c in choices if c.most is None or packets <= c.most][:1]
