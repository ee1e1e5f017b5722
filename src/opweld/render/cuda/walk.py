"""What one thread of a CUDA kernel does for a packet of a row, and once for the row.

Functions of one folding, in CUDA; each takes the operands and extents that it names:
    load(operands, row, at)                           what is loaded of a packet beforehand
    walk<k>(operands, row, at, packet, known, folds)  folds a packet and stores what is its own
    scanned(operands, row, at, packet, folds)         what is scanned of a packet
    after(operands, row, at, packet, known)           stores what is computed from scans
    once<k>(operands, row, stores, known)             what is computed for the row
`row` numbers the rows, `at` the elements of one. A packet is kLanes neighbours of a row, or, where
lanes lie across, the elements at one position of kLanes neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...ir.expr import Size, coefficient, substitute, symbol, symbols_of
from ...ir.kernels.kernel import (
    Access,
    Gather,
    Kernel,
    Load,
    Loop,
    Own,
    RowScalar,
    Store,
    Test,
    needed_by,
)
from ...ir.kernels.reduction import Fold, Folding, Walk
from ...ir.ops import Op
from ..c import STORAGE, compute_type, constant, load_text, named_in, store_text
from ..chunks import SCANNED_PLACES, own_folds, takes_chunks
from ..element import call_element
from ..layout import call, folded, head, indented
from .packet import NOTHING, address_text, coordinates, definition_text, pointer

ARG = (Op.ARGMAX, Op.ARGMIN)
_LANES = ["#pragma unroll", "for (int lane = 0; lane < kLanes; ++lane) {"]
_VECTORS = (Access.FLAT, Access.VECTOR)


@dataclass(frozen=True, slots=True)
class Function:
    """A device function: its text, its name, and the operands and extents that it takes first."""

    name: str
    text: str
    operands: tuple[str, ...]

    def call(self, more: list[str], indent: int) -> str:
        return call(self.name, [*self.operands, *more], indent)


def known_name(folding: Folding) -> str:
    return f"{folding.name}_known"


def prefix(folding: Folding) -> str:
    return f"{folding.name}_{folding.variant}"


def folds_name(folding: Folding, number: int) -> str:
    return f"{folding.name}_folds{number}" if folding.steps[number].walk.folds else "op::NoFolds"


# --- what is loaded of a packet ---


def held_loads(folding: Folding) -> dict[Load, str]:
    """Loads of elements that more than one walk makes, and the name that they have in a packet.

    Loads that differ in nothing but their name are one. A single walk, or the two halves of one
    that scans, has all of its loads there, so that those of several packets are under way at once.
    """
    walks = [step.walk.kernel.definitions for step in folding.steps]
    every = [d for definitions in walks for d in definitions if isinstance(d, Load)]
    loads = [load for load in every if reads_elements(load, folding)]
    names: dict[Own, str] = {}
    for load in loads:
        several = sum(unnamed(load) == unnamed(other) for other in loads) > 1
        if (several or len(walks) == 1 or folding.scanned) and unnamed(load) not in names:
            taken = load.name in names.values()
            names[unnamed(load)] = f"{load.name}_{len(names)}" if taken else load.name
    return {load: names[unnamed(load)] for load in loads if unnamed(load) in names}


def reads_elements(load: Load, folding: Folding) -> bool:
    return bool(symbols_of(load.address) & {loop.var for loop in folding.reduced})


def unnamed(definition: Own) -> Own:
    """What tells it from others: all walks call a place alike, but not the number that tells it."""
    if isinstance(definition, Gather):
        return replace(definition, index="")
    return replace(definition, name="")


def packet_type(folding: Folding) -> str:
    return f"{prefix(folding)}_packet<kLanes>" if held_loads(folding) else "op::NoPacket"


def packet_struct(folding: Folding) -> str:
    """The struct of what `load` gives."""
    fields = {name: load for load, name in held_loads(folding).items()}
    several = len(folding.steps) > 1 and not folding.scanned
    readers = "more than one pass reads" if several else "the pass reads"
    lines = [
        f"// What {readers} of a packet.",
        "template <int kLanes>",
        f"struct {prefix(folding)}_packet {{",
        *(f"  {field_of(load, name)}" for name, load in fields.items()),
        "};",
    ]
    return "\n".join(lines)


def field_of(load: Load, name: str) -> str:
    if load.access in _VECTORS:
        return f"op::Vector<{STORAGE[load.dtype]}, kLanes> {name};"
    lanes = "[kLanes]" if load.access is Access.LANE else ""
    return f"{compute_type(load.dtype)} {name}{lanes};"


def load_function(folding: Folding) -> Function:
    """Loads of a packet what `held_loads` names."""
    before, inside = _load_lines(folding)
    body = [
        f"{packet_type(folding)} packet;",
        *with_coordinates(folding, before, inside, []),
        "return packet;",
    ]
    return function_of(folding, "load", packet_type(folding), body, ["Index row", "Index at"])


def _load_lines(folding: Folding) -> tuple[list[str], list[str]]:
    """Before and inside of the loop over lanes: the loads, and what tells their places."""
    held, done = held_loads(folding), dict[Own, str]()
    before, inside = list[str](), list[str]()
    for kernel in (step.walk.kernel for step in folding.steps):
        new = [d for d in kernel.definitions if d in held and unnamed(d) not in done]
        needed = {d.name for d in (*new, *needed_by(new, kernel.definitions))}
        read: dict[str, str] = {}
        for definition in (
            d for d in kernel.definitions if isinstance(d, Own) and d.name in needed
        ):
            kept = held.get(definition) if isinstance(definition, Load) else None
            key = unnamed(definition)
            if key not in done:
                done[key] = kept or _own_name(definition, done)
                lines = inside if definition.access is Access.LANE else before
                lines += _load_line(replace(definition, name=done[key]), kernel, read, kept)
            if isinstance(definition, Load):
                place = f"packet.{kept}" if kept else None
                read[definition.name] = _loaded(replace(definition, name=done[key]), place)
    return before, inside


def _own_name(definition: Own, done: Mapping[Own, str]) -> str:
    """Another walk may call another number so."""
    name = definition.name
    return f"{name}_{len(done)}" if name in done.values() else name


def _load_line(
    definition: Own, kernel: Kernel, read: Mapping[str, str], kept: str | None
) -> list[str]:
    if isinstance(definition, Load) and kept and definition.access in _VECTORS:
        return [f"packet.{kept} = {vector_load(definition)};"]
    lines = _before(definition, replace(kernel, definitions=(definition,)), read)
    lane = "[lane]" if definition.access is Access.LANE else ""
    return [*lines, f"packet.{kept}{lane} = {kept};"] if kept else lines


def vector_load(load: Load) -> str:
    # The index is summed before it meets the pointer: unsigned, a part of it may be below zero.
    return f"op::load_vector<kLanes>(&{load.buffer}[{address_text(load.address)}])"


# --- walks ---


@dataclass(frozen=True, slots=True)
class Shared:
    """Loads of what rows have in common: their names in a struct `type` that a walk is given."""

    loads: Mapping[Load, str]
    type: str


def walk_function(folding: Folding, number: int, shared: Shared | None = None) -> Function:
    """Folds one packet, and stores what the walk stores of it: where it is given what rows have
    in common, of rows that stream through the device.
    """
    walk = folding.steps[number].walk
    held = {load: f"packet.{name}" for load, name in held_loads(folding).items()}
    if shared:
        held |= {load: f"kept.{name}" for load, name in shared.loads.items()}
    own = _own_definitions(walk.kernel, held)
    kernel = replace(walk.kernel, definitions=tuple(own))
    loads = [d for d in walk.kernel.definitions if isinstance(d, Load)]
    read = {load.name: _loaded(load, held.get(load)) for load in loads}
    before = [line for d in own if d.access is not Access.LANE for line in _before(d, kernel)]
    inside = [definition_text(d, kernel, read=read) for d in own if d.access is Access.LANE]
    inside += call_element(walk.kernel, _arguments(walk.kernel, folding, held))
    if walk.folds:
        inside.append(_add(folding, walk))
    after = list[str]()
    for store in walk.kernel.stores:
        value = store_text(store.dtype, f"value{store.result}")
        place = f"{store.buffer}[{address_text(store.address)}]"
        if _by_vector(store, folding):
            before.append(f"op::Vector<{STORAGE[store.dtype]}, kLanes> {store.buffer}_vector;")
            inside.append(f"{store.buffer}_vector.lane[lane] = {value};")
            how = "store_vector_streaming" if shared else "store_vector"
            after.append(f"op::{how}(&{place}, {store.buffer}_vector);")
        else:
            inside.append(f"{place} = {value};")
    body = with_coordinates(folding, before, inside, after)
    role = _HALVES[number] if folding.scanned else f"pass{number}"
    parameters = _walk_parameters(folding, number)
    if shared:
        role, parameters = "stored", [*parameters, f"const {shared.type}& kept"]
    return function_of(folding, role, "void", body, parameters)


def _own_definitions(kernel: Kernel, held: Mapping[Load, str]) -> list[Own]:
    """Those that have a statement in a walk: what is held has none, nor what tells its place."""
    params = {name for name, _ in kernel.element.params}
    own = [d for d in kernel.definitions if isinstance(d, Own) and d not in held]
    used = [d for d in own if d.name in params or isinstance(d, Test)]
    told = needed_by(used, kernel.definitions)
    return [d for d in own if d in used or d in told]


# Of a row that is scanned.
_HALVES = ("scanned", "after")


def _walk_parameters(folding: Folding, number: int) -> list[str]:
    known = f"const {known_name(folding)}"
    if folding.scanned:
        own = f"{known} (&known)" if number else f"{folds_name(folding, number)} (&folds)"
        return ["Index row", "Index at", f"const {packet_type(folding)}& packet", f"{own}[kLanes]"]
    element = "::Element" if takes_chunks(folding.steps[number].walk) else ""
    return [
        *("Index row", "Index at", f"const {packet_type(folding)}& packet"),
        f"{known} (&known)[kLanes]" if folding.across else f"{known}& known",
        f"{folds_name(folding, number)}{element} (&folds)[kLanes]",
    ]


def _before(definition: Own, kernel: Kernel, read: Mapping[str, str] = NOTHING) -> list[str]:
    """Lines before the loop over lanes."""
    if isinstance(definition, Load) and definition.access in _VECTORS:
        return [f"const auto {definition.name}_vector = {vector_load(definition)};"]
    return [definition_text(definition, kernel, read=read)]


def _arguments(kernel: Kernel, folding: Folding, held: dict[Load, str]) -> list[str]:
    row = "known[lane]" if folding.across or folding.scanned else "known"
    texts: dict[str, str] = {}
    for definition in kernel.definitions:
        if isinstance(definition, RowScalar):
            texts[definition.name] = f"{row}.{definition.name}"
        elif isinstance(definition, Load):
            texts[definition.name] = _loaded(definition, held.get(definition))
    return [texts.get(name, name) for name, _ in kernel.element.params]


def _loaded(load: Load, held: str | None) -> str:
    if load.access in _VECTORS:
        return load_text(load.dtype, f"{held or f'{load.name}_vector'}.lane[lane]")
    if held is None:
        return load.name
    return f"{held}[lane]" if load.access is Access.LANE else held


def _add(folding: Folding, walk: Walk) -> str:
    values = [folded_value(fold, walk) for fold in own_folds(walk)]
    if any(fold.op in (*ARG, *SCANNED_PLACES) for fold in walk.folds):
        values.append("at" if folding.across else "at + lane")
    return f"folds[lane].add({', '.join(values)});"


def folded_value(fold: Fold, walk: Walk) -> str:
    value, dtype = f"value{fold.result}", walk.kernel.element.results[fold.result][0]
    truth = fold.op in (Op.ANY, Op.ALL) and compute_type(dtype) != "bool"
    return f"{value} != {constant(0, dtype)}" if truth else value


def _by_vector(store: Store, folding: Folding) -> bool:
    """Whether the lanes' places are neighbours, aligned as a packet is."""
    loops = folding.kept if folding.across else folding.reduced
    if folding.lanes == 1 or not loops:
        return False
    run = loops[-1].extent
    if len(loops) > 1 and not folding.divides(run):
        return False
    bounds = {loop.var: loop.extent for loop in (*folding.kept, *folding.reduced)}
    start = substitute(store.address, {loops[-1].var: 0}, bounds)
    step = coefficient(store.address, loops[-1].var)
    return step == 1 and folding.divides(start)


