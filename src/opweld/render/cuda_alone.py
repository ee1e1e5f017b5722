"""Short rows in CUDA, each one thread's.

Made for windows: neighbours in memory are read by neighbouring threads. Where windows below each
other share what they read, a thread has several of them, and reads it once; of very short rows it
takes several in turns, so that enough loads are under way. In C:
    int <group>_<variant>(operands, extents, int64_t num_rows, int64_t length, int64_t max_offset,
                          int aligned, void* stream)
"""

from __future__ import annotations

import math

from ..ir.expr import Size, coefficient, substitute, symbol, terms_of
from ..ir.kernel import Given, Kernel, Load, Loop, Own
from ..ir.reduction import Folding, Once, Walk
from .c import Integers, named_in, store_text
from .element import call_element
from .layout import call, folded, head, indented
from .packet import address_text, coordinates, definition_text, element_place
from .walk import (
    ARG,
    casts,
    folded_value,
    folds_name,
    integers,
    known_name,
    named_operands,
    operand_parameters,
    pointers,
    position_among,
    prefix,
)

# So many elements are written out one after another, so that their loads are under way together.
_UNROLLED_ELEMS = 32
# Of so many in one loop.
_IN_FLIGHT = 8
# So many loads of a thread, in several rows if one has fewer, keep memory busy.
_LOADS = 8
# Fewer threads leave multiprocessors idle: half of what 132 of them hold.
_MANY_THREADS = 132 * 1024


def alone_parts(folding: Folding) -> list[str]:
    """The kernel, what launches it, and the entry."""
    body = _body(folding)
    operands = named_operands(folding, "\n".join(body))
    params = [*operand_parameters(folding, operands), "Index num_rows"]
    kernel = [
        f"template <{_template_parameters(folding)}>",
        f"__global__ void __launch_bounds__({_bounds(folding)})",
        head(f"{prefix(folding)}_kernel", params, " {"),
        *map(folded, indented(body, 2)),
        "}",
    ]
    return ["\n".join(kernel), _template(folding, operands), _entry(folding, operands)]


def _bounds(folding: Folding) -> str:
    return f"{folding.threads}, op::kLeastBlocks<{folding.threads}, Index>"


def _template_parameters(folding: Folding) -> str:
    several = _several(folding)
    return f"int {several[0]}, typename Index" if several else "typename Index"


def _several(folding: Folding) -> tuple[str, int] | None:
    """The name and the number of a thread's rows, where there are enough of them: lanes that share
    what they read, or turns.
    """
    if folding.lanes > 1:
        return "kLanes", folding.lanes
    turns = _LOADS // math.prod(_number(loop.extent) for loop in folding.reduced)
    return ("kTurns", turns) if turns > 1 else None


def _body(folding: Folding) -> list[str]:
    (step,) = folding.steps
    folds = folds_name(folding, 0)
    walk, end = _fold_lines(folding, step.walk), _end_lines(folding, step.once)
    thread = "Index(blockIdx.x) * blockDim.x + threadIdx.x"
    if folding.lanes == 1:
        own = [
            *coordinates(folding.kept, "row", [*walk, *end]),
            f"{folds} folds = {folds}::nothing();",
            *walk,
            *end,
        ]
        if _several(folding):
            return _in_turns(own)
        return [f"const Index row = {thread};", "if (row >= num_rows) return;", *own]
    *outer, lane, inner = folding.kept
    blocks = Loop(f"block_{lane.var}", symbol("kBlocks"))
    return [
        f"constexpr Index kBlocks = {address_text(lane.extent)} / kLanes;",
        f"const Index rows = {thread};",
        "if (rows * kLanes >= num_rows) return;",
        *coordinates((*outer, blocks, inner), "rows", [*walk, *end]),
        f"{folds} of_lane[kLanes];",
        *_each_lane(folding, [f"of_lane[lane] = {folds}::nothing();"]),
        *walk,
        *end,
    ]


