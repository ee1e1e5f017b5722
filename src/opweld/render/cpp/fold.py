"""How C++ kernels hold the folds of a row: an accumulator each lane, a partial each piece of a row.

Fold `x` has the array `x_lane`; sums of floating point that may run long have `x_total` too, the
place of an extreme has the extremes in `x_extreme`, and a mean its sums in `x_sum` and, in double,
what these leave out in `x_rest`. A fold that takes in several elements at once has the array
`x_value` of a span's, and `x_state`: of a row, or of each lane that is a row.
"""

from __future__ import annotations

from ...ir.kernels.kernel import Kernel
from ...ir.kernels.reduction import Fold, Walk
from ...ir.ops import Op
from ...ir.types import DType
from ..c import compute_type
from ..chunks import CHUNKED, TOLD_BESIDE, own_folds, told_beside

PLACES = (Op.ARGMAX, Op.ARGMIN)


def struct_of(fold: Fold) -> str:
    """The name in fold.h of what the fold does."""
    if fold.op is Op.MEAN and not is_compensated(fold):
        return "Sum"
    return fold.op.value.capitalize()


def is_compensated(fold: Fold) -> bool:
    """Whether it keeps what sums leave out: of float, sums of double leave out nothing."""
    return fold.op is Op.MEAN and fold.dtype is DType.F64


def lane_type(dtype: DType) -> str:
    # g++ 12 vectorises no loop that reads bool.
    return "uint8_t" if dtype is DType.BOOL else compute_type(dtype)


def read(text: str, dtype: DType) -> str:
    """A value from where lanes keep it."""
    return f"{text} != 0" if dtype is DType.BOOL else text


def rounds(fold: Fold) -> bool:
    """Whether long chains of it lose digits that totals keep."""
    return fold.op is Op.SUM and fold.dtype.is_float


def fold_pieces(walk: Walk) -> set[str]:
    folds = own_folds(walk)
    needed = {struct_of(fold) for fold in folds}
    places = [fold for fold in folds if fold.op in PLACES]
    chunked = [fold for fold in folds if fold.op in CHUNKED]
    if places:
        needed |= {"open_places", "fold_places"}
    compensated = [fold for fold in folds if is_compensated(fold)]
    if compensated:
        needed |= {"add_compensated", "fold_compensated"}
    if len(places) + len(chunked) + len(compensated) < len(folds):
        needed |= {"open_lanes", "fold_lanes"}
    if any(map(rounds, folds)):
        needed |= {"empty_lanes"}
    if chunked:
        needed |= {"open_states", *(_TAKE[fold.op] for fold in chunked)}
    return needed


_TAKE = {Op.SUMEXP: "take_powers", Op.DEVSQ: "take_spread"}


def _state(fold: Fold) -> tuple[str, str]:
    """The type of a chunked fold's state, and what it is before the first element."""
    value = compute_type(fold.dtype)
    if fold.op is Op.SUMEXP:
        return f"op::Powers<{value}, double>", f"op::Sumexp::identity<{value}, double>()"
    return f"op::Spread<{value}>", f"op::Devsq::identity<{value}>()"


def opened(walk: Walk, totals: bool, across: bool) -> list[str]:
    """The folds of a walk before the first element."""
    lines = list[str]()
    for fold in walk.folds:
        if fold.op in CHUNKED:
            lines += _opened_state(fold, across)
        elif told_beside(fold, walk) is None:
            lines += _opened_lanes(fold, walk.kernel, totals, across)
        elif across:
            lines.append(f"{lane_type(fold.dtype)} {fold.name}_lane[kLanes];")
    return lines


def _opened_state(fold: Fold, across: bool) -> list[str]:
    (state, identity), value, name = _state(fold), compute_type(fold.dtype), fold.name
    if not across:
        return [f"{state} {name}_state = {identity};", f"{value} {name}_value[kSpan];"]
    return [
        f"{value} {name}_lane[kLanes], {name}_value[kSpan][kLanes];",
        f"{state} {name}_state[kLanes];",
        f"op::open_states({name}_state, {identity});",
    ]


def _opened_lanes(fold: Fold, kernel: Kernel, totals: bool, across: bool) -> list[str]:
    name, struct = fold.name, struct_of(fold)
    if fold.op is Op.MEAN:
        told = [f"{lane_type(fold.dtype)} {name}_lane[kLanes];"] if across else []
        rest = f", {name}_rest[kLanes] = {{}}" if is_compensated(fold) else ""
        return [*told, f"double {name}_sum[kLanes] = {{}}{rest};"]
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


