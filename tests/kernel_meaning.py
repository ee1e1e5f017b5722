"""The meaning of kernels, evaluated with NumPy: what a right rendering of them computes.

Every iteration of a kernel is evaluated at once, and what rendered code relies on is checked on the
way: guarded addresses lie within their buffer, every output element is stored exactly once, and
the access of each definition is true for every full packet of lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np

from opweld.ir.expr import Quotient, Remainder, Size, evaluate, terms_of
from opweld.ir.kernels.kernel import (
    Access,
    Arg,
    Condition,
    Const,
    Element,
    Gather,
    Index,
    Kernel,
    Let,
    Load,
)
from opweld.ir.numpy.interpret import NUMPY_DTYPES
from opweld.ir.numpy.meaning import cast_array, round_to_bfloat16
from opweld.ir.ops import OPS, Op
from opweld.ir.types import DType

Array = np.ndarray
Point = Mapping[str, Array | int]


def stored(value: Array, dtype: DType) -> Array:
    """`value` rounded to `dtype`; bfloat16 is held as float32."""
    if dtype is DType.BF16:
        return round_to_bfloat16(np.asarray(value, np.float32))
    return cast_array(np.asarray(value), NUMPY_DTYPES[dtype])


def apply(op: Op, operands: Sequence[Array], attrs: object, dtype: DType) -> Array:
    """One operation in the compute type of `dtype`."""
    if op is Op.CAST:
        return stored(operands[0], dtype).astype(NUMPY_DTYPES[dtype.compute])
    row = OPS[op].evaluate
    with np.errstate(all="ignore"):
        result = row(*operands, attrs) if fields(attrs) else row(*operands)  # type: ignore[arg-type]
    return np.asarray(result, NUMPY_DTYPES[dtype.compute])


def run_kernel(
    kernel: Kernel, operands: Sequence[Array], sizes: Mapping[str, int]
) -> tuple[Array, ...]:
    """The flat outputs of one launch. Operands have any strides with the "strided" variant."""
    shape = [evaluate(loop.extent, sizes) for loop in kernel.loops]
    positions = np.arange(int(np.prod(shape)), dtype=np.int64)
    buffers = {b.name: operands[b.source] for b in kernel.buffers if not b.written} | {
        b.name: np.empty(len(positions), NUMPY_DTYPES[b.dtype]) for b in kernel.buffers if b.written
    }
    point: dict[str, Array | int] = {
        e.name: int(sizes[e.name]) for e in kernel.extents if e.buffer is None
    }
    point |= _strides(kernel, buffers, sizes)
    coordinates = np.unravel_index(positions, shape) if len(positions) else [positions] * len(shape)
    point |= {
        loop.var: np.asarray(values, np.int64)
        for loop, values in zip(kernel.loops, coordinates, strict=True)
    }
    scalars = definition_values(kernel, buffers, point, positions)
    values = element_values(kernel.element, scalars)
    return tuple(
        _stored(kernel, store, values, buffers, point, positions) for store in kernel.stores
    )


def _strides(
    kernel: Kernel, buffers: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Strides in elements; an output is row-major, its rank-long strides follow from its buffer."""
    found = {}
    for extent in kernel.extents:
        if extent.buffer is None or extent.axis is None:
            continue
        array = buffers[extent.buffer]
        written = next(b.written for b in kernel.buffers if b.name == extent.buffer)
        if written:
            found[extent.name] = result_stride(kernel, extent.axis, sizes)
        else:
            found[extent.name] = array.strides[extent.axis] // array.itemsize
    return found


def result_stride(kernel: Kernel, axis: int, sizes: Mapping[str, int]) -> int:
    """In the strided kernel every axis of more than one element is a loop that bears its number."""
    inner = [evaluate(x.extent, sizes) for x in kernel.loops if int(x.var[1:]) > axis]
    return int(np.prod(inner, dtype=np.int64))


