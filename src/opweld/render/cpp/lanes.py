"""The walks over a row in C++: loops over blocks of lanes that g++ vectorises.

Lanes are neighbours along a row, in blocks of the innermost reduced loop, or neighbouring rows, in
strips of the innermost kept loop. Scalars of the row have a lane each in strips: `x_lane`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...ir.expr import Size, product, symbol
from ...ir.kernels.kernel import Definition, Kernel, Load, Loop, RowScalar, Store
from ...ir.kernels.reduction import Folding, Reduction, Walk
from ..c import compute_type, grouped, named_in
from ..chunks import needs_length, own_folds, takes_chunks
from ..element import call_element
from ..layout import indented
from .fold import PLACES, emptied, lane_type, of_lane, opened, read, rounded, rounds, taken
from .half import blocked, half_loads, half_stores, in_block, narrowed, of_block, widened
from .loops import plain, rows
from .remember import Remembered, remembering
from .short_rows import before_strip, behind_strip, in_strip, of_strip, strip_loads, strip_stores
from .statements import definition_text, stored, text_of
from .windows import Inside, inside_of

# So many elements a lane of float adds up at most, as in PyTorch's own sums.
CHAIN = 16
# Rows of fewer elements are walked side by side.
SHORT_ROW_ELEMS = 32
# Lanes along a row, and for rows of fewer than LONG_ROW_ELEMS.
LONG_ROW_LANES, LONG_ROW_ELEMS = 64, 256
ROW_LANES = 16
# Rows side by side, and short ones that are walked once. Sums and maxima of columns took 0.6 to 0.9
# of the time of 512, which do not stay in registers (AVX-512, 2026-12-01).
STRIP_LANES, SHORT_ROW_LANES = 128, 512
# So many elements of a row or a strip are kept on the stack at most: 128 KiB of float.
MOST_ON_STACK_ELEMS = 32768
# Of a row known to be longer nothing is kept: 64 MiB of float.
MOST_REMEMBERED_ELEMS = 2**24

Run = Callable[[str, str], list[str]]


@dataclass(frozen=True, slots=True)
class Lanes:
    """How the lanes of a folding run: `count` of them, along a row or `across` rows. Walks leave
    what is `remembered` for those that follow.
    """

    folding: Folding
    across: bool
    cut: bool
    count: int
    remembered: tuple[Remembered, ...] = ()

    @property
    def var(self) -> str:
        """The loop variable in which lanes are neighbours."""
        return (self.folding.kept if self.across else self.folding.reduced)[-1].var

    @property
    def constants(self) -> list[str]:
        """What the loops name: as many lanes, and as many elements before lanes are emptied."""
        lines = [f"constexpr int64_t kLanes = {self.count};", *length_of_row(self.folding)]
        if any(self._in_spans(step.walk) for step in self.folding.steps):
            span = CHAIN if self.across else CHAIN * self.count
            lines.append(f"constexpr int64_t kSpan = {span};")
        return lines + [line for each in self.remembered for line in self._array(each)]

    def _array(self, remembered: Remembered) -> list[str]:
        name, element = remembered.name, lane_type(remembered.dtype)
        elems = text_of(row_elems(self))
        if self.fits_on_stack:
            return [f"{element} {name}[{elems}];"]
        return [
            f"const op::RowMemory<{element}> {name}_memory({elems});",
            f"{element}* __restrict__ {name} = {name}_memory.elements;",
        ]

    @property
    def fits_on_stack(self) -> bool:
        """Whether an array of a row, or of a strip of rows, does."""
        elems = row_elems(self)
        return isinstance(elems, int) and elems <= MOST_ON_STACK_ELEMS

    def _in_spans(self, walk: Walk) -> bool:
        innermost = self.cut or self.level(walk) == len(self.folding.reduced)
        return self.totals(walk) and innermost

    def totals(self, walk: Walk) -> bool:
        """Whether lanes would add up too many elements."""
        if takes_chunks(walk):
            return True
        return any(map(rounds, walk.folds)) and (self.cut or self.level(walk) > 0)

    def level(self, walk: Walk) -> int:
        """So many of the reduced loops are outside of where lanes are emptied: all of them if that
        must be inside the innermost loop, as it is for chunks.
        """
        loops = self.folding.reduced
        if takes_chunks(walk):
            return len(loops)
        chain: Size = 1
        for level in range(len(loops), 0, -1):
            extent = loops[level - 1].extent
            if isinstance(extent, int) and level == len(loops) and not self.across:
                extent = -(-extent // self.count)
            chain = chain * extent
            if not isinstance(chain, int) or chain > CHAIN:
                return level
        return 0

    def each_lane(self, lines: list[str]) -> list[str]:
        """A loop over the rows of a strip."""
        if not lines:
            return []
        position = _position(self.var, "strip", lines)
        return _lane_loop("count", [*position, *lines])

    def converted(self, kernel: Kernel) -> tuple[list[Load], list[Store]]:
        """The loads and stores of half that are converted a strip of short rows at once."""
        # One walk that folds is no faster: an argmax of 200000 rows of 16 took 3.6 ms against 2.5,
        # a softmax of as many rows of 10 took 2.5 against 4.0 (AVX-512, g++ 12.2, 2026-11-21).
        if not self.across or len(self.folding.steps) == 1:
            return [], []
        return strip_loads(self.folding, kernel), strip_stores(self.folding, kernel)

    def partials(self, walk: Walk) -> list[str]:
        """What leaves the partials of a strip's rows."""
        return [f"partial[strip_row + lane].{f.name} = {of_lane(f)};" for f in own_folds(walk)]

    def rounded(self, walk: Walk) -> list[str]:
        return rounded(walk, self.totals(walk))


