"""Runs op::WindowTiles on the CPU: a text with a launcher for each form, and calls of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.emulation import distributions
from tests.emulation.distributions import chain_of_fmas, error, exact, rounded
from tests.emulation.emulate import Shifted, emulate
from tests.emulation.products import EPILOGUE, reach

from opweld.device import pieces
from opweld.device.used import used

LAUNCHER = """
static op::Convolution {name}_of(const void* x, const void* weight, const int64_t* n) {{
  op::Convolution c{{x, weight, n[0], n[1], n[2], n[3], n[4], n[5]}};
  int* const all[6] = {{c.size, c.kernel, c.stride, c.padding, c.dilation, c.out}};
  for (int i = 0; i < 18; ++i) all[i / 3][i % 3] = int(n[6 + i]);
  return c;
}}
extern "C" int {name}(const void* x, const void* weight, const int64_t* numbers, void* result,
                      void* times, void* workspace, int narrow, int aligned, void* stream) {{
  using Form = {form};
  const op::Convolution c = {name}_of(x, weight, numbers);
  const auto queue = static_cast<cudaStream_t>(stream);
  const int64_t extent = c.batches * c.places() * c.filters;
  const Keep<{lanes}> keep{{static_cast<float*>(result), static_cast<int*>(times)}};
  const auto sink = op::EpilogueStore<Keep<{lanes}>>::of(keep, narrow, aligned, extent);
  return extent == 0 ? 0 : Form::launch(c, workspace, sink, queue);
}}
extern "C" int {name}_needs(const int64_t* numbers, void* bytes, void* stream) {{
  const op::Convolution c = {name}_of(nullptr, nullptr, numbers);
  *static_cast<int64_t*>(bytes) = {form}::workspace_bytes(c);
  return 0;
}}
"""
# The float32 kernel makes every convolution.
CHAINS = """
struct Chain {
  static int64_t workspace_bytes(const op::Convolution&) { return 0; }
  template <typename Sink>
  static int launch(const op::Convolution& c, void*, const Sink& sink, cudaStream_t stream) {
    return op::launch_fma_product<float>(op::product_of_windows(c), op::Windows{c}, sink, nullptr,
                                         stream);
  }
};
"""


@dataclass(frozen=True, slots=True)
class Form:
    """An instance of op::WindowTiles, or with `rows` of op::JoinedTiles, of intervals of `width`
    channels; in mode "Unpacked" of op::OneTapTiles, "Halo" of op::HaloTiles, in mode "Chain" the
    float32 kernel alone.
    """

    mode: str = "Tf32"
    space: int = 2
    columns: int = 64
    rows: int = 0
    width: int = 64
    blocks: str = "kColumns, 2"
    """Of a halo's patch, and how many."""

    @property
    def name(self) -> str:
        numbers = (self.space, self.columns, self.rows, self.width)
        blocks = self.blocks.replace(", ", "_").lower() if self.mode == "Halo" else ""
        return "_".join(["convolution", self.mode.lower(), *map(str, numbers), blocks]).strip("_")

    @property
    def tiles(self) -> str:
        if self.mode == "Unpacked":
            return "OneTapTiles"
        if self.mode == "Halo":
            return "HaloTiles"
        return "JoinedTiles" if self.rows else "WindowTiles"

    @property
    def type(self) -> str:
        if self.mode == "Chain":
            return "Chain"
        if self.mode == "Unpacked":
            return f"op::OneTapTiles<{self.columns}>"
        if self.mode == "Halo":
            return f"op::HaloTiles<{self.columns}, {self.width}, op::Blocks::{self.blocks}>"
        numbers = [self.space, self.columns, *([self.rows] if self.rows else [])]
        numbers += [self.width] if self.width != 64 else []
        return f"op::{self.tiles}<op::{self.mode}, {', '.join(map(str, numbers))}>"


NARROW, WIDE, CHAIN = Form(), Form(columns=128), Form("Chain")


@cache
def text(form: Form, lanes: tuple[int, ...] = (1, 4)) -> str:
    """The device library's part and a launcher for each number of lanes."""
    launchers = [
        LAUNCHER.format(name=f"{form.name}_{count}", form=form.type, lanes=count) for count in lanes
    ]
    users = [EPILOGUE, CHAINS, *launchers]
    needed = ["TensorView", "Windows", "launch_fma_product", "product_of_windows"]
    if form.mode == "Unpacked":
        needed += [form.tiles, f"wgmma_tf32_{form.columns}"]
    elif form.mode == "Halo":
        needed += [form.tiles]
    elif form.mode != "Chain":
        needed += [form.tiles, form.mode]
        needed += ["wgmma_half_64_typed"] if form.columns == 64 else []
    return "\n".join([*used(pieces(needed), users), *users])


