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


def chain_of_fmas(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product as one chain of float32 fused multiply-adds in the order of k."""
    sums = np.zeros((*a.shape[:2], b.shape[1]), np.float32)
    for k in range(a.shape[2]):
        exactly = a[:, :, None, k].astype(np.float64) * b[:, None, :, k]
        sums = (sums + exactly).astype(np.float32)
    return sums
