"""What is scanned, and what is carried along a row: the same structs in CUDA and in C++."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.kernels.reduction import Fold, Folding, Walk
from ..ir.ops import Op
from .c import compute_type
from .chunks import SCANNED_PLACES, own_folds, told_beside
from .cuda.walk import folds_name, known_name
from .layout import folded, head

STRUCTS = {
    Op.CUMSUM: "Sum",
    Op.CUMPROD: "Prod",
    Op.CUMMAX: "Cummax",
    Op.CUMMIN: "Cummin",
    Op.CUMMAX_PLACE: "Cummax",
    Op.CUMMIN_PLACE: "Cummin",
    Op.LOGCUMSUMEXP: "Logcumsumexp",
}


@dataclass(frozen=True, slots=True)
class _State:
    """How a fold is kept, in texts of which `{value}` is the type of what is scanned.

    `one` is the state of `{element}`, at `position`; `told` what the state `{state}` tells; `words`
    how many numbers of that type it holds. Where it `combines`, the state itself has what combines
    two of them and what it is of no elements; elsewhere the fold's struct does.
    """

    type: str
    one: str
    told: str
    words: int
    nothing: str = "identity"
    combines: bool = False


_VALUE = _State("{value}", "{element}", "{state}", 1)
_PLACED = _State(
    "op::Placed<{value}, int64_t>", "{{{element}, position}}", "{state}.position", 2, "nowhere"
)
_LOG_SUM = _State(
    "op::LogSum<{value}>", "{{{element}, 0}}", "{state}.value()", 2, "nothing", combines=True
)


def _state(fold: Fold) -> _State:
    if fold.op in SCANNED_PLACES:
        return _PLACED
    return _LOG_SUM if fold.op is Op.LOGCUMSUMEXP else _VALUE


def scanned_folds(folding: Folding) -> tuple[Fold, ...]:
    """What is scanned and has a state of its own."""
    return own_folds(folding.steps[0].walk)


def value_type(fold: Fold, walk: Walk) -> str:
    """The type in which an element is scanned."""
    return compute_type(walk.kernel.element.results[fold.result][0])


def state_type(fold: Fold, value: str) -> str:
    return _state(fold).type.format(value=value)


def _nothing(fold: Fold, value: str) -> str:
    """The state of no elements."""
    given = "" if _state(fold).combines else f"<{value}>"
    return f"{_combiner(fold, value)}::{_state(fold).nothing}{given}()"


def _combiner(fold: Fold, value: str) -> str:
    """What combines two states in CUDA."""
    return state_type(fold, value) if _state(fold).combines else f"op::{STRUCTS[fold.op]}"


def struct_pieces(fold: Fold) -> set[str]:
    """What the text of a state names of the device library."""
    if _state(fold) is _LOG_SUM:
        return {"LogSum", "Carried"}
    return {STRUCTS[fold.op], "CarriedSum" if _adds_floats(fold) else "Carried"}


def _adds_floats(fold: Fold) -> bool:
    return fold.op is Op.CUMSUM and fold.dtype.is_float


def told(fold: Fold, walk: Walk) -> str:
    """What an element knows of a fold, of the state of its own or of the one that holds it."""
    beside = told_beside(fold, walk)
    if beside:
        return f"{beside.name}.value"
    return _state(fold).told.format(state=fold.name)


def known_struct(folding: Folding) -> str:
    lines = ["// What an element knows of the scans.", f"struct {known_name(folding)} {{"]
    folds = folding.steps[0].walk.folds
    lines += [f"  {compute_type(fold.dtype)} {fold.name};" for fold in folds]
    return "\n".join([*lines, "};"])


def state_struct(folding: Folding) -> str:
    """The state of an element, or of neighbours."""
    walk, name = folding.steps[0].walk, folds_name(folding, 0)
    types = {fold: value_type(fold, walk) for fold in scanned_folds(folding)}
    states = {fold: state_type(fold, value) for fold, value in types.items()}
    nothing = ", ".join(_nothing(fold, value) for fold, value in types.items())
    values = [f"{value} value{i}" for i, value in enumerate(types.values())]
    values += ["int64_t position"] if any(_state(fold) is _PLACED for fold in types) else []
    given = ", ".join(_state(f).one.format(element=f"value{i}") for i, f in enumerate(types))
    combined = [
        f"{f.name} = {_combiner(f, value)}::combine({f.name}, later.{f.name});"
        for f, value in types.items()
    ]
    lines = [
        "// What is scanned.",
        f"struct {name} {{",
        *(f"  {state} {fold.name};" for fold, state in states.items()),
        "",
        f"  OPWELD_FN {name} nothing() {{",
        folded(f"    return {{{nothing}}};"),
        "  }",
        head("  __device__ __forceinline__ void add", values, " {"),
        folded(f"    *this = {{{given}}};"),
        "  }",
        f"  __device__ __forceinline__ void follow(const {name}& later) {{",
        *(folded(f"    {line}") for line in combined),
        "  }",
        f"  __device__ __forceinline__ void tell({known_name(folding)}& element) const {{",
        *(f"    element.{fold.name} = {told(fold, walk)};" for fold in walk.folds),
        "  }",
        "};",
    ]
    return "\n".join(lines)


def carry_name(folding: Folding) -> str:
    return f"{folding.name}_carry"


def _carried(fold: Fold, value: str) -> str:
    if _adds_floats(fold):
        return f"op::CarriedSum<{value}>"
    return f"op::Carried<{_combiner(fold, value)}, {state_type(fold, value)}>"


def carry_struct(folding: Folding) -> str:
    """What is carried from stretch to stretch of a row."""
    walk, name, state = folding.steps[0].walk, carry_name(folding), folds_name(folding, 0)
    values = {fold: value_type(fold, walk) for fold in scanned_folds(folding)}
    types = {fold: _carried(fold, value) for fold, value in values.items()}
    nothing = ", ".join(f"{t}::of({_nothing(f, values[f])})" for f, t in types.items())
    follows = [f"    {fold.name}.follow(later.{fold.name});" for fold in types]
    before = [f"before.{fold.name}" for fold in types]
    mine = [f"{each}, mine.{fold.name}" for each, fold in zip(before, types, strict=True)]
    told_before, told_mine = (
        ", ".join(f"{f.name}.told({given})" for f, given in zip(types, each, strict=True))
        for each in (before, mine)
    )
    lines = [
        "// What is carried along a row.",
        f"struct {name} {{",
        *(f"  {kind} {fold.name};" for fold, kind in types.items()),
        "",
        f"  OPWELD_FN {name} nothing() {{",
        folded(f"    return {{{nothing}}};"),
        "  }",
        f"  __device__ __forceinline__ void follow(const {state}& later) {{",
        *follows,
        "  }",
        f"  __device__ __forceinline__ void follow(const {name}& later) {{",
        *follows,
        "  }",
        f"  __device__ __forceinline__ {state}",
        f"  told(const {state}& before) const {{",
        folded(f"    return {{{told_before}}};"),
        "  }",
        f"  __device__ __forceinline__ {state}",
        head("  told", [f"const {state}& before", f"const {state}& mine"], " const {"),
        folded(f"    return {{{told_mine}}};"),
        "  }",
        "};",
    ]
    return "\n".join(lines)


def state_bytes(folding: Folding) -> int:
    """Of one element's state, with all the padding there can be."""
    widths = [_width(fold, folding.steps[0].walk) for fold in scanned_folds(folding)]
    widest = 8 if max(widths) >= 8 else 4
    return sum(-(-width // widest) * widest for width in widths)


def _width(fold: Fold, walk: Walk) -> int:
    if _state(fold) is _PLACED:
        return 16  # its position has eight bytes, whatever its value has
    value = walk.kernel.element.results[fold.result][0].compute.itemsize_bytes
    return _state(fold).words * value
