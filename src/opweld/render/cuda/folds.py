"""What a walk of a CUDA kernel folds: a struct of the group, with a state for each fold."""

from __future__ import annotations

from ...ir.expr import product
from ...ir.kernels.reduction import Fold, Folding, Walk
from ...ir.ops import Op
from ..c import compute_type
from ..chunks import CHUNKED, TOLD_BESIDE, needs_length, own_folds, takes_chunks, told_beside
from ..layout import folded, head
from .walk import ARG, folds_name, known_name

FOLD = {
    Op.SUM: "Sum",
    Op.PROD: "Prod",
    Op.AMAX: "Amax",
    Op.AMIN: "Amin",
    Op.ANY: "Any",
    Op.ALL: "All",
    Op.ARGMAX: "Argmax",
    Op.ARGMIN: "Argmin",
    Op.MEAN: "Mean",
    Op.SUMEXP: "Sumexp",
    Op.DEVSQ: "Devsq",
}
# The state of folds that is more than a value.
_STATES = {
    **dict.fromkeys(ARG, "op::Placed<{0}, {1}>"),
    Op.MEAN: "op::Compensated<{0}>",
    Op.SUMEXP: "op::Powers<{0}, {0}>",
    Op.DEVSQ: "op::Spread<{0}>",
}
# What is in the state of one element beside it.
_OF_ELEMENT = {**dict.fromkeys(ARG, "position"), Op.MEAN: "0"}
_TAKE = {Op.SUMEXP: "take_powers", Op.DEVSQ: "take_spread"}
# Additions of floats one after another, and of what such chains give. With 32, and strips one after
# another, sums of columns of 128 to 700000 elements had 1.3 to 1.7 times eager's error on an H200.
_MOST_CHAIN = 8
# Extremes lose nothing, but chains let more loads be under way: 98 % of a copy's speed over the
# middle axis of 128x4096x4095, 92 without, and 100 over all of it, 96 without. Places, whose chains
# take more instructions, have none: 96 %, and 92 with chains (H200, 2026-11-22, CUDA 13.0).
_EXTREMES, _EXTREMES_CHAIN = (Op.AMAX, Op.AMIN), 16
# Chunks of up to 16 elements, each folded in a tree.
_MOST_CHUNKS = 32


def fold_pieces(walk: Walk) -> set[str]:
    """Names of the device library's pieces that the struct uses."""
    folds = own_folds(walk)
    needed = {FOLD[fold.op] for fold in folds}
    return needed | {_TAKE.get(fold.op, "of_chunk") for fold in folds if takes_chunks(walk)}


def folds_struct(folding: Folding, number: int) -> str:
    walk = folding.steps[number].walk
    name = folds_name(folding, number)
    types = {fold: fold_types(fold, folding, number) for fold in own_folds(walk)}
    nothing = ", ".join(_identity(fold, of) for fold, of in types.items())
    lines = [
        f"// What pass {number} folds.",
        f"struct {name} {{",
        f"  static constexpr int kChain = {chain_text(walk)};",
        *(f"  {state_type(fold, of)} {fold.name};" for fold, of in types.items()),
        "",
        f"  OPWELD_FN {name} nothing() {{",
        folded(f"    return {{{nothing}}};"),
        "  }",
        *(_taking(types) if takes_chunks(walk) else _adding(types)),
        f"  __device__ __forceinline__ void merge(const {name}& other) {{",
        *(folded(f"    {_combined(fold, f'other.{fold.name}')}") for fold in types),
        "  }",
        head("  __device__ __forceinline__ void tell", _told_of(folding, walk), " const {"),
        *(f"    row.{fold.name} = {told_text(fold, walk)};" for fold in walk.folds),
        "  }",
        "};",
    ]
    return "\n".join(lines)


def chain_text(walk: Walk) -> int | str:
    """How much is merged one after another."""
    folds = own_folds(walk)
    if any(map(_is_chained, folds)):
        return _MOST_CHUNKS if takes_chunks(walk) else _MOST_CHAIN
    if all(fold.op in _EXTREMES for fold in folds):
        return _EXTREMES_CHAIN
    return "op::NoFolds::kChain"


def tell(folds: str, row: str, walk: Walk) -> str:
    """The statement that tells a row its folds."""
    return f"{folds}.tell({row}{', length' if needs_length(walk) else ''});"


def finish_sizes(walk: Walk) -> tuple[str, ...]:
    """What a kernel needs to know that puts the pieces of rows together."""
    return ("num_rows", *(["length"] if needs_length(walk) else []), "pieces")


def _told_of(folding: Folding, walk: Walk) -> list[str]:
    length = ["int64_t length"] if needs_length(walk) else []
    return [f"{known_name(folding)}& row", *length]