def length_of_row(folding: Folding) -> list[str]:
    """The elements of a row, where folds are told by their number."""
    if not any(needs_length(step.walk) for step in folding.steps):
        return []
    return [f"const double kLength = {text_of(product(loop.extent for loop in folding.reduced))};"]


def lanes_of(reduction: Reduction) -> tuple[Lanes, Lanes]:
    """The lanes that suit the extents of both foldings, which share their scalar functions."""
    first, second = (_chosen(folding, reduction.cut) for folding in reduction.foldings)
    changed = _remembering(first), _remembering(second)
    elements = ([kernel.element for kernel in each.folding.kernels] for each in changed)
    return changed if next(elements) == next(elements) else (first, second)


def _remembering(lanes: Lanes) -> Lanes:
    elems = row_elems(lanes)
    if isinstance(elems, int) and elems > MOST_REMEMBERED_ELEMS:
        return lanes
    place = position_among(lanes.folding.reduced)
    address = place * lanes.count + symbol("lane") if lanes.across else place
    # The parts of rows side by side lie apart in results, often at the same places of the cache:
    # rows of 64 by 1024 neighbours took 4.9 ms there, 3.8 in an array (4M elements, 2026-11-21).
    in_results = not (lanes.across and lanes.fits_on_stack)
    var = lanes.var if in_results else None
    folding, remembered = remembering(lanes.folding, var, address)
    return replace(lanes, folding=folding, remembered=remembered)


def row_elems(lanes: Lanes) -> Size:
    """The elements of a row, or of a strip of rows."""
    length = product(loop.extent for loop in lanes.folding.reduced)
    return length * lanes.count if lanes.across else length


def _chosen(folding: Folding, cut: bool) -> Lanes:
    length = product(loop.extent for loop in folding.reduced)
    short = isinstance(length, int) and length < SHORT_ROW_ELEMS
    if folding.kept and (folding.across or (short and not cut)):
        once = len(folding.steps) == 1 and not folding.across
        most = SHORT_ROW_LANES if once else STRIP_LANES
        return Lanes(folding, True, cut, min(most, _power_of_two(folding.kept[-1].extent, most)))
    inner = folding.reduced[-1].extent
    few = isinstance(inner, int) and inner < LONG_ROW_ELEMS
    return Lanes(folding, False, cut, ROW_LANES if few else LONG_ROW_LANES)


def _power_of_two(extent: Size, most: int) -> int:
    """The least one that is no smaller."""
    return 1 << (extent - 1).bit_length() if isinstance(extent, int) and extent > 0 else most


def strips(lanes: Lanes, body: list[str]) -> list[str]:
    """The rows [begin, end) in strips of neighbours along the innermost kept loop."""
    kept = lanes.folding.kept

    def innermost(first: str, last: str) -> list[str]:
        lines = []
        if lanes.cut:
            offset = "at - first + " if len(kept) > 1 else ""
            lines.append(f"const int64_t strip_row = {offset}strip - begin;")
        return _column_tiles(lanes, first, last, [*lines, *body])

    if len(kept) == 1:
        return innermost("begin", "end")
    return rows(kept, innermost, "begin", "end")


