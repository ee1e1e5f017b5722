"""Error figures of one output tensor, gathered piece by piece so that little memory is needed.

Everything is computed in float64 on the device of the tensors, in pieces of `PIECE_ELEMS` elements:
few enough on the CPU for its caches, and for its allocator to reuse the temporaries. Small pieces
are moved to the CPU, which costs one answer of the device instead of one for each figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from opweld.judge.numerics.grade import Band, Figures, Format, Rounding
from opweld.judge.numerics.statistics import freedom, weighted
from opweld.judge.sparse import dense_parts

PIECE_ELEMS = {"cpu": 2**19, "cuda": 2**23}
SMALL_ELEMS = 2**16
# A band is the numbers whose float64 exponents agree but for the last three bits.
BAND_BINADES, _NUM_BANDS = 8, 256
_EXPONENT_MASK = 0x7FF0_0000_0000_0000
_BAND_SHIFT, _BAND_MASK, _EXPONENT_BIAS = 52 + 3, _NUM_BANDS - 1, 1023
_ULP_SAMPLES = 2**14
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# An error of this much of the value, or one that is not finite, is no rounding.
_LOST = 0.5

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
    power_of_two = value.view(torch.int64).bitwise_and(_EXPONENT_MASK).view(torch.float64)
    return power_of_two.clamp_(min=2.0**form.min_exponent).mul_(form.eps)


def pieces(shape: tuple[int, ...], limit: int) -> Iterator[tuple[slice | int, ...]]:
    """Indices that cut a tensor of `shape` into row-major runs of at most `limit` elements."""
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


def pieces_of(t: Tensor) -> Iterator[tuple[slice | int, ...]]:
    """The pieces of a tensor, of the size that suits its device."""
    return pieces(tuple(t.shape), PIECE_ELEMS.get(t.device.type, PIECE_ELEMS["cpu"]))


def at_hand(*values: Tensor) -> tuple[Tensor, ...]:
    """Tensors of one size, on the CPU where they are small."""
    small = values[0].is_cuda and values[0].numel() <= SMALL_ELEMS
    return tuple(t.cpu() for t in values) if small else values


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of one shape and dtype agree in every bit; any NaN equals any NaN.

    Sparse ones have to be stored alike.
    """
    if left.layout is not right.layout:
        return False
    if left.layout is not torch.strided:
        parts = zip(dense_parts(left), dense_parts(right), strict=True)
        return all(a.shape == b.shape and same_bits(a, b) for a, b in parts)
    return all(_same_piece(left[index], right[index]) for index in pieces_of(left))


def _same_piece(left: Tensor, right: Tensor) -> bool:
    left, right = at_hand(left, right)
    if not (left.is_floating_point() or left.is_complex()):
        return bool(torch.equal(left, right))
    if left.is_complex():
        return _same_piece(torch.view_as_real(left), torch.view_as_real(right))
    if not (left.is_neg() or right.is_neg()):
        integer = _INTEGERS[left.element_size()]
        if torch.equal(left.view(integer), right.view(integer)):  # several times as fast
            return True
    same = (left == right) & (torch.signbit(left) == torch.signbit(right))
    return bool((same | (left.isnan() & right.isnan())).all())


def are_close(left: Tensor, right: Tensor) -> bool:
    """Whether every element is within `ASSERT_CLOSE` of the other's: float64 by its own tolerance,
    narrower floating-point numbers by float32's; NaN equals NaN. Others have to be equal.

    Two tensors of one shape; `left` may lie elsewhere, and is fetched in pieces.
    """
    return all(_close_piece(*at_hand(left[i], right[i])) for i in pieces_of(right))


def is_near(one: Tensor, other: Tensor, share: float) -> bool:
    """Whether they are finite in the same places, and differ there by this share of the other."""
    if not torch.equal(one.isfinite(), other.isfinite()):
        return False
    kind = torch.complex128 if one.is_complex() else torch.float64
    finite = (torch.where(t.isfinite(), t, 0).to(kind) for t in (one.detach(), other.detach()))
    one, other = finite
    return float((one - other).norm()) <= share * float(other.norm())


