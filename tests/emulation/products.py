"""Runs op::contract on the CPU: a text with a launcher for each mode, and calls of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from tests.emulation.emulate import Shifted, emulate, from_bfloat16, to_bfloat16

from opweld.device import pieces

MODES = {"Faithful": "float", "Tf32": "float", "Half": "half", "Bfloat16": "bfloat16"}

# Counts how often each element is handed over: once is right.
EPILOGUE = """
template <int kMost>
struct Keep {
  static constexpr int kLanes = kMost;
  float* result;
  int* times;
  template <int kLanes, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kLanes]) const {
    static_assert(kLanes <= kMost, "more at once than the epilogue takes");
    for (int lane = 0; lane < kLanes; ++lane) {
      result[at + lane] = product[lane];
      times[at + lane] += 1;
    }
  }
};
"""
LAUNCHER = """
extern "C" int {name}(const void* a, int64_t a_batch, int64_t a_row, int64_t a_inner,
                      const void* b, int64_t b_batch, int64_t b_row, int64_t b_inner,
                      int64_t batches, int64_t m, int64_t n, int64_t k, void* result, void* times,
                      void* workspace, int64_t workspace_bytes, int narrow, int aligned,
                      void* stream) {{
  const op::Product product{{{{a, a_batch, a_row, a_inner}}, {{b, b_batch, b_row, b_inner}},
                            batches, m, n, k}};
  if (op::workspace_bytes<op::{mode}>(product, false) != workspace_bytes) return -1;
  const Keep<{lanes}> keep{{static_cast<float*>(result), static_cast<int*>(times)}};
  return op::contract<op::{mode}>(product, op::Memory{{workspace, nullptr, 0}}, keep, narrow,
                                  aligned, stream);
}}
extern "C" int {name}_needs(int64_t batches, int64_t m, int64_t n, int64_t k, void* bytes,
                            void* stream) {{
  const op::Product product{{{{}}, {{}}, batches, m, n, k}};
  *static_cast<int64_t*>(bytes) = op::workspace_bytes<op::{mode}>(product, false);
  return 0;
}}
"""


@cache
def text(modes: tuple[str, ...] = tuple(MODES), lanes: tuple[int, ...] = (1, 2)) -> str:
    """The device library's part and a launcher for each mode and number of lanes."""
    launchers = [
        LAUNCHER.format(name=f"product_{mode.lower()}_{count}", mode=mode, lanes=count)
        for mode in modes
        for count in lanes
    ]
    return "\n".join([*pieces(["contract", "tensor_cores_none", *modes]), EPILOGUE, *launchers])


@dataclass(frozen=True, slots=True)
class Call:
    """How a product is called beside its operands."""

    mode: str = "Faithful"
    lanes: int = 2
    narrow: bool = True
    aligned: bool = True
    options: dict[str, object] = field(default_factory=dict)


def stored(values: np.ndarray, mode: str) -> np.ndarray:
    """float32 values rounded to the mode's storage, as emulate wants them; same strides."""
    if mode == "Half":
        return _like(values, values.astype(np.float16))
    if mode == "Bfloat16":
        return _like(values, to_bfloat16(values).reshape(values.shape))
    return values


def widened(operand: np.ndarray, mode: str) -> np.ndarray:
    """What a stored operand means, in float64."""
    if mode == "Bfloat16":
        operand = from_bfloat16(operand)
    return operand.astype(np.float64)


def _like(view: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values` laid out with the strides (in elements) of `view`."""
    strides = [stride // view.itemsize * values.itemsize for stride in view.strides]
    memory = np.zeros(reach(view), values.dtype)
    out = np.lib.stride_tricks.as_strided(memory, view.shape, strides)
    out[...] = values
    return out


def reach(view: np.ndarray) -> int:
    """The elements from the first to past the last."""
    if not view.size:
        return 0
    pairs = zip(view.shape, view.strides, strict=True)
    return 1 + sum((extent - 1) * stride // view.itemsize for extent, stride in pairs)


def product(
    a: np.ndarray,
    b: np.ndarray,
    call: Call = Call(),
    *,
    shift: int = 0,
    source: str | None = None,
) -> np.ndarray:
    """c[batch, m, n] by op::contract from a[batch, m, k] and b[batch, n, k] of any strides.

    `shift` moves both operands by so many elements from 256-byte alignment; results lie in memory
    full of NaN before, and each must be handed over once.
    """
    batches, m, k = a.shape
    n = b.shape[1]
    result = np.full((batches, m, n), np.nan, np.float32)
    times = np.zeros((batches, m, n), np.int32)
    name = f"product_{call.mode.lower()}_{call.lanes}"
    source = source or text()
    needs = np.zeros(1, np.int64)
    emulate(source, f"{name}_needs", [batches, m, n, k, needs])
    workspace = np.full(int(needs[0]) // 4, np.nan, np.float32)
    operands = [*_arguments(a, shift), *_arguments(b, shift)]
    extents = [batches, m, n, k]
    memory = [workspace if workspace.size else None, int(needs[0])]
    ends = [int(call.narrow), int(call.aligned)]
    emulate(source, name, [*operands, *extents, result, times, *memory, *ends], **call.options)
    assert (times == 1).all(), f"handed over {np.unique(times)} times"
    return result


def _arguments(view: np.ndarray, shift: int) -> list:
    memory = np.lib.stride_tricks.as_strided(view, (reach(view),), (view.itemsize,)).copy()
    where = Shifted(memory, shift * view.itemsize) if shift else memory
    return [where, *(stride // view.itemsize for stride in view.strides)]
