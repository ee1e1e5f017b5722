"""Short rows in CUDA, each one thread's.

Made for windows: neighbours in memory are read by neighbouring threads. Where windows below each
other, or behind each other, share what they read, a thread has several of them, and reads it once;
of very short rows it takes several in turns, so that enough loads are under way. In C:
    int <group>_<variant>(operands, extents, int64_t num_rows, int64_t length, int64_t max_offset,
                          int aligned, void* stream)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.expr import Size, coefficient, substitute_unsimplified, symbol, terms_of
from ...ir.kernels.kernel import Kernel, Load, Loop, Own, RowScalar
from ...ir.kernels.reduction import Folding, Once, Overlap, Walk
from ..c import Integers, argument, named_in, store_text
from ..element import call_element
from ..layout import call, folded, head, indented
from ..padding import known_inside, padded
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

# So many elements are written out one after another, so that their loads are under way together;
# of rows that share them, all.
_UNROLLED_ELEMS, _UNROLLED_SHARED = 32, 256
# Of so many in one loop.
_IN_FLIGHT = 8
# So many loads of a thread, in up to so many rows if one has few, keep memory busy.
_FEW_LOADS, _LOADS, _TURNS = 4, 16, 4
# Fewer threads of a multiprocessor leave it idle: half of what it holds.
_MANY_THREADS = 1024


@dataclass(frozen=True, slots=True)
class _Together:
    """Rows of a thread along one kept loop: their number in the text, and the counter of them."""

    overlap: Overlap
    count: str
    index: str

    @property
    def rows(self) -> str:
        return address_text(self.overlap.rows)

    @property
    def blocks(self) -> str:
        """How many threads there are along the loop."""
        return f"({self.rows} + {self.count} - 1) / {self.count}"

    @property
    def first(self) -> str:
        """The first row of a thread. The last threads take some rows that others take, too."""
        start = f"block_{self.overlap.kept} * {self.count}"
        if self.overlap.rows % self.overlap.lanes == 0:
            return start
        last = f"{self.rows} - {self.count}"
        return f"{start} < {last} ? {start} : {last}"

    def loop(self, lines: list[str]) -> list[str]:
        """The lines once for each of the rows."""
        head = f"for (int {self.index} = 0; {self.index} < {self.count}; ++{self.index}) {{"
        return ["#pragma unroll", head, *indented(lines, 2), "}"]


def _together(folding: Folding) -> tuple[_Together, ...]:
    """Outermost first."""
    names = (("kLayers", "layer"), ("kLanes", "lane"))[2 - len(folding.overlaps) :]
    return tuple(_Together(o, *name) for o, name in zip(folding.overlaps, names, strict=True))


def alone_parts(folding: Folding) -> list[str]:
    """The kernel, what launches it, and the entry."""
    body = _body(folding)
    operands = named_operands(folding, "\n".join(body))
    params = [*operand_parameters(folding, operands), f"Index {_number_of(folding)}"]
    kernel = [
        f"template <{_template_parameters(folding)}>",
        f"__global__ void __launch_bounds__({_bounds(folding)})",
        head(f"{prefix(folding)}_kernel", params, " {"),
        *map(folded, indented(body, 2)),
        "}",
    ]
    return ["\n".join(kernel), _template(folding, operands), _entry(folding, operands)]


def _number_of(folding: Folding) -> str:
    return "num_threads" if folding.overlaps else "num_rows"


def _bounds(folding: Folding) -> str:
    if len(folding.overlaps) > 1:  # 80 registers, which layers of rows need, or all that there are
        return f"{folding.threads}, sizeof(Index) > 4 ? 1 : 3"
    return f"{folding.threads}, op::kLeastBlocks<{folding.threads}, Index>"


def _template_parameters(folding: Folding) -> str:
    return ", ".join([*(f"int {name}" for name in _several(folding)), "typename Index"])


def _several(folding: Folding) -> tuple[str, ...]:
    """The names of the numbers of a thread's rows: those that share what they read, or turns."""
    if folding.overlaps:
        return tuple(each.count for each in _together(folding))
    return ("kTurns",) if _instances(folding) != [(1,)] else ()


