"""Where a matrix has elements that are not zero, by how `eye`, `tril` and `triu` are written.

An element in row r and column c is 0 unless low <= c - r <= high; None: there is no such limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.attrs import IotaAttrs
from ....ir.graph import Node
from ....ir.ops import Op
from ....ir.rules.pattern import is_number
from ....ir.types import DType
from ...names import name_of


@dataclass(frozen=True, slots=True)
class Band:
    low: int | None = None
    high: int | None = None

    def both(self, other: Band) -> Band:
        lows = [n for n in (self.low, other.low) if n is not None]
        highs = [n for n in (self.high, other.high) if n is not None]
        return Band(max(lows, default=None), min(highs, default=None))

    @property
    def mirrored(self) -> Band:
        """That of the transposed matrix."""
        low = None if self.high is None else -self.high
        return Band(low, None if self.low is None else -self.low)


EVERYWHERE = Band()
DIAGONAL = Band(0, 0)


def band_of(node: Node) -> Band:
    """Of a matrix: elements outside are 0.0, whatever it is made of."""
    if node.op is Op.WHERE and _is_zero(node.inputs[2]):
        condition, value, _ = node.inputs
        if condition.type.shape == node.type.shape:
            return _where(condition).both(
                band_of(value) if value.type.shape == node.type.shape else EVERYWHERE
            )
    if node.op is Op.CAST and node.inputs[0].op in _COMPARED:
        return _where(node.inputs[0])
    if node.op is Op.PERMUTE and node.attrs.dims == (1, 0):
        return band_of(node.inputs[0]).mirrored
    return EVERYWHERE


def name_of_band(node: Node) -> str:
    """As the user wrote it: tril(w), triu(w), eye."""
    band = band_of(node)
    if node.op is Op.PERMUTE and band != EVERYWHERE:
        return f"{name_of_band(node.inputs[0])}.T"
    if node.op is Op.CAST and band == DIAGONAL:
        return "eye"
    if node.op is not Op.WHERE or (band.low is None) is (band.high is None):
        return name_of(node)
    name, number = ("tril", band.high) if band.low is None else ("triu", band.low)
    return f"{name}({name_of(node.inputs[1])}{f', {number}' if number else ''})"


def _is_zero(node: Node) -> bool:
    return is_number(node) and node.attrs.value == 0


_COMPARED = (Op.LE, Op.GE, Op.EQ)
_NUMBERS = (DType.I32, DType.I64)  # sums of floats are not whole, those of few bits wrap


def _where(condition: Node) -> Band:
    """Where a comparison of the numbers of rows and columns holds."""
    if condition.op not in _COMPARED or condition.type.rank != 2:
        return EVERYWHERE
    places = [_place(operand) for operand in condition.inputs]
    if None in places:
        return EVERYWHERE
    (left, add_left), (right, add_right) = (place for place in places if place is not None)
    if {left, right} != {"row", "column"}:
        return EVERYWHERE
    if condition.op is Op.EQ:
        apart = add_right - add_left if left == "column" else add_left - add_right
        return Band(apart, apart)
    if (condition.op is Op.LE) is (left == "column"):  # column <= row + number
        high = add_right - add_left if left == "column" else add_left - add_right
        return Band(None, high)
    low = add_right - add_left if left == "column" else add_left - add_right
    return Band(low, None)


def _place(node: Node) -> tuple[str, int] | None:
    """Whether a value is the number of its row or of its column, and what is added to it."""
    if node.type.dtype not in _NUMBERS:
        return None
    added = 0
    while node.op is Op.ADD and is_number(node.inputs[1]):
        added += int(node.inputs[1].attrs.value)
        node = node.inputs[0]
    shape = node.type.shape
    axis = "column" if len(shape) == 1 or shape[0] == 1 else "row" if shape[-1] == 1 else None
    if node.op is Op.RESHAPE:
        node = node.inputs[0]
    if axis is None or node.op is not Op.IOTA or len(shape) > 2:
        return None
    attrs: IotaAttrs = node.attrs
    if attrs.step != 1 or not isinstance(attrs.start, int):
        return None
    return axis, added + attrs.start
