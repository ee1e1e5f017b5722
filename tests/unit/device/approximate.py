"""The approximate functions: how each is called, on what, and what it must give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from tests.unit.device.functions import BY_NAME, Function, call
from tests.unit.device.samples import HARD, grid, near, rms, scale

from opweld.device import names, pieces

# Pieces that are functions of the table in functions.py, by their name there.
APPROXIMATE = {
    name: name.rpartition("_")[0]
    for name in names("cuda")
    if name.endswith(("_approx", "_bf16")) and name.rpartition("_")[0] in (*BY_NAME, "div")
}
HALVES = (torch.float16, torch.bfloat16)
IN_CPP = tuple(name for name in APPROXIMATE if name in names("cpp"))
CASES = tuple(
    (name, dtype)
    for name in APPROXIMATE
    for dtype in HALVES
    if dtype is torch.bfloat16 or not name.endswith("_bf16")
)
RELATIVE_ERROR = 2.0**-14
COARSE = {"tanh_bf16": 1.001 * 2.0**-11}


def _normal_distribution(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.special.erfc(x * -math.sqrt(0.5))


# Where PyTorch's own formula cancels, even in float64.
_EXACT = {
    "gelu": lambda x: x * _normal_distribution(x),
    "gelu_tanh": lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    "div": torch.div,
}


def function_of(name: str) -> Function:
    plain = APPROXIMATE[name]
    return BY_NAME[plain] if plain in BY_NAME else Function("div", torch.div, 2)


@cache
def cuda_text() -> str:
    """A kernel of float operands and a launcher `<piece>_launch` for each function."""
    parts = ["#include <cuda_runtime.h>", *pieces(sorted(APPROXIMATE), "cuda")]
    for name in APPROXIMATE:
        function = function_of(name)
        values = tuple(f"v{i}[i]" for i in range(function.num_values))
        inputs = "".join(f"const float* v{i}, " for i in range(function.num_values))
        value = call(function, values, "float").replace(f"op::{function.name}", f"op::{name}")
        passed = "".join(f"v{i}, " for i in range(function.num_values))
        parts.append(
            f"__global__ void {name}({inputs}float* out, int n) {{\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
            f"  if (i < n) out[i] = {value};\n}}\n"
            f'extern "C" int {name}_launch({inputs}float* out, int n, void* stream) {{\n'
            f"  {name}<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>({passed}out, n);\n"
            "  return cudaGetLastError();\n}"
        )
    return "\n".join(parts)


def cpp_text() -> str:
    """`void <piece>_loop(x, out, n)` for each function that C++ texts have as well."""
    loops = (
        f'extern "C" void {name}_loop(const float* __restrict__ x, float* __restrict__ out, long n)'
        f" {{\n#pragma omp simd\n  for (long i = 0; i < n; ++i) out[i] = op::{name}(x[i]);\n}}"
        for name in IN_CPP
    )
    return "\n".join([*pieces(IN_CPP, "cpp"), *loops])


def operands(function: Function, dtype: torch.dtype) -> list[torch.Tensor]:
    """Every value of a 16-bit type; pairs of them at random, and hard ones in all combinations."""
    every = torch.from_numpy(np.arange(1 << 16, dtype=np.uint16).view(np.int16)).view(dtype)
    if function.num_values == 1:
        return [every.float()]
    generator = torch.Generator().manual_seed(3)
    hard = grid(torch.tensor(HARD).to(dtype).float(), 2)
    return [
        torch.cat([every[torch.randperm(1 << 16, generator=generator)].float(), column])
        for column in hard
    ]


def require_exact_enough(
    name: str, dtype: torch.dtype, values: Sequence[torch.Tensor], result: torch.Tensor
) -> None:
    """Raises AssertionError where a result is not that of float64 or of eager, nearly."""
    function = function_of(name)
    doubles = [v.double() for v in values]
    exact = _EXACT.get(function.name, function.reference)(*doubles)
    eager = function.reference(*[v.to(dtype) for v in values])
    info = torch.finfo(dtype)
    size = scale(function, doubles, exact).clamp(min=info.smallest_normal)
    bound = COARSE.get(name, RELATIVE_ERROR)
    good = near(result.double(), exact, bound * size)
    # Beyond the largest number, and for operands that are not finite: what eager gives.
    rounded = result.to(dtype)
    good |= (rounded == eager) | (rounded.isnan() & eager.isnan())
    worst = ((result.double() - exact).abs() / size)[torch.isfinite(exact)].nan_to_num().max()
    at = (~good).nonzero().flatten()[:5].tolist()
    shown = [([v[i].item() for v in values], result[i].item(), exact[i].item()) for i in at]
    assert good.all(), f"{name} {dtype}: {int((~good).sum())} wrong, {shown}; worst {worst}"
    zero = (exact == 0) & (eager == 0)
    assert torch.equal(torch.signbit(rounded[zero]), torch.signbit(eager[zero])), name
    require_well_rounded(rounded, exact, name)


def require_well_rounded(rounded: torch.Tensor, exact: torch.Tensor, name: str) -> None:
    """The error in units of the last place is that of correct rounding, within 5 % (rms), over
    the operands whose result must be rounded.
    """
    info = torch.finfo(rounded.dtype)
    kept = torch.isfinite(exact) & (exact.abs() >= info.smallest_normal) & (exact.abs() < info.max)
    kept &= torch.isfinite(rounded)
    place = torch.exp2(torch.floor(torch.log2(exact[kept].abs()))) * info.eps
    ours = (rounded[kept].double() - exact[kept]) / place
    best = (exact[kept].to(rounded.dtype).double() - exact[kept]) / place
    inexact = best.abs() > 2.0**-6
    ours_rms, best_rms = rms(ours[inexact]), rms(best[inexact])
    assert ours_rms <= 1.05 * best_rms, (name, ours_rms, best_rms)
