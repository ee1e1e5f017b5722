"""Losses of classes that are given by their numbers: cross-entropy and the negative log-likelihood.

What a number picks of a row is read by itself, once the row is known: of logarithms of
probabilities one is computed. A row whose number is to be ignored picks its first class, of which
nothing is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from opweld.ir.attrs import GatherAttrs
from opweld.ir.graph import Node
from opweld.ir.infer import INDEX_DTYPES
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..call import Call, Lower, NotFused
from .folds import MEAN, NONE, float_operand, fold, returned
from .norms import log_total_of


@dataclass(frozen=True, slots=True)
class _Classes:
    """The classes along `axis` of scores, and the one of each row, where that axis has size 1.

    `number` is that of the class, `valid` of each row whether it is not `ignored`.
    """

    call: Call
    axis: int
    number: Node
    valid: Node
    ignored: int

    @staticmethod
    def of(call: Call, scores: Node) -> _Classes:
        target, axis = call.node("target"), 1 if scores.type.rank > 1 else 0
        shape, count = scores.type.shape, scores.type.shape[axis]
        fits = target.type.shape == (*shape[:axis], *shape[axis + 1 :])
        if not fits or target.type.dtype not in INDEX_DTYPES or count == 0:
            raise NotFused(f"{call.name} of such a target is left to the library")
        row = (*shape[:axis], 1, *shape[axis + 1 :])
        number, ignored = call.build.reshape(target, row), int(call.number("ignore_index"))
        wide = call.build.cast(number, DType.I64)
        valid = call.make(Op.NE, wide, call.const(ignored, DType.I64))
        return _Classes(call, axis, number, valid, ignored)

    def picked(self, values: Node) -> Node:
        """Of each row the value of its class."""
        attrs = GatherAttrs(self.axis, ignored=self.ignored)
        return self.call.build.op(Op.GATHER, values, self.number, attrs=attrs)

    def total(self, values: Node) -> Node:
        return fold(self.call.build, Op.SUM, values, (self.axis,))

    def counted(self, of_row: Node) -> Node:
        """0 for what is ignored."""
        zero = self.call.const(0, of_row.type.dtype)
        return self.call.make(Op.WHERE, self.valid, of_row, zero)


def _condensed(call: Call, classes: _Classes, loss: Node, weight: Node) -> Node:
    """The losses of the rows, their sum, or their mean by the weights of the rows that count."""
    how = call.number("reduction")
    loss = classes.counted(loss)
    if how == NONE:
        return returned(call, loss)
    axes = tuple(range(loss.type.rank))
    total = fold(call.build, Op.SUM, loss, axes)
    if how == MEAN:
        counted = fold(call.build, Op.SUM, classes.counted(weight), axes)
        total = call.make(Op.DIV, total, counted)
    return returned(call, total)


def _weights(call: Call, scores: Node, axis: int) -> Node | None:
    """The weights of the classes along their axis."""
    if call.values["weight"] is None:
        return None
    weight = float_operand(call, "weight")
    return call.build.reshape(
        weight, (scores.type.shape[axis], *(1,) * (scores.type.rank - axis - 1))
    )


@dataclass(frozen=True, slots=True)
class _Logs:
    """Logarithms of probabilities: `scores` less what is of each row, `less`, one after another."""

    call: Call
    scores: Node
    less: tuple[Node, ...] = ()

    def of(self, scores: Node) -> Node:
        for each in self.less:
            scores = self.call.make(Op.SUB, scores, each)
        return scores


def _likelihood(call: Call, logs: _Logs, smoothing: float) -> Node:
    """The loss of logarithms of probabilities."""
    scores = logs.scores
    classes = _Classes.of(call, scores)
    dtype, weights = scores.type.dtype, _weights(call, scores, classes.axis)
    every = logs.of(scores)
    loss = call.make(Op.NEG, classes.picked(every))
    weight = call.build.expand(call.const(1, dtype), loss.type.shape)
    if weights is not None:
        weight = classes.picked(call.build.expand(weights, scores.type.shape))
        loss = call.make(Op.MUL, loss, weight)
    if smoothing:
        num_classes = scores.type.shape[classes.axis]
        if not isinstance(num_classes, int):
            raise NotFused("a symbolic number of classes is left to the library")
        every = every if weights is None else call.make(Op.MUL, every, weights)
        share = call.const(smoothing / num_classes, dtype)
        smooth = call.make(Op.MUL, call.make(Op.NEG, classes.total(every)), share)
        kept = call.make(Op.MUL, loss, call.const(1 - smoothing, dtype))
        loss = call.make(Op.ADD, kept, smooth)
    return _condensed(call, classes, loss, weight)


def _nll(call: Call) -> Node:
    return _likelihood(call, _Logs(call, float_operand(call, "self")), 0.0)


def cross_entropy_of_classes(call: Call) -> Node:
    """With the target's numbers, the class axis being the second or the only one."""
    scores = float_operand(call, "self")
    largest, total = log_total_of(call, scores, (1 if scores.type.rank > 1 else 0,))
    return _likelihood(
        call, _Logs(call, scores, (largest, total)), float(call.number("label_smoothing"))
    )


CLASS_LOSSES: dict[str, Lower] = {"nll_loss_nd": _nll, "nll_loss": _nll, "nll_loss2d": _nll}
