"""How tensor cores add: CUDA texts that hand chosen sums to one instruction, and what is found.

A sum is c + a[0] b[0] + a[1] b[1] + ...: float32 c, half a and b, in blocks of 16 products, one
instruction each. `Sums` makes many of them: c [count], a and b [count, k] -> float32 [count].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from tests.emulation.emulate import emulate

from opweld.device import pieces

Sums = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

# Eight sums a warp: sum g is element (g, g) of the product of eight rows and eight columns.
MMA = """
__global__ void mma_sums_kernel(const half* a, const half* b, float* sums, int count, int k) {
    const int lane = threadIdx.x % 32, number = lane / 4, at = blockIdx.x * 8 + number;
    const bool keeps = lane % 4 == number / 2 && at < count;
    float own[4] = {};
    if (keeps) own[number % 2] = sums[at];
    for (int first = 0; first < k; first += 16) {
        unsigned int rows[4] = {}, columns[2] = {};
        if (at < count) {
            const int word = (at * k + first) / 2 + lane % 4;
            const auto* a_words = reinterpret_cast<const unsigned int*>(a) + word;
            const auto* b_words = reinterpret_cast<const unsigned int*>(b) + word;
            rows[0] = a_words[0];
            rows[2] = a_words[4];
            columns[0] = b_words[0];
            columns[1] = b_words[4];
        }
        op::mma_16x8x16<half>(own, rows, columns);
    }
    if (keeps) sums[at] = own[number % 2];
}
extern "C" int mma_sums(const void* a, const void* b, void* sums, int count, int k, void* stream) {
    mma_sums_kernel<<<(count + 7) / 8, 32, 0, (cudaStream_t)stream>>>(
        (const half*)a, (const half*)b, (float*)sums, count, k);
    return int(cudaGetLastError());
}
"""
# 64 sums a warpgroup, of up to 64 products, in the same way; rows lie in shared memory as the copy
# engine leaves them, swizzled by 128 bytes.
WGMMA = """
__device__ void put(unsigned char* tile, int row, const half* values, int k) {
    for (int i = 0; i < 64; ++i) {
        const int chunk = (i / 8) ^ (row % 8);
        *reinterpret_cast<half*>(tile + row * 128 + chunk * 16 + i % 8 * 2) =
            values && i < k ? values[i] : __float2half(0.0f);
    }
}
__global__ void __launch_bounds__(128)
    wgmma_sums_kernel(const half* a, const half* b, float* sums, int count, int k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ alignas(1024) unsigned char a_tile[64 * 128], b_tile[128 * 128];
    const int thread = threadIdx.x, lane = thread % 32, first = blockIdx.x * 64;
    const bool exists = thread < 64 && first + thread < count;
    const int64_t begin = int64_t(first + thread) * k;
    if (thread < 64) put(a_tile, thread, exists ? a + begin : nullptr, k);
    put(b_tile, thread, exists ? b + begin : nullptr, k);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float own[64];
    const int row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        const int r = row + i / 2 % 2 * 8, c = column + i / 4 * 8 + i % 2;
        own[i] = r == c && first + r < count ? sums[first + r] : 0.0f;
    }
    op::pin(own);
    op::wgmma_fence();
    for (int step = 0; step < k / 16; ++step) {
        op::wgmma(op::Type<half>(), own, op::tile_descriptor(a_tile) + 2 * step,
                  op::tile_descriptor(b_tile) + 2 * step, 1);
    }
    op::wgmma_commit();
    op::wgmma_wait<0>();
    op::pin(own);
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        const int r = row + i / 2 % 2 * 8, c = column + i / 4 * 8 + i % 2;
        if (r == c && first + r < count) sums[first + r] = own[i];
    }
#endif
}
extern "C" int wgmma_sums(const void* a, const void* b, void* sums, int count, int k,
                          void* stream) {
    wgmma_sums_kernel<<<(count + 63) / 64, 128, 0, (cudaStream_t)stream>>>(
        (const half*)a, (const half*)b, (float*)sums, count, k);
    return int(cudaGetLastError());
}
"""
LONGEST = 64  # products of a sum that both take


@cache
def text(with_wgmma: bool = False) -> str:
    """The launchers mma_sums and, for sm_90a, wgmma_sums."""
    wgmma = ("wgmma_half_128", "wgmma_order", "tile_descriptor") if with_wgmma else ()
    parts = [*pieces(["half", "mma_16x8x16", *wgmma]), MMA, *([WGMMA] if with_wgmma else [])]
    return "\n".join(parts)


def emulated(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By the emulated mma.sync."""
    sums = c.astype(np.float32)
    emulate(text(), "mma_sums", [a, b, sums, *a.shape])
    return sums


# --- single sums ---


