"""Scans as C++: spans of a row in chains side by side, or neighbouring rows as lanes.

Entry points are plain C and handle a range of rows, numbered row-major over the kept loops:
    void <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                           int64_t begin, int64_t end)
Where rows may be cut, pieces of rows are folded first, and then scanned from what the pieces before
come to:
    int64_t <group>_partial_bytes()
    void <group>_<variant>_fold(operand..., result..., extent..., int64_t begin, int64_t end,
                                int64_t from, int64_t to, void* partials)
    void <group>_<variant>_scan(operand..., result..., extent..., int64_t begin, int64_t end,
                                int64_t from, int64_t to, int64_t piece, int64_t stride,
                                const void* partials)
`from` and `to` count as the scan goes; the partial of piece p of row r is
partials[p * stride + r - begin].
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.kernels.kernel import Kernel, RowScalar
from ...ir.kernels.reduction import Fold, Folding, Scan
from ...ir.ops import Op
from ..c import compute_type, dtypes_of, grouped, storage_pieces
from ..chunks import SCANNED_PLACES, told_beside
from ..element import call_element, element_text, pieces_of, title
from ..layout import folded, head, indented
from ..scan_state import STRUCTS, scanned_folds, state_type, value_type
from .loops import coordinates_of
from .statements import checked, definition_text, parameters, stored, text_of, typed

# Neighbouring rows that are scanned together: so many fill the cache's lines.
_COLUMNS = 256
_ROUNDED = (Op.CUMSUM, Op.CUMPROD, Op.LOGCUMSUMEXP)
_WIDE = ("double", "int64_t")


def scan_pieces(scan: Scan) -> set[str]:
    """Names of the device library's pieces that the text needs."""
    needed: set[str] = set()
    for kernel in scan.kernels:
        needed |= storage_pieces(dtypes_of(kernel)) | pieces_of(kernel.element, "cpp")
    for fold in scanned_folds(scan.contiguous):
        needed.add(STRUCTS[fold.op])
        if not scan.contiguous.across:
            needed.add(_along(fold, scan.contiguous))
    return needed


def scan_text(scan: Scan) -> str:
    """The scalar functions of a group and its entry points."""
    kernels = scan.contiguous.kernels
    parts = [title(kernels[0], scan.buffers)]
    parts += [element_text(kernel.element, "cpp") for kernel in kernels]
    if scan.cut:
        parts.append(_partial(scan))
    for folding in scan.foldings:
        if scan.cut:
            parts.append(_entry(folding, "_fold", ["void* partials"], _Rows(scan, folding, True)))
            more = ["int64_t piece", "int64_t stride", "const void* partials"]
            parts.append(_entry(folding, "_scan", more, _Rows(scan, folding, False)))
        else:
            parts.append(_entry(folding, "", [], _Rows(scan, folding, False)))
    return "\n\n".join(parts) + "\n"


def _partial(scan: Scan) -> str:
    """What a piece of a row comes to."""
    folding, name = scan.contiguous, f"{scan.group}_partial"
    fields = [f"  {_total_type(fold, folding)} {fold.name};" for fold in scanned_folds(folding)]
    size = f'extern "C" int64_t {scan.group}_partial_bytes() {{ return sizeof({name}); }}'
    return "\n".join([f"struct {name} {{", *fields, "};", "", size])


def _total_type(fold: Fold, folding: Folding) -> str:
    """The type in which values are taken together."""
    value = value_type(fold, folding.steps[0].walk)
    if fold.op in _ROUNDED and fold.dtype.is_float:
        return "double"
    return state_type(fold, value)


def _along(fold: Fold, folding: Folding) -> str:
    """The function of the device library that scans a span of a row."""
    if fold.op in SCANNED_PLACES:
        return "scan_places"
    adds = fold.op in (Op.CUMSUM, Op.CUMPROD) and _total_type(fold, folding) in _WIDE
    return "scan_neighbours" if adds else "scan_span"


def _nothing(fold: Fold, folding: Folding) -> str:
    if fold.op in SCANNED_PLACES:
        return f"op::{STRUCTS[fold.op]}::nowhere<{value_type(fold, folding.steps[0].walk)}>()"
    return f"op::{STRUCTS[fold.op]}::identity<{_total_type(fold, folding)}>()"


