"""Operands packed for the tensor cores, as contract_mma.cuh says, and products of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from tests.emulation.emulate import emulate, to_bfloat16
from tests.emulation.products import EPILOGUE, MODES

from opweld.device import pieces

LAUNCHER = """
extern "C" int packed_{name}(const void* a, const void* a_scale, const void* b, const void* b_scale,
                             int64_t a_batch, int64_t a_scale_batch, int64_t b_batch,
                             int64_t b_scale_batch, int64_t batches, int64_t m, int64_t n,
                             int64_t blocks, int splits, void* result, void* times, void* workspace,
                             void* call, int narrow, int aligned, void* stream) {{
  const op::PackedProduct product{{
      {{a, static_cast<const float*>(a_scale), 128 * blocks, a_batch, a_scale_batch}},
      {{b, static_cast<const float*>(b_scale), 128 * blocks, b_batch, b_scale_batch}},
      batches, m, n, blocks, 128 * blocks}};
  const Keep<{lanes}> keep{{static_cast<float*>(result), static_cast<int*>(times)}};
  const auto sink = op::EpilogueStore<Keep<{lanes}>>::of(keep, narrow, aligned, batches * m * n);
  auto* const head = static_cast<op::CallHead*>(call);
  const auto queue = static_cast<cudaStream_t>(stream);
  const auto plan = op::SplitK::of(blocks, splits, 2);
  return op::in_parts(sink, plan.splits, static_cast<float*>(workspace),
                      head ? &head->again : nullptr, queue, [&](const auto& to) {{
    return op::launch_mma_product<op::{mode}>(product, plan, to, head, queue);
  }});
}}
"""


@cache
def text(modes: tuple[str, ...] = tuple(MODES)) -> str:
    launchers = [
        LAUNCHER.format(name=f"{mode.lower()}_{lanes}", mode=mode, lanes=lanes)
        for mode in modes
        for lanes in (1, 2)
    ]
    return "\n".join([*pieces(["launch_mma_product", "in_parts", *modes]), EPILOGUE, *launchers])


@dataclass(frozen=True, slots=True)
class Packed:
    """One operand: 16-bit words [batch, row, block, 64] and its scales, if the mode has any."""

    data: np.ndarray
    scale: np.ndarray | None


def power_below(largest: np.ndarray) -> np.ndarray:
    """The power of two by which values of that magnitude come to just under 2^15; 1 for 0."""
    exponent = np.frexp(largest)[1]
    return np.where(largest > 0, np.ldexp(1.0, exponent - 15), 1.0)


def pack(operand: np.ndarray, mode: str, side: str) -> Packed:
    """float32[batch, row, k] as the tensor cores take it; `side` "a" scales each 64 k apart."""
    batches, rows, k = operand.shape
    blocks = (k + 63) // 64
    padded = np.zeros((batches, rows, blocks, 64))
    padded.reshape(batches, rows, blocks * 64)[:, :, :k] = operand
    if mode == "Bfloat16":
        return Packed(to_bfloat16(padded.astype(np.float32)), None)
    if mode == "Half":
        return Packed(padded.astype(np.float16).view(np.uint16), None)
    axes = 3 if side == "a" else (2, 3)
    scale = power_below(abs(padded).max(axis=axes, keepdims=True, initial=0.0))
    scaled = padded / scale
    high = scaled.astype(np.float16)
    low = (scaled - high.astype(np.float64)).astype(np.float16)
    if mode == "Faithful":
        parts = [x.reshape(batches, rows, 2 * blocks, 1, 32) for x in (high, low)]
        high = np.concatenate(parts, axis=3).reshape(batches, rows, 2 * blocks, 64)
    kept = scale[..., 0].transpose(0, 2, 1) if side == "a" else scale[:, :, 0, 0]
    return Packed(high.view(np.uint16), np.ascontiguousarray(kept, np.float32))


def packed_product(
    a: np.ndarray,
    b: np.ndarray,
    mode: str,
    *,
    lanes: int = 1,
    splits: int = 1,
    source: str | None = None,
    needs_fallback: int | None = None,
    **options: object,
) -> np.ndarray:
    """c[batch, m, n] of float32 a[batch, m, k] and b[batch or 1, n, k]; NaN where nothing is
    written. Each value must be handed over once.
    """
    batches, m = a.shape[:2]
    n = b.shape[1]
    first, second = pack(a, mode, "a"), pack(b, mode, "b")
    result = np.full((batches, m, n), np.nan, np.float32)
    times = np.zeros((batches, m, n), np.int32)
    workspace = np.full(splits * result.size, np.nan, np.float32) if splits > 1 else None
    head = None if needs_fallback is None else np.array([needs_fallback, 0, 0, 0, 0], np.int32)
    steps = [*_steps(first, a.shape[0]), *_steps(second, b.shape[0])]
    extents = [batches, m, n, first.data.shape[2], splits]
    operands = [first.data, first.scale, second.data, second.scale]
    memory = [result, times, workspace, head, 1, 1]
    name = f"packed_{mode.lower()}_{lanes}"
    emulate(source or text(), name, [*operands, *steps, *extents, *memory], **options)
    assert head is None or head[2] == head[0], "another kernel is told"
    expected = 0 if needs_fallback else 1
    assert (times == expected).all(), f"handed over {np.unique(times)} times"
    return result


def _steps(operand: Packed, batches: int) -> list[int]:
    """From one batch to the next: bytes of data, floats of scales; 0 where there is but one."""
    if batches <= 1:
        return [0, 0]
    scales = 0 if operand.scale is None else operand.scale[0].size
    return [operand.data[0].nbytes, scales]
