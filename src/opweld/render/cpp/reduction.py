"""Reductions as C++: lanes that g++ vectorises, along a row or across neighbouring rows.

Entry points are plain C and handle a range of rows, numbered row-major over the kept loops:
    void <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                           int64_t begin, int64_t end)
Where rows may be cut, pieces of rows are folded first, and then what is left of the pieces:
    int64_t <group>_partial_bytes()
    void <group>_<variant>_fold(operand..., result..., extent..., int64_t begin, int64_t end,
                                int64_t from, int64_t to, void* partials)
    void <group>_<variant>_finish(operand..., result..., extent..., int64_t begin, int64_t end,
                                  int64_t pieces, int64_t stride, const void* partials)
`from` and `to` are row-major positions over the reduced loops; the partial of piece p of row r is
partials[p * stride + r - begin].
"""

from __future__ import annotations

from ...ir.kernels.kernel import RowScalar
from ...ir.kernels.reduction import Folding, Once, Reduction, Step
from ..c import compute_type, dtypes_of, storage_pieces
from ..chunks import own_folds, told_beside
from ..element import call_element, element_text, pieces_called, pieces_of, title
from ..layout import folded, head, indented
from .fold import fold_pieces, lane_type, named, of_all_lanes, of_row, partial_type, struct_of
from .half import block_pieces, half_loads, half_stores
from .lanes import Lanes, given_or, lanes_of, length_of_row, strips, walked
from .loops import coordinates_of
from .statements import checked, definition_text, parameters, stored, typed


def reduction_pieces(reduction: Reduction) -> set[str]:
    """Names of the device library's pieces that the text needs."""
    needed: set[str] = set()
    for lanes in lanes_of(reduction):
        for kernel in lanes.folding.kernels:
            needed |= storage_pieces(dtypes_of(kernel)) | pieces_of(kernel.element, "cpp")
        for step in lanes.folding.steps:
            kernel = step.walk.kernel
            needed |= block_pieces(half_loads(kernel, lanes.var), half_stores(kernel, lanes.var))
            needed |= block_pieces(*lanes.converted(kernel))
            needed |= fold_pieces(step.walk)
        needed |= pieces_called("\n".join(lanes.constants))
    return needed


def reduction_text(reduction: Reduction) -> str:
    """A group's scalar functions and its entry points."""
    variants = lanes_of(reduction)
    kernels = variants[0].folding.kernels
    elements = [kernel.element for kernel in kernels if kernel.element.results]
    functions = [element_text(element, "cpp") for element in elements]
    parts = [title(kernels[0], reduction.buffers), *functions]
    if reduction.cut:
        parts.append(_partial(reduction))
        parts += [text for each in variants for text in (_fold(each), _finish(each.folding))]
    else:
        parts += map(_whole, variants)
    return "\n\n".join(parts) + "\n"


def _whole(lanes: Lanes) -> str:
    frame = _strips if lanes.across else _rows
    return _entry(lanes.folding, "", [], [*lanes.constants, *frame(lanes)])


def _partial(reduction: Reduction) -> str:
    """The partial folds of a piece of a row."""
    walk = reduction.contiguous.steps[0].walk
    fields = [f"  {partial_type(fold, walk.kernel)} {fold.name};" for fold in own_folds(walk)]
    name = _partial_name(reduction.group)
    size = f'extern "C" int64_t {reduction.group}_partial_bytes() {{ return sizeof({name}); }}'
    return "\n".join([f"struct {name} {{", *fields, "};", "", size])


def _partial_name(group: str) -> str:
    return f"{group}_partial"


def _fold(lanes: Lanes) -> str:
    partial = _partial_name(lanes.folding.name)
    return _entry(
        lanes.folding,
        "_fold",
        ["int64_t from", "int64_t to", "void* partials"],
        [
            f"{partial}* partial = static_cast<{partial}*>(partials);",
            *lanes.constants,
            *(_strips(lanes) if lanes.across else _rows(lanes)),
        ],
    )


