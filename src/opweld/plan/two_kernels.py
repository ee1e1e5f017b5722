"""Which rows are folded by one kernel and mapped by another, though there are enough of them.

A row that several multiprocessors do not keep is read again by a second walk, from memory. One
kernel has a block for each row and gains nothing by both walks; two have as many blocks as there is
work. Group norm of 8 groups of 112x64x512x512 reaches 66 % of a copy's speed by two kernels and
53 % by one, and over half of each image 68 and 54 %; two reads allow 67. But where folding takes
more instructions a byte, two kernels lose: group norm of bfloat16 55 against 63 %, softmax of 2^20
float32 60 against 62 % (H200, 2026-11-22, CUDA 13.0).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.expr import product
from ..ir.graph import Node
from ..ir.index import is_across
from ..ir.ops import Kind, Op
from ..ir.plan import Rows
from .cost import FOLD_FLOPS, OP_FLOPS
from .rows import Parallelism
from .single_pass import bytes_read

# Folds of rows that all multiprocessors keep together. What takes more instructions than these does
# not keep up with memory there, where a multiprocessor has eight warps that fold: by moments group
# norm reaches 69 % of a copy's speed, and layer norm 47 to 56 for the 63 of two kernels; sums reach
# 91 for 67 (H200, 2026-11-23, CUDA 13.0).
_QUICK = (Op.SUM, Op.MEAN, Op.AMAX, Op.AMIN)
# What each element has in memory, and the instructions beside each of its bytes.
_LEAST_BYTES, _MOST_FLOPS = 4, 2


def walk_apart(fold: Node, users: Iterable[Node], parallelism: Parallelism) -> bool:
    """Whether what needs both the elements of a row and its folds is better another kernel's than
    that of the folds: of `fold`, and of those beside it among the `users` of its operand.
    """
    operand, axes = fold.inputs[0], fold.attrs.axes
    if parallelism.needs_pieces(operand.type.shape, axes):
        return True
    folds = _beside(fold, users)
    return _is_far(operand, axes, parallelism) and _is_bound_by_memory(operand, folds)


def kept_by_all(fold: Node, users: Iterable[Node], parallelism: Parallelism) -> bool:
    """Whether all multiprocessors keep the rows of `fold` together, which are one tensor's, between
    a walk that folds them and one that maps them.
    """
    operand, axes = fold.inputs[0], fold.attrs.axes
    num_bytes = bytes_read(operand)
    if num_bytes != _LEAST_BYTES or any(f.op not in _QUICK for f in _beside(fold, users)):
        return False
    return parallelism.kept_by_all(operand.type.shape, axes, num_bytes)


def folds_and_maps(rows: Rows) -> bool:
    """Whether one walk folds and another one maps."""
    return rows.num_walks == 2 and len(rows.levels) == 1


def _beside(fold: Node, users: Iterable[Node]) -> list[Node]:
    """All folds of the same rows."""
    return [u for u in users if u.kind is Kind.REDUCTION and u.attrs.axes == fold.attrs.axes]


def _is_far(operand: Node, axes: tuple[int, ...], parallelism: Parallelism) -> bool:
    """Whether several multiprocessors would keep a row if it were shorter."""
    space = operand.type.shape
    known = isinstance(product(space[axis] for axis in axes), int)
    if parallelism.multiprocessors == 1 or not known or is_across(space, axes):
        return False
    return parallelism.reads_again(space, axes, bytes_read(operand))


def _is_bound_by_memory(operand: Node, folds: list[Node]) -> bool:
    flops = sum(FOLD_FLOPS.get(fold.op, 1) for fold in folds)
    seen = {operand.serial}
    waiting = [operand]
    while waiting:
        node = waiting.pop()
        if node.kind in (Kind.POINTWISE, Kind.VIEW):
            flops += OP_FLOPS.get(node.op, 1) if node.kind is Kind.POINTWISE else 0
            waiting += [each for each in node.inputs if each.serial not in seen]
            seen |= {each.serial for each in node.inputs}
    num_bytes = bytes_read(operand)
    return num_bytes >= _LEAST_BYTES and flops <= _MOST_FLOPS * num_bytes
