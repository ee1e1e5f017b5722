"""Runs op::convolve_transposed on the CPU: a text with a functor for each form, and calls of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tests.emulation import distributions
from tests.emulation.convolutions import CHAIN, NARROW, Form, normal
from tests.emulation.distributions import chain_of_fmas, error, exact, rounded
from tests.emulation.emulate import emulate
from tests.emulation.products import reach

from opweld.device import pieces
from opweld.device.used import used

# One result is the sum itself; the other says what was read beside it, and that it is +-0 where the
# kernel hands over zeros.
FUNCTOR = """
struct {name}_element {{
  using Operands = op::Types<op::Along<const float, {axes}>, op::Along<const float, {last}>,
                             op::Along<float, {axes}>, op::Along<float, {axes}>>;
  static constexpr int kRank = {rank}, kWidth = {lanes};
  static inline op::TransposedWindows<{space}, {phases}> kWindows;
  OPWELD_FN void of(float product, float residual, float shift, float& result, float& beside) {{
    result = product;
    beside = residual + shift;
  }}
}};
struct {name}_views {{
  TensorView all[6];
  {name}_views(const int64_t* n, const void* x, const void* weight, const void* residual,
               const void* shift, void* result, void* beside) {{
    const void* data[6] = {{x, weight, residual, shift, result, beside}};
    for (int i = 0; i < 6; ++i) {{
      const int rank = i == 3 ? 1 : {rank};
      all[i] = {{const_cast<void*>(data[i]), op::type_of<float>, rank, n, n + rank}}, n += 2 * rank;
    }}
    auto& windows = {name}_element::kWindows;
    for (int i = 0; i < {rank}; ++i) windows.axes[i] = i;
    for (int i = 0; i < {space}; ++i) windows.stride[i] = int(n[i]);
    for (int i = 0; i < {space}; ++i) windows.padding[i] = int(n[{space} + i]);
    for (int i = 0; i < {space}; ++i) windows.dilation[i] = int(n[2 * {space} + i]);
  }}
}};
extern "C" int {name}(const void* x, const void* weight, const void* residual, const void* shift,
                      const int64_t* numbers, void* result, void* beside, void* workspace,
                      void* stream) {{
  const {name}_views views(numbers, x, weight, residual, shift, result, beside);
  const auto& all = views.all;
  return op::convolve_transposed<{name}_element, {form}>(
      all[0], all[1], {{all[2], all[3], all[4], all[5]}}, workspace, stream);
}}
extern "C" int {name}_needs(const int64_t* numbers, void* bytes, void*) {{
  const {name}_views views(numbers, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  const auto& all = views.all;
  *static_cast<int64_t*>(bytes) =
      op::transposed_bytes<{name}_element, {form}>(all[0], all[1], all[5]);
  return 0;
}}
"""
# The float32 kernel makes every phase.
CHAINS = """
struct Chain : op::WindowTiles<op::Tf32, 2, 64> {
  static bool takes(const op::Convolution&) { return false; }
};
"""


def name_of(form: Form, space: int, lanes: int, phases: int = 1) -> str:
    return f"transposed_{form.name}_{space}_{lanes}_{phases}"


@cache
def text(form: Form, space: int = 2, lanes: tuple[int, ...] = (1, 4), phases: int = 1) -> str:
    """The device library's part and a launcher for each number of lanes, of `space` axes, with so
    many `phases` as columns of a filter.
    """
    numbers = {"form": form.type, "space": space, "rank": space + 2, "last": space + 1}
    numbers["phases"] = phases
    axes = ", ".join(map(str, range(space + 2)))
    users = [
        FUNCTOR.format(name=name_of(form, space, count, phases), lanes=count, axes=axes, **numbers)
        for count in lanes
    ]
    is_chain = form == CHAIN
    needed = ["WindowTiles", "Tf32" if is_chain else form.mode, "convolve_transposed"]
    needed += ["wgmma_half_64_typed"] if form.columns == 64 else []
    users = [*([CHAINS] if is_chain else []), *users]
    return "\n".join([*used(pieces(needed), users), *users])


@dataclass(frozen=True, slots=True)
class Case:
    """x[batch, channels, *size] and weight[channels, filters, *kernel], a number of the others for
    each axis of space; `more` pixels of the result are behind the last.
    """

    batch: int
    channels: int
    size: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    more: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        x = normal(self.batch, self.channels, *self.size)
        return x, normal(self.channels, self.filters, *self.kernel, seed=1)

    @property
    def out(self) -> tuple[int, ...]:
        axes = zip(
            self.size,
            self.kernel,
            self.stride,
            self.padding,
            self.more,
            self.dilation,
            strict=True,
        )
        return tuple((n - 1) * s - 2 * p + d * (k - 1) + m + 1 for n, k, s, p, m, d in axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, *self.out, self.filters)

    def matrices(self, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[1, output pixels, k] of the pixels that taps bring, and [1, filters, k]: k = (channel,
        tap).
        """
        filters = np.moveaxis(weight, 1, 0).reshape(1, self.filters, -1)
        return self._brought(x).reshape(1, -1, filters.shape[-1]), filters

    def _brought(self, x: np.ndarray) -> np.ndarray:
        """[batch, *out, channels, *kernel]"""
        padded = np.zeros((*x.shape[:2], *(n + 1 for n in self.size)), x.dtype)
        padded[(..., *(slice(n) for n in self.size))] = x
        found = padded
        for axis, size in enumerate(self.size):
            found = np.take(found, self._pixels(axis, size), axis=2 + 2 * axis)
        places = [2 + 2 * axis for axis in range(len(self.size))]
        return np.transpose(found, (0, *places, 1, *(place + 1 for place in places)))

    def _pixels(self, axis: int, size: int) -> np.ndarray:
        """By output pixel and tap; `size` where there is none."""
        out, taps = np.arange(self.out[axis]), np.arange(self.kernel[axis])
        at = out[:, None] + self.padding[axis] - taps * self.dilation[axis]
        pixel = at // self.stride[axis]
        there = (at % self.stride[axis] == 0) & (pixel >= 0) & (pixel < size)
        return np.where(there, pixel, size)

    def reached(self, pixels: np.ndarray) -> np.ndarray:
        """Which output pixels a tap brings one of these to; [batch, *size], [batch, *out]."""
        return self._brought(pixels[:, None]).reshape(self.batch, *self.out, -1).any(-1)


def same(space: int, value: int) -> tuple[int, ...]:
    return (value,) * space


def case(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int = 1,
    padding: int = 0,
    more: int = 0,
    dilation: int = 1,
    *,
    batch: int = 1,
    channels: int = 40,
    filters: int = 36,
) -> Case:
    """With the same numbers along all axes."""
    each = (same(len(size), value) for value in (stride, padding, more, dilation))
    return Case(batch, channels, size, filters, kernel, *each)


def drawn(seed: int, space: int, *, many: bool = False) -> Case:
    """One of up to some hundred output pixels; of `many` channels and filters where the mean of
    errors is to tell anything.
    """
    random = np.random.default_rng(seed)

    def each(*values: int) -> tuple[int, ...]:
        return tuple(int(value) for value in random.choice(values, space))

    stride, dilation = each(1, 2, 2, 3) if space > 1 else each(1, 2, 3, 5, 8), each(1, 1, 2, 3)
    kernel = each(1, 2, 3, 4, 5) if space < 3 else each(1, 2, 3)
    most = {1: 60, 2: 8, 3: 4}[space]
    while True:
        size, padding = each(*range(1, most + 1)), each(0, 0, 1, 2, 3)
        more = tuple(
            int(random.integers(0, max(s, d))) for s, d in zip(stride, dilation, strict=True)
        )
        channels = int(random.choice((64, 65, 70, 130) if many else (33, 64, 65, 70, 130)))
        filters = int(random.choice((36, 64, 65, 130) if many else (1, 5, 36, 64, 65, 130)))
        batch = int(random.choice((1, 2)))
        made = Case(batch, channels, size, filters, kernel, stride, padding, more, dilation)
        if min(made.out) > 0 and made.reached(np.ones((batch, *size), bool)).any():
            return made


def numbers_of(how: Case, x: np.ndarray, weight: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Sizes and strides of the operands, x with its channels last, and the windows."""
    numbers: list[int] = []
    for each in (np.moveaxis(x, 1, -1), weight, *others):
        numbers += [*each.shape, *(step // each.itemsize for step in each.strides)]
    return np.array([*numbers, *how.stride, *how.padding, *how.dilation], np.int64)


def _memory(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(x, (reach(x),), (x.itemsize,)).copy()


def others_of(
    how: Case, residual: np.ndarray | None = None, channels_first: bool = False
) -> list[np.ndarray]:
    """What the functor reads, and its results full of NaN."""
    shift = np.arange(1, how.filters + 1, dtype=np.float32)
    if residual is None:
        count = int(np.prod(how.shape))
        residual = (1000 * np.arange(1, count + 1, dtype=np.float32)).reshape(how.shape)
    shape = (how.batch, how.filters, *how.out) if channels_first else how.shape
    results = [np.full(shape, np.nan, np.float32) for _ in range(2)]
    if channels_first:
        results = [np.moveaxis(each, 1, -1) for each in results]
    return [residual, shift, *results]


def workspace_bytes(how: Case, form: Form = NARROW, phases: int = 1, **options: Any) -> int:
    """What a call needs."""
    x, weight = how.operands
    numbers, found = numbers_of(how, x, weight, *others_of(how)), np.zeros(1, np.int64)
    space = len(how.size)
    launcher = f"{name_of(form, space, 1, phases)}_needs"
    emulate(text(form, space, phases=phases), launcher, [numbers, found], **options)
    return int(found[0])


def convolve(
    x: np.ndarray,
    weight: np.ndarray,
    how: Case,
    *,
    form: Form = NARROW,
    lanes: int | None = None,
    residual: np.ndarray | None = None,
    source: str | None = None,
    phases: int = 1,
    channels_first: bool = False,
    multiprocessors: int = 4,
    **options: Any,
) -> np.ndarray:
    """The transposed convolution of x[image, channel, *space], as [image, *space, filter]. Results
    and workspace are full of NaN before; what stands beside the sums was read at their places.
    """
    space, options = len(how.size), options | {"multiprocessors": multiprocessors}
    others = others_of(how, residual, channels_first)
    lanes = lanes or (1 if how.filters % 4 else 4)
    name = name_of(form, space, lanes, phases)
    source = source or text(form, space, phases=phases)
    numbers, bytes_ = numbers_of(how, x, weight, *others), np.zeros(1, np.int64)
    emulate(source, f"{name}_needs", [numbers, bytes_], **options)
    workspace = np.full(int(bytes_[0]) // 4, np.nan, np.float32)
    operands = [_memory(each) for each in (x, weight, *others[:2])]
    result, beside = others[2:]
    written = [np.moveaxis(each, -1, 1) if channels_first else each for each in others[2:]]
    emulate(source, name, [*operands, numbers, *written, workspace], **options)
    np.testing.assert_array_equal(beside, np.broadcast_to(others[0] + others[1], how.shape))
    return result


# --- beside float64 ---


def flat(found: np.ndarray) -> np.ndarray:
    return found.reshape(1, -1, found.shape[-1])


def require_as_exact(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Case) -> None:
    """As exact as operands rounded to 11 bits, summed exactly, and 2^-22 for the sums."""
    a, b = how.matrices(x, weight)
    limit = 1.01 * error(exact(rounded(a), rounded(b)), a, b) + 2.0**-22
    assert error(flat(found), a, b) <= limit


def require_of_11_bits(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Case) -> None:
    """Of rounded operands: no float32 kernel has made it."""
    a, b = how.matrices(x, weight)
    assert error(flat(found), rounded(a), rounded(b)) <= 2.0**-20 < error(flat(found), a, b)


def require_faithful(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Case) -> None:
    """As exact as one chain of fused multiply-adds."""
    a, b = how.matrices(x, weight)
    assert error(flat(found), a, b) <= error(chain_of_fmas(a, b), a, b)


def require_float32_where(
    odd_x: np.ndarray, odd_weight: np.ndarray, found: np.ndarray, how: Case, *operands: np.ndarray
) -> None:
    """Elements of what is odd in either operand are as exact as float32 sums; see
    distributions.require_float32_where.
    """
    a, b = how.matrices(*operands)
    odd_a, odd_b = how.matrices(odd_x.astype(np.float32), odd_weight.astype(np.float32))
    shown, _ = how.matrices(np.ones_like(operands[0]), operands[1])
    odd = exact(odd_a, np.ones_like(b)) + exact(shown, odd_b) > 0
    distributions.require_float32_where(odd, flat(found), a, b)


def require_of_float32(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Case) -> None:
    """What the float32 kernel makes, bit by bit."""
    np.testing.assert_array_equal(found, convolve(x, weight, how, form=CHAIN))
