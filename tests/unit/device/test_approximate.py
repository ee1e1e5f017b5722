"""The approximate functions are exact enough for 16-bit types, over all of their values."""

from __future__ import annotations

import pytest
import torch
from tests.emulation.emulate import emulate
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.device.approximate import (
    APPROXIMATE,
    CASES,
    cuda_text,
    function_of,
    operands,
    require_exact_enough,
)


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_all_16_bit_values(name: str, dtype: torch.dtype):
    """With instructions that err by as much as they may."""
    values = operands(function_of(name), dtype)
    out = torch.empty_like(values[0]).numpy()
    emulate(cuda_text(), f"{name}_launch", [*[v.numpy() for v in values], out, out.size])
    require_exact_enough(name, dtype, values, torch.from_numpy(out))


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_compiles_without_spills(arch: str):
    uses = compile_cuda(cuda_text(), arch)
    assert len(uses) == len(APPROXIMATE)
    require_no_spills(uses)