def _instances(folding: Folding) -> list[tuple[int, ...]]:
    """The numbers of a thread's rows, the largest last: of few rows each thread takes one, so that
    there are enough threads.
    """
    most = tuple(each.lanes for each in folding.overlaps)
    if not most:
        loads = math.prod(_number(loop.extent) for loop in folding.reduced)
        return [(1,), (min(_LOADS // loads, _TURNS),)] if loads <= _FEW_LOADS else [(1,)]
    one = (1,) * len(most)
    fewer = (1, most[-1]) if len(most) > 1 else (4,)
    return [one, fewer, most] if math.prod(fewer) < math.prod(most) else [one, most]


def _body(folding: Folding) -> list[str]:
    (step,) = folding.steps
    folds = folds_name(folding, 0)
    walk, end = _fold_lines(folding, step.walk), _end_lines(folding, step.once)
    if folding.overlaps:
        return _body_of_several(folding, walk, end)
    own = [
        *coordinates(folding.kept, "row", [*walk, *end]),
        f"{folds} folds = {folds}::nothing();",
        *walk,
        *end,
    ]
    if _several(folding):
        return _in_turns(own)
    return [
        "const Index row = Index(blockIdx.x) * blockDim.x + threadIdx.x;",
        "if (row >= num_rows) return;",
        *own,
    ]


def _body_of_several(folding: Folding, walk: list[str], end: list[str]) -> list[str]:
    """Of rows that share what they read."""
    folds, together = folds_name(folding, 0), _together(folding)
    blocks = {
        var: Loop(f"block_{var}", symbol(f"blocks_{var}"))
        for var in (each.overlap.kept for each in together)
    }
    threads = tuple(blocks.get(loop.var, loop) for loop in folding.kept)
    first = [f"const Index first_{each.overlap.kept} = {each.first};" for each in together]
    lanes = "".join(f"[{each.count}]" for each in together)
    return [
        "const Index thread = Index(blockIdx.x) * blockDim.x + threadIdx.x;",
        "if (thread >= num_threads) return;",
        *(f"constexpr Index blocks_{each.overlap.kept} = {each.blocks};" for each in together),
        *coordinates(threads, "thread", [*walk, *end, *first]),
        *first,
        f"{folds} of_lane{lanes};",
        *_each_lane(folding, [f"{_folds(folding)} = {folds}::nothing();"]),
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
    for each in reversed(_together(folding)):
        lines = each.loop(lines)
    return lines


def _of_rows(folding: Folding, own: bool, lines: list[str]) -> list[str]:
    """The lines, with the coordinates that they name: a thread's first row's, or its `own` ones."""
    for each in reversed(_together(folding)):
        var = each.overlap.kept
        if named_in((var,), "\n".join(lines)):
            lines = [f"const Index {var} = first_{var}{f' + {each.index}' if own else ''};", *lines]
    return lines


def _folds(folding: Folding) -> str:
    return (
        "of_lane" + "".join(f"[{e.index}]" for e in _together(folding))
        if folding.overlaps
        else "folds"
    )


def _fold_lines(folding: Folding, walk: Walk) -> list[str]:
    """The loops over a row, or over what a thread's rows share, outermost first."""
    inside = _definitions(walk.kernel, folding.reduced)
    known = known_inside(walk.kernel)
    params = [name for name, _ in walk.kernel.element.params]
    inside += call_element(walk.kernel, ["true" if name in known else name for name in params])
    apart = _apart(folding, walk)
    add = [f"part.add({_values(folding, walk)});"] if apart else _add(folding, walk)
    lines = [*_of_rows(folding, False, inside), *add]
    elems = 1
    for position in reversed(range(len(folding.reduced))):
        loop = folding.reduced[position]
        extent, most = _extent(folding, loop)
        few = elems * most <= (_UNROLLED_SHARED if folding.overlaps else _UNROLLED_ELEMS)
        unroll = ["#pragma unroll"] if few else []
        if not few and elems == 1:
            unroll = [f"#pragma unroll {_IN_FLIGHT}"]
        opening = f"for (int {loop.var} = 0; {loop.var} < {extent}; ++{loop.var}) {{"
        lines, elems = [*unroll, opening, *indented(lines, 2), "}"], elems * most
        if apart and position == apart:
            folds = folds_name(folding, 0)
            lines = [
                f"{folds} part = {folds}::nothing();",
                *lines,
                *_to_rows(folding, "merge(part)"),
            ]
    return lines


def _apart(folding: Folding, walk: Walk) -> int:
    """The first of the inner loops whose elements are folded by themselves, once for all rows that
    have them; 0 if there are none, or each row has other places for them.
    """
    if not folding.overlaps or any(fold.op in ARG for fold in walk.folds):
        return 0
    shared = {overlap.var for overlap in folding.overlaps}
    inner = max(i for i, loop in enumerate(folding.reduced) if loop.var in shared) + 1
    return inner if inner < len(folding.reduced) else 0


def _extent(folding: Folding, loop: Loop) -> tuple[str, int]:
    """How often a loop turns, and the most that is."""
    number = _number(loop.extent)
    for each in _together(folding):
        if each.overlap.var == loop.var:
            step = each.overlap.step
            shift = f"{each.count} - 1" if step == 1 else f"{step} * ({each.count} - 1)"
            return f"{number} + {shift}", number + step * (each.overlap.lanes - 1)
    return str(number), number


def _number(extent: Size) -> int:
    assert isinstance(extent, int), "a short row is of known length"
    return extent


def _add(folding: Folding, walk: Walk) -> list[str]:
    return _to_rows(folding, f"add({_values(folding, walk)})")


def _values(folding: Folding, walk: Walk) -> str:
    """What is folded of an element."""
    values = [folded_value(fold, walk) for fold in walk.folds]
    if any(fold.op in ARG for fold in walk.folds):
        moved: dict[str, Size] = {o.var: symbol(f"place_{o.var}") for o in folding.overlaps}
        values.append(_PLACES.text(substitute_unsimplified(position_among(folding.reduced), moved)))
    return ", ".join(values)


def _to_rows(folding: Folding, taken: str) -> list[str]:
    """What is folded goes to the folds of every row that has it."""
    lines = [f"{_folds(folding)}.{taken};"]
    for each in reversed(_together(folding)):
        overlap = each.overlap
        place = f"place_{overlap.var}"
        (extent,) = (loop.extent for loop in folding.reduced if loop.var == overlap.var)
        shift = each.index if overlap.step == 1 else f"{overlap.step} * {each.index}"
        own = [f"const int {place} = {overlap.var} - {shift};"]
        if len(lines) == 1:
            own += [f"if (0 <= {place} && {place} < {extent}) {lines[0]}"]
        else:
            own += [f"if ({place} < 0 || {place} >= {extent}) continue;", *lines]
        lines = each.loop(own)
    return lines


# Places in a row, which is short, are small, and may be before it.
_PLACES = Integers(str)


def _definitions(kernel: Kernel, reduced: tuple[Loop, ...] = ()) -> list[str]:
    outside = {load: argument(let.args[2]) for load, let in padded(kernel).items()}
    return [
        definition_text(d, kernel, lambda load: _place_of(load, reduced), outside=outside)
        for d in kernel.definitions
        if isinstance(d, Own)
    ]


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
    given = {d.name: f"known.{d.name}" for d in kernel.definitions if isinstance(d, RowScalar)}
    lines = [f"{known_name(folding)} known;", f"{_folds(folding)}.tell(known);"]
    lines += _definitions(kernel)
    lines += call_element(kernel, [given.get(name, name) for name, _ in kernel.element.params])
    for store in kernel.stores:
        value = store_text(store.dtype, f"value{store.result}")
        lines.append(f"{store.buffer}[{address_text(store.address)}] = {value};")
    return _each_lane(folding, _of_rows(folding, True, lines))


def _template(folding: Folding, operands: tuple[str, ...]) -> str:
    params = [
        *pointers(folding, operands),
        *(f"int64_t {name}" for name in (*integers(folding, operands), "num_rows")),
        "cudaStream_t stream",
    ]
    number = _number_of(folding)
    arguments = [*casts(folding, operands), f"Index({number})"]
    instance = ", ".join([*_several(folding), "Index"])
    rows = (
        str(folding.threads)
        if folding.overlaps or not _several(folding)
        else f"{folding.threads} * kTurns"
    )
    lines = [
        f"template <{_template_parameters(folding)}>",
        head(f"static void {prefix(folding)}_launch", params, " {"),
        f"  constexpr int64_t kRows = {rows};",
        *_num_threads(folding),
        f"  const unsigned int blocks = ({number} + kRows - 1) / kRows;",
        f"  const auto kernel = {prefix(folding)}_kernel<{instance}>;",
        call(f"kernel<<<blocks, {folding.threads}, 0, stream>>>", arguments, 2),
        "}",
    ]
    return "\n".join(lines)


def _num_threads(folding: Folding) -> list[str]:
    if not folding.overlaps:
        return []
    together = _together(folding)
    rows = "".join(f" / {each.rows}" for each in together)
    blocks = "".join(f" * ({each.blocks})" for each in together)
    return [folded(f"  const int64_t num_threads = num_rows{rows}{blocks};")]


def _entry(folding: Folding, operands: tuple[str, ...]) -> str:
    every = tuple(b.name for b in folding.buffers)
    params = [
        *pointers(folding, every),
        *(f"int64_t {extent.name}" for extent in folding.extents),
        *("int64_t num_rows", "int64_t length", "int64_t max_offset", "int aligned"),
        "void* stream",
    ]
    first, *others = _instances(folding)
    choice = [folded(f"  auto launch = {_launch(folding, first)};")]
    for numbers in others:
        many = math.prod(numbers) * _MANY_THREADS
        choice.append(f"  if (num_rows >= {many}ll * op::num_multiprocessors()) {{")
        choice += [folded(f"    launch = {_launch(folding, numbers)};"), "  }"]
    lines = [
        head(f"static int {prefix(folding)}", params, " {"),
        "  // 32-bit positions must not wrap round behind the last element.",
        "  const bool narrow = num_rows < (1ll << 31) && max_offset < (1ll << 31);",
        *choice,
        call("launch", [*operands, "num_rows", "static_cast<cudaStream_t>(stream)"], 2),
        "  return int(cudaGetLastError());",
        "}",
    ]
    return "\n".join(lines)


def _launch(folding: Folding, numbers: tuple[int, ...]) -> str:
    """Of 32-bit positions, or wider ones."""
    given = "".join(f"{number}, " for number in numbers) if _several(folding) else ""
    name = f"{prefix(folding)}_launch"
    return f"narrow ? {name}<{given}uint32_t> : {name}<{given}uint64_t>"