def definition_values(
    kernel: Kernel,
    buffers: Mapping[str, Array],
    point: dict[str, Array | int],
    positions: Array,
    known: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Those of all definitions, as far as they are not `known`; `point` learns the places that
    indices tell.
    """
    scalars: dict[str, Array] = {}
    for definition in kernel.definitions:
        if known and definition.name in known:
            value = known[definition.name]
        elif isinstance(definition, Gather):
            value = _place(definition, scalars[definition.index], point, positions)
            point[definition.name] = value
        else:
            value = definition_value(definition, kernel, buffers, point, positions)
        scalars[definition.name] = value
    return scalars


def _place(pick: Gather, index: Array, point: Point, positions: Array) -> Array:
    place, extent = np.asarray(index, np.int64), evaluate(pick.extent, point)
    if pick.ignored is not None:
        place = np.where(place == pick.ignored, 0, place)
    if pick.wraps:
        place = np.where(place < 0, place + extent, place)
    place = np.where(_holds(pick.guard, point, positions), place, 0)
    assert ((place >= 0) & (place < max(extent, 1))).all(), f"{pick.name} is out of range"
    return place


def definition_value(
    definition: Load | Index | object,
    kernel: Kernel,
    buffers: Mapping[str, Array],
    point: Point,
    positions: Array,
) -> Array:
    if isinstance(definition, Load):
        return _loaded(definition, kernel, buffers[definition.buffer], point, positions)
    if isinstance(definition, Index):
        value = everywhere(definition.expr, point, positions)
    else:
        value = _holds(definition.condition, point, positions)  # type: ignore[attr-defined]
    if definition.access is Access.SAME:  # type: ignore[attr-defined]
        assert (_packets(value, kernel) == _packets(value, kernel)[:, :1]).all()
    return value


def everywhere(expr: Size, point: Point, positions: Array) -> Array:
    with np.errstate(divide="ignore"):  # outside its guard an address may divide by a size of 0
        value = np.asarray(evaluate(expr, point), np.int64)
    return np.broadcast_to(value, positions.shape)  # type: ignore[arg-type]


def _holds(condition: Condition, point: Point, positions: Array) -> Array:
    holds = np.ones(positions.shape, bool)
    for between in condition:
        value = everywhere(between.expr, point, positions)
        low, high = (everywhere(limit, point, positions) for limit in (between.low, between.high))
        holds &= (value >= low) & (value < high)
    return holds


def _loaded(load: Load, kernel: Kernel, array: Array, point: Point, positions: Array) -> Array:
    addresses = everywhere(load.address, point, positions)
    inside = _holds(load.guard, point, positions)
    reach = sum(
        (n - 1) * s // array.itemsize for n, s in zip(array.shape, array.strides, strict=True)
    )
    wrong = inside & ((addresses < 0) | (addresses > reach))
    assert not wrong.any(), (
        f"{load.name} reads {load.buffer}[{addresses[wrong][0]}], last is {reach}"
    )
    _require_c_divisions(load, point, positions, inside)
    _require_access(load, kernel, addresses, positions)
    memory = np.lib.stride_tricks.as_strided(array, (max(reach, 0) + 1,), (array.itemsize,))
    values = memory[np.where(inside, addresses, 0)] if array.size else np.zeros(positions.shape)
    wide = values.astype(NUMPY_DTYPES[load.dtype.compute])
    return np.where(inside, wide, np.zeros((), wide.dtype))


def _require_c_divisions(load: Load, point: Point, positions: Array, inside: Array) -> None:
    """C divides towards zero, or unsigned: no numerator of an address in use is below zero."""
    for numerator in _numerators(load.address):
        negative = inside & (everywhere(numerator, point, positions) < 0)
        assert not negative.any(), f"{load.name} divides {numerator}, which is below zero"


def _numerators(value: Size) -> Iterator[Size]:
    for monomial, _ in terms_of(value):
        for atom in monomial:
            if isinstance(atom, Quotient | Remainder):
                yield atom.numerator
                yield from _numerators(atom.numerator)


def _require_access(load: Load, kernel: Kernel, addresses: Array, positions: Array) -> None:
    packets = _packets(addresses, kernel)
    first = packets[:, :1]
    if load.access is Access.FLAT:
        assert (addresses == positions).all()
    elif load.access is Access.VECTOR:
        assert not load.guard
        assert (first % kernel.lanes == 0).all()
        assert (packets == first + np.arange(kernel.lanes)).all()
    elif load.access is Access.SAME:
        assert (packets == first).all()


def _packets(values: Array, kernel: Kernel) -> Array:
    """The values of each full packet of lanes."""
    whole = len(values) // kernel.lanes * kernel.lanes
    return values[:whole].reshape(-1, kernel.lanes)


def element_values(element: Element, scalars: Mapping[str, Array]) -> tuple[Array, ...]:
    """The results of an element for arrays of its parameters."""
    values = dict(scalars)
    for let in element.body:
        values[let.name] = _let(let, values)
    return tuple(_arg(arg, values) for _, arg in element.results)


def _let(let: Let, values: Mapping[str, Array]) -> Array:
    return apply(let.op, [_arg(arg, values) for arg in let.args], let.attrs, let.dtype)


def _arg(arg: Arg, values: Mapping[str, Array]) -> Array:
    if isinstance(arg, Const):
        return np.asarray(arg.value, NUMPY_DTYPES[arg.dtype.compute])
    return values[arg.text]


def _stored(
    kernel: Kernel,
    store: object,
    values: Sequence[Array],
    buffers: Mapping[str, Array],
    point: Point,
    positions: Array,
) -> Array:
    addresses = everywhere(store.address, point, positions)  # type: ignore[attr-defined]
    assert (np.sort(addresses) == positions).all(), "an element is stored twice or never"
    if kernel.lanes > 1:
        assert (addresses == positions).all()
    memory = buffers[store.buffer]  # type: ignore[attr-defined]
    result = stored(values[store.result], store.dtype)  # type: ignore[attr-defined]
    memory[addresses] = np.broadcast_to(result, positions.shape)
    return memory