def position_among(loops: tuple[Loop, ...]) -> Size:
    """The row-major position among loops."""
    place: Size = 0
    for loop in loops:
        place = place * loop.extent + symbol(loop.var)
    return place


def with_coordinates(
    folding: Folding, before: list[str], inside: list[str], after: list[str]
) -> list[str]:
    """The lines, those inside once for each lane, with the coordinates that they name."""
    packet = [*before, *after]
    if folding.across:
        at = coordinates(folding.reduced, "at", [*packet, *inside])
        row = coordinates(folding.kept, "row", packet)
        lane, position = coordinates(folding.kept, "lane_row", inside), "lane_row = row"
    else:
        row = coordinates(folding.kept, "row", [*packet, *inside])
        at = coordinates(folding.reduced, "at", packet)
        lane, position = coordinates(folding.reduced, "lane_at", inside), "lane_at = at"
    if lane:
        lane.insert(0, f"const Index {position} + lane;")
    loop = [*_LANES, *indented([*lane, *inside], 2), "}"] if inside else []
    return [*row, *at, *before, *loop, *after]


# --- once ---


def once_function(folding: Folding, number: int) -> Function | None:
    """What is computed for the row after a walk, or None where that is nothing."""
    once = folding.steps[number].once
    if once is None or not (once.values or once.kernel.stores):
        return None
    kernel = once.kernel
    own = [d for d in kernel.definitions if isinstance(d, Own)]
    body = [definition_text(d, kernel) for d in own]
    given = {d.name: f"known.{d.name}" for d in kernel.definitions if isinstance(d, RowScalar)}
    body += call_element(kernel, [given.get(name, name) for name, _ in kernel.element.params])
    body += [f"known.{value.name} = value{value.result};" for value in once.values]
    if kernel.stores:
        stores = [
            f"{s.buffer}[{address_text(s.address)}] = {store_text(s.dtype, f'value{s.result}')};"
            for s in kernel.stores
        ]
        body += ["if (stores) {", *indented(stores, 2), "}"]
    parameters = ["Index row", "bool stores", f"{known_name(folding)}& known"]
    body = [*coordinates(folding.kept, "row", body), *body]
    return function_of(folding, f"once{number}", "void", body, parameters)


