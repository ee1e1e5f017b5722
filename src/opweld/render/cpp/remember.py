"""Values that a walk over a row leaves for later walks, which would compute them again.

`exp(x - amax)` of a softmax is summed in one walk and divided in the next: what is dear to compute
is kept where a result of its type will stand, whose walk reads it at the address that it then
stores to, or else in an array of the row, or of a strip of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.expr import Size, coefficient
from ...ir.kernels.kernel import (
    Access,
    Arg,
    Definition,
    Element,
    Index,
    Kernel,
    Load,
    Name,
    Store,
    Test,
    needed_by,
)
from ...ir.kernels.reduction import Folding, Step
from ...ir.ops import Op
from ...ir.types import DType

CHEAP = frozenset(
    (Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS, Op.MAXIMUM, Op.MINIMUM, Op.CAST, Op.WHERE, Op.RELU)
)

Key = int
"""The same for values that are equal, down to what is read: the number of what a name stands for
among all of a folding. Nested tuples would be walked again at each place that reads a value.
"""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The array of a value: its name and the type of its elements."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is kept."""

    buffer: str
    dtype: DType
    address: Size


def remembering(
    folding: Folding, var: str | None, address: Size
) -> tuple[Folding, tuple[Remembered, ...]]:
    """The folding whose walks read again what earlier walks have left in results whose elements are
    neighbours along loop `var`, if any is given, or at `address` of arrays.
    """
    known = dict[tuple[object, ...], Key]()
    keys = [_keys(step.walk.kernel, known) for step in folding.steps]
    held: dict[Key, _Place] = {}
    arrays: list[Remembered] = []
    steps: list[Step] = []
    for number, step in enumerate(folding.steps):
        kernel = _reading(step.walk.kernel, keys[number], held)
        later = frozenset(key for each in keys[number + 1 :] for key in each.values())
        for name, result in _dear_results(step, keys[number], later, held):
            key, dtype = keys[number][name], kernel.element.results[result][0].compute
            taken = {place.buffer for place in held.values()}
            needed = max(n for n, each in enumerate(keys) if key in each.values())
            place = var and _in_result(folding.steps[needed:], dtype, var, taken)
            if not place:
                place = _Place(_fresh(name, arrays), dtype, address)
                arrays.append(Remembered(place.buffer, dtype))
            held[key] = place
            store = Store(place.buffer, dtype, place.address, result)
            kernel = replace(kernel, stores=(*kernel.stores, store))
        steps.append(replace(step, walk=replace(step.walk, kernel=kernel)))
    return replace(folding, steps=tuple(steps)), tuple(arrays)


def _fresh(name: str, arrays: Sequence[Remembered]) -> str:
    """An array's name, after its value: those of two walks may share one."""
    taken = {array.name for array in arrays}
    wishes = (f"{name}_row", *(f"{name}_{number}_row" for number in range(2, len(arrays) + 2)))
    return next(wish for wish in wishes if wish not in taken)


def _in_result(
    steps: tuple[Step, ...], dtype: DType, var: str, taken: Collection[str]
) -> _Place | None:
    """The first result of this type that the last walk that needs the value stores, or one of
    those after it.
    """
    for step in steps:
        for store in step.walk.kernel.stores:
            fits = store.dtype is dtype and coefficient(store.address, var) == 1
            if fits and store.buffer not in taken:
                return _Place(store.buffer, dtype, store.address)
    return None


def _dear_results(
    step: Step, keys: Mapping[str, Key], later: frozenset[Key], held: Mapping[Key, _Place]
) -> list[tuple[str, int]]:
    """The folded results that are worth keeping: their names and numbers. Of those that are one
    value, as the mean's and the largest of a row, the first.
    """
    element = step.walk.kernel.element
    dear = _dear(element)
    found = dict[Key, tuple[str, int]]()
    for result in dict.fromkeys(fold.result for fold in step.walk.folds):
        dtype, arg = element.results[result]
        if isinstance(arg, Name) and arg.text in dear and dtype.compute.is_float:
            if keys[arg.text] in later and keys[arg.text] not in held:
                found.setdefault(keys[arg.text], (arg.text, result))
    return list(found.values())


def _dear(element: Element) -> frozenset[str]:
    """The names of values that take more than a few instructions."""
    found: set[str] = set()
    for let in element.body:
        args = {arg.text for arg in let.args if isinstance(arg, Name)}
        if let.op not in CHEAP or args & found:
            found.add(let.name)
    return frozenset(found)


def _keys(kernel: Kernel, known: dict[tuple[object, ...], Key]) -> dict[str, Key]:
    """Those of a kernel's values; `known` gets what is new."""
    keys = {d.name: known.setdefault(_read(d), len(known)) for d in kernel.definitions}
    for let in kernel.element.body:
        args = tuple(_argument(arg, keys) for arg in let.args)
        made = (let.op, let.dtype, let.operands, repr(let.attrs), args)
        keys[let.name] = known.setdefault(made, len(known))
    return keys


def _read(definition: Definition) -> tuple[object, ...]:
    if isinstance(definition, Load):
        return (Load, definition.buffer, definition.address, definition.guard)
    if isinstance(definition, Index):
        return (Index, definition.expr)
    if isinstance(definition, Test):
        return (Test, definition.condition)
    return (type(definition), definition.name)


def _argument(arg: Arg, keys: Mapping[str, Key]) -> Key | tuple[object, ...]:
    return keys[arg.text] if isinstance(arg, Name) else (repr(arg.value), arg.dtype)


def _reading(kernel: Kernel, keys: Mapping[str, Key], held: Mapping[Key, _Place]) -> Kernel:
    """The kernel that loads what is held, without what it then needs no more."""
    loads = {
        let.name: Load(let.name, place.buffer, place.dtype, place.address, Access.LANE)
        for let in kernel.element.body
        if (place := held.get(keys[let.name]))
    }
    if not loads:
        return kernel
    element = kernel.element
    needed = _needed(element, frozenset(loads))
    params = [(name, dtype) for name, dtype in element.params if name in needed]
    params += [(name, load.dtype) for name, load in loads.items() if name in needed]
    body = tuple(let for let in element.body if let.name in needed and let.name not in loads)
    read = (*kernel.definitions, *loads.values())
    used = [d for d in read if d.name in needed or isinstance(d, Test)]
    told = needed_by(used, read)
    # A test may name the guard of a load: the compiler drops it where it does not.
    return replace(
        kernel,
        element=replace(element, params=tuple(params), body=body),
        definitions=tuple(d for d in read if d in used or d in told),
    )


def _needed(element: Element, given: frozenset[str]) -> frozenset[str]:
    """The names that the results need where `given` need nothing."""
    found = {arg.text for _, arg in element.results if isinstance(arg, Name)}
    for let in reversed(element.body):
        if let.name in found and let.name not in given:
            found |= {arg.text for arg in let.args if isinstance(arg, Name)}
    return frozenset(found)
