"""Whether a call writes, or reads, beyond the memory of its inputs and of its results.

Inputs lie between bytes that are NaN in every floating-point type. On a CUDA device results come to
lie between blocks of a pattern: torch's allocator hands out the best-fitting free block, so blocks
of a result's size are allocated side by side, and every other one is freed. All this is in the
process that is judged; going beyond the end is an accident, and whoever could undo it there could
as well write what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from opweld.judge.load import Call
from opweld.judge.process.memory import available_bytes

NAME = "memory around the result"
# torch's CUDA allocator rounds sizes up to multiples of this; what fits in it nothing can show.
BLOCK_BYTES = 512
_PATTERN, _NAN = 0xA5, 0xFF
# Free places for each size of result; intermediate results may take some of them.
_NUM_PLACES = 16
# What all blocks of one size may take of the memory that is free.
_SHARE = 16
_MAX_ROWS, _MAX_ELEMS = 256, 2**20

# The shape of an output, and the bytes of one element.
Extent = tuple[tuple[int, ...], int]
Allocate = Callable[[int], Tensor]


def extent_of(t: Tensor) -> Extent:
    return tuple(t.shape), t.element_size()


def tight_rows(size: int | None, rows: int, num_elems: int, extents: Iterable[Extent]) -> int:
    """The number of rows at which results end where their memory does, as nearly as can be.

    `size` is the leading size that the extents are for, `num_elems` all elements there; `rows` may
    always be used, more of them while there are few elements. Of several numbers one is taken at
    which memory is an odd number of blocks, which launches of whole, larger blocks overrun.
    """
    row_bytes = [
        shape[1:].numel() * width
        for shape, width in ((torch.Size(shape), width) for shape, width in extents)
        if shape and shape[0] == size
    ]
    if not size or not row_bytes:
        return rows
    most = max(rows, min(_MAX_ROWS, _MAX_ELEMS * size // max(1, num_elems)))

    def looseness(count: int) -> tuple[int, int, int]:
        ends = [count * num_bytes for num_bytes in row_bytes]
        slack = sum(-end % BLOCK_BYTES for end in ends)
        return slack, sum(end // BLOCK_BYTES % 2 == 0 for end in ends), -count

    return min(range(1, most + 1), key=looseness)


class GuardedInputs:
    """A call in memory of its own, with bytes that nothing may touch before and after each tensor.

    Tensors with gaps or repetitions in memory stay as they are.
    """

    def __init__(self, call: Call) -> None:
        self._around: list[Tensor] = []
        self.call = call.map(self._embedded)

    def num_changed(self) -> int:
        """Bytes around the inputs that are not what they were."""
        return _count(self._around, _NAN)

    def _embedded(self, t: Tensor) -> Tensor:
        if type(t) is not Tensor or t.layout is not torch.strided or not t.is_contiguous():
            return t
        size = t.numel() * t.element_size()
        whole = (size + 2 * BLOCK_BYTES,)
        memory = torch.full(whole, _NAN, dtype=torch.uint8, device=t.device)
        self._around += [memory[:BLOCK_BYTES], memory[BLOCK_BYTES + size :]]
        inner = memory[BLOCK_BYTES : BLOCK_BYTES + size].view(t.dtype).view(t.shape)
        return inner.copy_(t)


class GuardedResults:
    """While this lives, results of these sizes find free memory only between watched blocks."""

    def __init__(self, results: Iterable[Tensor], device: torch.device) -> None:
        self._watched: list[Tensor] = []
        if device.type != "cuda":
            return
        sizes = {t.numel() * t.element_size() for t in results}
        for size in sorted({-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes} - {0}):
            count = min(2 * _NUM_PLACES + 1, available_bytes(device) // _SHARE // size)
            self._watched += watched_blocks(size, count, lambda n: _block(n, device))

    def num_changed(self) -> int:
        """Bytes beside the results that are not what they were."""
        return _count(self._watched, _PATTERN)


def watched_blocks(size: int, count: int, allocate: Allocate) -> list[Tensor]:
    """Blocks that stay, with free places between them; fewer than three leave no place."""
    blocks = sorted((allocate(size) for _ in range(count)), key=Tensor.data_ptr)
    for block in blocks:
        block.fill_(_PATTERN)
    kept: list[Tensor] = []
    for number, block in enumerate(blocks):
        near = blocks[max(0, number - 1) : number + 2]
        # between two that stay, right beside both
        is_place = len(near) == 3 and kept[-1] is near[0] and all(map(_is_next, near, near[1:]))
        if not is_place:
            kept.append(block)
    return kept


def _block(size: int, device: torch.device) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def _is_next(left: Tensor, right: Tensor) -> bool:
    return left.data_ptr() + left.numel() == right.data_ptr()


def _count(blocks: Iterable[Tensor], value: int) -> int:
    return int(sum((block != value).sum() for block in blocks))
