"""How C++ kernels hold the folds of a row: an accumulator each lane, a partial each piece of a row.

Fold `x` has the array `x_lane`; sums of floating point that may run long have `x_total` too, and
the place of an extreme has the extremes in `x_extreme`.
"""

from __future__ import annotations

from ..ir.kernel import Kernel
from ..ir.ops import Op
from ..ir.reduction import Fold
from ..ir.types import DType
from .c import compute_type

PLACES = (Op.ARGMAX, Op.ARGMIN)


def struct_of(fold: Fold) -> str:
    """The name in fold.h of what the fold does."""
    return fold.op.value.capitalize()


def lane_type(dtype: DType) -> str:
    # g++ 12 vectorises no loop that reads bool.
    return "uint8_t" if dtype is DType.BOOL else compute_type(dtype)


def read(text: str, dtype: DType) -> str:
    """A value from where lanes keep it."""
    return f"{text} != 0" if dtype is DType.BOOL else text


def rounds(fold: Fold) -> bool:
    """Whether long chains of it lose digits that totals keep."""
    return fold.op is Op.SUM and fold.dtype.is_float


def fold_pieces(folds: tuple[Fold, ...]) -> set[str]:
    needed = {struct_of(fold) for fold in folds}
    places = [fold for fold in folds if fold.op in PLACES]
    if places:
        needed |= {"open_places", "fold_places"}
    if len(places) < len(folds):
        needed |= {"open_lanes", "fold_lanes"}
    if any(map(rounds, folds)):
        needed |= {"empty_lanes"}
    return needed


def opened(fold: Fold, kernel: Kernel, totals: bool) -> list[str]:
    """The lanes of a fold before the first element."""
    name, struct = fold.name, struct_of(fold)
    if fold.op in PLACES:
        extreme = lane_type(kernel.element.results[fold.result][0])
        return [
            f"{extreme} {name}_extreme[kLanes];",
            f"int64_t {name}_lane[kLanes];",
            f"op::open_places<op::{struct}>({name}_extreme, {name}_lane);",
        ]
    lines = [
        f"{lane_type(fold.dtype)} {name}_lane[kLanes];",
        f"op::open_lanes<op::{struct}>({name}_lane);",
    ]
    return lines + ([f"double {name}_total[kLanes] = {{}};"] if totals and rounds(fold) else [])


def taken(fold: Fold) -> list[str]:
    """What a lane does with result `value<k>` of its element, which stands at `place`."""
    name, struct, value = fold.name, struct_of(fold), f"value{fold.result}"
    if fold.op in PLACES:
        return [
            f"const bool {name}_takes = op::{struct}::takes({value}, {name}_extreme[lane]);",
            f"{name}_extreme[lane] = {name}_takes ? {value} : {name}_extreme[lane];",
            f"{name}_lane[lane] = {name}_takes ? place : {name}_lane[lane];",
        ]
    if fold.dtype is DType.BOOL:
        value = f"uint8_t({value})"
    return [f"{name}_lane[lane] = op::{struct}::combine({name}_lane[lane], {value});"]


def emptied(folds: tuple[Fold, ...]) -> list[str]:
    return [f"op::empty_lanes({f.name}_lane, {f.name}_total);" for f in folds if rounds(f)]


def of_all_lanes(fold: Fold, totals: bool) -> str:
    """One value of all lanes, in the type of a partial."""
    name, struct = fold.name, struct_of(fold)
    if fold.op in PLACES:
        return f"op::fold_places<op::{struct}>({name}_extreme, {name}_lane)"
    array = "total" if totals and rounds(fold) else "lane"
    return f"op::fold_lanes<op::{struct}>({name}_{array})"


def of_row(fold: Fold, totals: bool) -> str:
    """The statement that gives the row's fold its name."""
    return named(fold, of_all_lanes(fold, totals), totals)


def named(fold: Fold, value: str, totals: bool) -> str:
    """The statement that gives the row's fold its name; `value` is of the type of a partial."""
    if fold.op in PLACES:
        value = f"{value}.position"
    elif totals and rounds(fold) and fold.dtype is not DType.F64:
        value = f"float({value})"
    return f"const {compute_type(fold.dtype)} {fold.name} = {read(value, fold.dtype)};"


def rounded(folds: tuple[Fold, ...]) -> list[str]:
    """Lanes that are rows take what their totals hold."""
    return [
        f"{f.name}_lane[lane] = {lane_type(f.dtype)}({f.name}_total[lane]);"
        for f in folds
        if rounds(f)
    ]


def partial_type(fold: Fold, kernel: Kernel) -> str:
    if fold.op in PLACES:
        return f"op::Placed<{lane_type(kernel.element.results[fold.result][0])}, int64_t>"
    return "double" if rounds(fold) else lane_type(fold.dtype)


def of_lane(fold: Fold) -> str:
    """The partial of one lane, which is a row."""
    if fold.op in PLACES:
        return f"{{{fold.name}_extreme[lane], {fold.name}_lane[lane]}}"
    return f"{fold.name}_{'total' if rounds(fold) else 'lane'}[lane]"
