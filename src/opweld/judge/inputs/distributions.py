"""What the floating-point tensors of an input are filled with: one function for each kind.

A fill takes standard normal numbers and a generator for what else it draws, changes the numbers in
place, and returns them. Complex tensors are taken too; where a kind has no meaning for them they
stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Fill = Callable[[Tensor, torch.Generator], Tensor]

_ZERO_SHARE = 0.9
_HUGE = 1e6
_LARGEST_TF32 = (2 - 2**-10) * 2.0**127
_MIN_SPECIAL_ROWS = 4
# What a binary logarithm is divided by: the product of a million numbers stays in float32's range.
_NEAR = 64.0


def normal(x: Tensor, generator: torch.Generator) -> Tensor:
    return x


def positive(x: Tensor, generator: torch.Generator) -> Tensor:
    return x if x.is_complex() else x.abs_()


def large(x: Tensor, generator: torch.Generator) -> Tensor:
    return x.mul_(1e3)


def tiny(x: Tensor, generator: torch.Generator) -> Tensor:
    """About 1e-6, every eighth element about the least normal number: half of these subnormal."""
    x.mul_(1e-6)
    eighth = x.view(-1)[::8]
    if not x.is_complex():
        eighth.mul_(1e6).mul_(torch.finfo(x.dtype).smallest_normal)
    return x


def sparse(x: Tensor, generator: torch.Generator) -> Tensor:
    """Nine of ten elements are zero, with the sign that the number had."""
    drawn = torch.rand(x.shape, generator=generator, device=x.device)
    return x.mul_(drawn.gt_(_ZERO_SHARE).to(x.dtype))


def constant_rows(x: Tensor, generator: torch.Generator) -> Tensor:
    """One number for each row (the last dimension), of eight significant bits.

    So few bits that sums of up to 2^16 of them are exact in float32 in any order: what a mean or a
    variance leaves over is then the formula's, not chance.
    """
    if not x.dim() or x.numel() == 0 or x.is_complex():
        return x
    first = x[..., :1].to(torch.bfloat16).to(x.dtype)
    return x.copy_(first.expand(x.shape))


def one_huge(x: Tensor, generator: torch.Generator) -> Tensor:
    """One element of each row is 1e6 in magnitude, or an eighth of the largest number."""
    if not x.dim() or x.numel() == 0 or x.is_complex():
        return x
    rows = x.view(-1, x.shape[-1])
    column = torch.randint(x.shape[-1], (rows.shape[0], 1), generator=generator, device=x.device)
    huge = min(_HUGE, torch.finfo(x.dtype).max / 8)
    rows.scatter_(1, column, torch.copysign(torch.full_like(rows[:, :1], huge), rows[:, :1]))
    return x


def one_largest(x: Tensor, generator: torch.Generator) -> Tensor:
    """One element is the largest number: two might overflow together or not, by the order.

    Of float32 it is the largest of TF32, as the next ones are infinite where a convolution rounds
    to that, which it does in one layout and not in another.
    """
    if x.numel() and not x.is_complex():
        largest = _LARGEST_TF32 if x.dtype is torch.float32 else torch.finfo(x.dtype).max
        x.view(-1)[x.numel() // 2] = largest
    return x


def special(x: Tensor, generator: torch.Generator) -> Tensor:
    """Every fourth row has one element that is not finite, a zero of either sign or subnormal.

    One to a row, so that a sum over it has one value in any order. A single row gets NaN first.
    """
    if x.numel() == 0 or x.is_complex():
        return x
    info = torch.finfo(x.dtype)
    least = info.smallest_normal * info.eps
    values = [math.nan, math.inf, -math.inf, -0.0, 0.0, least, -least]
    rows = x.view(-1, x.shape[-1]) if x.dim() else x.view(1, 1)
    if rows.shape[0] < _MIN_SPECIAL_ROWS:
        _place(x.view(-1)[3 % x.numel() :: 61], values)
        return x
    affected = rows[1::4]
    columns = torch.arange(affected.shape[0], device=x.device).mul_(7).remainder_(x.shape[-1])
    columns[::3] = x.shape[-1] - 1  # where a vectorised loop has its tail
    chosen = torch.empty(affected.shape[0], dtype=x.dtype, device=x.device)
    _place(chosen, values)
    affected.scatter_(1, columns[:, None], chosen[:, None])
    return x


def near_one(fill: Fill) -> Fill:
    """The same with the numbers that it is given all close to one in magnitude: products of many
    neither overflow nor vanish, whatever their order.
    """

    def filled(x: Tensor, generator: torch.Generator) -> Tensor:
        if not x.is_complex():
            x.copy_(torch.copysign(torch.exp2(x / _NEAR), x))
        return fill(x, generator)

    return filled


def infinite_rows(x: Tensor, generator: torch.Generator) -> Tensor:
    """The first row (the last dimension) is -Inf as a whole, and the third is Inf."""
    if not x.dim() or x.numel() == 0 or x.is_complex():
        return x
    rows = x.view(-1, x.shape[-1])
    rows[:1], rows[2:3] = -math.inf, math.inf
    return x


def _place(target: Tensor, values: list[float]) -> None:
    """Fill with some values, over and over."""
    repeats = -(-target.numel() // len(values))
    cycle = torch.tensor(values, dtype=target.dtype, device=target.device).repeat(repeats)
    target.copy_(cycle[: target.numel()])
