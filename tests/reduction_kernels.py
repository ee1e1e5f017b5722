"""Runs the kernels of reductions and scans here: C++ text as it is, CUDA text by emulation."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.emulation.emulate import Shifted, emulate, from_bfloat16
from tests.guarded import call_in_child, guarded
from tests.kernels import (
    TORCH,
    as_bits,
    by_table,
    given_row,
    library,
    memory_of,
    poisoned,
    with_wide_indices,
)
from tests.plan_meaning import ExecuteRows
from tests.unit.plan.plans import plan_of

from opweld.ir.expr import evaluate
from opweld.ir.graph import Node
from opweld.ir.kernels.kernel import Buffer
from opweld.ir.kernels.reduction import Folding, Reduction, Scan
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.render import render
from opweld.render.cuda.cooperative_rows import has_partials
from opweld.target import CPU

Array = np.ndarray
Sizes = Mapping[str, int]
# Bytes of a row's folds, at least.
PARTIAL_BYTES = 256


def reduction_of(*outputs: Node) -> Reduction:
    """The one group of a graph."""
    (reduction,) = lower(plan_of(*outputs, target=CPU))
    assert isinstance(reduction, Reduction)
    return reduction


def cut(reduction: Reduction) -> Reduction:
    """The same with rows that are folded in pieces."""
    assert all(len(folding.steps) == 1 for folding in reduction.foldings)
    return replace(reduction, cut=True)


def run_reduction(
    reduction: Reduction | Scan,
    operands: Sequence[Array],
    sizes: Sizes,
    shapes: Sequence[Sequence[int]],
    *,
    variant: str = "contiguous",
    pieces: int = 1,
    text: str | None = None,
) -> list[Array]:
    """The results, which have these shapes: operands and results lie against unmapped pages, and
    the rows are handled in two calls.
    """
    folding = reduction.strided if variant == "strided" else reduction.contiguous
    text = text or render("case", (reduction,), "c++").text
    written = [buffer for buffer in folding.buffers if buffer.written]
    results = [poisoned(shape, b.dtype) for shape, b in zip(shapes, written, strict=True)]
    arrays = [guarded(array) for array in (*operands, *results)]
    numbers = [ctypes.c_int64(n) for n in _extents(folding, operands, results, sizes)]
    taken = [*(ctypes.c_void_p(array.ctypes.data) for array in arrays), *numbers]
    num_rows = evaluate(reduction.num_rows, sizes)
    length = evaluate(reduction.length, sizes)
    entries = _Entries(text, f"{reduction.group}_{variant}", taken)

    def all_rows() -> None:
        for begin, end in ((0, num_rows // 3), (num_rows // 3, num_rows)):
            if reduction.cut:
                bytes_each = entries.call(f"{reduction.group}_partial_bytes")
                scans = isinstance(reduction, Scan)
                entries.cut(begin, end, length, pieces, bytes_each, scans)
            else:
                entries(begin, end)

    call_in_child(all_rows, arrays)
    return [np.array(array) for array in arrays[len(operands) :]]


def rows_executor(
    text: str, language: str, *, aligned: bool = True, wide_indices: bool = False, pieces: int = 3
) -> ExecuteRows:
    """Runs reductions of a text; the options are those of `kernels.executor`, and how many pieces
    rows are cut in.
    """

    def execute(
        reduction: Reduction | Scan,
        variant: str,
        operands: Sequence[Array],
        shapes: Sequence[tuple[int, ...]],
        sizes: Sizes,
    ) -> tuple[Array, ...]:
        folding = reduction.strided if variant == "strided" else reduction.contiguous
        buffers = [b for b in folding.buffers if not b.written]
        given = [as_bits(operands[b.source], b.dtype) for b in buffers]
        if evaluate(reduction.num_rows, sizes) == 0:
            results = [poisoned(shape, b.dtype) for shape, b in _written(folding, shapes)]
        elif language == "cuda":
            launch = Launch(aligned, wide_indices, pieces)
            results = emulated(text, reduction, folding, given, shapes, sizes, launch)
        else:
            results = run_reduction(
                reduction, given, sizes, shapes, variant=variant, pieces=pieces, text=text
            )
        return tuple(
            from_bfloat16(array) if b.dtype is DType.BF16 else array
            for array, (_, b) in zip(results, _written(folding, shapes), strict=True)
        )

    return execute


@dataclass(frozen=True, slots=True)
class Launch:
    """Which instance of a CUDA kernel is launched, and in which order its threads run."""

    aligned: bool = True
    wide_indices: bool = False
    pieces: int = 1
    order: str = "forward"


def _written(
    folding: Folding, shapes: Sequence[Sequence[int]]
) -> list[tuple[Sequence[int], Buffer]]:
    return list(zip(shapes, [b for b in folding.buffers if b.written], strict=True))


def emulated(
    text: str,
    reduction: Reduction | Scan,
    folding: Folding,
    operands: Sequence[Array],
    shapes: Sequence[Sequence[int]],
    sizes: Sizes,
    launch: Launch,
) -> list[Array]:
    """One launch under emulation; every array lies against an unmapped page."""
    functor = f"struct {reduction.group}_row :" in text
    contiguous = all(array.flags.c_contiguous for array in operands)
    chosen = not contiguous or folding.variant == "contiguous"
    if functor or (chosen and not launch.wide_indices):
        return _by_table(text, reduction, operands, shapes, sizes, launch)
    results = [poisoned(shape, b.dtype) for shape, b in _written(folding, shapes)]
    num_rows, length = (evaluate(s, sizes) for s in (reduction.num_rows, reduction.length))
    memory = [memory_of(a) for a in operands]
    flat = [array.reshape(-1) for array in results]
    numbers = _extents(folding, operands, results, sizes)
    partials = np.full(launch.pieces * num_rows * PARTIAL_BYTES, 0xA5, np.uint8)
    cut = [launch.pieces, partials] if has_partials(reduction) else []
    reach = max(num_rows * length, *(a.size for a in (*memory, *flat)), 1)
    largest = 2**31 if launch.wide_indices else reach
    arguments = [*memory, *flat, *numbers, num_rows, length, *cut, largest, int(launch.aligned)]
    emulate(text, f"{reduction.group}_{folding.variant}", arguments, order=launch.order)
    return results


def _by_table(
    text: str,
    reduction: Reduction | Scan,
    operands: Sequence[Array],
    shapes: Sequence[Sequence[int]],
    sizes: Sizes,
    launch: Launch,
) -> list[Array]:
    """One launch of the function that is given a table of operands."""
    results = [poisoned(shape, b.dtype) for shape, b in _written(reduction.strided, shapes)]
    rows: dict[bool, list[int]] = {False: [], True: []}
    for buffer in sorted(reduction.buffers, key=lambda each: each.source):
        array = (results if buffer.written else operands)[buffer.source]
        steps = [step // array.itemsize for step in array.strides]
        rows[buffer.written] += [TORCH[buffer.dtype], array.ndim, *array.shape, *steps]
    table = rows[False] + given_row(text, reduction.group, sizes) + rows[True]
    arrays = [*map(memory_of, operands), *(array.reshape(-1) for array in results)]
    if not launch.aligned:
        arrays = [Shifted(array, array.itemsize) for array in arrays]
    text = with_wide_indices(text) if launch.wide_indices else text
    if has_partials(reduction):
        num_bytes = launch.pieces * evaluate(reduction.num_rows, sizes) * PARTIAL_BYTES
        table += [TORCH[DType.U8], 1, num_bytes, 1]
        arrays.append(np.full(num_bytes, 0xA5, np.uint8))
    arguments = [np.array(table, np.int64), launch.pieces, *arrays]
    emulate(by_table(text), f"{reduction.group}_by_table", arguments, order=launch.order)
    return results


class _Entries:
    def __init__(self, text: str, name: str, taken: list[object]) -> None:
        self.library, self.name, self.taken = library(text), name, taken

    def call(self, name: str, *arguments: object) -> int:
        function = getattr(self.library, name)
        function.restype = ctypes.c_int64
        return function(*arguments)

    def __call__(self, *positions: int) -> None:
        self.call(self.name, *self.taken, *map(ctypes.c_int64, positions))

    def cut(
        self, begin: int, end: int, length: int, pieces: int, bytes_each: int, scans: bool
    ) -> None:
        stride = end - begin + 1
        partials = (ctypes.c_char * (pieces * stride * bytes_each + 16))()
        bounds = [length * k // pieces for k in range(pieces + 1)]
        rows = [ctypes.c_int64(begin), ctypes.c_int64(end)]
        for piece in range(pieces):
            place = ctypes.byref(partials, piece * stride * bytes_each)
            part = map(ctypes.c_int64, bounds[piece : piece + 2])
            self.call(f"{self.name}_fold", *self.taken, *rows, *part, place)
        if not scans:
            these = [ctypes.c_int64(pieces), ctypes.c_int64(stride), ctypes.byref(partials)]
            self.call(f"{self.name}_finish", *self.taken, *rows, *these)
            return
        for piece in range(pieces):
            numbers = (*bounds[piece : piece + 2], piece, stride)
            these = [*map(ctypes.c_int64, numbers), ctypes.byref(partials)]
            self.call(f"{self.name}_scan", *self.taken, *rows, *these)


def _extents(
    folding: Folding, operands: Sequence[Array], results: Sequence[Array], sizes: Sizes
) -> list[int]:
    arrays = {}
    for buffer in folding.buffers:
        arrays[buffer.name] = (results if buffer.written else operands)[buffer.source]
    numbers = []
    for extent in folding.extents:
        if extent.buffer is None or extent.axis is None:
            numbers.append(sizes[extent.name])
        else:
            array = arrays[extent.buffer]
            numbers.append(array.strides[extent.axis] // array.itemsize)
    return numbers
