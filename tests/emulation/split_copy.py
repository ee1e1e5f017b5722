"""The split copy of an operand b as split.cuh defines it, in numpy, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SAMPLES = 2048


@dataclass(frozen=True, slots=True)
class Copy:
    """`column_max` [k] bits; `scale` [batches, n]; `packed` halves [batches, n, chunks, 64] of 32
    upper and 32 lower parts each, or of 64 upper ones."""

    needs_fallback: bool
    lossy: bool
    column_max: np.ndarray
    scale: np.ndarray
    packed: np.ndarray


def read_copy(held: np.ndarray, batches: int, n: int, k: int, parts: int = 2) -> Copy:
    """The parts of a block of held bytes, each of which begins at a multiple of 256."""
    chunks = (k + 63) // 64 * parts
    extents = (("i4", (3 + SAMPLES,)), ("u4", (k,)), ("f4", (batches, n)))
    extents += (("u2", (batches, n, chunks, 64)),)
    found, at = [], 0
    for kind, shape in extents:
        num_bytes = int(np.prod(shape)) * np.dtype(kind).itemsize
        found.append(held[at : at + num_bytes].view(kind).reshape(shape))
        at += (num_bytes + 255) // 256 * 256
    head, column_max, scale, packed = found
    return Copy(bool(head[1]), bool(head[2]), column_max, scale, packed)


def split_copy(b: np.ndarray, parts: int = 2) -> Copy:
    """What b[batches, n, k] comes to, of numbers that are neither infinite nor NaN."""
    column_max = abs(b).max(axis=(0, 1)).view(np.uint32)
    columns = np.clip(_exponent(column_max), -60, 60) * (_exponent(column_max) != -127)
    factors = np.where(column_max == 0, 0, np.ldexp(1.0, -columns)).astype(np.float32)
    own = b * factors
    largest = abs(own).max(axis=2)
    exponents = _exponent(largest.view(np.uint32))
    up = np.where(exponents == -127, 0, np.clip(14 - exponents, -66, 126))
    scaled = own * np.ldexp(1.0, up).astype(np.float32)[..., None]
    lossy = _loses_digits(scaled, 1.0 if parts == 2 else 2.0**-13)
    least = np.copysign(np.float32(2.0**-24), scaled)
    scaled = np.where((scaled != 0) & (abs(scaled) < abs(least)), least, scaled)
    upper = scaled.astype(np.float16)
    lower = (scaled - upper.astype(np.float32)).astype(np.float16)
    beyond = (largest != 0) & ((exponents < -110) | (exponents > 1))
    return Copy(
        bool(beyond.any()),
        lossy,
        column_max,
        np.ldexp(1.0, -up).astype(np.float32),
        _chunks((upper, lower)[:parts]),
    )


def _exponent(bits: np.ndarray) -> np.ndarray:
    return (bits >> 23 & 255).astype(np.int64) - 127


def _loses_digits(scaled: np.ndarray, kept: float) -> bool:
    """Whether in some interval more than one value in 16 that are not zero is below `kept`."""
    padded = np.zeros((*scaled.shape[:2], (scaled.shape[2] + 63) // 64 * 64), np.float32)
    padded[:, :, : scaled.shape[2]] = abs(scaled)
    intervals = padded.reshape(*scaled.shape[:2], -1, 64)
    counts = np.count_nonzero(intervals, axis=3)
    few = np.count_nonzero((intervals > 0) & (intervals < kept), axis=3)
    return bool((16 * few > counts).any())


def _chunks(parts: tuple[np.ndarray, ...]) -> np.ndarray:
    batches, n, k = parts[0].shape
    padded = np.zeros((len(parts), batches, n, (k + 63) // 64 * 64), np.float16)
    padded[:, :, :, :k] = parts
    shares = padded.reshape(len(parts), batches, n, -1, 64 // len(parts)).transpose(1, 2, 3, 0, 4)
    return np.ascontiguousarray(shares).reshape(batches, n, -1, 64).view(np.uint16)