def _entry(folding: Folding, suffix: str, more: list[str], body: list[str]) -> str:
    returns, body = checked(folding.kernels, body)
    lines = [
        head(
            f'extern "C" {returns} {folding.name}_{folding.variant}{suffix}',
            [
                *parameters(folding.buffers, folding.extents),
                *("int64_t begin", "int64_t end"),
                *more,
            ],
            " {",
        ),
        *(f"  {typed(buffer)}" for buffer in folding.buffers),
    ]
    return "\n".join([*lines, *map(folded, indented(body, 2)), "}"])


# --- lanes along a row ---


def _rows(lanes: Lanes) -> list[str]:
    row, body = _row_loop(lanes.folding)
    for step in lanes.folding.steps:
        body += walked(lanes, step.walk)
        walk, totals = step.walk, lanes.totals(step.walk)
        if lanes.cut:
            values = ", ".join(of_all_lanes(fold, totals) for fold in own_folds(walk))
            body.append(f"partial[{row} - begin] = {{{values}}};")
            continue
        body += [of_row(fold, walk, totals) for fold in walk.folds]
        body += _once_for_row(step)
    return [f"for (int64_t {row} = begin; {row} < end; ++{row}) {{", *indented(body, 2), "}"]


def _row_loop(folding: Folding) -> tuple[str, list[str]]:
    """The variable that numbers the rows, and the kept loop variables from it."""
    kept = folding.kept
    if len(kept) == 1:
        return kept[0].var, []
    return "row", coordinates_of(kept, "row") if kept else []


def _once_for_row(step: Step) -> list[str]:
    once = step.once
    if not once or not (once.values or once.kernel.stores):
        return []
    declared = [f"{compute_type(value.dtype)} {value.name};" for value in once.values]
    kernel = once.kernel
    body = [definition_text(d, kernel) for d in kernel.definitions if not isinstance(d, RowScalar)]
    body += call_element(kernel, [name for name, _ in kernel.element.params])
    body += [f"{value.name} = value{value.result};" for value in once.values]
    return [*declared, "{", *indented(body + [stored(s) for s in kernel.stores], 2), "}"]


def _finish(folding: Folding) -> str:
    """What remains of each row: its pieces in order, then what is computed once."""
    (step,) = folding.steps
    partial = _partial_name(folding.name)
    row, body = _row_loop(folding)
    totals = [
        f"whole.{f.name} = op::{struct_of(f)}::combine(whole.{f.name}, piece.{f.name});"
        for f in own_folds(step.walk)
    ]
    body += [
        f"{partial} whole = partial[{row} - begin];",
        "for (int64_t k = 1; k < pieces; ++k) {",
        f"  const {partial} piece = partial[k * stride + {row} - begin];",
        *indented(totals, 2),
        "}",
        *(
            named(fold, step.walk, f"whole.{(told_beside(fold, step.walk) or fold).name}", True)
            for fold in step.walk.folds
        ),
        *_once_for_row(step),
    ]
    return _entry(
        folding,
        "_finish",
        ["int64_t pieces", "int64_t stride", "const void* partials"],
        [
            f"const {partial}* partial = static_cast<const {partial}*>(partials);",
            *length_of_row(folding),
            f"for (int64_t {row} = begin; {row} < end; ++{row}) {{",
            *indented(body, 2),
            "}",
        ],
    )


# --- lanes across rows ---


def _strips(lanes: Lanes) -> list[str]:
    body: list[str] = []
    for step in lanes.folding.steps:
        body += walked(lanes, step.walk)
        if lanes.cut:
            body += lanes.each_lane(lanes.partials(step.walk))
            continue
        body += lanes.each_lane(lanes.rounded(step.walk))
        body += _once_for_strip(lanes, step.once)
    return strips(lanes, body)


def _once_for_strip(lanes: Lanes, once: Once | None) -> list[str]:
    if not once or not (once.values or once.kernel.stores):
        return []
    kernel = once.kernel
    declared = [f"{lane_type(value.dtype)} {value.name}_lane[kLanes];" for value in once.values]
    body = [given_or(d, kernel) for d in kernel.definitions]
    body += call_element(kernel, [name for name, _ in kernel.element.params])
    body += [f"{value.name}_lane[lane] = value{value.result};" for value in once.values]
    return declared + lanes.each_lane(body + [stored(s) for s in kernel.stores])
