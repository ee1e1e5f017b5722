"""The loops of a C++ kernel over a range of row-major positions, for g++ to vectorise."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.expr import Size, coefficient, product
from ...ir.kernels.kernel import Kernel, Load, Loop
from ..c import Integers, grouped, named_in
from ..layout import indented


def _text(value: Size) -> str:
    return Integers(str).text(value)


def plain(var: str, first: str, last: str, element: list[str]) -> list[str]:
    """The innermost loop over a part of its range."""
    return [
        "#pragma omp simd",
        f"for (int64_t {var} = {first}; {var} < {last}; ++{var}) {{",
        *indented(element, 2),
        "}",
    ]


def rows(
    loops: tuple[Loop, ...], innermost: Callable[[str, str], list[str]], begin: str, end: str
) -> list[str]:
    """A range of positions is a part of a row, whole rows, and a part of a row."""
    extent = grouped(_text(loops[-1].extent))
    body = [
        *(coordinates_of(loops[:-1], f"at / {extent}") if len(loops) > 1 else []),
        f"const int64_t first = at % {extent};",
        f"const int64_t stop = first + ({end} - at);",
        f"const int64_t last = stop < {extent} ? stop : {extent};",
        *innermost("first", "last"),
        "at += last - first;",
    ]
    return [f"for (int64_t at = {begin}; at < {end};) {{", *indented(body, 2), "}"]


# Below so many elements a row, one vector loop over many rows, which divides for its coordinates,
# beats one over each row: 3 elements 0.8 against 3.5 ns an element, 12 elements 0.8 against 1.6, 16
# elements 0.73 against 0.58 (exp of a product with a column; AVX-512, g++ 12.2, 2026-11-21). Where
# a load steps over elements the loop over a row only fills its vectors from 32 elements on: 16
# elements 1.8 against 2.8, 64 elements 1.6 against 1.2 (a transpose).
SHORT_ROW_ELEMS = 16
SHORT_STEPPING_ROW_ELEMS = 33
# So many elements are worth leaving the outer coordinates to the loop outside.
LONG_SPAN_ELEMS = 256
# Such a loop runs over so many elements at most: 32 bits hold its counter, which divides fast.
MANY_ELEMS = 4096


def rows_are_short(kernel: Kernel) -> bool:
    """Whether one loop should run over many rows, in the kernel of row-major operands."""
    inner = kernel.loops[-1]
    if kernel.lanes == 1 or len(kernel.loops) == 1 or not isinstance(inner.extent, int):
        return False
    steps = [coefficient(d.address, inner.var) for d in kernel.definitions if isinstance(d, Load)]
    stepping = any(step not in (0, 1) for step in steps)
    return inner.extent < (SHORT_STEPPING_ROW_ELEMS if stepping else SHORT_ROW_ELEMS)


def short_rows(kernel: Kernel, element: list[str]) -> list[str]:
    """One loop over many rows: the innermost loop variables come from its own counter."""
    loops = kernel.loops
    inside = _first_inside(loops)
    elems = [_text(product(loop.extent for loop in loops[k + 1 :])) for k in range(len(loops))]
    variables = [f"const int64_t {loops[inside].var} = row + k / {elems[inside]}u;"]
    for loop, below in zip(loops[inside + 1 :], elems[inside + 1 :], strict=True):
        above = "k" if below == "1" else f"k / {below}u"
        variables.append(f"const int64_t {loop.var} = {above} % {_text(loop.extent)}u;")
    used = named_in(tuple(loop.var for loop in loops), "\n".join(element))
    variables = [line for line, x in zip(variables, loops[inside:], strict=True) if x.var in used]
    body = [
        *_span(loops, inside, elems[inside]),
        f"const uint32_t last = first + (rest < {MANY_ELEMS} ? rest : {MANY_ELEMS});",
        "#pragma omp simd",
        "for (uint32_t k = first; k < last; ++k) {",
        *indented(["const int64_t place = at - first + k;", *variables, *element], 2),
        "}",
        "at += last - first;",
    ]
    note = f"// Rows of {_text(loops[-1].extent)} elements are too short for vectors of their own."
    return [note, "for (int64_t at = begin; at < end;) {", *indented(body, 2), "}"]


def _span(loops: tuple[Loop, ...], inside: int, row_elems: str) -> list[str]:
    """The loop variables outside, and where in their element the loop inside begins and ends."""
    if inside == 0:
        return [
            f"const int64_t row = at / {row_elems};",
            f"const uint32_t first = at % {row_elems};",
            "const int64_t rest = end - at;",
        ]
    span = grouped(_text(product(loop.extent for loop in loops[inside:])))
    return [
        *coordinates_of(loops[:inside], f"at / {span}"),
        f"const int64_t within = at % {span};",
        f"const int64_t row = within / {row_elems};",
        f"const uint32_t first = within % {row_elems};",
        f"const int64_t rest = end - at < {span} - within ? end - at : {span} - within;",
    ]


def _first_inside(loops: tuple[Loop, ...]) -> int:
    """The outermost loop that becomes part of the one loop; those inside it have known extents."""
    place, elems = len(loops) - 2, loops[-1].extent
    while place > 0:
        extent = loops[place].extent
        if not isinstance(extent, int) or not isinstance(elems, int):
            return place
        elems = elems * extent
        if elems >= LONG_SPAN_ELEMS:
            return place
        place -= 1
    return 0


def coordinates_of(loops: tuple[Loop, ...], position: str) -> list[str]:
    """Loop variables from the row-major position among these loops."""
    if len(loops) == 1:
        return [f"const int64_t {loops[0].var} = {position};"]
    lines = [f"const int64_t outer = {position};"]
    rest = "outer"
    for place in range(len(loops) - 1, 0, -1):
        loop = loops[place]
        extent = grouped(_text(loop.extent))
        above = loops[0].var if place == 1 else f"above_{loop.var}"
        lines.append(f"const int64_t {loop.var} = {rest} % {extent};")
        lines.append(f"const int64_t {above} = {rest} / {extent};")
        rest = above
    return lines
