"""Small float32 products on the CUDA cores: one launch, which splits nothing and sums nothing up
afterwards, where the library and the tensor cores take longer to begin than to multiply.
"""

from __future__ import annotations

from ...ir.kernels.product import SIDES, Mode, Product
from ...ir.plan import Sizes, number_at
from ...target import Target

# Of the library's rate on one multiprocessor, that of a block (contract_fma.cuh), and microseconds
# of a launch and of each further square: products of 20 to 65536 rows, 16 to 4096 terms on an
# H200, 2026-11-30, torch 2.11, within 20 % from 20 rows on
# (benchmarks/results/small-products-nvidia-h200.log).
_SHARES = dict(zip(SIDES, (0.60, 0.73), strict=True))
_LAUNCH_US = dict(zip(SIDES, (3.6, 5.0), strict=True))
_SQUARE_US = dict(zip(SIDES, (2.2, 6.0), strict=True))


def squares_us(product: Product, target: Target, sizes: Sizes) -> tuple[float, int]:
    """The microseconds of a product by squares, and their side: the faster of both."""
    return min((_us(product, side, target, sizes), side) for side in SIDES)


def _us(product: Product, side: int, target: Target, sizes: Sizes) -> float:
    batches, m, n, k = (
        number_at(size, sizes) for size in (product.batches, product.m, product.n, product.k)
    )
    squares = batches * -(-m // side) * -(-n // side)
    turns = -(-squares // target.multiprocessors)
    rate = _SHARES[side] * target.product_rates[Mode.FAITHFUL].library / target.multiprocessors
    return (
        _LAUNCH_US[side] + _SQUARE_US[side] * (turns - 1) + turns * 2 * side * side * k / rate * 1e6
    )