def _factors(product: float) -> tuple[float, float]:
    """Two halves of this product, if its digits fit one."""
    digits, exponent = math.frexp(product)
    a, b = math.ldexp(digits, exponent - exponent // 2), math.ldexp(1.0, exponent // 2)
    assert float(np.float16(a)) * float(np.float16(b)) == product
    return a, b


def one_sum(sums: Sums, c: float, products: Mapping[int, float], k: int = 16) -> float:
    """c + the products at these places; the others are zero."""
    a, b = np.zeros((2, 1, k), np.float16)
    for place, product in products.items():
        a[0, place], b[0, place] = _factors(product)
    return float(sums(np.array([c], np.float32), a, b)[0])


@dataclass(frozen=True, slots=True)
class Findings:
    """`product_bits`, `sum_bits`: how far below 1 a product still counts in 1 + product - 1, where
    the first 1 is a product or c (24 where sums are float32's, which have 23 bits behind the 1).
    `positive`, `negative`: how a result is rounded. `together`: the products that are added before
    a result is rounded. `order_share`: of random sums, those that another order within a block
    changes.
    """

    product_bits: int
    sum_bits: int
    positive: str
    negative: str
    together: int
    order_share: float


def findings(sums: Sums) -> Findings:
    return Findings(
        product_bits=_last(lambda bits: one_sum(sums, 0.0, {0: 1.0, 1: 2.0**-bits, 2: -1.0})),
        sum_bits=_last(lambda bits: one_sum(sums, 1.0, {0: 2.0**-bits, 1: -1.0})),
        positive=_rounding(sums, 1.0),
        negative=_rounding(sums, -1.0),
        together=_together(sums),
        order_share=_order_share(sums),
    )


def _last(left: Callable[[int], float]) -> int:
    """How many bits below 1 something is left."""
    return max((bits for bits in range(16, 28) if left(bits) != 0.0), default=0)


ROUNDINGS = {(0, 0): "towards zero", (1, 0): "to nearest", (1, 1): "away from zero"}


def _rounding(sums: Sums, sign: float) -> str:
    """Of one and three quarters of the last place beyond 1."""
    ulp = 2.0**-23
    up = [(one_sum(sums, sign, {3: sign * part * ulp}) * sign - 1) / ulp for part in (0.75, 0.25)]
    return ROUNDINGS.get((int(up[0]), int(up[1])), f"otherwise: {up}")


def _together(sums: Sums) -> int:
    """1 + 2^-24 - 1: half of the last place is left until a result is rounded."""
    for place in range(2, LONGEST):
        if one_sum(sums, 0.0, {0: 1.0, 1: 2.0**-24, place: -1.0}, LONGEST) == 0.0:
            return place
    return LONGEST


def _order_share(sums: Sums) -> float:
    random = np.random.default_rng(1)
    c, a, b = random_operands(random, 512, 16)
    order = random.permutation(16)
    return float((sums(c, a, b) != sums(c, a[:, order], b[:, order])).mean())


def random_operands(
    random: np.random.Generator, count: int, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of sizes from 2^-6 to 2^6."""
    shapes = ((count,), (count, k), (count, k))
    c, a, b = (random.normal(size=s) * 2.0 ** random.integers(-6, 7, s) for s in shapes)
    return c.astype(np.float32), a.astype(np.float16), b.astype(np.float16)


# --- what the products of this project rely on ---


def require_exact_products(sums: Sums) -> None:
    """Of two halves of any exponents, the subnormal ones that small lower parts are among them."""
    random = np.random.default_rng(2)
    bits = random.integers(0, 0x7BFF, (2, 4096), dtype=np.uint16)
    bits[:, ::8] &= 0x03FF  # subnormal
    values = (bits | (random.integers(0, 2, bits.shape, dtype=np.uint16) << 15)).view(np.float16)
    a, b = np.zeros((2, 4096, 16), np.float16)
    places = np.arange(4096), random.integers(0, 16, 4096)
    a[places], b[places] = values
    exact = values[0].astype(np.float64) * values[1]
    np.testing.assert_array_equal(sums(np.zeros(4096, np.float32), a, b), exact)


def require_exact_integers(sums: Sums) -> None:
    """Sums below 2^24, whatever their order."""
    random = np.random.default_rng(3)
    a, b = random.integers(-512, 513, (2, 512, LONGEST)).astype(np.float16)
    a[::2], b[::2] = abs(a[::2]), abs(b[::2])
    c = random.integers(-1000, 1001, 512).astype(np.float32)
    exact = c + (a.astype(np.float64) * b).sum(1)
    assert abs(exact).max() < 2**24
    np.testing.assert_array_equal(sums(c, a, b), exact)


def require_cut_no_further(sums: Sums, bits: int) -> None:
    """What a block of 16 products and the sum so far lose: each at most 2^-bits of the largest of
    them, and the result its last place.
    """
    c, a, b = random_operands(np.random.default_rng(4), 4096, 16)
    products = a.astype(np.float64) * b
    exact = c + products.sum(1)
    largest = np.maximum(abs(products).max(1), abs(c))
    bound = 17 * largest * 2.0**-bits + abs(exact) * 2.0**-23
    off = abs(sums(c, a, b) - exact)
    assert (off <= bound).all(), f"{(off / bound).max()} of what {bits} bits allow"
