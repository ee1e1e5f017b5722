"""Error figures of one output tensor, gathered piece by piece so that little memory is needed.

Everything is computed in float64 on the device of the tensors. A piece is at most
`PIECE_ELEMS` elements; about ten float64 temporaries of that size live at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from opweld.judge.grade import Band, Figures, Format

PIECE_ELEMS = 2**22
BAND_BINADES = 8
_NUM_BANDS = 2200 // BAND_BINADES  # float64's exponents, -1074 to 1024, rounded up
_ULP_SAMPLES = 2**16

# torch.testing.assert_close's defaults: relative and absolute tolerance.
ASSERT_CLOSE = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}


def format_of(dtype: torch.dtype) -> Format:
    """The binary format of a floating-point dtype."""
    info = torch.finfo(dtype)
    return Format(
        precision=1 - round(math.log2(info.eps)),
        min_exponent=round(math.log2(info.smallest_normal)),
        bits=info.bits,
    )


def ulp(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The spacing of `dtype` at each float64 element, that of the least normal below it."""
    form = format_of(dtype)
    _, exponent = torch.frexp(value.abs())
    # frexp gives zero the exponent 0
    exponent = torch.where(value == 0, form.min_exponent, exponent - 1)
    exponent = torch.clamp(exponent, min=form.min_exponent) - (form.precision - 1)
    return torch.ldexp(torch.ones_like(value), exponent)


