"""Judging without a more precise run: against eager, within the error that eager has itself.

Eager's own error is estimated in one of two ways. A float64 original is run in float32 too: what it
loses there, in units of the last place, it loses in float64 as well. Anything else is run again on
inputs and weights moved by one unit of their last place. Where outputs are fewer than inputs, each
gathers several, and rounding every step of a sum of n moves the result by sqrt(n) units (a random
walk).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from opweld.judge.numerics.compare import format_of

# ModelNew and eager may err in opposite directions, each by a little more than was estimated.
MARGIN = 4.0
FLOAT32_TO_FLOAT64 = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps


@dataclass(slots=True)
class NoiseSums:
    """Running sums over the elements that are finite on all sides, for one output."""

    eps: float
    gathered: float = 1.0
    count: int = 0
    error_square: float = 0.0
    noise_square: float = 0.0
    value_square: float = 0.0
    error_max: float = 0.0
    noise_max: float = 0.0
    value_max: float = 0.0
    same_pattern: bool = True

    @classmethod
    def of(cls, output: Tensor, num_inputs: int = 0) -> NoiseSums:
        """Sums for an output made from `num_inputs` elements."""
        eps = format_of(output.dtype).eps
        return cls(eps, gathered=max(1.0, num_inputs / max(1, output.numel())))

    def add(self, new: Tensor, eager: Tensor, other: Tensor, scale: float) -> None:
        """Take in one draw; `scale` times the distance from eager to `other` is eager's error."""
        new, eager, other = (_real(t) for t in (new, eager, other))
        # where an ulp of the inputs tips the original over, either is right
        tipped = eager.isfinite() != other.isfinite()
        self.same_pattern &= bool(((new.isfinite() == eager.isfinite()) | tipped).all())
        finite = new.isfinite() & eager.isfinite() & other.isfinite()
        if not bool(finite.any()):
            return
        new, value, other = (t[finite].double() for t in (new, eager, other))
        error, noise = (new - value).abs_(), (other - value).abs_().mul_(scale)
        self.count += value.numel()
        self.error_square += float(error.dot(error))
        self.noise_square += float(noise.dot(noise))
        self.value_square += float(value.dot(value))
        self.error_max = max(self.error_max, float(error.max()))
        self.noise_max = max(self.noise_max, float(noise.max()))
        self.value_max = max(self.value_max, float(value.abs().max()))

    @property
    def fits(self) -> bool:
        """Whether root mean square and maximum stay within the margin of noise and rounding."""
        noise_rms, value_rms = math.sqrt(self.noise_square), math.sqrt(self.value_square)
        rounding = self.eps * math.sqrt(self.gathered)
        rms_limit = MARGIN * (noise_rms + rounding * value_rms)
        max_limit = MARGIN * (self.noise_max + rounding * self.value_max)
        small = math.sqrt(self.error_square) <= rms_limit and self.error_max <= max_limit
        return self.same_pattern and small

    @property
    def is_exact(self) -> bool:
        return self.same_pattern and self.error_max == 0


def _real(t: Tensor) -> Tensor:
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