def _adding(types: dict[Fold, Types]) -> list[str]:
    """One element after another."""
    placed = [_placed(fold, i, of) for i, (fold, of) in enumerate(types.items())]
    return [
        head("  __device__ __forceinline__ void add", _element_parameters(types), " {"),
        *(folded(f"    {_added(f, text)}") for f, text in zip(types, placed, strict=True)),
        "  }",
    ]


def _element_parameters(types: dict[Fold, Types]) -> list[str]:
    values = [f"{of[0]} value{i}" for i, of in enumerate(types.values())]
    positions = [f"{of[1]} position" for fold, of in types.items() if fold.op in ARG]
    return values + positions[:1]


def _taking(types: dict[Fold, Types]) -> list[str]:
    """Several elements at once."""
    states = {f: of[0] if f.op in CHUNKED else state_type(f, of) for f, of in types.items()}
    placed = [_placed(fold, i, of) for i, (fold, of) in enumerate(types.items())]
    return [
        "  struct Element {",
        *(f"    {state} {fold.name};" for fold, state in states.items()),
        head("    __device__ __forceinline__ void add", _element_parameters(types), " {"),
        folded(f"      *this = {{{', '.join(placed)}}};"),
        "    }",
        "  };",
        "  template <int kCount>",
        "  __device__ __forceinline__ void take(const Element (&elements)[kCount], int count) {",
        *(f"    {state} of_{fold.name}[kCount];" for fold, state in states.items()),
        "#pragma unroll",
        "    for (int k = 0; k < kCount; ++k) {",
        *(f"      of_{fold.name}[k] = elements[k].{fold.name};" for fold in types),
        "    }",
        *(folded(f"    {_taken(fold, of)}") for fold, of in types.items()),
        "  }",
    ]


def _taken(fold: Fold, of: Types) -> str:
    if fold.op in CHUNKED:
        return f"op::take({fold.name}, of_{fold.name}, count);"
    identity = _identity(fold, of)
    part = f"op::of_chunk<op::{FOLD[fold.op]}>(of_{fold.name}, count, {identity})"
    return _combined(fold, part)


Types = tuple[str, ...]
"""The type in which an element is folded, and that of its position where this counts."""


def fold_types(fold: Fold, folding: Folding, number: int) -> Types:
    """Those of a fold of walk `number`. Half as many bits tell the positions of a short row."""
    if fold.op in (Op.ANY, Op.ALL):
        return ("bool",)
    kernel = folding.steps[number].walk.kernel
    value = compute_type(kernel.element.results[fold.result][0])
    if fold.op not in ARG:
        return (value,)
    length = product(loop.extent for loop in folding.reduced)
    return value, "int32_t" if isinstance(length, int) and length < 2**31 else "int64_t"


def state_type(fold: Fold, of: Types) -> str:
    return _STATES.get(fold.op, "{0}").format(*of)


def _identity(fold: Fold, of: Types) -> str:
    types = (*of, of[0]) if fold.op is Op.SUMEXP else of
    return f"op::{FOLD[fold.op]}::identity<{', '.join(types)}>()"


def _placed(fold: Fold, index: int, of: Types) -> str:
    text = f"value{index}"
    if fold.op not in _OF_ELEMENT:
        return text
    return f"{state_type(fold, of)}{{{text}, {_OF_ELEMENT[fold.op]}}}"


def _added(fold: Fold, other: str) -> str:
    """Of one thread's elements, which come in their order."""
    way = "follow" if fold.op in _OF_ELEMENT else "combine"
    return f"{fold.name} = op::{FOLD[fold.op]}::{way}({fold.name}, {other});"


def _combined(fold: Fold, other: str) -> str:
    return f"{fold.name} = op::{FOLD[fold.op]}::combine({fold.name}, {other});"


def told_text(fold: Fold, walk: Walk, of: str = "", length: str = "length") -> str:
    """What a fold tells of a row by its state and the row's `length`; a state that is more than a
    value has `of` before its name.
    """
    beside = told_beside(fold, walk)
    if beside:
        return f"op::{FOLD[beside.op]}::{TOLD_BESIDE[fold.op]}({of}{beside.name})"
    if fold.op in CHUNKED:
        return f"op::{FOLD[fold.op]}::told({of}{fold.name})"
    if fold.op is Op.MEAN:
        return f"op::Mean::told({of}{fold.name}, {compute_type(fold.dtype)}({length}))"
    return f"{of}{fold.name}.position" if fold.op in ARG else fold.name


def _is_chained(fold: Fold) -> bool:
    return fold.op in (Op.SUM, Op.PROD, Op.MEAN, Op.SUMEXP) and fold.dtype.is_float
