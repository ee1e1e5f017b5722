"""What one thread of a CUDA kernel does: for neighbouring elements together, or for one element.

The same text serves a kernel of its own, the epilogue of a matrix product, which is handed the
product's elements as `product`, and its prologue, which stores nothing and hands over `computed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...ir.expr import Size, symbols_of
from ...ir.kernels.kernel import (
    Access,
    Between,
    Buffer,
    Gather,
    Index,
    Kernel,
    Load,
    Loop,
    Multiplied,
    Own,
    Test,
    expressions_of,
)
from ..c import (
    STORAGE,
    Integers,
    compute_type,
    constant,
    gathered_text,
    grouped,
    load_text,
    named_in,
    store_text,
)
from ..element import call_element, condition_text
from ..layout import folded, head, indented

# Indices are unsigned: a division by a constant is cheaper, and a position below zero is out of
# range.
_INDICES = Integers(
    lambda value: f"{value}u" if value < 2**32 else f"{value}ull", difference="op::difference"
)
# As values they are signed, and wide enough for any product.
_VALUES = Integers(str, lambda name: f"int64_t({name})")


NOTHING: Mapping[str, str] = MappingProxyType({})


def address_text(value: Size) -> str:
    return _INDICES.text(value)


def pointer(buffer: Buffer) -> str:
    const = "" if buffer.written else "const "
    return f"{const}{STORAGE[buffer.dtype]}* __restrict__ {buffer.name}"


def extents(kernel: Kernel) -> tuple[str, ...]:
    """The integer arguments that the device code of a kernel reads."""
    by_packets = kernel.lanes > 1 or _multiplied(kernel)
    by_packets_body = turned_body if kernel.turned else _packet_body
    body = by_packets_body(kernel) if by_packets else element_body(kernel)
    return named_in(tuple(extent.name for extent in kernel.extents), "\n".join(body))


def parameters(kernel: Kernel) -> list[str]:
    """The pointers and the integers that the device code of a kernel takes."""
    return [*map(pointer, kernel.buffers), *(f"Index {name}" for name in extents(kernel))]


def names(kernel: Kernel) -> list[str]:
    """What stands for the parameters in a call."""
    return [*(buffer.name for buffer in kernel.buffers), *extents(kernel)]


# --- packets ---


def packet_function(kernel: Kernel, more: tuple[str, ...] = ()) -> str:
    """The function that handles one packet; `more` are its parameters after the position."""
    lines = [
        "template <int kLanes, typename Index>",
        head(
            f"OPWELD_FN void {packet_name(kernel)}", [*parameters(kernel), "Index at", *more], " {"
        ),
        *map(folded, indented(_packet_body(kernel), 2)),
        "}",
    ]
    return "\n".join(lines)


def packet_name(kernel: Kernel) -> str:
    return f"{kernel.name}_{kernel.variant}_packet"


def _packet_body(kernel: Kernel) -> list[str]:
    """What a thread does for kLanes neighbouring elements, from row-major position `at` on."""
    before = [line for d in _shared(kernel) for line in _once(d, kernel)]
    return [*coordinates(kernel.loops, "at", before), *before, *_lanes_and_stores(kernel)]


def turned_body(kernel: Kernel) -> list[str]:
    """The same for those at `position` of each of `num_rows` rows, the turns of the first loops:
    what no turn changes is read before them.
    """
    first, inner = kernel.loops[: kernel.turned], kernel.loops[kernel.turned :]
    turning = {loop.var for loop in first}
    shared = _shared(kernel)
    changing = [d for d in shared if any(symbols_of(e) & turning for e in expressions_of(d))]
    held = [line for d in shared if d not in changing for line in _once(d, kernel)]
    each = [line for d in changing for line in _once(d, kernel)]
    row = coordinates(first, "row", each)
    return [
        *coordinates(inner, "position", [*held, *each]),
        *held,
        f"#pragma unroll {_ROWS_IN_FLIGHT}",
        "for (Index row = 0; row < num_rows; ++row) {",
        "  const Index at = row * num_positions + position;",
        *indented([*row, *each, *_lanes_and_stores(kernel)], 2),
        "}",
    ]


# Rows of which a thread that goes through them reads at once.
_ROWS_IN_FLIGHT = 4


def _shared(kernel: Kernel) -> list[Own]:
    """What the lanes of a packet read together."""
    given = [d for d in kernel.definitions if isinstance(d, Own)]
    return [d for d in given if d.access is not Access.LANE]


def _lanes_and_stores(kernel: Kernel) -> list[str]:
    given = [d for d in kernel.definitions if isinstance(d, Own)]
    each = [d for d in given if d.access is Access.LANE]
    read = _of_vectors(kernel)
    inside = [definition_text(d, kernel, read=read) for d in each]
    inside += call_element(kernel, _arguments(kernel))
    for store in kernel.stores:
        value = store_text(store.dtype, f"value{store.result}")
        inside.append(f"{store.buffer}_vector.lane[lane] = {value};")
    inside += [] if kernel.stores else ["computed[lane] = value0;"]
    if each:
        of_lane = coordinates(kernel.loops, "lane_at", inside)
        inside = [*(["const Index lane_at = at + lane;"] if of_lane else []), *of_lane, *inside]
    vectors = [f"op::Vector<{STORAGE[s.dtype]}, kLanes> {s.buffer}_vector;" for s in kernel.stores]
    stores = [f"op::store_vector({s.buffer} + at, {s.buffer}_vector);" for s in kernel.stores]
    loop = ["#pragma unroll", "for (int lane = 0; lane < kLanes; ++lane) {"]
    return [*vectors, *loop, *indented(inside, 2), "}", *stores]


def _once(definition: Own, kernel: Kernel) -> list[str]:
    """Lines before the loop over lanes."""
    if not isinstance(definition, Load) or definition.access is Access.SAME:
        return [definition_text(definition, kernel)]
    # The index is summed before it meets the pointer: unsigned, a part of it may be below zero.
    flat = definition.access is Access.FLAT
    place = (
        f"{definition.buffer} + at"
        if flat
        else f"&{definition.buffer}[{address_text(definition.address)}]"
    )
    return [f"const auto {definition.name}_vector = op::load_vector<kLanes>({place});"]


def _arguments(kernel: Kernel) -> list[str]:
    of_vector = _of_vectors(kernel)
    of_vector |= {d.name: "product[lane]" for d in _multiplied(kernel)}
    return [of_vector.get(name, name) for name, _ in kernel.element.params]


def _of_vectors(kernel: Kernel) -> dict[str, str]:
    """The texts of what is loaded by vectors."""
    return {
        d.name: load_text(d.dtype, f"{d.name}_vector.lane[lane]")
        for d in kernel.definitions
        if isinstance(d, Load) and d.access in (Access.FLAT, Access.VECTOR)
    }


def _multiplied(kernel: Kernel) -> list[Multiplied]:
    return [d for d in kernel.definitions if isinstance(d, Multiplied)]


# --- single elements ---


def element_body(kernel: Kernel) -> list[str]:
    """What a thread does for the element at row-major position `at`, at any strides."""
    body = [definition_text(d, kernel) for d in kernel.definitions if isinstance(d, Own)]
    body += call_element(kernel, [name for name, _ in kernel.element.params])
    for store in kernel.stores:
        value = store_text(store.dtype, f"value{store.result}")
        body.append(f"{store.buffer}[{address_text(store.address)}] = {value};")
    return [*coordinates(kernel.loops, "at", body), *body]


# --- definitions ---


def coordinates(loops: tuple[Loop, ...], at: str, users: list[str]) -> list[str]:
    """Loop variables from the row-major position `at`, those that `users` name."""
    used = set(named_in(tuple(loop.var for loop in loops), "\n".join(users)))
    if len(loops) == 1:
        return [f"const Index {loops[0].var} = {at};"] if used else []
    lines: list[str] = []
    rest = at
    for position in range(len(loops) - 1, 0, -1):
        loop = loops[position]
        extent = grouped(address_text(loop.extent))
        if loop.var in used:
            lines.append(f"const Index {loop.var} = {rest} % {extent};")
        if not used & {outer.var for outer in loops[:position]}:
            return lines
        above = loops[0].var if position == 1 else f"above_{loop.var}"
        lines.append(f"const Index {above} = {rest} / {extent};")
        rest = above
    return lines


def element_place(load: Load) -> str:
    return f"{load.buffer}[{address_text(load.address)}]"


def definition_text(
    definition: Own,
    kernel: Kernel,
    place: Callable[[Load], str] = element_place,
    read: Mapping[str, str] = NOTHING,
    outside: Mapping[str, str] = NOTHING,
) -> str:
    """The statement that defines it for one element; `place` spells what is read, `read` has the
    texts of what has been read otherwise, and `outside` those of loads whose guard does not hold,
    where that is not zero.
    """
    name = definition.name
    if isinstance(definition, Gather):
        return _place_told(definition, kernel, read.get(definition.index, definition.index))
    if isinstance(definition, Index):
        return f"const int64_t {name} = {_VALUES.text(definition.expr)};"
    if isinstance(definition, Test):
        return f"const bool {name} = {condition_text(definition, kernel, _between)};"
    text = load_text(definition.dtype, place(definition))
    if definition.guard:
        otherwise = outside.get(name) or constant(0, definition.dtype)
        text = f"{condition_text(definition, kernel, _between)} ? {text} : {otherwise}"
    return f"const {compute_type(definition.dtype)} {name} = {text};"


def _place_told(pick: Gather, kernel: Kernel, index: str) -> str:
    text = gathered_text(pick, index, _VALUES.text(pick.extent))
    if pick.guard:
        text = f"{condition_text(pick, kernel, _between)} ? {text} : 0"
    return f"const Index {pick.name} = {text};"


def _between(between: Between) -> str:
    # low <= expr < high as one unsigned comparison: below low it wraps round to a huge number.
    return (
        f"{address_text(between.expr - between.low)} < {address_text(between.high - between.low)}"
    )
