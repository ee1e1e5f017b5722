"""Compile checks of CUDA texts: registers, spills and shared memory, as ptxas reports them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")

_FUNCTION = re.compile(
    r"Function properties for (?P<name>\S+)\s+"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\s+"
    r"(?:ptxas )?info\s*: Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)


@dataclass(frozen=True, slots=True)
class KernelUse:
    """What one kernel takes on the device."""

    name: str  # mangled
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int

    @property
    def spills(self) -> bool:
        return self.spill_store_bytes + self.spill_load_bytes > 0


def compile_cuda(
    text: str, arch: str = "sm_90a", options: Sequence[str] = (), timeout_s: float = 300.0
) -> tuple[KernelUse, ...]:
    """Compiles a CUDA text to a cubin, warnings as errors.

    Raises:
        AssertionError: with the compiler's messages, if it does not compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cu"
        source.write_text(text)
        command = [
            NVCC or "nvcc", "-cubin", f"-arch={arch}", "-O3", "-std=c++17",
            "-Werror", "all-warnings", "-Xptxas", "-v", *options,
            "-o", str(Path(folder) / "kernel.cubin"), str(source),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"nvcc -arch={arch} fails:\n{done.stderr}\n{done.stdout}"
    return parse(done.stderr + done.stdout)


def parse(report: str) -> tuple[KernelUse, ...]:
    """The kernels of a `ptxas -v` report, in its order."""
    return tuple(
        KernelUse(
            match["name"],
            int(match["registers"]),
            int(match["stack"]),
            int(match["stores"]),
            int(match["loads"]),
            _shared_bytes(match["rest"]),
        )
        for match in _FUNCTION.finditer(report)
    )


def _shared_bytes(rest: str) -> int:
    found = re.search(r"(\d+) bytes smem", rest)
    return int(found[1]) if found else 0


def require_no_spills(uses: Sequence[KernelUse]) -> None:
    """Raises AssertionError naming the kernels that spill registers."""
    spilling = [use for use in uses if use.spills]
    assert uses, "ptxas reported no kernel"
    assert not spilling, f"kernels spill registers: {spilling}"
