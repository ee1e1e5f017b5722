"""What one seed trains, whichever side it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from opweld.judge.load import Call
from opweld.judge.training.objective import Objective
from opweld.judge.training.trainees import Start, Trainee
from opweld.judge.verify.seeds import stream


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one seed trains: the weights at first, the batches, and how each is learnt from.

    `still` are the losses of each batch for weights that stay what they are.
    """

    seed: int
    start: Start
    calls: tuple[Call, ...]
    objectives: tuple[Objective, ...]
    still: tuple[Tensor, ...]

    def step(self, side: Trainee, number: int, rates: Mapping[str, float]) -> Tensor:
        """Has a side make a step; the losses before it."""
        at = number % len(self.calls)
        losses, given = self.objectives[at](side.forward(self.calls[at], self.seed_of(number)))
        gradients, factor = side.backward(given), self.objectives[at].factor
        side.learn({name: g / factor for name, g in gradients.items()}, rates)
        return losses

    def slopes(self, side: Trainee) -> dict[str, Tensor]:
        """The gradients of the first batch."""
        _, given = self.objectives[0](side.forward(self.calls[0], self.seed_of(0)))
        factor = self.objectives[0].factor
        return {name: g / factor for name, g in side.backward(given).items()}

    def seed_of(self, number: int) -> int:
        """Of the random numbers that a forward draws."""
        return stream(self.seed, "step", number)