def _column_tiles(lanes: Lanes, first: str, last: str, body: list[str]) -> list[str]:
    """A strip after the other. Whole ones have a path of their own, whose lanes stay in registers
    where they are neighbours in memory: 0.9 of the time, and 1.3 for short rows, which are not.
    """
    inside = indented(body, 2)
    if not lanes.folding.across:
        return [
            f"for (int64_t strip = {first}; strip < {last}; strip += kLanes) {{",
            f"  const int64_t count = {last} - strip < kLanes ? {last} - strip : kLanes;",
            *inside,
            "}",
        ]
    inlined = "__attribute__((always_inline))"
    return [
        f"const auto fold_strip = [&](int64_t strip, int64_t count) {inlined} {{",
        *inside,
        "};",
        f"int64_t strip = {first};",
        f"for (; strip + kLanes <= {last}; strip += kLanes) fold_strip(strip, kLanes);",
        f"if (strip < {last}) fold_strip(strip, {last} - strip);",
    ]


def given_or(definition: Definition, kernel: Kernel) -> str:
    """The statement of a definition for one lane of a strip; scalars of the row have lanes."""
    if not isinstance(definition, RowScalar):
        return definition_text(definition, kernel)
    name, dtype = definition.name, definition.dtype
    return f"const {compute_type(dtype)} {name} = {read(f'{name}_lane[lane]', dtype)};"


def walked(lanes: Lanes, walk: Walk) -> list[str]:
    """One pass over a row, or over the rows of a strip; before it what it folds in is opened."""
    totals = lanes.totals(walk)
    return opened(walk, totals, lanes.across) + _loops(lanes, walk)


def _loops(lanes: Lanes, walk: Walk) -> list[str]:
    loops = lanes.folding.reduced
    flush = emptied(walk, lanes.across) if lanes.totals(walk) else []
    run = _across(lanes, walk) if lanes.across else _along(lanes, walk)
    if lanes.cut:
        spans = _spans(run, flush)
        return spans("from", "to") if len(loops) == 1 else rows(loops, spans, "from", "to")
    level = lanes.level(walk)
    inside = _spans(run, flush) if flush and level == len(loops) else run
    lines = inside("0", text_of(loops[-1].extent))
    for at in range(len(loops) - 1, 0, -1):
        lines += flush if at == level else []
        lines = _loop(loops[at - 1], lines)
    return lines if len(loops) > 1 else _scoped(lines)


def _scoped(lines: list[str]) -> list[str]:
    """In a block of its own where it declares something."""
    return ["{", *indented(lines, 2), "}"] if lines[0].startswith("int64_t") else lines


def _loop(loop: Loop, body: list[str]) -> list[str]:
    head = f"for (int64_t {loop.var} = 0; {loop.var} < {text_of(loop.extent)}; ++{loop.var}) {{"
    return [head, *indented(body, 2), "}"]


def _spans(run: Run, flush: list[str]) -> Run:
    """The innermost loop in parts after which lanes are emptied."""
    if not flush:
        return run

    def spans(first: str, last: str) -> list[str]:
        last = grouped(last)
        body = [
            f"const int64_t stop = {last} - span < kSpan ? {last} : span + kSpan;",
            *run("span", "stop"),
            *flush,
        ]
        head = f"for (int64_t span = {first}; span < {last}; span += kSpan) {{"
        return [head, *indented(body, 2), "}"]

    return spans


def _along(lanes: Lanes, walk: Walk) -> Run:
    if not walk.folds:
        return _stores_along(lanes, walk)

    whole, rest = _has_blocks(lanes)

    def run(first: str, last: str) -> list[str]:
        last = grouped(last)
        blocks = [
            f"for (; block + kLanes <= {last}; block += kLanes) {{",
            *indented(_block(lanes, walk, "block", "kLanes"), 2),
            "}",
        ]
        tail = [
            f"if (block < {last}) {{",
            *indented(_block(lanes, walk, "block", f"{last} - block"), 2),
            "}",
        ]
        return [f"int64_t block = {first};", *(blocks if whole else []), *(tail if rest else [])]

    return run


def _has_blocks(lanes: Lanes) -> tuple[bool, bool]:
    """Whether the innermost loop may have whole blocks of lanes, and a rest."""
    extent = lanes.folding.reduced[-1].extent
    if lanes.cut or not isinstance(extent, int):
        return True, True
    return extent >= lanes.count, extent % lanes.count > 0


def _stores_along(lanes: Lanes, walk: Walk) -> Run:
    kernel = walk.kernel
    loads, stores = half_loads(kernel, lanes.var), half_stores(kernel, lanes.var)
    element = _element(lanes, walk)

    def run(first: str, last: str) -> list[str]:
        if loads or stores:
            return blocked(lanes.var, first, grouped(last), element, loads, stores)
        return plain(lanes.var, first, grouped(last), element)

    return run