@dataclass(frozen=True, slots=True)
class Windows:
    """What a convolution takes beside its operands: a number for each axis of space."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    behind: tuple[int, ...] | None = None
    """Padding behind the last pixel, where it is another."""

    def out(self, size: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        behind = self.behind or self.padding
        return tuple(
            (n + p + q - (k - 1) * d - 1) // s + 1
            for n, k, s, p, q, d in zip(
                size, kernel, self.stride, self.padding, behind, self.dilation, strict=True
            )
        )


def windows(space: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> Windows:
    return Windows((stride,) * space, (padding,) * space, (dilation,) * space)


def _three(values: Sequence[int], rest: int) -> tuple[int, ...]:
    return (*(rest,) * (3 - len(values)), *values)


def numbers_of(x: np.ndarray, weight: np.ndarray, how: Windows) -> np.ndarray:
    """What op::Convolution has beside its pointers."""
    batches, channels, *size = x.shape
    filters, _, *kernel = weight.shape
    elements = [stride // x.itemsize for stride in x.strides]
    numbers = [batches, channels, filters, elements[0], elements[-1], elements[1]]
    out = how.out(size, kernel)
    ranks = [(size, 1), (kernel, 1), (how.stride, 1), (how.padding, 0), (how.dilation, 1), (out, 1)]
    numbers += [number for values, rest in ranks for number in _three(values, rest)]
    return np.array(numbers, np.int64)


def workspace_bytes(
    x: np.ndarray,
    weight: np.ndarray,
    how: Windows,
    *,
    form: Form = Form(),
    source: str | None = None,
    **options: Any,
) -> int:
    """What a call needs; 0 where the float32 kernel makes it."""
    found = np.zeros(1, np.int64)
    arguments = [numbers_of(x, weight, how), found]
    emulate(source or text(form), f"{form.name}_1_needs", arguments, **options)
    return int(found[0])


def convolve(
    x: np.ndarray,
    weight: np.ndarray,
    how: Windows,
    *,
    form: Form = Form(),
    lanes: int | None = None,
    narrow: bool = True,
    aligned: bool = True,
    shift: int = 0,
    source: str | None = None,
    multiprocessors: int = 4,
    **options: Any,
) -> tuple[np.ndarray, int]:
    """The convolution of x[image, channel, *space], of any strides of evenly spaced pixels, as
    [image, *space, filter]; and how many kernels made it, one after the other. Results and
    workspace are full of NaN before; each value must be handed over as often as any other. Without
    `lanes` there are as many as a plan would have.
    """
    filters, _, *kernel = weight.shape
    memory = np.lib.stride_tricks.as_strided(x, (reach(x),), (x.itemsize,)).copy()
    result = np.full((len(x), *how.out(x.shape[2:], kernel), filters), np.nan, np.float32)
    times = np.zeros(result.shape, np.int32)
    options |= {"multiprocessors": multiprocessors}
    bytes_ = workspace_bytes(x, weight, how, form=form, source=source, **options)
    workspace = np.full(bytes_ // 4, np.nan, np.float32) if bytes_ else None
    where = Shifted(memory, shift * x.itemsize) if shift else memory
    arguments = [where, np.ascontiguousarray(weight), numbers_of(x, weight, how), result, times]
    arguments += [workspace, int(narrow), int(aligned)]
    launcher = f"{form.name}_{lanes or (1 if filters % 4 else 4)}"
    emulate(source or text(form), launcher, arguments, **options)
    handed_over = np.unique(times)
    assert handed_over.tolist() in ([], [1], [2]), f"handed over {handed_over} times"
    return result, int(handed_over[0]) if times.size else 0


# --- beside float64 ---


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def channels_last(x: np.ndarray) -> np.ndarray:
    """The same tensor with its channels side by side in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def matrix_of(x: np.ndarray, kernel: tuple[int, ...], how: Windows) -> np.ndarray:
    """[1, output pixels, k] of what windows show, k = (channel, tap)."""
    size, space = x.shape[2:], len(kernel)
    out = how.out(size, kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, how.dilation, strict=True)]
    extents = [(o - 1) * s + r for o, s, r in zip(out, how.stride, reach, strict=True)]
    padded = np.zeros((*x.shape[:2], *(e + n for e, n in zip(extents, size, strict=True))), x.dtype)
    padded[(..., *(slice(p, p + n) for p, n in zip(how.padding, size, strict=True)))] = x
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + space)))
    corners = (slice(0, (o - 1) * s + 1, s) for o, s in zip(out, how.stride, strict=True))
    seen = seen[(..., *corners, *(slice(None, None, d) for d in how.dilation))]
    seen = np.moveaxis(seen, 1, 1 + space)
    return seen.reshape(1, -1, x.shape[1] * int(np.prod(kernel)))


