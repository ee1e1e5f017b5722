"""The meaning of lowered reductions and scans, evaluated with NumPy, walk by walk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tests.kernel_meaning import Array, definition_values, element_values, everywhere, stored

from opweld.ir.attrs import ReduceAttrs, ScanAttrs
from opweld.ir.expr import evaluate
from opweld.ir.kernels.kernel import Kernel, RowScalar
from opweld.ir.kernels.reduction import Folding, Reduction, Scan
from opweld.ir.numpy.interpret import NUMPY_DTYPES
from opweld.ir.ops import OPS


def run_reduction(
    reduction: Reduction | Scan,
    variant: str,
    operands: Sequence[Array],
    shapes: Sequence[tuple[int, ...]],
    sizes: Mapping[str, int],
) -> tuple[Array, ...]:
    """The results of one launch, of these shapes; operands have any strides with "strided".

    What rendered code relies on is checked on the way: addresses lie within their buffers, every
    element of a result is stored once, and packets of lanes are what their access says.
    """
    folding = reduction.strided if variant == "strided" else reduction.contiguous
    written = [b for b in folding.buffers if b.written]
    results = {
        b.name: np.empty(shape, NUMPY_DTYPES[b.dtype])
        for b, shape in zip(written, shapes, strict=True)
    }
    buffers = {b.name: operands[b.source] for b in folding.buffers if not b.written} | results
    state = _State(folding, buffers, _integers(folding, buffers, sizes))
    for step in folding.steps:
        values = state.evaluate(step.walk.kernel, of_row=False)
        for fold in step.walk.folds:
            rows = state.by_row(values[fold.result])
            if isinstance(reduction, Scan):
                attrs = ScanAttrs(1, reduction.reverse, reduction.exclusive)
                scanned = OPS[fold.op].evaluate(rows, attrs)  # type: ignore[misc]
                state.known[fold.name] = _computed(scanned, fold.dtype)
                continue
            reduced = OPS[fold.op].evaluate(rows, ReduceAttrs((1,)))  # type: ignore[misc]
            state.known[fold.name] = _computed(reduced[:, 0], fold.dtype)
        if step.once:
            values = state.evaluate(step.once.kernel, of_row=True)
            for value in step.once.values:
                state.known[value.name] = _computed(values[value.result], value.dtype)
    assert state.stores == set(results), "a result is not stored"
    return tuple(results.values())


def _computed(values: Array, dtype) -> Array:
    return np.asarray(values, NUMPY_DTYPES[dtype.compute])


def _integers(
    folding: Folding, buffers: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, int]:
    found = {}
    for extent in folding.extents:
        if extent.buffer is None or extent.axis is None:
            found[extent.name] = int(sizes[extent.name])
        else:
            array = buffers[extent.buffer]
            found[extent.name] = array.strides[extent.axis] // array.itemsize
    return found


@dataclass
class _State:
    folding: Folding
    buffers: dict[str, Array]
    integers: dict[str, int]
    known: dict[str, Array] = field(default_factory=dict)
    stores: set[str] = field(default_factory=set)

    def evaluate(self, kernel: Kernel, of_row: bool) -> tuple[Array, ...]:
        """The element's results at every position, neighbours of one packet side by side."""
        kept, reduced = self._extents()
        inner = self.folding.kept[-1:] if self.folding.across else ()
        outer = self.folding.kept[:-1] if self.folding.across else self.folding.kept
        loops = (*outer, *(() if of_row else self.folding.reduced), *inner)
        shape = [evaluate(loop.extent, self.integers) for loop in loops]
        positions = np.arange(int(np.prod(shape)), dtype=np.int64)
        where = np.unravel_index(positions, shape) if len(positions) else [positions] * len(shape)
        point = {**self.integers, **dict(zip((x.var for x in loops), where, strict=True))}
        rows = (
            np.ravel_multi_index([point[loop.var] for loop in self.folding.kept], kept)
            if len(positions)
            else positions
        )
        at = rows
        if self.folding.scanned:
            at = (rows, point[self.folding.reduced[0].var])
        known = {
            d.name: self.known[d.name][at] for d in kernel.definitions if isinstance(d, RowScalar)
        }
        scalars = definition_values(kernel, self.buffers, point, positions, known)
        values = element_values(kernel.element, scalars)
        values = tuple(np.broadcast_to(value, positions.shape) for value in values)
        for store in kernel.stores:
            self._store(store, values[store.result], point, positions)
        return values

    def _extents(self) -> tuple[list[int], list[int]]:
        return tuple(  # type: ignore[return-value]
            [evaluate(loop.extent, self.integers) for loop in loops]
            for loops in (self.folding.kept, self.folding.reduced)
        )

    def by_row(self, values: Array) -> Array:
        """The values at all positions as an array of rows."""
        kept, reduced = self._extents()
        num_rows, length = int(np.prod(kept)), int(np.prod(reduced))
        if not self.folding.across:
            return values.reshape(num_rows, length)
        columns = values.reshape(int(np.prod(kept[:-1])), length, kept[-1])
        return columns.transpose(0, 2, 1).reshape(num_rows, length)

    def _store(self, store, values: Array, point: Mapping, positions: Array) -> None:
        addresses = everywhere(store.address, point, positions)
        buffer = self.buffers[store.buffer]
        assert store.buffer not in self.stores, f"{store.buffer} is stored twice"
        assert (np.sort(addresses) == np.arange(buffer.size)).all(), "stored twice or never"
        buffer.reshape(-1)[addresses] = stored(values, store.dtype)
        self.stores.add(store.buffer)