def _across(lanes: Lanes, walk: Walk) -> Run:
    var = lanes.folding.reduced[-1].var

    def run(first: str, last: str) -> list[str]:
        body = _block(lanes, walk, "strip", "count")
        head = f"for (int64_t {var} = {first}; {var} < {last}; ++{var}) {{"
        lines = [head, *indented(body, 2), "}"]
        loads, stores = lanes.converted(walk.kernel)
        if not loads and not stores:
            return lines
        before = before_strip(lanes.folding, loads, stores)
        return ["{", *indented([*before, *lines, *behind_strip(lanes.folding, stores)], 2), "}"]

    return run


def _block(lanes: Lanes, walk: Walk, start: str, count: str) -> list[str]:
    """`count` lanes from `start` on."""
    kernel, var = walk.kernel, lanes.var
    loads, stores = half_loads(kernel, var), half_stores(kernel, var)
    inside = inside_of(lanes.folding, walk) if lanes.across else None
    element = _element(lanes, walk, inside)
    if inside:
        return _lanes_inside(inside, [*_position(var, start, element), *element])
    return [
        *(line for load in loads for line in widened(load, var, start, count, "kLanes")),
        *(f"float {store.buffer}_block[kLanes];" for store in stores),
        *_lane_loop(count, [*_position(var, start, element), *element]),
        *(narrowed(store, var, start, count) for store in stores),
    ]


def _lanes_inside(inside: Inside, body: list[str]) -> list[str]:
    """The loop over the lanes that change a fold."""
    firsts, lasts = inside.lanes
    lines = [
        f"const int64_t from = {_most('>', ['0', *firsts])};",
        f"const int64_t to = {_most('<', ['count', *lasts])};",
        "#pragma omp simd",
        "for (int64_t lane = from; lane < to; ++lane) {",
        *indented(body, 2),
        "}",
    ]
    tests = inside.of_strip
    return [f"if ({' && '.join(tests)}) {{", *indented(lines, 2), "}"] if tests else lines


def _most(sign: str, texts: list[str]) -> str:
    """The largest of them by ">", the smallest by "<"."""
    text = texts[0]
    for other in texts[1:]:
        text = f"{other} {sign} {text} ? {other} : {text}"
    return text


def _lane_loop(count: str, body: list[str]) -> list[str]:
    return [
        "#pragma omp simd",
        f"for (int64_t lane = 0; lane < {count}; ++lane) {{",
        *indented(body, 2),
        "}",
    ]


def _position(var: str, start: str, users: list[str]) -> list[str]:
    used = named_in((var,), "\n".join(users))
    return [f"const int64_t {var} = {start} + lane;"] if used else []


def _element(lanes: Lanes, walk: Walk, inside: Inside | None = None) -> list[str]:
    """What is done for one element, of those inside if that is told."""
    kernel = walk.kernel
    loads, stores = half_loads(kernel, lanes.var), half_stores(kernel, lanes.var)
    of_strips, to_strips = lanes.converted(kernel)
    lines = []
    for definition in kernel.definitions:
        known = inside.statement(definition) if inside else None
        if known:
            lines.append(known)
        elif definition in loads:
            lines.append(of_block(definition))
        elif definition in of_strips:
            lines.append(of_strip(lanes.folding, definition))
        elif lanes.across or not isinstance(definition, RowScalar):
            definition = inside.unguarded(definition) if inside else definition
            lines.append(given_or(definition, kernel))
    lines += call_element(kernel, [name for name, _ in kernel.element.params])
    if any(fold.op in PLACES for fold in walk.folds):
        lines.append(f"const int64_t place = {text_of(position_among(lanes.folding.reduced))};")
    place = f"[{lanes.folding.reduced[-1].var} - span][lane]" if lanes.across else _IN_SPAN
    lines += [line for fold in own_folds(walk) for line in taken(fold, place)]
    for store in kernel.stores:
        if store in to_strips:
            lines.append(in_strip(lanes.folding, store))
        else:
            lines.append(in_block(store) if store in stores else stored(store))
    return lines


# Along a row lanes are those of a block.
_IN_SPAN = "[block - span + lane]"


def position_among(loops: tuple[Loop, ...]) -> Size:
    """The row-major position among loops."""
    place: Size = 0
    for loop in loops:
        place = place * loop.extent + symbol(loop.var)
    return place
