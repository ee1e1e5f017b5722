"""Runs op::contract on the CPU: a text with a launcher for each mode, and calls of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from tests.emulation.emulate import Shifted, emulate, from_bfloat16, to_bfloat16

from opweld.device import pieces
from opweld.device.used import used

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
                      void* workspace, int64_t workspace_bytes, void* held, int changed,
                      int narrow, int aligned, void* stream) {{
  const op::Product product{{{{a, a_batch, a_row, a_inner}}, {{b, b_batch, b_row, b_inner}},
                            batches, m, n, k}};
  using Ways = {forms};
  if (op::workspace_bytes<Ways>(&product, held) != workspace_bytes) return -1;
  const Keep<{lanes}> keep{{static_cast<float*>(result), static_cast<int*>(times)}};
  return op::contract<Ways, {storage}>(&product, {{workspace, held, changed}}, keep,
                                       narrow ? 0 : 1ll << 31, aligned, stream);
}}
extern "C" int {name}_needs(const void* a, int64_t a_batch, int64_t a_row, int64_t a_inner,
                            const void* b, int64_t b_batch, int64_t b_row, int64_t b_inner,
                            int64_t batches, int64_t m, int64_t n, int64_t k, int held, void* bytes,
                            void* stream) {{
  const op::Product product{{{{a, a_batch, a_row, a_inner}}, {{b, b_batch, b_row, b_inner}},
                            batches, m, n, k}};
  using Ways = {forms};
  static_cast<int64_t*>(bytes)[0] = op::workspace_bytes<Ways>(&product, held);
  static_cast<int64_t*>(bytes)[1] = op::held_bytes<Ways>(&product);
  return 0;
}}
"""


# Every form of float32, in the order in which one is better than those after it.
FEW = {
    "RingRows": ("RingRows<1>", "RingRows<4>", "RingRows<8>"),
    "SliceRows": ("SliceRows<false>", "SliceRows<true>"),
    "ColumnRows": ("ColumnRows<4, true>", "ColumnRows<16, true>", "ColumnRows<16, false>"),
}
STORED = {"Half": "op::half", "Bfloat16": "op::bfloat16"}


def forms_of(mode: str, family: str) -> list[str]:
    """All forms of a mode; its name ends with Live where operands may be split as they are
    multiplied, and "small" is the form of small products alone.
    """
    if family == "small":
        return [f"op::FmaTiles<{STORED.get(mode, 'float')}, 32>"]
    forms: list[str] = []
    if mode not in STORED:
        few = [*FEW["RingRows"], *FEW["SliceRows"], "RingRows<16>", *FEW["ColumnRows"]]
        forms += [f"op::FewRows<op::{each}>" for each in few if mode != "Tf32" or family == "none"]
        forms += ["op::ShortSums"]
    if mode.endswith("Live"):
        forms += [f"op::LiveTiles<op::Live{family.capitalize()}>"]
    if family != "none":
        base = mode.removesuffix("Live")
        kernel = f"op::Tiles{family.capitalize()}"
        whole = f"WholeTiles<op::{base}, {kernel}>"
        split = f"SplitTiles<op::{base}, op::HeldOperand, {kernel}>"
        forms += [f"op::{whole if mode in STORED else split}"]
    return [*forms, f"op::FmaTiles<{STORED.get(mode, 'float')}>"]


def pieces_of(mode: str, family: str) -> list[str]:
    """The pieces that the forms of a mode are made of."""
    base = mode.removesuffix("Live")
    needed = ["contract", "product_bytes", "FmaTiles", base]
    if mode in STORED:
        needed += [STORED[mode].removeprefix("op::")]
    else:
        needed += [*FEW, "ShortSums"]
    if mode.endswith("Live"):
        needed += [f"Live{family.capitalize()}"]
    if family not in ("none", "small"):
        kind = "Whole" if mode in STORED else "Split"
        needed += [f"{kind}Tiles", f"Tiles{family.capitalize()}", "HeldOperand"]
        needed += [f"{kind}Sums"] if family == "sm90" else []
    if family == "sm90" and mode in STORED:
        needed += [f"wgmma_{mode.lower()}_{columns}" for columns in (128, 256)]
    return needed


