"""Attention as CUDA C++: what the device library asks of a model, the epilogue, the entries.

In C:
    int64_t <group>_workspace(batches, shared, rows, keys)   bytes of one call
    int <group>_attend(operands of the scores, their integers, operands and results of the epilogue,
                       its integers, batches, shared, rows, keys, int64_t row_step,
                       int64_t max_offset, int aligned, void* workspace, void* stream)
`shared` counts the batches of keys and values, `row_step` is the distance of rows of the result.
`max_offset` and `aligned` speak of what the epilogue touches; the result is a cudaError_t.
"""

from __future__ import annotations

from ....ir.expr import Size, coefficient, substitute_unsimplified, symbol
from ....ir.expr import product as product_of
from ....ir.index import flatten
from ....ir.kernels.kernel import Attending, Buffer, Extent, Index, Load, Test
from ....ir.types import DType
from ...c import constant
from ...element import call_element, element_text, title
from ...layout import folded, head, indented
from ..packet import address_text, coordinates, definition_text, extents
from .contraction import epilogue_name, epilogue_text, pointer_to

COUNTS = ("num_batches", "num_shared", "num_rows", "num_keys")


def attention_pieces(attending: Attending) -> set[str]:
    """The pieces of the device library that make it."""
    queries = "QueriesInRegisters" if _holds(attending) else "QueriesInMemory"
    return {f"attend_{attending.family}", f"{queries}_{attending.family}"}


def _holds(attending: Attending) -> bool:
    """Whether rows of q stay in registers, where there is room: 3 to 10 % faster (H200)."""
    if attending.family == "sm90":
        return attending.depth <= 64
    return max(attending.depth, attending.columns) <= 128


def attention_text(attending: Attending) -> str:
    """Everything of one attention: its elements, its problem, its epilogue, its entries."""
    scores, epilogue = attending.scores, attending.epilogue
    parts = [title(epilogue, attending.buffers)]
    if attending.factor is None:
        parts.append(element_text(scores.element, "cuda"))
    parts += [
        _problem(attending),
        element_text(epilogue.element, "cuda"),
        *epilogue_text(epilogue),
        _workspace_entry(attending),
        _entry(attending),
    ]
    return "\n\n".join([f"{parts[0]}\n\n{parts[1]}", *parts[2:]]) + "\n"


# --- the problem ---


def _problem(attending: Attending) -> str:
    scores = attending.scores
    depth, columns = attending.depth, attending.columns
    plain = attending.factor is not None
    factor = constant(attending.factor if plain else 1.0, DType.F32)
    members = [*(f"{pointer_to(b)} {b.name};" for b in scores.buffers)]
    members += [f"uint64_t {e.name};" for e in scores.extents]
    constants = [
        f"static constexpr int kDepth = {depth}, kColumns = {columns};",
        f"static constexpr bool kCausal = {_truth(attending.causal)}, "
        f"kZeros = {_truth(attending.zeros)}, kPlain = {_truth(plain)}, "
        f"kHolds = {_truth(_holds(attending))};",
        f"static constexpr float kFactor = {factor};",
    ]
    return "\n".join(
        [
            "// Where the operands of attention lie, and what a score is.",
            f"struct {_problem_name(attending)} {{",
            *indented(["using Index = uint64_t;", *constants, *members, ""], 2),
            *indented(_lines(attending, "query_lines", attending.q, 0), 2),
            *indented(_lines(attending, "key_lines", attending.k, 1), 2),
            *indented(_lines(attending, "value_lines", attending.v, 1), 2),
            *indented(_shared_of(attending), 2),
            *indented(_place_of(attending), 2),
            *indented(_score_of(attending), 2),
            "};",
        ]
    )


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _problem_name(attending: Attending) -> str:
    return f"{attending.group}_problem"


def _method(start: str, parameters: list[str], body: list[str]) -> list[str]:
    first = head(f"__device__ __forceinline__ {start}", parameters, " const {")
    return [first, *map(folded, indented(body, 2)), "}"]


def _lines(attending: Attending, name: str, load: str, row: int) -> list[str]:
    """Rows of q, by the batch, or of k or v, by the batch among those that differ in these."""
    loops = attending.shared if row else attending.batch
    rows, inner = attending.rows[row].var, attending.rows[2].var
    address = attending.address(load)
    begin = address_text(substitute_unsimplified(address, {rows: 0, inner: 0}))
    steps = [_step(address, variable) for variable in (rows, inner)]
    buffer = next(d.buffer for d in _loads(attending) if d.name == load)
    body = [
        f"const Index begin = {begin};",
        f"const int64_t row = {steps[0]}, stride = {steps[1]};",
        f"return {{{buffer} + begin, row, stride}};",
    ]
    body = [*coordinates(loops, "at_batch", body), *body]
    return _method(f"op::AttendLines {name}", ["Index at_batch"], body)


def _loads(attending: Attending) -> list[Load]:
    return [d for d in attending.scores.definitions if isinstance(d, Load)]


def _step(address: Size, variable: str) -> str:
    step = coefficient(address, variable)
    assert step is not None, "rows are evenly spaced"
    return address_text(step)