def taken(fold: Fold, chunk_place: str) -> list[str]:
    """What a lane does with result `value<k>` of its element, which stands at `place`, and in the
    array of a chunk at `chunk_place`.
    """
    name, struct, value = fold.name, struct_of(fold), f"value{fold.result}"
    if fold.op in CHUNKED:
        return [f"{name}_value{chunk_place} = {value};"]
    if fold.op in PLACES:
        return [
            f"const bool {name}_takes = op::{struct}::takes({value}, {name}_extreme[lane]);",
            f"{name}_extreme[lane] = {name}_takes ? {value} : {name}_extreme[lane];",
            f"{name}_lane[lane] = {name}_takes ? place : {name}_lane[lane];",
        ]
    if is_compensated(fold):
        return [f"op::add_compensated({name}_sum[lane], {name}_rest[lane], {value});"]
    if fold.op is Op.MEAN:
        return [f"{name}_sum[lane] += {value};"]
    if fold.dtype is DType.BOOL:
        value = f"uint8_t({value})"
    return [f"{name}_lane[lane] = op::{struct}::combine({name}_lane[lane], {value});"]


def emptied(walk: Walk, across: bool) -> list[str]:
    """After a span."""
    count = "stop - span, count" if across else "stop - span"
    lines = list[str]()
    for fold in own_folds(walk):
        if rounds(fold):
            lines.append(f"op::empty_lanes({fold.name}_lane, {fold.name}_total);")
        if fold.op in CHUNKED:
            lines.append(f"op::take({fold.name}_state, {fold.name}_value, {count});")
    return lines


def of_all_lanes(fold: Fold, totals: bool) -> str:
    """One value of all lanes, in the type of a partial."""
    name, struct = fold.name, struct_of(fold)
    if fold.op in CHUNKED:
        return f"{name}_state"
    if fold.op in PLACES:
        return f"op::fold_places<op::{struct}>({name}_extreme, {name}_lane)"
    if is_compensated(fold):
        return f"op::fold_compensated({name}_sum, {name}_rest)"
    if fold.op is Op.MEAN:
        return f"op::fold_lanes<op::{struct}>({name}_sum)"
    array = "total" if totals and rounds(fold) else "lane"
    return f"op::fold_lanes<op::{struct}>({name}_{array})"


def of_row(fold: Fold, walk: Walk, totals: bool) -> str:
    """The statement that gives the row's fold its name."""
    beside = told_beside(fold, walk)
    return named(fold, walk, of_all_lanes(beside or fold, totals), totals)


def named(fold: Fold, walk: Walk, value: str, totals: bool) -> str:
    """The statement that gives the row's fold its name; `value` is of the type of a partial: of its
    own, or of the fold that holds it.
    """
    value = _told(fold, walk, value)
    if fold.op in PLACES:
        value = f"{value}.position"
    elif totals and rounds(fold) and fold.dtype is not DType.F64 and not told_beside(fold, walk):
        value = f"float({value})"
    return f"const {compute_type(fold.dtype)} {fold.name} = {read(value, fold.dtype)};"


def _told(fold: Fold, walk: Walk, state: str) -> str:
    beside = told_beside(fold, walk)
    if beside:
        return f"op::{struct_of(beside)}::{TOLD_BESIDE[fold.op]}({state})"
    if is_compensated(fold):
        return f"op::Mean::told({state}, kLength)"
    if fold.op is Op.MEAN:
        return f"float({state} / kLength)"
    return f"op::{struct_of(fold)}::told({state})" if fold.op in CHUNKED else state


def rounded(walk: Walk, totals: bool) -> list[str]:
    """Lanes that are rows take what their totals or their states hold."""
    lines = list[str]()
    for fold in walk.folds:
        name, holder = fold.name, told_beside(fold, walk) or fold
        if holder.op in CHUNKED:
            told = _told(fold, walk, f"{holder.name}_state[lane]")
            lines.append(f"{name}_lane[lane] = {told};")
        elif fold.op is Op.MEAN:
            lines.append(f"{name}_lane[lane] = {_told(fold, walk, of_lane(fold))};")
        elif totals and rounds(fold):
            lines.append(f"{name}_lane[lane] = {lane_type(fold.dtype)}({name}_total[lane]);")
    return lines


def partial_type(fold: Fold, kernel: Kernel) -> str:
    if fold.op in PLACES:
        return f"op::Placed<{lane_type(kernel.element.results[fold.result][0])}, int64_t>"
    if fold.op is Op.MEAN:
        return "op::Compensated<double>" if is_compensated(fold) else "double"
    if fold.op in CHUNKED:
        return _state(fold)[0]
    return "double" if rounds(fold) else lane_type(fold.dtype)


def of_lane(fold: Fold) -> str:
    """The partial of one lane, which is a row."""
    if fold.op in CHUNKED:
        return f"{fold.name}_state[lane]"
    if fold.op in PLACES:
        return f"{{{fold.name}_extreme[lane], {fold.name}_lane[lane]}}"
    if is_compensated(fold):
        return f"op::Compensated<double>{{{fold.name}_sum[lane], {fold.name}_rest[lane]}}"
    if fold.op is Op.MEAN:
        return f"{fold.name}_sum[lane]"
    return f"{fold.name}_{'total' if rounds(fold) else 'lane'}[lane]"
