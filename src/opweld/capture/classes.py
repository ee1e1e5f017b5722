"""Losses of classes that are given by their numbers: cross-entropy and the negative log-likelihood.

What a number picks of a row is a sum of which all terms but one are zero: it costs a comparison for
each class where the row is read anyway, and no access of its own. It picks what is known of a row
at its first reading, scores and not their logarithms, so that it takes no walk of its own. A number
that is no class, where eager ends with an error, gives NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from opweld.ir.graph import Node
from opweld.ir.ops import IotaAttrs, Op
from opweld.ir.types import DType

from .call import Call, Lower, NotWelded
from .folds import MEAN, NONE, float_operand, fold, returned
from .norms import log_total_of


@dataclass(frozen=True, slots=True)
class _Classes:
    """The classes along `axis` of scores, and the one of each row, where that axis has size 1.

    `chosen` says for each class of a row whether it is the one, `valid` of each row whether it is
    not to be ignored, `known` whether its number is a class.
    """

    call: Call
    axis: int
    chosen: Node
    valid: Node
    known: Node

    @staticmethod
    def of(call: Call, scores: Node) -> _Classes:
        target, axis = call.node("target"), 1 if scores.type.rank > 1 else 0
        shape, count = scores.type.shape, scores.type.shape[axis]
        if target.type.shape != (*shape[:axis], *shape[axis + 1 :]) or target.type.dtype.is_float:
            raise NotWelded(f"{call.name} of such a target is left to the library")
        row = (*shape[:axis], 1, *shape[axis + 1 :])
        number = call.build.cast(call.build.reshape(target, row), DType.I64)
        narrow = isinstance(count, int) and count < 2**31
        every = call.build.arena.iota(IotaAttrs(0, 1, count), DType.I32 if narrow else DType.I64)
        along = call.build.reshape(every, (count, *(1,) * (len(shape) - axis - 1)))
        ignored = call.const(call.number("ignore_index"), DType.I64)
        least = call.make(Op.GE, number, call.const(0, DType.I64))
        most = call.make(Op.LT, number, call.const(count, DType.I64))
        return _Classes(
            call,
            axis,
            # In 32 bits another number may look like one of a class: it is not `known`.
            chosen=call.make(Op.EQ, along, call.build.cast(number, every.type.dtype)),
            valid=call.make(Op.NE, number, ignored),
            known=call.make(Op.LOGICAL_AND, least, most),
        )

    def picked(self, values: Node) -> Node:
        """Of each row the value of its class."""
        zero = self.call.const(0, values.type.dtype)
        only = self.call.make(Op.WHERE, self.chosen, values, zero)
        return fold(self.call.build, Op.SUM, only, (self.axis,))

    def total(self, values: Node) -> Node:
        return fold(self.call.build, Op.SUM, values, (self.axis,))

    def checked(self, of_row: Node) -> Node:
        """0 for what is ignored, NaN for what is no class."""
        dtype = of_row.type.dtype
        known = self.call.make(Op.WHERE, self.known, of_row, self.call.const(math.nan, dtype))
        return self.call.make(Op.WHERE, self.valid, known, self.call.const(0, dtype))


def _condensed(call: Call, classes: _Classes, loss: Node, weight: Node) -> Node:
    """The losses of the rows, their sum, or their mean by the weights of the rows that count."""
    how = call.number("reduction")
    loss = classes.checked(loss)
    if how == NONE:
        return returned(call, loss)
    axes = tuple(range(loss.type.rank))
    total = fold(call.build, Op.SUM, loss, axes)
    if how == MEAN:
        zero = call.const(0, weight.type.dtype)
        counted = call.make(Op.WHERE, classes.valid, weight, zero)
        total = call.make(Op.DIV, total, fold(call.build, Op.SUM, counted, axes))
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
        """From all scores of a row, or from one."""
        for each in self.less:
            scores = self.call.make(Op.SUB, scores, each)
        return scores


def _likelihood(call: Call, logs: _Logs, smoothing: float) -> Node:
    """The loss of logarithms of probabilities."""
    scores = logs.scores
    classes = _Classes.of(call, scores)
    dtype, weights = scores.type.dtype, _weights(call, scores, classes.axis)
    loss = call.make(Op.NEG, logs.of(classes.picked(scores)))
    weight = call.build.expand(call.const(1, dtype), loss.type.shape)
    if weights is not None:
        weight = classes.picked(call.build.expand(weights, scores.type.shape))
        loss = call.make(Op.MUL, loss, weight)
    if smoothing:
        num_classes = scores.type.shape[classes.axis]
        if not isinstance(num_classes, int):
            raise NotWelded("a symbolic number of classes is left to the library")
        every = logs.of(scores)
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
