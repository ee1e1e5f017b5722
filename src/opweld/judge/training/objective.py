"""What is learnt: outputs are drawn towards random targets, by a loss that is the judge's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# A mean over many elements hides what they part by, so that losses are kept by parts of an output.
MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class Objective:
    """The mean of the outputs' mean squared distances from `targets`, in units of `scales`.

    Of every output that has gradients there are a target, float64 of its shape, and a scale, which
    is the size of its values before any step; None stands for the others. What the loss has as
    gradients is handed out times `factor`, a power of two by which float16 can hold them.
    """

    targets: tuple[Tensor | None, ...]
    scales: tuple[float, ...]
    factor: float

    @property
    def _num_learnt(self) -> int:
        return sum(target is not None for target in self.targets)

    def __call__(self, outputs: Sequence[Tensor]) -> tuple[Tensor, list[Tensor | None]]:
        """The losses of all parts, float64 of shape [parts]; and for each output the gradient of
        their mean, of its own dtype, times `factor`.
        """
        losses: list[Tensor] = []
        gradients: list[Tensor | None] = []
        for output, target, scale in zip(outputs, self.targets, self.scales, strict=True):
            if target is None:
                gradients.append(None)
                continue
            apart = (output.detach().double() - target) / scale
            losses.append(_parts(apart.square()))
            weight = 2.0 * self.factor / (scale * apart.numel() * self._num_learnt)
            gradients.append((apart * weight).to(output.dtype))
        return torch.cat(losses), gradients

    @staticmethod
    def beside(outputs: Sequence[Tensor], seed: int) -> Objective | None:
        """Targets as large as these outputs, those of the exact run before any step; None where no
        output is a floating-point tensor that has gradients.
        """
        generator = torch.Generator().manual_seed(seed)
        learnt = [t if _is_learnt(t) else None for t in outputs]
        if not any(t is not None for t in learnt):
            return None
        scales = [1.0 if t is None else _size(t) for t in learnt]
        targets = [
            None if t is None else scale * _drawn(t, generator)
            for t, scale in zip(learnt, scales, strict=True)
        ]
        least = min(s * t.numel() for s, t in zip(scales, targets, strict=True) if t is not None)
        return Objective(tuple(targets), tuple(scales), 2.0 ** round(math.log2(least)))


def _is_learnt(t: Tensor) -> bool:
    return t.requires_grad and t.is_floating_point() and t.numel() > 0


def _size(t: Tensor) -> float:
    """The root mean square of the values; 1 where that is no scale."""
    found = float(t.detach().double().square().mean().sqrt())
    return found if 0.0 < found < math.inf else 1.0


def _drawn(t: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.device)


def _parts(errors: Tensor) -> Tensor:
    """Means over parts of equal size, in the order of memory."""
    count = min(MOST_PARTS, errors.numel())
    return F.adaptive_avg_pool1d(errors.reshape(1, 1, -1), count).reshape(-1)
