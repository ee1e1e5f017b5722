"""The approximate functions are exact enough for 16-bit types, over all of their values."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from tests.emulation.emulate import emulate
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.device.approximate import (
    APPROXIMATE,
    CASES,
    HALVES,
    IN_CPP,
    cpp_text,
    cuda_text,
    function_of,
    operands,
    require_exact_enough,
)
from tests.unit.device.programs import build_cpp


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_all_16_bit_values(name: str, dtype: torch.dtype):
    """With instructions that err by as much as they may."""
    values = operands(function_of(name), dtype)
    out = torch.empty_like(values[0]).numpy()
    emulate(cuda_text(), f"{name}_launch", [*[v.numpy() for v in values], out, out.size])
    require_exact_enough(name, dtype, values, torch.from_numpy(out))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", IN_CPP)
def test_all_16_bit_values_in_cpp(name: str, dtype: torch.dtype, tmp_path: Path):
    library, said = build_cpp(cpp_text(), tmp_path, "-fopt-info-vec-optimized")
    assert "loop vectorized" in said
    (x,) = operands(function_of(name), dtype)
    out = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr())
    getattr(library, f"{name}_loop")(*pointers, ctypes.c_long(x.numel()))
    require_exact_enough(name, dtype, (x,), out)


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_compiles_without_spills(arch: str):
    uses = compile_cuda(cuda_text(), arch)
    assert len(uses) == len(APPROXIMATE)
    require_no_spills(uses)