@cache
def text(
    modes: tuple[str, ...] = tuple(MODES), lanes: tuple[int, ...] = (1, 2), family: str = "none"
) -> str:
    """The device library's part and a launcher for each mode and number of lanes. `family`: whose
    kernels the tensor cores run, "none" or "mma"."""
    launchers = [
        LAUNCHER.format(
            name=f"product_{mode.lower()}_{count}",
            forms=f"op::Forms<{', '.join(forms_of(mode, family))}>",
            storage=STORED.get(mode, "float"),
            lanes=count,
        )
        for mode in modes
        for count in lanes
    ]
    needed = dict.fromkeys(name for mode in modes for name in pieces_of(mode, family))
    users = [EPILOGUE, *launchers]
    return "\n".join([*used(pieces(needed), users), *users])


@dataclass(frozen=True, slots=True)
class Call:
    """How a product is called beside its operands."""

    mode: str = "Faithful"
    lanes: int = 2
    narrow: bool = True
    aligned: bool = True
    family: str = "none"
    changed: bool = False
    multiprocessors: int = 132
    options: dict[str, object] = field(default_factory=dict)

    @property
    def launcher(self) -> str:
        return f"product_{self.mode.lower()}_{self.lanes}"


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


def needs(
    extents: Sequence[int],
    call: Call,
    *,
    held: bool = False,
    source: str | None = None,
    operands: list | None = None,
) -> tuple[int, int]:
    """The bytes of workspace and of the copy held for [batches, m, n, k], by default of operands
    without gaps along k.
    """
    found = np.zeros(2, np.int64)
    launcher = f"product_{call.mode.lower()}_1_needs"
    _, m, n, k = extents
    laid = operands or [None, m * k, k, 1, None, n * k, k, 1]
    source = source or text(family=call.family)
    arguments = [*laid, *extents, int(held), found]
    emulate(source, launcher, arguments, multiprocessors=call.multiprocessors)
    return int(found[0]), int(found[1])


def product(
    a: np.ndarray,
    b: np.ndarray,
    call: Call = Call(),
    *,
    shift: int = 0,
    held: np.ndarray | None = None,
    source: str | None = None,
) -> np.ndarray:
    """c[batch, m, n] by op::contract from a[batch, m, k] and b[batch, n, k] of any strides.

    `shift` moves both operands by so many elements from 256-byte alignment; `held` keeps b split
    from call to call. Results and workspace are full of NaN before, and each value must be handed
    over once, or each twice where the first kernel's sums lack digits.
    """
    return _product(a, b, call, shift=shift, held=held, source=source)[0]


def makers(a: np.ndarray, b: np.ndarray, call: Call, source: str | None = None) -> int:
    """How many kernels made the product, one after the other."""
    return _product(a, b, call, shift=0, held=None, source=source)[1]


def _product(
    a: np.ndarray,
    b: np.ndarray,
    call: Call,
    *,
    shift: int,
    held: np.ndarray | None,
    source: str | None,
) -> tuple[np.ndarray, int]:
    extents = [a.shape[0], a.shape[1], b.shape[1], a.shape[2]]
    result = np.full(extents[:3], np.nan, np.float32)
    times = np.zeros(extents[:3], np.int32)
    operands = [*_arguments(a, shift), *_arguments(b, shift)]
    bytes_ = needs(extents, call, held=held is not None, source=source, operands=operands)[0]
    workspace = np.full(bytes_ // 4, np.nan, np.float32)
    memory = [workspace if bytes_ else None, bytes_, held, int(call.changed)]
    arguments = [*operands, *extents, result, times, *memory, int(call.narrow), int(call.aligned)]
    options = {"multiprocessors": call.multiprocessors, **call.options}
    emulate(source or text(family=call.family), call.launcher, arguments, **options)
    handed_over = np.unique(times)
    assert handed_over.tolist() in ([], [1], [2]), f"handed over {handed_over} times"
    return result, int(handed_over[0]) if times.size else 0


def _arguments(view: np.ndarray, shift: int) -> list:
    memory = np.lib.stride_tricks.as_strided(view, (reach(view),), (view.itemsize,)).copy()
    where = Shifted(memory, shift * view.itemsize) if shift else memory
    return [where, *(stride // view.itemsize for stride in view.strides)]