def _in_turns(own: list[str]) -> list[str]:
    """Rows a block apart, all of them without a condition that would keep back the next loads."""
    return [
        "const auto make_row = [&](Index row) {",
        *indented(own, 2),
        "};",
        "const Index first = Index(blockIdx.x) * (kTurns * blockDim.x) + threadIdx.x;",
        "if (first + (kTurns - 1) * blockDim.x < num_rows) {",
        "#pragma unroll",
        "  for (int turn = 0; turn < kTurns; ++turn) make_row(first + turn * blockDim.x);",
        "} else {",
        "  for (Index row = first; row < num_rows; row += blockDim.x) make_row(row);",
        "}",
    ]


def _each_lane(folding: Folding, lines: list[str]) -> list[str]:
    """The lines once for each of a thread's rows."""
    if folding.lanes == 1:
        return lines
    head = "for (int lane = 0; lane < kLanes; ++lane) {"
    return ["#pragma unroll", head, *indented(lines, 2), "}"]


def _of_lane(folding: Folding, lane: str, lines: list[str]) -> list[str]:
    """The lines, with the coordinate of a thread's row where they name it."""
    var = folding.kept[-2].var if folding.lanes > 1 else ""
    if not var or not named_in((var,), "\n".join(lines)):
        return lines
    return [f"const Index {var} = block_{var} * kLanes{lane};", *lines]


def _folds(folding: Folding) -> str:
    return "of_lane[lane]" if folding.lanes > 1 else "folds"


def _fold_lines(folding: Folding, walk: Walk) -> list[str]:
    """The loops over a row, or over what a thread's rows share, outermost first."""
    inside = _definitions(walk.kernel, folding.reduced)
    inside += call_element(walk.kernel, [name for name, _ in walk.kernel.element.params])
    lines = [*_of_lane(folding, "", inside), *_add(folding, walk)]
    elems = 1
    for loop in reversed(folding.reduced):
        extent, most = _extent(folding, loop)
        few = elems * most <= _UNROLLED_ELEMS
        unroll = ["#pragma unroll"] if few else []
        if not few and elems == 1:
            unroll = [f"#pragma unroll {_IN_FLIGHT}"]
        opening = f"for (int {loop.var} = 0; {loop.var} < {extent}; ++{loop.var}) {{"
        lines, elems = [*unroll, opening, *indented(lines, 2), "}"], elems * most
    return lines


def _extent(folding: Folding, loop: Loop) -> tuple[str, int]:
    """How often a loop turns, and the most that is."""
    number, overlap = _number(loop.extent), folding.overlap
    if overlap is None or overlap.var != loop.var:
        return str(number), number
    shift = "kLanes - 1" if overlap.step == 1 else f"{overlap.step} * (kLanes - 1)"
    return f"{number} + {shift}", number + overlap.step * (folding.lanes - 1)


def _number(extent: Size) -> int:
    assert isinstance(extent, int), "a short row is of known length"
    return extent


def _add(folding: Folding, walk: Walk) -> list[str]:
    """An element goes to the folds of every row that has it."""
    overlap = folding.overlap
    shifted: dict[str, Size] = {overlap.var: symbol("place")} if overlap else {}
    place = substitute(position_among(folding.reduced), shifted)
    values = [folded_value(fold, walk) for fold in walk.folds]
    if any(fold.op in ARG for fold in walk.folds):
        values.append(_PLACES.text(place))
    add = f"{_folds(folding)}.add({', '.join(values)});"
    if overlap is None:
        return [add]
    (extent,) = (loop.extent for loop in folding.reduced if loop.var == overlap.var)
    shift = "lane" if overlap.step == 1 else f"{overlap.step} * lane"
    of_row = [
        f"const int place = {overlap.var} - {shift};",
        f"if (0 <= place && place < {extent}) {add}",
    ]
    return _each_lane(folding, of_row)


# Places in a row, which is short, are small, and may be before it.
_PLACES = Integers(str)