def matrices(x: np.ndarray, weight: np.ndarray, how: Windows) -> tuple[np.ndarray, np.ndarray]:
    return matrix_of(x, weight.shape[2:], how), weight.reshape(1, len(weight), -1)


def require_as_exact(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Windows) -> None:
    """As exact as operands rounded to 11 bits, summed exactly, and 2^-22 for the sums."""
    a, b = matrices(x, weight, how)
    flat = found.reshape(1, -1, len(weight))
    assert error(flat, a, b) <= 1.01 * error(exact(rounded(a), rounded(b)), a, b) + 2.0**-22


def require_faithful(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Windows) -> None:
    """As exact as one chain of fused multiply-adds."""
    a, b = matrices(x, weight, how)
    flat = found.reshape(1, -1, len(weight))
    assert error(flat, a, b) <= error(chain_of_fmas(a, b), a, b)


@dataclass(frozen=True, slots=True)
class Case:
    """x[batch, channels, *size] and weight[filters, channels, *kernel]."""

    batch: int
    channels: int
    size: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    how: Windows

    @property
    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        x = normal(self.batch, self.channels, *self.size)
        return x, normal(self.filters, self.channels, *self.kernel, seed=1)


def drawn(seed: int, space: int, *, many: bool = False) -> Case:
    """A convolution of up to some hundred output pixels; of `many` channels and filters where the
    mean of errors is to tell anything.
    """
    random = np.random.default_rng(seed)

    def each(*values: int) -> tuple[int, ...]:
        return tuple(int(value) for value in random.choice(values, space))

    kernel, stride, dilation = each(1, 2, 3, 3), each(1, 1, 2, 3), each(1, 1, 2)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    padding, behind = (tuple(int(random.integers(0, r + 1)) for r in reach) for _ in range(2))
    most = {1: 300, 2: 17, 3: 7}[space]
    size = tuple(
        int(random.integers(max(r - p, 0) + 1, most + 1)) + r
        for r, p in zip(reach, padding, strict=True)
    )
    channels = int(random.choice((64, 65, 70, 130) if many else (1, 3, 33, 64, 65, 70, 130)))
    filters = int(random.choice((36, 64, 65, 130) if many else (1, 5, 36, 64, 65, 130)))
    batch = int(random.choice((1, 2)))
    return Case(batch, channels, size, filters, kernel, Windows(stride, padding, dilation, behind))


def require_of_11_bits(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Windows) -> None:
    """Of rounded operands: no float32 kernel has made it."""
    a, b = matrices(x, weight, how)
    flat = found.reshape(1, -1, len(weight))
    assert error(flat, rounded(a), rounded(b)) <= 2.0**-20 < error(flat, a, b)


def require_float32_where(
    odd_x: np.ndarray, odd_weight: np.ndarray, found: np.ndarray, how: Windows, *operands: Any
) -> None:
    """Elements of what is odd in either operand are as exact as float32 sums; see
    distributions.require_float32_where.
    """
    a, b = matrices(*operands, how)
    odd_a, odd_b = matrices(odd_x.astype(np.float32), odd_weight.astype(np.float32), how)
    odd = exact(odd_a, np.ones_like(b)) + exact(np.ones_like(a), odd_b) > 0
    distributions.require_float32_where(odd, found.reshape(1, -1, b.shape[1]), a, b)


def require_of_float32(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Windows) -> None:
    """What the float32 kernel makes, bit by bit."""
    np.testing.assert_array_equal(found, convolve(x, weight, how, form=CHAIN)[0])


def require(case: Case, form: Form = NARROW, **options: Any) -> np.ndarray:
    """Made by the tensor cores, once, and as exact as they are."""
    x, weight = case.operands
    found, makers = convolve(x, weight, case.how, form=form, **options)
    if form.mode == "Faithful":
        require_faithful(found, x, weight, case.how)
    else:
        require_as_exact(found, x, weight, case.how)
        require_of_11_bits(found, x, weight, case.how)
    assert makers == 1
    return found


def slow(*values: int) -> list[Any]:
    """Parameters of tests that are left out unless they are asked for."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
