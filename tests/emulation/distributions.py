"""Operands on which float32 products go wrong in different ways, and how wrong they went."""

from __future__ import annotations

import numpy as np

ROWS = 24


def distributions(k: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """a and b[1, ROWS, k], float32, by name."""
    random = np.random.default_rng(k)
    shape, half = (1, ROWS, k), (1, ROWS, k // 2)
    normal, uniform = random.standard_normal, random.uniform
    weights = uniform(-1, 1, shape) / np.sqrt(k)
    halves, other = normal(half), normal(half)
    nearly = other * (1 + 1e-3 * normal(half))
    grade, steep = (np.exp2(np.linspace(-e, e, k)) for e in (8, 20))
    outliers = normal(shape)
    outliers[:, :, random.integers(0, k, max(k // 64, 1))] *= 100
    deaf = normal(shape)
    deaf[:, :, k // 3] = 2.0**26
    without = normal(shape)
    without[:, :, k // 3] = 0
    found = {
        "uniform": (uniform(0, 1, shape), uniform(0, 1, shape)),
        "normal": (normal(shape), normal(shape)),
        "linear": (normal(shape), weights),
        "rand": (uniform(0, 1, shape), weights),
        "relu": (np.maximum(normal(shape), 0), weights),
        "log-uniform": (_log_uniform(10, shape, random), _log_uniform(10, shape, random)),
        "wide log-uniform": (_log_uniform(20, shape, random), _log_uniform(20, shape, random)),
        "one huge element a row of a": (_with_huge(normal(shape), random), normal(shape)),
        "one huge element a row of both": (
            _with_huge(normal(shape), random),
            _with_huge(normal(shape), random),
        ),
        "cancellation": (np.dstack([halves, -halves]), np.dstack([other, nearly])),
        "constant": (np.full(shape, 1 / 3), np.full(shape, 1 / 7)),
        "graded": (normal(shape) * grade, normal(shape) / grade),
        "steep": (normal(shape) * steep, normal(shape) / steep),
        "outlier channels": (outliers, weights),
        "a huge column against zeros": (deaf, without),
    }
    return {name: (a.astype(np.float32), b.astype(np.float32)) for name, (a, b) in found.items()}


def drowning(k: int, bits: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """a and b[1, ROWS, k] where values 2^bits times the others' size meet zeros: the sums of the
    others are results."""
    random = np.random.default_rng(bits)
    shape, huge = (1, ROWS, k), 2.0**bits

    def normal() -> np.ndarray:
        return random.standard_normal(shape)

    def some(share: float) -> np.ndarray:
        return random.random(shape) < share

    eighth = random.permutation(k)[: k // 8]
    relu, dead, edge = np.maximum(normal(), 0), normal(), k // 2 + 20
    relu[:, :, eighth] = abs(normal()[:, :, eighth]) * huge
    dead[:, 1:, eighth] = 0
    first, second = normal(), normal()
    first[:, :, :edge] *= huge
    second[:, ::2, edge:], second[:, 1::2, :edge] = 0, 0
    one = normal()
    one[0, np.arange(ROWS), random.integers(0, k, ROWS)] = huge
    found = {
        "an eighth of a's columns, zero in all rows of b but one": (relu, dead),
        "outliers in a, a pruned b": (
            np.maximum(normal(), 0) * np.where(some(0.02), huge, 1),
            normal() * some(0.1),
        ),
        "a sparse a, outliers in b": (
            normal() * some(0.05),
            normal() * np.where(some(0.05), huge, 1),
        ),
        "a value in each row of b, outliers in a": (relu, one),
        "blocks": (first, second),
    }
    return {name: (a.astype(np.float32), b.astype(np.float32)) for name, (a, b) in found.items()}


def ordinary(k: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Activations and weights[1, ROWS, k] of networks."""
    random = np.random.default_rng(k)
    shape = (1, ROWS, k)

    def normal() -> np.ndarray:
        return random.standard_normal(shape)

    weights = random.uniform(-1, 1, shape) * np.sqrt(6 / k)
    half, tenth = weights * (random.random(shape) < 0.5), weights * (random.random(shape) < 0.1)
    channels = normal()
    channels[:, :, random.permutation(k)[: k // 64]] *= 100
    softmax = np.exp(normal())
    softmax /= softmax.sum(axis=2, keepdims=True)
    wide = 3 * normal()
    sigmoid_of_wide = wide / (1 + np.exp(-wide))
    relu = np.maximum(normal(), 0)
    found = {
        "normal": (normal(), weights),
        "uniform": (random.uniform(0, 1, shape), weights),
        "relu": (relu, weights),
        "relu, half of the weights": (relu, half),
        "relu, a tenth of the weights": (relu, tenth),
        "softmax, values after relu": (softmax, np.maximum(normal(), 0)),
        "softmax, half of the weights": (softmax, half),
        "outlier channels, a tenth of the weights": (channels, tenth),
        "silu, a tenth of the weights": (sigmoid_of_wide, tenth),
    }
    return {name: (a.astype(np.float32), b.astype(np.float32)) for name, (a, b) in found.items()}


def _log_uniform(e: int, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    return np.exp2(random.uniform(-e, e, shape)) * random.choice([-1, 1], shape)


def _with_huge(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    values[0, np.arange(ROWS), random.integers(0, values.shape[2], ROWS)] = 1e6
    return values


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product in float64."""
    return np.einsum("bmk,bnk->bmn", a.astype(np.float64), b.astype(np.float64))


def rounded(values: np.ndarray) -> np.ndarray:
    """Rounded to the 11 bits of TF32, to nearest, in float64."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.ldexp(np.round(mantissa * 2.0**11), exponent - 11)


def error(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The root mean square of the errors over |a| |b|, element by element."""
    size = exact(abs(a), abs(b))
    return float(np.sqrt(np.mean(((found - exact(a, b)) / np.where(size > 0, size, 1)) ** 2)))


def require_float32_where(odd: np.ndarray, found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Elements [1, m, n] that `odd` names are as exact as float32 sums are, the others at least as
    those of operands of 11 bits. What is not finite stays so; sums that may overflow are free.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        right, size = exact(a, b), exact(abs(a), abs(b))
        squares = exact(a.astype(np.float64) ** 2, b.astype(np.float64) ** 2)
        k = a.shape[2]
        wrong = abs(found - right)
        as_float32 = wrong <= 2.0**-22 * np.sqrt(k * squares) + k * 2.0**-149
        as_tf32 = wrong <= 6 * 2.0**-12 * np.sqrt(squares)  # six deviations, rounded by halves
    lost = ~np.isfinite(size)
    np.testing.assert_array_equal(found[lost], right[lost])
    sums = ~lost & (size < 2.0**127)
    assert odd.any(), "nothing is odd"
    assert as_float32[sums & odd].all(), "sums lack digits"
    assert (as_float32 | as_tf32)[sums].all(), "other sums are wrong"


def chain_of_fmas(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product as one chain of float32 fused multiply-adds in the order of k."""
    sums = np.zeros((*a.shape[:2], b.shape[1]), np.float32)
    for k in range(a.shape[2]):
        exactly = a[:, :, None, k].astype(np.float64) * b[:, None, :, k]
        sums = (sums + exactly).astype(np.float32)
    return sums
