"""The optimizer's rates: by which the loss moves, and calmly, for curves that part by chaos tell
nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from torch import Tensor

from opweld.judge.training.lesson import Lesson
from opweld.judge.training.trainees import Local, NotTrained, Weights

# The share of its size by which each weight moves in the first step: the first that brings the
# loss down; or the first that does not bring it far up.
_SHARES = (1e-3, 2e-4, 4e-5, 8e-6)
# So many steps are tried; a loss may be so many times what it is for weights that stay.
_TRIED_STEPS, _MOST = 24, 1.5
# Gradients of weights that hardly matter are roundings: they count as this share of the largest.
_LEAST_PULL = 1e-3


def share_for(
    lesson: Lesson, side: Callable[[], Local], units: Mapping[str, float], deadline: float
) -> float:
    """The share of its size by which each weight is to move at first; `side` makes the reference,
    and `units` are the rates for a share of 1. No steps are tried behind the `deadline`.
    """
    calm = []
    for share in _SHARES:
        losses, still = _tried(lesson, side(), {n: share * u for n, u in units.items()}, deadline)
        if not all(loss <= _MOST * max(still) for loss in losses):
            continue
        calm.append(share)
        half = len(losses) // 2
        if sum(losses[half:]) <= sum(still[half:]):
            return share
    return calm[0] if calm else _SHARES[-1]


def _tried(
    lesson: Lesson, side: Local, rates: Mapping[str, float], deadline: float
) -> tuple[list[float], list[float]]:
    """The losses of some steps, and what they are for weights that stay."""
    losses: list[float] = []
    still = [float(each.mean()) for each in lesson.still]
    while len(losses) < _TRIED_STEPS and time.monotonic() < deadline:
        losses.append(float(lesson.step(side, len(losses), rates).mean()))
    return losses, [still[step % len(still)] for step in range(max(1, len(losses)))]


def unit_rates(weights: Weights, slopes: Mapping[str, Tensor]) -> dict[str, float]:
    """Rates by which each weight moves by its own size, root mean squares both, in one step.

    Raises:
        NotTrained: no weight has a slope, or one is not finite.
    """
    rms = {name: float(w.square().mean().sqrt()) for name, w in weights.items() if w.numel()}
    largest = max(rms.values(), default=0.0) or 1.0
    sizes = {name: rms.get(name) or 0.1 * largest for name in weights}
    steep = {n: float(slopes[n].square().mean().sqrt()) if n in slopes else 0.0 for n in rms}
    pulls = {name: steep[name] * sizes[name] * weights[name].numel() for name in steep}
    if not all(map(math.isfinite, pulls.values())):
        raise NotTrained("gradients of the original are not finite")
    most = max(pulls.values(), default=0.0)
    if most == 0.0:
        raise NotTrained("the loss of the original has no slope")
    least = {n: _LEAST_PULL * most / (sizes[n] * weights[n].numel()) for n in steep}
    return {n: sizes[n] / max(steep[n], least[n]) if n in steep else 0.0 for n in weights}
