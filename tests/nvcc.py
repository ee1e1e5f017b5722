"""Compile checks of CUDA texts: warnings and spills are failures."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest

from opweld.resources import CompileError, KernelUse, kernel_uses

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")


def compile_cuda(
    text: str, arch: str = "sm_90a", options: Sequence[str] = ()
) -> tuple[KernelUse, ...]:
    """What the kernels of a text take; an AssertionError with nvcc's messages where it refuses."""
    try:
        return kernel_uses(text, arch, ("-Werror", "all-warnings", *options))
    except CompileError as error:
        raise AssertionError(str(error)) from None


def require_no_spills(uses: Sequence[KernelUse]) -> None:
    """Raises AssertionError naming the kernels that spill registers."""
    spilling = [use for use in uses if use.spill_bytes]
    assert uses, "ptxas reported no kernel"
    assert not spilling, f"kernels spill registers: {spilling}"
