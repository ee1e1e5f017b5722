"""In how many pieces a launch cuts rows, and the bytes that it keeps of each: as device code
decides it, for those who ask where there is no device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..ir.kernels.reduction import Reduction, Scan
from ..target import Target
from .chunks import own_folds
from .cpp.fold import partial_type
from .cuda.folds import fold_types, state_type
from .cuda.teams import LEAST_BLOCKS_EACH, columns_and_least, most_blocks_each

# The elements of a block of which a multiprocessor has more than the least (pieces_for in
# fold_cuda.cuh), and the most pieces of a row there and on a CPU, with the least elements of one
# (num_pieces in rows_cpu.h).
_ENOUGH, _MOST_ON_CUDA = 65536, 65535
_MOST_ON_CPU, _LEAST_ON_CPU = 64, 4 * 16384

_BYTES = {
    **dict.fromkeys(("bool", "uint8_t", "int8_t"), 1),
    **dict.fromkeys(("int16_t", "uint16_t"), 2),
    **dict.fromkeys(("float", "int32_t", "uint32_t"), 4),
    **dict.fromkeys(("double", "int64_t", "uint64_t"), 8),
}


def num_pieces(reduction: Reduction | Scan, target: Target, num_rows: int, length: int) -> int:
    """The pieces of a row, on a device as the target has it; of scans on CUDA, of a column."""
    if not reduction.cut or num_rows == 0:
        return 1
    if target.language == "c++":
        pieces = 1 if num_rows >= _MOST_ON_CPU else num_rows * length // _LEAST_ON_CPU
        return max(min(pieces, _MOST_ON_CPU), 1)
    columns, least = columns_and_least(reduction.contiguous)
    worth = num_rows * length // (target.multiprocessors * _ENOUGH)
    each = min(max(LEAST_BLOCKS_EACH, worth), most_blocks_each(reduction))
    wanted = target.multiprocessors * each // -(-num_rows // columns)
    return max(min(wanted, length // least, _MOST_ON_CUDA), 1)


def partial_bytes(reduction: Reduction, language: str) -> int:
    """The bytes of what is folded of a piece of a row."""
    walk = reduction.contiguous.steps[0].walk
    folds = own_folds(walk)
    if language == "cuda":
        types = (fold_types(fold, reduction.contiguous, 0) for fold in folds)
        return _struct_bytes(map(state_type, folds, types))
    return _struct_bytes(partial_type(fold, walk.kernel) for fold in folds)


def _struct_bytes(types: Iterable[str]) -> int:
    """The size of a struct: each field at a multiple of its own size."""
    size, widest = 0, 1
    for field in (field for text in types for field in _fields(text)):
        size, widest = -(-size // field) * field + field, max(widest, field)
    return -(-size // widest) * widest


def _fields(text: str) -> list[int]:
    """The sizes of the scalars of a fold's state (fold.h)."""
    names = re.findall(r"\w+", text.removeprefix("op::"))
    if names[0] == "Powers":
        return [_BYTES[names[1]]] * 2 + [_BYTES[names[2]]] * 2
    if names[0] == "Compensated":
        return [_BYTES[names[1]]] * 2
    if names[0] == "Spread":
        return [_BYTES["double"]] * 3
    return [_BYTES[name] for name in names if name != "Placed"]