def _close_piece(left: Tensor, right: Tensor) -> bool:
    if right.is_complex():
        return _close_piece(*(torch.view_as_real(t.resolve_conj()) for t in (left, right)))
    if not right.is_floating_point():
        return torch.equal(left, right)
    wide = torch.float64 if right.dtype is torch.float64 else torch.float32
    rtol, atol = ASSERT_CLOSE[wide]
    left, right = left.to(wide), right.to(wide)
    beyond = (left - right).abs_().sub_(right.abs().mul_(rtol))
    if beyond.numel() == 0 or float(beyond.max()) <= atol:
        return True
    return bool(((beyond <= atol) & right.isfinite() | _same_value(left, right)).all())


@dataclass(slots=True)
class ErrorSums:
    """Running sums for one output of `dtype`; `add` pieces in row-major order, then `figures`.

    With `overflows`, where eager lost an element on the way to it, the other side may, too.
    `ulp_square`, `ulp_fourth` and `ulp_max` are of the ulps of elements that eager rounds.
    """

    dtype: torch.dtype
    overflows: bool = False
    count: int = 0
    num_seen: int = 0
    square: float = 0.0
    eager_square: float = 0.0
    half_ulp_square: float = 0.0
    ulp_square: float = 0.0
    ulp_fourth: float = 0.0
    value_square: float = 0.0
    max: float = 0.0
    eager_max: float = 0.0
    ulp_max: float = 0.0
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
    mean_squares: list[float] = field(default_factory=list)
    _before: tuple[int, float] = (0, 0.0)

    def end_draw(self) -> None:
        """All pieces of one draw were added: its errors are independent of the next one's."""
        count, square = self._before
        if self.count > count:
            self.mean_squares.append((self.eager_square - square) / (self.count - count))
        self._before = self.count, self.eager_square

    def add(self, new: Tensor, eager: Tensor, reference: Tensor) -> None:
        """Take in one piece; the three have one shape, `reference` is float64."""
        start = self.num_seen
        self.num_seen += new.numel()
        if new.numel() == 0:
            return
        flat = (t.detach().reshape(-1) for t in (new, eager, reference))
        new, eager, reference = at_hand(*flat)
        self._add_zeros(new, eager)
        new, eager, reference = new.double(), eager.double(), reference.double()
        # a sum is finite only where every term is
        if not bool((new + eager).add_(reference.to(self.dtype)).sum().isfinite()):
            new, eager, reference = self._add_special(new, eager, reference, start)
        self._add_close(new, eager, start)
        self._add_ordinary(new, eager, reference, start)
        self.count += new.numel()

    def _add_zeros(self, new: Tensor, eager: Tensor) -> None:
        zero = new == 0
        if bool(zero.any()):
            other = new.signbit() != eager.signbit()
            self.num_zero_sign += int((zero & (eager == 0) & other).sum())

    def _add_special(
        self, new: Tensor, eager: Tensor, reference: Tensor, start: int
    ) -> list[Tensor]:
        """NaN and infinities: eager's or the float64 run's is right, where they differ either.

        Where eager alone overflowed, a finite result has to be near the float64 one. The result is
        the three with such elements made equal zeros, which add nothing to a sum or a maximum.
        """
        rounded = reference.to(self.dtype).double()
        ordinary = new.isfinite() & eager.isfinite() & rounded.isfinite()
        finite = new.isfinite() & reference.isfinite()
        rtol, atol = ASSERT_CLOSE.get(self.dtype, (1e-2, 1e-5))
        near = finite & ((new - reference).abs() <= atol + rtol * reference.abs())
        right = ordinary | near | _same_value(new, eager) | _same_value(new, rounded)
        if self.overflows:
            right |= rounded.isfinite() & ~((eager - reference).abs() <= _LOST * reference.abs())
        wrong = (~right).nonzero().reshape(-1)
        self.num_special_wrong += wrong.numel()
        if self.first_special is None and wrong.numel():
            self.first_special = start + int(wrong[0])
        self.count -= int((~ordinary).sum())
        return [torch.where(ordinary, t, 0.0) for t in (new, eager, reference)]

    def _add_close(self, new: Tensor, eager: Tensor, start: int) -> None:
        rtol, atol = ASSERT_CLOSE.get(self.dtype, (1e-2, 1e-5))
        beyond = (new - eager).abs_().sub_(eager.abs().mul_(rtol))
        if float(beyond.max()) <= atol:
            return
        self.close = False
        if self.first_far is None:
            self.first_far = start + int((beyond > atol).nonzero()[0])

    def _add_ordinary(self, new: Tensor, eager: Tensor, reference: Tensor, start: int) -> None:
        error = (new - reference).abs_()
        eager_error = (eager - reference).abs_()
        spacing = ulp(reference, self.dtype)
        squares = [t.dot(t) for t in (error, eager_error, spacing, reference)]
        largest = [error.max(), eager_error.max()]
        self._add_bands(reference, error, eager_error)
        rounded = eager_error.sign_().mul_(spacing)  # the ulps of what eager does not have exactly
        largest.append(rounded.max())
        squares += [rounded.dot(rounded), rounded.square_().dot(rounded)]
        excess, position = torch.sub(error, spacing, alpha=0.5).max(dim=0)
        ulps = error.div_(spacing)
        self._add_figures([*squares, *largest, ulps.max(), excess, position.double()], start)
        self.ulp_samples.append(ulps[:: max(1, ulps.numel() // _ULP_SAMPLES)].cpu())

    def _add_figures(self, figures: list[Tensor], start: int) -> None:
        """Numbers that the device has, which is waited for once."""
        found = torch.stack(figures).tolist()
        error, eager, spacing, value, rounded, fourth = found[:6]
        most, eager_most, rounded_most, ulps, excess, position = found[6:]
        self.square += error
        self.eager_square += eager
        self.half_ulp_square += spacing / 4
        self.ulp_square += rounded
        self.ulp_fourth += fourth
        self.value_square += value
        self.max = max(self.max, most)
        self.eager_max = max(self.eager_max, eager_most)
        self.ulp_max = max(self.ulp_max, rounded_most)
        self.max_ulp = max(self.max_ulp, ulps)
        if self.worst_position is None or excess > self.excess:
            self.worst_position = start + int(position)
        self.excess = max(self.excess, excess)

    def _add_bands(self, reference: Tensor, error: Tensor, eager_error: Tensor) -> None:
        band = reference.view(torch.int64).bitwise_right_shift(_BAND_SHIFT)
        band = band.bitwise_and_(_BAND_MASK)
        weights = (None, error * error, eager_error * eager_error)
        sums = [torch.bincount(band, w, minlength=_NUM_BANDS).double() for w in weights]
        total = torch.stack(sums).cpu()
        self.bands = total if self.bands is None else self.bands + total

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
            rounding=self._rounding(count),
            close=self.close and not self.num_special_wrong,
            num_special_wrong=self.num_special_wrong,
            bands=tuple(self._bands()),
            scale=self.scale,
            freedom=freedom(self.mean_squares, self.count),
        )

    def _rounding(self, count: int) -> Rounding:
        # an error of correct rounding is uniform over one ulp
        rms = math.sqrt(self.ulp_square / 12 / count)
        return Rounding(rms, self.ulp_max / 2, weighted(self.ulp_square, self.ulp_fourth))

    def _bands(self) -> Iterator[Band]:
        if self.bands is None:
            return
        least = format_of(self.dtype).min_exponent
        for position, (count, square, eager_square) in enumerate(self.bands.T.tolist()):
            exponent = position * BAND_BINADES - _EXPONENT_BIAS
            # Band 0 holds the zeros; below the least normal an ulp is no longer relative.
            if count and position and exponent > least:
                scale = 2.0 ** min(exponent + BAND_BINADES, 1023)
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