# --- functions ---


def function_of(
    folding: Folding, role: str, returns: str, body: list[str], more: list[str]
) -> Function:
    name = f"{prefix(folding)}_{role}"
    text = "\n".join(body)
    template = "template <typename Index>" if role.startswith("once") else _PACKET_TEMPLATE
    used = named_operands(folding, text)
    params = [*operand_parameters(folding, used), *more]
    lines = [
        template,
        *(
            [f"OPWELD_FN {returns}", head(name, params, " {")]
            if len(returns) > 20
            else [head(f"OPWELD_FN {returns} {name}", params, " {")]
        ),
        *map(folded, indented(body, 2)),
        "}",
    ]
    called = name if role.startswith("once") else f"{name}<kLanes>"
    return Function(called, "\n".join(lines), used)


_PACKET_TEMPLATE = "template <int kLanes, typename Index>"


def named_operands(folding: Folding, text: str) -> tuple[str, ...]:
    """The operands and the extents that stand in a text."""
    names = [*(b.name for b in folding.buffers), *(extent.name for extent in folding.extents)]
    return named_in(tuple(names), text)


def operand_parameters(folding: Folding, names: tuple[str, ...]) -> list[str]:
    typed = {buffer.name: pointer(buffer) for buffer in folding.buffers}
    return [typed.get(name, f"Index {name}") for name in names]


def integers(folding: Folding, operands: tuple[str, ...]) -> list[str]:
    """Those of the operands that are extents."""
    buffers = {buffer.name for buffer in folding.buffers}
    return [name for name in operands if name not in buffers]


def pointers(folding: Folding, operands: tuple[str, ...]) -> list[str]:
    """The others as parameters in C."""
    return [
        f"{'' if b.written else 'const '}void* {b.name}"
        for b in folding.buffers
        if b.name in operands
    ]


def casts(folding: Folding, operands: tuple[str, ...]) -> list[str]:
    """The operands as a kernel takes them."""
    typed = [
        f"static_cast<{'' if b.written else 'const '}{STORAGE[b.dtype]}*>({b.name})"
        for b in folding.buffers
        if b.name in operands
    ]
    return [*typed, *(f"Index({name})" for name in integers(folding, operands))]