def _shared_of(attending: Attending) -> list[str]:
    loops = attending.shared
    if not attending.alone:
        return _method("int64_t shared_of", ["Index at_batch"], ["return at_batch;"])
    place = flatten(tuple(symbol(x.var) for x in loops), tuple(x.extent for x in loops))
    result = f"return {address_text(place)};"
    body = [*coordinates(attending.batch, "at_batch", [result]), result]
    return _method("int64_t shared_of", ["Index at_batch"], body)


def _place_of(attending: Attending) -> list[str]:
    rows, _, inner = (loop.var for loop in attending.rows)
    start = substitute_unsimplified(attending.place, {rows: 0, inner: 0})
    result = f"return {address_text(start)};"
    body = [*coordinates(attending.batch, "at_batch", [result]), result]
    return _method("int64_t place_of", ["Index at_batch"], body)


def _score_of(attending: Attending) -> list[str]:
    scores = attending.scores
    rows, keys = (loop.var for loop in attending.rows[:2])
    parameters = ["Index at_batch", f"Index {rows}", f"Index {keys}", "float product"]
    if attending.factor is not None:
        return _method("float score_of", parameters, ["return product * kFactor;"])
    own = {attending.q, attending.k, attending.v}
    body = [
        definition_text(d, scores)
        for d in scores.definitions
        if isinstance(d, Load | Index | Test) and d.name not in own
    ]
    read = {d.name for d in scores.definitions if not isinstance(d, Load | Index | Test)}
    arguments = ["product" if name in read else name for name, _ in scores.element.params]
    body += [*call_element(scores, arguments), "return value0;"]
    return _method(
        "float score_of", parameters, [*coordinates(attending.batch, "at_batch", body), *body]
    )


# --- entries ---


def _workspace_entry(attending: Attending) -> str:
    counts = [f"int64_t {name}" for name in COUNTS]
    tile = f"AttendTile{attending.family.title()}<{_problem_name(attending)}>"
    lines = [
        head(f'extern "C" int64_t {attending.group}_workspace', counts, " {"),
        f"  const op::AttendSizes sizes{{{', '.join(COUNTS)}, 0}};",
        f"  return op::attend_bytes<op::{tile}>(sizes);",
        "}",
    ]
    return "\n".join(lines)


def _entry(attending: Attending) -> str:
    scores, epilogue = attending.scores, attending.epilogue
    given = [f"static_cast<{pointer_to(b)}>({b.name})" for b in scores.buffers]
    given += [f"uint64_t({e.name})" for e in scores.extents]
    taken = [f"static_cast<{pointer_to(b)}>({_flat(b)})" for b in epilogue.buffers]
    taken += list(extents(epilogue))
    lines = [
        head(f'extern "C" int {attending.group}_attend', entry_parameters(attending), " {"),
        _construction(f"{_problem_name(attending)} problem", given),
        f"  const op::AttendSizes sizes{{{', '.join(COUNTS)}, row_step}};",
        _construction(f"{epilogue_name(epilogue)} epilogue", taken),
        "  // 32-bit positions must not wrap round.",
        "  const bool narrow = num_batches * num_rows * row_step < (1ll << 31) &&",
        "                      max_offset < (1ll << 31);",
        f"  return op::attend_{attending.family}(problem, sizes, workspace, epilogue, narrow,",
        "      aligned, stream);",
        "}",
    ]
    return "\n".join(lines)


def _flat(buffer: Buffer) -> str:
    """Operands of the epilogue are row-major: other tensors than those that scores read."""
    return buffer.name if buffer.written else f"{buffer.name}_flat"


def _construction(start: str, values: list[str]) -> str:
    line = f"  const {start}{{{', '.join(values)}}};"
    if len(line) <= 100:
        return line
    return "\n".join([f"  const {start}{{", *(f"      {value}," for value in values), "  };"])


def entry_integers(attending: Attending) -> tuple[Extent, ...]:
    """The integers of both kernels, each once."""
    every = (*attending.scores.extents, *attending.epilogue.extents)
    return tuple({extent.name: extent for extent in every}.values())


def entry_parameters(attending: Attending) -> list[str]:
    """The parameters of the entry that makes it, with their types."""
    scores, epilogue = attending.scores, attending.epilogue
    return [
        *(f"const void* {b.name}" for b in scores.buffers),
        *(f"{'' if b.written else 'const '}void* {_flat(b)}" for b in epilogue.buffers),
        *(f"int64_t {extent.name}" for extent in entry_integers(attending)),
        *(f"int64_t {name}" for name in COUNTS),
        *("int64_t row_step", "int64_t max_offset", "int aligned"),
        *("void* workspace", "void* stream"),
    ]


def counts(attending: Attending) -> tuple[Size, ...]:
    """What COUNTS and row_step are."""
    rows, keys, _ = attending.rows
    step = coefficient(attending.place, rows.var)
    assert step is not None, "rows of the result are evenly spaced"
    return (
        product_of(loop.extent for loop in attending.batch),
        product_of(loop.extent for loop in attending.shared),
        rows.extent,
        keys.extent,
        step,
    )
