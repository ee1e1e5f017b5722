"""How far the losses of each side are from the reference's, and what is made of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from opweld.judge.load import NEW
from opweld.judge.training.trainees import NotTrained
from opweld.judge.values import LOSS_CURVES, Check, LossCurves

# The median distance from the curve of float64 that is allowed, over eager's.
ALLOWED = 1.5
# A single seed may be so much farther away than any of eager's.
FAR = 10.0
# A seed that is so far away, of the distance of weights that nothing changes, is no chance. Less
# may be: where an activation's slope jumps, one rounding may turn one gradient.
GROSS = 0.01
# What no distance counts below, in roundings of float64 to the first loss: a model in float64 may
# part from itself by these.
FLOOR_ULPS = 16.0
# Batches that are learnt in turns.
NUM_BATCHES = 4
# One of the sides: weights that nothing changes.
STILL = "still"
NOT_FINITE = "the original's own loss is not finite"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The check, and the figures where there are any; it `is_close` where chance may have made it
    fail.
    """

    check: Check
    curves: LossCurves | None = None
    is_close: bool = False


@dataclass(slots=True)
class Distances:
    """Of one seed: sums of squared distances from the reference's losses, by side."""

    squares: dict[str, float] = field(default_factory=dict)
    count: int = 0
    losses: list[float] = field(default_factory=list)

    def add(self, losses: Mapping[str, Tensor], reference: str) -> None:
        """The losses of the parts, float64 of shape [parts], of each side at one step."""
        exact = losses[reference]
        for name, each in losses.items():
            square = float((each - exact).square().sum())
            self.squares[name] = self.squares.get(name, 0.0) + square
        self.losses.append(float(exact.mean()))
        self.count += exact.numel()

    @property
    def is_finite(self) -> bool:
        """Whether the reference has a loss at every step."""
        return all(map(math.isfinite, self.losses))

    @property
    def first(self) -> float:
        """The reference's loss over all batches, at first."""
        return statistics.mean(self.losses[:NUM_BATCHES])

    @property
    def last(self) -> float:
        """The same in the end."""
        return statistics.mean(self.losses[-NUM_BATCHES:])

    def of(self, name: str) -> float:
        """The root mean square; what is not finite is infinitely far."""
        found = math.sqrt(self.squares[name] / self.count)
        return found if math.isfinite(found) else math.inf


def concluded(
    found: Sequence[Distances], reference: str, num_steps: int, asked_steps: int
) -> Outcome:
    """The median of all seeds against that of eager, or of eager from weights that are others by
    roundings, whichever is farther. A seed from which the reference's loss is not finite does not
    count.

    Raises:
        NotTrained: most seeds do not count, or what learns nothing would pass.
    """
    num_seeds, found = len(found), [each for each in found if each.is_finite]
    if len(found) <= num_seeds // 2:
        raise NotTrained(NOT_FINITE)
    first, last = (
        statistics.median(t) for t in zip(*((d.first, d.last) for d in found), strict=True)
    )
    floor = FLOOR_ULPS * torch.finfo(torch.float64).eps * first
    standards = [n for n in found[0].squares if n not in (NEW, STILL, reference)]

    def middle(name: str) -> float:
        return statistics.median(d.of(name) for d in found)

    allowed = max(floor, *map(middle, standards))
    farthest = max(floor, *(d.of(name) for d in found for name in standards))
    new, still, worst = middle(NEW), middle(STILL), max(d.of(NEW) for d in found)
    if math.isinf(allowed):
        raise NotTrained(NOT_FINITE)
    curves = LossCurves(
        len(found), num_steps, asked_steps, reference, first, last, new, allowed, new / allowed
    )
    told = curves.describe()
    is_far = worst > FAR * farthest
    if is_far or new > ALLOWED * allowed:
        of_worst = f", {worst:.2g} in the worst seed" if is_far else ""
        check = Check(LOSS_CURVES, False, f"ModelNew learns otherwise: {told}{of_worst}")
        return Outcome(check, curves, is_close=worst <= max(FAR * farthest, GROSS * still))
    if still <= ALLOWED * allowed:
        raise NotTrained(
            f"what learns nothing would pass, {still:.2g} from {reference}'s losses;"
            f" eager is {allowed:.2g}"
        )
    return Outcome(Check(LOSS_CURVES, True, told), curves)