def _entry(folding: Folding, suffix: str, more: list[str], rows: _Rows) -> str:
    part = ["int64_t from", "int64_t to"] if suffix else []
    body = [*rows.before(), *(rows.across() if folding.across else rows.along())]
    returns, body = checked(folding.kernels, body)
    start = f'extern "C" {returns} {folding.name}_{folding.variant}{suffix}'
    given = [*parameters(folding.buffers, folding.extents), "int64_t begin", "int64_t end"]
    lines = [
        head(start, [*given, *part, *more], " {"),
        *(f"  {typed(buffer)}" for buffer in folding.buffers),
    ]
    if not suffix:
        length = text_of(folding.reduced[0].extent)
        lines.append(f"  const int64_t from = 0, to = {length};")
    return "\n".join([*lines, *map(folded, indented(body, 2)), "}"])


@dataclass(frozen=True, slots=True)
class _Rows:
    """The loops of one entry; `folds`: pieces are folded, and nothing is stored."""

    scan: Scan
    folding: Folding
    folds: bool

    @property
    def own(self) -> tuple[Fold, ...]:
        return scanned_folds(self.folding)

    def before(self) -> list[str]:
        if not self.scan.cut:
            return []
        name = f"{self.scan.group}_partial"
        const = "" if self.folds else "const "
        return [f"{const}{name}* partial = static_cast<{const}{name}*>(partials);"]

    # --- lanes along a row ---

    def along(self) -> list[str]:
        folding, walk = self.folding, self.folding.steps[0].walk
        lines = list[str]()
        for fold in self.own:
            lines.append(f"{value_type(fold, walk)} {fold.name}_scanned[op::kScanSpan];")
            if fold.op in SCANNED_PLACES:
                lines.append(f"int64_t {fold.name}_place[op::kScanSpan];")
        kept = folding.kept
        row = kept[0].var if len(kept) == 1 else "row"
        body = [] if len(kept) == 1 else coordinates_of(kept, "row")
        for fold in self.own:
            body.append(f"{_total_type(fold, folding)} {fold.name}_carry = {self._nothing(fold)};")
        body += self._carried(f"{row} - begin", "")
        body += [
            "for (int64_t span = from; span < to; span += op::kScanSpan) {",
            "  const int64_t rest = to - span;",
            "  const int64_t count = rest < op::kScanSpan ? rest : op::kScanSpan;",
            *indented(self._span(), 2),
            "}",
        ]
        if self.folds:
            body.append(f"partial[{row} - begin] = {{{self._totals('')}}};")
        loop = f"for (int64_t {row} = begin; {row} < end; ++{row}) {{"
        return [*lines, loop, *indented(body, 2), "}"]

    def _span(self) -> list[str]:
        first, second = (step.walk.kernel for step in self.folding.steps)
        place = self._element("span + k")
        into = [f"{fold.name}_scanned[k] = value{fold.result};" for fold in self.own]
        lines = _loop("k", "0", "count", [place, *_evaluated(first, {}), *into])
        for fold in self.own:
            lines.append(self._scan(fold))
        if self.folds:
            return lines
        stores = [stored(store) for store in second.stores]
        return lines + _loop("k", "0", "count", [place, *_evaluated(second, self._told()), *stores])

    def _scan(self, fold: Fold) -> str:
        """The call that scans a span."""
        function, struct = _along(fold, self.folding), f"op::{STRUCTS[fold.op]}"
        scanned, carry = f"{fold.name}_scanned", f"{fold.name}_carry"
        if function == "scan_places":
            return f"op::scan_places<{struct}>({scanned}, {fold.name}_place, count, span, {carry});"
        ways = [self.scan.exclusive]
        ways += [fold.op is Op.LOGCUMSUMEXP] if function == "scan_span" else []
        options = ", ".join("true" if way else "false" for way in ways)
        return f"op::{function}<{struct}, {options}>({scanned}, count, {carry});"

    def _told(self) -> dict[str, str]:
        """What is known of each fold at place k of a span."""
        walk = self.folding.steps[0].walk
        found = {}
        for fold in walk.folds:
            array = "place" if fold.op in SCANNED_PLACES else "scanned"
            found[fold.name] = f"{(told_beside(fold, walk) or fold).name}_{array}[k]"
        return found

    # --- lanes across rows ---

    def across(self) -> list[str]:
        folding = self.folding
        lane = folding.kept[-1]
        extent = grouped(text_of(lane.extent))
        outer = folding.kept[:-1]
        body = [
            *(coordinates_of(outer, f"row / {extent}") if outer else []),
            f"const int64_t strip = row % {extent};",
            f"const int64_t rest = end - row < {extent} - strip ? end - row : {extent} - strip;",
            f"const int64_t count = rest < {_COLUMNS} ? rest : {_COLUMNS};",
            *(f"{_total_type(f, folding)} {f.name}_carry[{_COLUMNS}];" for f in self.own),
        ]
        start = [f"{fold.name}_carry[k] = {self._nothing(fold)};" for fold in self.own]
        body += _loop("k", "0", "count", [*start, *self._carried("row + k - begin", "[k]")])
        body += [
            "for (int64_t at = from; at < to; ++at) {",
            f"  {self._element('at')}",
            *indented(_loop("k", "0", "count", self._step(lane.var)), 2),
            "}",
        ]
        if self.folds:
            partial = f"partial[row + k - begin] = {{{self._totals('[k]')}}};"
            body += _loop("k", "0", "count", [partial])
        body.append("row += count;")
        return ["for (int64_t row = begin; row < end;) {", *indented(body, 2), "}"]

    def _step(self, lane: str) -> list[str]:
        """One element of each of the rows."""
        first, second = (step.walk.kernel for step in self.folding.steps)
        walk = self.folding.steps[0].walk
        inner, declared, told = list[str](), list[str](), dict[str, str]()
        for fold in self.own:
            total, carry = _total_type(fold, self.folding), f"{fold.name}_carry[k]"
            given = f"value{fold.result}"
            given = f"{total}{{{given}, at}}" if fold.op in SCANNED_PLACES else f"{total}({given})"
            combined = f"op::{STRUCTS[fold.op]}::combine({carry}, {given})"
            declared.append(f"{total} {fold.name}_lane;")
            inner.append(f"{fold.name}_lane = {combined};")
        for fold in walk.folds:
            holder = told_beside(fold, walk) or fold
            at = f"{holder.name}_carry[k]" if self.scan.exclusive else f"{holder.name}_lane"
            field = ".position" if fold.op in SCANNED_PLACES else ".value" * (holder is not fold)
            told[fold.name] = f"{compute_type(fold.dtype)}({at}{field})"
        ended = [f"{fold.name}_carry[k] = {fold.name}_lane;" for fold in self.own]
        lines = [f"const int64_t {lane} = strip + k;"]
        if self.folds:
            return [*lines, *declared, *_evaluated(first, {}), *inner, *ended]
        stores = [stored(store) for store in second.stores]
        return [
            *lines,
            *declared,
            "{",
            *indented([*_evaluated(first, {}), *inner], 2),
            "}",
            *_evaluated(second, told),
            *stores,
            *ended,
        ]

    # --- both ---

    def _nothing(self, fold: Fold) -> str:
        return _nothing(fold, self.folding)

    def _carried(self, row: str, lane: str) -> list[str]:
        """What the pieces before come to."""
        if self.folds or not self.scan.cut:
            return []
        body = [
            f"{f.name}_carry{lane} = op::{STRUCTS[f.op]}::combine({f.name}_carry{lane}, "
            f"partial[before * stride + {row}].{f.name});"
            for f in self.own
        ]
        loop = "for (int64_t before = 0; before < piece; ++before) {"
        return [loop, *indented(body, 2), "}"]

    def _totals(self, lane: str) -> str:
        return ", ".join(f"{fold.name}_carry{lane}" for fold in self.own)

    def _element(self, position: str) -> str:
        """The place in memory of an element, counted as the scan goes."""
        loop = self.folding.reduced[0]
        if self.scan.reverse:
            position = f"{grouped(text_of(loop.extent))} - 1 - ({position})"
        return f"const int64_t {loop.var} = {position};"


def _loop(var: str, first: str, last: str, body: list[str]) -> list[str]:
    return [
        "#pragma omp simd",
        f"for (int64_t {var} = {first}; {var} < {last}; ++{var}) {{",
        *indented(body, 2),
        "}",
    ]


def _evaluated(kernel: Kernel, told: dict[str, str]) -> list[str]:
    """Statements of an element: its definitions, and its results by value0, value1, ..."""
    lines = [definition_text(d, kernel) for d in kernel.definitions if not isinstance(d, RowScalar)]
    arguments = [told.get(name, name) for name, _ in kernel.element.params]
    return lines + call_element(kernel, arguments)