def pieces(shape: tuple[int, ...], limit: int = 0) -> Iterator[tuple[slice | int, ...]]:
    """Indices that cut a tensor of `shape` into row-major runs of at most `limit` elements.

    Without a limit it is `PIECE_ELEMS`.
    """
    limit = limit or PIECE_ELEMS
    count = math.prod(shape)
    if count <= limit or not shape:
        yield ()
        return
    row = count // shape[0]
    if row > limit:
        for index in range(shape[0]):
            for rest in pieces(shape[1:], limit):
                yield (index, *rest)
        return
    step = limit // row
    for start in range(0, shape[0], step):
        yield (slice(start, start + step),)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of one shape and dtype agree in every bit; any NaN equals any NaN."""
    return all(_same_piece(left[index], right[index]) for index in pieces(tuple(left.shape)))


def _same_piece(left: Tensor, right: Tensor) -> bool:
    if not (left.is_floating_point() or left.is_complex()):
        return bool(torch.equal(left, right))
    if left.is_complex():
        return _same_piece(torch.view_as_real(left), torch.view_as_real(right))
    same = (left == right) & (torch.signbit(left) == torch.signbit(right))
    return bool((same | (left.isnan() & right.isnan())).all())


@dataclass(slots=True)
class ErrorSums:
    """Running sums for one output of `dtype`; `add` pieces in row-major order, then `figures`."""

    dtype: torch.dtype
    count: int = 0
    num_seen: int = 0
    square: float = 0.0
    eager_square: float = 0.0
    half_ulp_square: float = 0.0
    value_square: float = 0.0
    max: float = 0.0
    eager_max: float = 0.0
    excess: float = 0.0
    max_ulp: float = 0.0
    num_special_wrong: int = 0
    num_zero_sign: int = 0
    close: bool = True
    first_special: int | None = None
    first_far: int | None = None
    worst_position: int | None = None
    ulp_samples: list[Tensor] = field(default_factory=list)
    bands: Tensor | None = None

    def add(self, new: Tensor, eager: Tensor, reference: Tensor) -> None:
        """Take in one piece; the three have one shape, `reference` is float64."""
        start = self.num_seen
        self.num_seen += new.numel()
        if new.numel() == 0:
            return
        new, eager, reference = (t.detach().reshape(-1).double() for t in (new, eager, reference))
        rounded = reference.to(self.dtype).double()
        ordinary = new.isfinite() & eager.isfinite() & rounded.isfinite()
        self._add_special(new, eager, reference, rounded, ~ordinary, start)
        self.num_zero_sign += int(
            ((new == 0) & (eager == 0) & (new.signbit() != eager.signbit())).sum()
        )
        self._add_close(new, eager, ordinary, start)
        self._add_ordinary(new, eager, reference, ordinary, start)

    def _add_special(
        self,
        new: Tensor,
        eager: Tensor,
        reference: Tensor,
        rounded: Tensor,
        special: Tensor,
        start: int,
    ) -> None:
        """NaN and infinities: eager's or the float64 run's is right, where they differ either.

        Where eager alone overflowed, a finite result has to be near the float64 one.
        """
        where = special.nonzero().reshape(-1)
        if where.numel() == 0:
            return
        new, eager, reference, rounded = (t[where] for t in (new, eager, reference, rounded))
        rtol, atol = ASSERT_CLOSE.get(self.dtype, (1e-2, 1e-5))
        finite = new.isfinite() & reference.isfinite()
        near = finite & ((new - reference).abs() <= atol + rtol * reference.abs())
        wrong = ~(_same_value(new, eager) | _same_value(new, rounded) | near)
        self.num_special_wrong += int(wrong.sum())
        if self.first_special is None and bool(wrong.any()):
            self.first_special = start + int(where[wrong.nonzero()[0]])

    def _add_close(self, new: Tensor, eager: Tensor, ordinary: Tensor, start: int) -> None:
        rtol, atol = ASSERT_CLOSE.get(self.dtype, (1e-2, 1e-5))
        far = ordinary & ~((new - eager).abs() <= atol + rtol * eager.abs())
        if not bool(far.any()):
            return
        self.close = False
        if self.first_far is None:
            self.first_far = start + int(far.nonzero()[0])

    def _add_ordinary(
        self, new: Tensor, eager: Tensor, reference: Tensor, ordinary: Tensor, start: int
    ) -> None:
        # Masked elements become equal values, so that they add nothing to any sum or maximum.
        reference = torch.where(ordinary, reference, 0.0)
        error = torch.where(ordinary, new - reference, 0.0).abs()
        eager_error = torch.where(ordinary, eager - reference, 0.0).abs()
        spacing = torch.where(ordinary, ulp(reference, self.dtype), 0.0)
        self.count += int(ordinary.sum())
        self.square += float((error * error).sum())
        self.eager_square += float((eager_error * eager_error).sum())
        self.half_ulp_square += float((spacing * spacing).sum()) / 4
        self.value_square += float((reference * reference).sum())
        self.eager_max = max(self.eager_max, float(eager_error.max()))
        excess, position = (error - spacing / 2).max(dim=0)
        if self.worst_position is None or float(excess) > self.excess:
            self.worst_position = start + int(position)
        self.excess = max(self.excess, float(excess))
        self.max = max(self.max, float(error.max()))
        self._add_ulps(torch.where(ordinary, error / spacing, 0.0))
        self._add_bands(reference, error, eager_error)

    def _add_ulps(self, ulps: Tensor) -> None:
        self.max_ulp = max(self.max_ulp, float(ulps.max()))
        self.ulp_samples.append(ulps[:: max(1, ulps.numel() // _ULP_SAMPLES)].cpu())

    def _add_bands(self, reference: Tensor, error: Tensor, eager_error: Tensor) -> None:
        _, exponent = torch.frexp(reference)
        band = torch.div(exponent + 1100, BAND_BINADES, rounding_mode="floor").long()
        band = torch.where(reference == 0, 0, band)
        sums = torch.stack(
            [
                torch.bincount(band, weights, minlength=_NUM_BANDS).double()
                for weights in (None, error * error, eager_error * eager_error)
            ]
        )
        self.bands = sums.cpu() if self.bands is None else self.bands + sums.cpu()

    def figures(self) -> Figures:
        """What the grade depends on."""
        count = max(self.count, 1)
        return Figures(
            format=format_of(self.dtype),
            count=self.count,
            rms=math.sqrt(self.square / count),
            max=self.max,
            excess=self.excess,
            eager_rms=math.sqrt(self.eager_square / count),
            eager_max=self.eager_max,
            half_ulp_rms=math.sqrt(self.half_ulp_square / count),
            close=self.close and not self.num_special_wrong,
            num_special_wrong=self.num_special_wrong,
            bands=tuple(self._bands()),
        )

    def _bands(self) -> Iterator[Band]:
        if self.bands is None:
            return
        least = format_of(self.dtype).min_exponent
        for position, (count, square, eager_square) in enumerate(self.bands.T.tolist()):
            exponent = position * BAND_BINADES - 1100
            # Band 0 holds the zeros; below the least normal an ulp is no longer relative.
            if count and position and exponent > least:
                scale = 2.0 ** min(exponent + BAND_BINADES - 1, 1023)
                yield Band(
                    int(count), scale, math.sqrt(square / count), math.sqrt(eager_square / count)
                )

    def quantiles(self) -> tuple[float, float]:
        """Median and 99th percentile of the errors in ulps, over a regular sample."""
        if not self.ulp_samples:
            return 0.0, 0.0
        sample = torch.cat(self.ulp_samples)
        sample = sample[:: max(1, sample.numel() // 2**22)]
        p50, p99 = torch.quantile(sample, torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
        return p50, p99

    @property
    def scale(self) -> float:
        """Root mean square of the float64 values."""
        return math.sqrt(self.value_square / max(self.count, 1))

    @property
    def first_bad(self) -> int | None:
        """The position to show for a failure: a wrong NaN, the first far element, the worst one."""
        for position in (self.first_special, self.first_far, self.worst_position):
            if position is not None:
                return position
        return None


def _same_value(left: Tensor, right: Tensor) -> Tensor:
    return (left == right) | (left.isnan() & right.isnan())
