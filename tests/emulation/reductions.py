"""Reductions written by hand, as lowering makes them, and how they are run under emulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tests.emulation.emulate import emulate
from tests.kernels import poisoned

from opweld.ir.expr import Size, evaluate, product, symbol, symbols_of
from opweld.ir.kernel import (
    Access,
    Buffer,
    Const,
    Definition,
    Element,
    Extent,
    Given,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Name,
    Store,
)
from opweld.ir.kernel_check import check_reduction
from opweld.ir.ops import NO_ATTRS, CastAttrs, Op
from opweld.ir.reduction import Fold, Folding, Once, Reduction, Step, Value, Walk
from opweld.ir.types import DType

F32, F64, I64 = DType.F32, DType.F64, DType.I64
ROWS, LENGTH, INNER = symbol("s0"), symbol("s1"), symbol("s2")


@dataclass(frozen=True, slots=True)
class Space:
    """Kept and reduced loops; `place` is the row-major address of an element, `row` of a row."""

    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    place: Size
    row: Size
    across: bool = False

    @property
    def sizes(self) -> list[str]:
        used = {n for loop in (*self.kept, *self.reduced) for n in symbols_of(loop.extent)}
        return sorted(used)


I, R, I0, I1, R0, R1 = (symbol(name) for name in ("i", "r", "i0", "i1", "r0", "r1"))  # noqa: E741


def along(multiple: int = 1, length: int = 0) -> Space:
    """x[s0, multiple * s1] or x[s0, length], reduced along the last axis."""
    size = length or LENGTH * multiple
    return Space((Loop("i", ROWS),), (Loop("r", size),), I * size + R, I)


def across(multiple: int = 1, length: int = 0) -> Space:
    """x[s0, s1, multiple * s2] or x[s0, length, multiple * s2], reduced along the middle axis."""
    inner, size = INNER * multiple, length or LENGTH
    kept = (Loop("i0", ROWS), Loop("i1", inner))
    place, row = (I0 * size + R) * inner + I1, I0 * inner + I1
    return Space(kept, (Loop("r", size),), place, row, across=True)


# x[7, s0, 12], reduced along the first and the last axis
AROUND = Space(
    (Loop("i", ROWS),),
    (Loop("r0", 7), Loop("r1", 12)),
    (R0 * ROWS + I) * 12 + R1,
    I,
)
# x[3000], reduced to a scalar
WHOLE = Space((), (Loop("r", 3000),), R, 0)


@dataclass(slots=True)
class Writer:
    """Kernels of one folding, made step by step. `vary` puts any strides in place of row-major
    ones.
    """

    group: str
    space: Space
    buffers: tuple[Buffer, ...]
    lanes: int
    vary: bool = False

    def address(self, buffer: str) -> Size:
        if not self.vary:
            return self.space.place
        loops = (*self.space.kept, *self.space.reduced)
        return sum((symbol(loop.var) * symbol(f"{buffer}_{loop.var}") for loop in loops), 0)

    @property
    def extents(self) -> tuple[Extent, ...]:
        sizes = [Extent(name) for name in self.space.sizes]
        if not self.vary:
            return tuple(sizes)
        loops = (*self.space.kept, *self.space.reduced)
        read = [b.name for b in self.buffers if not b.written and b.rank > 1]
        strides = [Extent(f"{b}_{loop.var}", b, n) for b in read for n, loop in enumerate(loops)]
        return (*sizes, *strides)

    def load(self, name: str, buffer: str, dtype: DType = F32) -> Load:
        access = Access.VECTOR if self.lanes > 1 else Access.LANE
        return Load(name, buffer, dtype, self.address(buffer), access)

    def store(self, buffer: str, dtype: DType, result: int) -> Store:
        return Store(buffer, dtype, self.space.place, result)

    def of_row(self, buffer: str, dtype: DType, result: int) -> Store:
        return Store(buffer, dtype, self.space.row, result)

    def kernel(
        self,
        loops: tuple[Loop, ...],
        definitions: Sequence[Definition],
        element: Element,
        stores: Sequence[Store],
    ) -> Kernel:
        variant = "strided" if self.vary else "contiguous"
        return Kernel(
            self.group, variant, "a test", self.buffers, self.extents, loops, tuple(definitions),
            element, tuple(stores), self.lanes, 1, 256,
        )  # fmt: skip

    def walk(
        self,
        number: int,
        definitions: Sequence[Definition],
        lets: Sequence[Let],
        results: Sequence[tuple[DType, str]],
        folds: Sequence[Fold],
        stores: Sequence[Store] = (),
    ) -> Walk:
        element = _element(f"{self.group}_walk{number}", definitions, lets, results)
        loops = (*self.space.kept, *self.space.reduced)
        return Walk(self.kernel(loops, definitions, element, stores), tuple(folds))

    def once(
        self,
        number: int,
        definitions: Sequence[Definition] = (),
        lets: Sequence[Let] = (),
        results: Sequence[tuple[DType, str]] = (),
        values: Sequence[Value] = (),
        stores: Sequence[Store] = (),
    ) -> Once:
        element = _element(f"{self.group}_once{number}", definitions, lets, results)
        return Once(self.kernel(self.space.kept, definitions, element, stores), tuple(values))

    def folding(self, steps: Sequence[Step]) -> Folding:
        return Folding(
            self.group, "strided" if self.vary else "contiguous", self.buffers, self.extents,
            self.space.kept, self.space.reduced, self.space.across, tuple(steps), self.lanes, 256,
        )  # fmt: skip


def _element(
    name: str,
    definitions: Sequence[Definition],
    lets: Sequence[Let],
    results: Sequence[tuple[DType, str]],
) -> Element:
    read = {arg.text for let in lets for arg in let.args if isinstance(arg, Name)}
    read |= {text for _, text in results}
    dtypes = {d.name: I64 if isinstance(d, Index) else d.dtype for d in definitions}
    params = tuple((name, dtype) for name, dtype in dtypes.items() if name in read)
    return Element(name, params, tuple(lets), tuple((d, Name(text)) for d, text in results))


def let(name: str, op: Op, *args: str | float, dtype: DType = F32, attrs: object = NO_ATTRS) -> Let:
    texts = tuple(Name(a) if isinstance(a, str) else Const(a, dtype) for a in args)
    return Let(name, dtype, op, texts, dtype, attrs)


def cast(name: str, arg: str, source: DType, dtype: DType) -> Let:
    return Let(name, dtype, Op.CAST, (Name(arg),), source, CastAttrs(dtype))


def buffer(name: str, dtype: DType, source: int, written: bool = False, rank: int = 2) -> Buffer:
    return Buffer(name, dtype, written, source, rank, dtype.value)


# --- the reductions ---


def softmax(group: str, space: Space, lanes: int, dtype: DType = F32) -> Reduction:
    buffers = (buffer("x", dtype, 0), buffer("result", dtype, 0, True))

    def steps(w: Writer) -> list[Step]:
        wide = [cast("wide", "x_1", dtype, F32)] if dtype.is_half else []
        x = "wide" if wide else "x_1"
        load, most, total = w.load("x_1", "x", dtype), Given("most", F32), Given("total", F32)
        powers = [*wide, let("less", Op.SUB, x, "most"), let("power", Op.EXP, "less")]
        share = [*powers, let("share", Op.DIV, "power", "total")]
        share += [cast("narrow", "share", F32, dtype)] if wide else []
        stored = [(dtype, "narrow" if wide else "share")]
        return [
            Step(w.walk(0, [load], wide, [(F32, x)], [Fold("most", Op.AMAX, F32, 0)]), w.once(0)),
            Step(
                w.walk(1, [load, most], powers, [(F32, "power")], [Fold("total", Op.SUM, F32, 0)]),
                w.once(1),
            ),
            Step(
                w.walk(2, [load, most, total], share, stored, [], [w.store("result", dtype, 0)]),
                None,
            ),
        ]

    return _both(group, space, buffers, lanes, steps, cut=False)


def layer_norm(group: str, space: Space, lanes: int) -> Reduction:
    """(x - mean) / sqrt(variance + eps) * weight, and the mean and the variance of each row."""
    buffers = (
        *(buffer("x", F32, 0), buffer("weight", F32, 1, rank=1)),
        *(buffer("result", F32, 0, True), buffer("mean_out", F32, 1, True, 1)),
        buffer("variance_out", F32, 2, True, 1),
    )

    def steps(w: Writer) -> list[Step]:
        x, mean, scale = w.load("x_1", "x"), Given("mean", F32), Given("scale", F32)
        weight = Load("weight_1", "weight", F32, R, x.access)
        size = Index("size", space.reduced[0].extent, Access.SAME)
        length = cast("size_1", "size", I64, F32)
        sums, squares = Fold("sum_1", Op.SUM, F32, 0), Fold("sum_2", Op.SUM, F32, 0)
        centred = let("centred", Op.SUB, "x_1", "mean")
        variance = [length, let("variance", Op.DIV, "sum_2", "size_1")]
        variance += [let("more", Op.ADD, "variance", 1e-5), let("scale_1", Op.RSQRT, "more")]
        return [
            Step(
                w.walk(0, [x], [], [(F32, "x_1")], [sums]),
                w.once(
                    0, [Given("sum_1", F32), size],
                    [length, let("mean_1", Op.DIV, "sum_1", "size_1")],
                    [(F32, "mean_1")], [Value("mean", F32, 0)], [w.of_row("mean_out", F32, 0)],
                ),
            ),
            Step(
                w.walk(
                    1, [x, mean], [centred, let("square", Op.MUL, "centred", "centred")],
                    [(F32, "square")], [squares],
                ),
                w.once(
                    1, [Given("sum_2", F32), size], variance,
                    [(F32, "scale_1"), (F32, "variance")], [Value("scale", F32, 0)],
                    [w.of_row("variance_out", F32, 1)],
                ),
            ),
            Step(
                w.walk(
                    2, [x, weight, mean, scale],
                    [
                        centred, let("scaled", Op.MUL, "centred", "scale"),
                        let("weighted", Op.MUL, "scaled", "weight_1"),
                    ],
                    [(F32, "weighted")], [], [w.store("result", F32, 0)],
                ),
                None,
            ),
        ]  # fmt: skip

    return _both(group, space, buffers, lanes, steps, cut=False)


def folds(
    group: str, space: Space, lanes: int, dtype: DType, ops: Sequence[Op], cut: bool = True
) -> Reduction:
    """One walk that folds x by each of `ops`, stored for each row."""
    kinds = [I64 if op in (Op.ARGMAX, Op.ARGMIN) else dtype for op in ops]
    names = [f"{op.value}_1" for op in ops]
    results = [
        buffer(f"{op.value}_out", kind, n, True, 1)
        for n, (op, kind) in enumerate(zip(ops, kinds, strict=True))
    ]

    def steps(w: Writer) -> list[Step]:
        made = [Fold(n, op, k, 0) for n, op, k in zip(names, ops, kinds, strict=True)]
        given = [Given(name, kind) for name, kind in zip(names, kinds, strict=True)]
        stores = [w.of_row(b.name, b.dtype, n) for n, b in enumerate(results)]
        walk = w.walk(0, [w.load("x_1", "x", dtype)], [], [(dtype, "x_1")], made)
        once = w.once(0, given, [], list(zip(kinds, names, strict=True)), [], stores)
        return [Step(walk, once)]

    return _both(group, space, (buffer("x", dtype, 0), *results), lanes, steps, cut)


def _both(
    group: str,
    space: Space,
    buffers: tuple[Buffer, ...],
    lanes: int,
    steps: Callable[[Writer], list[Step]],
    cut: bool,
) -> Reduction:
    straight = Writer(group, space, buffers, lanes)
    varied = Writer(group, space, buffers, 1, vary=True)
    num_rows, length = (
        product(loop.extent for loop in loops) for loops in (space.kept, space.reduced)
    )
    foldings = [writer.folding(steps(writer)) for writer in (straight, varied)]
    reduction = Reduction(group, *foldings, num_rows, length, cut)
    check_reduction(reduction)
    return reduction


# --- running them ---


def run(
    text: str,
    reduction: Reduction,
    operands: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    *,
    variant: str = "contiguous",
    pieces: int = 1,
    aligned: bool = True,
    wide: bool = False,
    order: str = "forward",
) -> dict[str, np.ndarray]:
    """The results by name, flat. With variant "strided" operands of two and more axes (kept ones
    first) may have any strides. `wide` asks for 64-bit indices.
    """
    folding = next(f for f in reduction.foldings if f.variant == variant)
    num_rows, length = (evaluate(s, sizes) for s in (reduction.num_rows, reduction.length))
    stored = {s.buffer: kernel for kernel in folding.kernels for s in kernel.stores}
    results = {
        b.name: poisoned([_count(stored[b.name], sizes)], b.dtype)
        for b in folding.buffers
        if b.written
    }
    numbers = [
        operands[e.buffer].strides[e.axis] // operands[e.buffer].itemsize
        if e.buffer is not None
        else sizes[e.name]
        for e in folding.extents
    ]
    arrays = [results[b.name] if b.written else _memory(operands[b.name]) for b in folding.buffers]
    partials = [pieces, np.full(pieces * num_rows * 64, 0xA5, np.uint8)] if reduction.cut else []
    largest = 2**31 if wide else max(num_rows * length, *(a.size for a in arrays), 1)
    emulate(
        text, f"{reduction.group}_{variant}",
        [*arrays, *numbers, num_rows, length, *partials, largest, int(aligned)], order=order,
    )  # fmt: skip
    return results


def _count(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    return int(np.prod([evaluate(loop.extent, sizes) for loop in kernel.loops]))


def _memory(array: np.ndarray) -> np.ndarray:
    """All memory between the first and the last element of a view with gaps."""
    pairs = zip(array.shape, array.strides, strict=True)
    reach = sum((n - 1) * s // array.itemsize for n, s in pairs) + 1 if array.size else 0
    return np.lib.stride_tricks.as_strided(array, (reach,), (array.itemsize,))