def _definitions(kernel: Kernel, reduced: tuple[Loop, ...] = ()) -> list[str]:
    own = (d for d in kernel.definitions if isinstance(d, Own))
    return [definition_text(d, kernel, lambda load: _place_of(load, reduced)) for d in own]


def _place_of(load: Load, reduced: tuple[Loop, ...]) -> str:
    """Where a load reads: from where its row begins, by what is known when loops are unrolled."""
    within: Size = 0
    for loop in reduced:
        step = coefficient(load.address, loop.var)
        if not isinstance(step, int):
            return element_place(load)
        within = within + symbol(loop.var) * step
    within = within + dict(terms_of(load.address)).get((), 0)
    start = load.address - within
    if within == 0 or start == 0 or any(factor < 0 for _, factor in terms_of(start)):
        return element_place(load)
    return f"({load.buffer} + ({address_text(start)}))[{_PLACES.text(within)}]"


def _end_lines(folding: Folding, once: Once | None) -> list[str]:
    """What is computed of each row, and stored."""
    assert once is not None, "what is folded is stored"
    kernel = once.kernel
    given = {d.name: f"known.{d.name}" for d in kernel.definitions if isinstance(d, Given)}
    lines = [f"{known_name(folding)} known;", f"{_folds(folding)}.tell(known);"]
    lines += _definitions(kernel)
    lines += call_element(kernel, [given.get(name, name) for name, _ in kernel.element.params])
    for store in kernel.stores:
        value = store_text(store.dtype, f"value{store.result}")
        lines.append(f"{store.buffer}[{address_text(store.address)}] = {value};")
    return _each_lane(folding, _of_lane(folding, " + lane", lines))


def _template(folding: Folding, operands: tuple[str, ...]) -> str:
    params = [
        *pointers(folding, operands),
        *(f"int64_t {name}" for name in (*integers(folding, operands), "num_rows")),
        "cudaStream_t stream",
    ]
    arguments = [*casts(folding, operands), "Index(num_rows)"]
    several = _several(folding)
    rows = f"{folding.threads} * {several[0]}" if several else str(folding.threads)
    instance = f"{several[0]}, Index" if several else "Index"
    lines = [
        f"template <{_template_parameters(folding)}>",
        head(f"static void {prefix(folding)}_launch", params, " {"),
        f"  constexpr int64_t kRows = {rows};",
        "  const unsigned int blocks = (num_rows + kRows - 1) / kRows;",
        f"  const auto kernel = {prefix(folding)}_kernel<{instance}>;",
        call(f"kernel<<<blocks, {folding.threads}, 0, stream>>>", arguments, 2),
        "}",
    ]
    return "\n".join(lines)


def _entry(folding: Folding, operands: tuple[str, ...]) -> str:
    every = tuple(b.name for b in folding.buffers)
    params = [
        *pointers(folding, every),
        *(f"int64_t {extent.name}" for extent in folding.extents),
        *("int64_t num_rows", "int64_t length", "int64_t max_offset", "int aligned"),
        "void* stream",
    ]
    name, several = f"{prefix(folding)}_launch", _several(folding)
    one = "1, " if several else ""
    choice = [
        folded(f"  auto launch = narrow ? {name}<{one}uint32_t> : {name}<{one}uint64_t>;"),
    ]
    if several:
        # Of few rows each thread takes one, so that there are enough threads.
        most = several[1]
        launch = f"narrow ? {name}<{most}, uint32_t> : {name}<{most}, uint64_t>"
        choice.append(f"  if (num_rows >= {most * _MANY_THREADS}) {{")
        choice += [folded(f"    launch = {launch};"), "  }"]
    lines = [
        head(f'extern "C" int {prefix(folding)}', params, " {"),
        "  // 32-bit positions must not wrap round behind the last element.",
        "  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);",
        *choice,
        call("launch", [*operands, "num_rows", "static_cast<cudaStream_t>(stream)"], 2),
        "  return int(cudaGetLastError());",
        "}",
    ]
    return "\n".join(lines)
