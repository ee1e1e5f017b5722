"""Statements of C++ kernels for one element: what is read, the scalar function, what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...ir.expr import Bounds, Size, at_least_zero, upper
from ...ir.kernels.kernel import (
    Between,
    Buffer,
    Definition,
    Extent,
    Gather,
    Index,
    Kernel,
    Multiplied,
    RowScalar,
    Store,
    Test,
)
from ...ir.types import DType
from ..c import STORAGE, Integers, compute_type, constant, gathered_text, load_text, store_text
from ..element import condition_text


def text_of(value: Size) -> str:
    return Integers(str).text(value)


def parameters(buffers: tuple[Buffer, ...], extents: tuple[Extent, ...]) -> list[str]:
    """The pointers and the integers that every entry point takes first."""
    pointers = [f"{'' if b.written else 'const '}void* {b.name}_data" for b in buffers]
    return pointers + [f"int64_t {e.name}" for e in extents]


def typed(buffer: Buffer) -> str:
    """The statement that gives a pointer the type of its elements."""
    # g++ 12 vectorises no loop that reads bool.
    element = "uint8_t" if buffer.dtype is DType.BOOL else STORAGE[buffer.dtype]
    pointer = f"{'' if buffer.written else 'const '}{element}*"
    return f"{pointer} __restrict__ {buffer.name} = static_cast<{pointer}>({buffer.name}_data);"


OUTSIDE = "outside"


def picks(kernels: Iterable[Kernel]) -> bool:
    """Whether indices tell places, which may be out of range."""
    return any(isinstance(d, Gather) for kernel in kernels for d in kernel.definitions)


def checked(kernels: Iterable[Kernel], body: list[str]) -> tuple[str, list[str]]:
    """The type of an entry point and its statements: it tells whether all indices are in range."""
    if not picks(kernels):
        return "void", body
    return "bool", [f"int64_t {OUTSIDE} = 0;", *body, f"return {OUTSIDE} == 0;"]


def definition_text(
    definition: Definition, kernel: Kernel, place: Callable[[Size], str] = text_of
) -> str:
    """The statement of a definition; `place` spells addresses."""
    name = definition.name
    assert not isinstance(definition, Multiplied | RowScalar), "it has no statement of its own"
    if isinstance(definition, Index):
        return f"const int64_t {name} = {text_of(definition.expr)};"
    bounds = {loop.var: loop.extent for loop in kernel.loops}

    def between(each: Between) -> str:
        return _between(each, bounds)

    if isinstance(definition, Gather):
        text = gathered_text(definition, definition.index, text_of(definition.extent), OUTSIDE)
        if definition.guard:
            text = f"{condition_text(definition, kernel, between, _BOTH)} ? {text} : 0"
        return f"const int64_t {name} = {text};"
    if isinstance(definition, Test):
        return f"const bool {name} = {condition_text(definition, kernel, between, _BOTH)};"
    text = load_text(definition.dtype, f"{definition.buffer}[{place(definition.address)}]")
    if definition.dtype is DType.BOOL:
        text += " != 0"
    if definition.guard:
        nothing = constant(0, definition.dtype)
        text = f"{condition_text(definition, kernel, between, _BOTH)} ? {text} : {nothing}"
    return f"const {compute_type(definition.dtype)} {name} = {text};"


def stored(store: Store, place: Callable[[Size], str] = text_of) -> str:
    value = store_text(store.dtype, f"value{store.result}")
    return f"{store.buffer}[{place(store.address)}] = {value};"


# A branch in the second comparison would keep g++ from making vectors of the loop.
_BOTH = " & "


def _between(between: Between, bounds: Bounds) -> str:
    return _BOTH.join(f"({each})" for each in comparisons(between, bounds)) or "true"


def comparisons(between: Between, bounds: Bounds) -> list[str]:
    """Those that do not hold anyway."""
    expr = text_of(between.expr)
    found = []
    if not at_least_zero(between.expr - between.low, bounds):
        found.append(f"{expr} >= {text_of(between.low)}")
    if not at_least_zero(between.high - 1 - upper(between.expr, bounds), bounds):
        found.append(f"{expr} < {text_of(between.high)}")
    return found
