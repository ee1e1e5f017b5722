"""CUDA texts compiled: for a look at warnings and spills, or as a library for the device here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from opweld.process.resources import CompileError, KernelUse, kernel_uses

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
    """Raises AssertionError naming the kernels that spill registers, or whose tensor-core
    instructions wait for each other.
    """
    spilling = [use for use in uses if use.spill_bytes]
    assert uses, "ptxas reported no kernel"
    assert not [use for use in uses if use.serialised], "products wait for each other"
    assert not spilling, f"kernels spill registers: {spilling}"


def ptx_of(text: str, folder: Path) -> str:
    """The PTX of a text, for sm_90a."""
    source, ptx = folder / "text.cu", folder / "text.ptx"
    source.write_text(text)
    command = ["nvcc", "-ptx", "-O3", "-std=c++17", "-arch=compute_90a"]
    command += ["-o", str(ptx), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return ptx.read_text()


def build_cuda(text: str, folder: Path) -> ctypes.CDLL:
    """The library of a text, for the device that is there."""
    source, shared = folder / "text.cu", folder / "text.so"
    source.write_text(text)
    major, minor = torch.cuda.get_device_capability()
    arch = "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"
    # not unique: a second library of the same text has what it found out once of its own kernels
    own = "-fPIC,-fno-gnu-unique"
    command = ["nvcc", "-shared", "-Xcompiler", own, "-O3", "-std=c++17"]
    command += ["--expt-relaxed-constexpr"]  # as PyTorch has it
    command += [f"-arch={arch}", "-o", str(shared), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(shared))
