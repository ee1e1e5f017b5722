"""Folds that take in several elements at once: they first ask for the largest, or for the mean.

And which folds are told from the state of another one.
"""

from __future__ import annotations

from ..ir.kernels.reduction import Fold, Folding, Walk
from ..ir.ops import Op

CHUNKED = (Op.SUMEXP, Op.DEVSQ)
SCANNED_PLACES = (Op.CUMMAX_PLACE, Op.CUMMIN_PLACE)
_BESIDE = {
    Op.AMAX: Op.SUMEXP,
    Op.SUM: Op.DEVSQ,
    Op.MEAN: Op.DEVSQ,
    Op.CUMMAX: Op.CUMMAX_PLACE,
    Op.CUMMIN: Op.CUMMIN_PLACE,
}
# How fold.h tells a fold from the state of one that holds it, too.
TOLD_BESIDE = {Op.AMAX: "largest_told", Op.SUM: "sum_told", Op.MEAN: "mean_told"}


def takes_chunks(walk: Walk) -> bool:
    return any(fold.op in CHUNKED for fold in walk.folds)


def has_chunks(folding: Folding) -> bool:
    return any(takes_chunks(step.walk) for step in folding.steps)


def told_beside(fold: Fold, walk: Walk) -> Fold | None:
    """The fold of the same values whose state holds this one, too."""
    results = walk.kernel.element.results
    return next(
        (
            other
            for other in walk.folds
            if other.op is _BESIDE.get(fold.op) and results[other.result] == results[fold.result]
        ),
        None,
    )


def needs_length(walk: Walk) -> bool:
    """Whether a fold is told from its state and the number of elements."""
    return any(fold.op is Op.MEAN for fold in own_folds(walk))


def own_folds(walk: Walk) -> tuple[Fold, ...]:
    """Those that have a state of their own."""
    return tuple(fold for fold in walk.folds if told_beside(fold, walk) is None)
