"""What the kernels of a CUDA text take on the device, as ptxas reports it; needs nvcc, no GPU."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from opweld.compiled import Compiled, PlanRow

T = TypeVar("T")
TIME_LIMIT_S = 120.0
# Behind a build, which makes several libraries at once.
_PATIENCE_S = 5.0

_FUNCTION = re.compile(
    r"Function properties for (?P<name>\S+)\s+"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\s+"
    r"(?:ptxas )?info\s*: Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)

_SERIALISED = re.compile(r"instructions are serialized due to [^\n]*function '(\w+)'")


# COMMON_NVCC_FLAGS of torch.utils.cpp_extension, which takes long to import.
PYTORCHS_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)


@dataclass(frozen=True, slots=True)
class KernelUse:
    """What one kernel takes: registers a thread, bytes a thread of stack and spills, bytes a block
    of shared memory. `name` is mangled. `serialised`: its tensor-core instructions wait for each
    other, because ptxas could not tell that they need not.
    """

    name: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    serialised: bool = False

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes


def kernel_uses(text: str, arch: str, options: Sequence[str] = ()) -> tuple[KernelUse, ...]:
    """Compiles a CUDA text to a cubin, with PyTorch's own flags, and reads the report.

    Raises:
        FileNotFoundError: there is no nvcc on PATH.
        CompileError: the text does not compile; the message is nvcc's.
    """
    with tempfile.TemporaryDirectory() as directory:
        command = [*_command(text, arch, directory), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    if done.returncode != 0:
        raise CompileError(f"nvcc -arch={arch} fails:\n{done.stderr}\n{done.stdout}")
    return parse_report(done.stderr + done.stdout)


def _command(text: str, arch: str, directory: str) -> list[str]:
    source = Path(directory, "kernel.cu")
    source.write_text(text, "utf-8")
    made = ["-o", str(Path(directory, "kernel.cubin")), str(source)]
    flags = [f"-arch={arch}", "-O3", "-std=c++17", "-Xptxas", "-v", *PYTORCHS_FLAGS]
    return ["nvcc", "-cubin", *flags, *made]


class CompileError(Exception):
    """nvcc refuses a text."""


def parse_report(report: str) -> tuple[KernelUse, ...]:
    """The kernels of a `ptxas -v` report, in its order."""
    serialised = set(_SERIALISED.findall(report))
    return tuple(
        KernelUse(
            match["name"],
            int(match["registers"]),
            int(match["stack"]),
            int(match["stores"]),
            int(match["loads"]),
            _shared_bytes(match["rest"]),
            match["name"] in serialised,
        )
        for match in _FUNCTION.finditer(report)
    )


def _shared_bytes(rest: str) -> int:
    found = re.search(r"(\d+) bytes smem", rest)
    return int(found[1]) if found else 0


# A pointwise kernel's instance for operands of less than 2^31 elements, by its mangled name.
_WITH_32_BIT_INDICES = re.compile(r"(elementsI|_contiguous_kernelI).*Ej")


def with_resources(compiled: Compiled, build: Callable[[], T]) -> tuple[T, Compiled]:
    """What `build()` returns, and the account with registers and spills of each fused group, where
    nvcc can tell them: it is asked while the build goes on, and is not waited for long behind that.
    """
    source = compiled.stages.get("source", "")
    if "__global__" not in source or shutil.which("nvcc") is None:
        return build(), compiled
    with (
        tempfile.TemporaryDirectory() as directory,
        Path(directory, "report").open("w+b") as report,
    ):
        command = _command(source, compiled.target, directory)
        asked = subprocess.Popen(command, stdout=report, stderr=report, start_new_session=True)
        try:
            built = build()
            asked.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if asked.poll() is None:
                os.killpg(asked.pid, signal.SIGKILL)  # and what nvcc has started
                asked.wait()
        report.seek(0)
        said = report.read().decode(errors="replace")
    if asked.returncode != 0:
        return built, compiled  # where it does not compile, the build says why, with the line
    uses = parse_report(said)
    rows = tuple(_with_use(row, uses) for row in compiled.plan_rows)
    return built, replace(compiled, plan_rows=rows)


def _with_use(row: PlanRow, uses: tuple[KernelUse, ...]) -> PlanRow:
    """Registers of the instance that full-size operands run, of a product those of the worst that
    has its epilogue; spills of the worst instance.
    """
    # Mangled, a name stands behind its length, and no part of another's name does.
    is_own = re.compile(rf"\d{row.name}_(element|row|epilogue|contiguous)").search
    own = [use for use in uses if is_own(use.name)]
    if not own:
        return row
    full_size = [use for use in own if _WITH_32_BIT_INDICES.search(use.name)]
    registers = max(use.registers for use in full_size or own)
    return replace(row, registers=registers, spills=max(use.spill_bytes for use in own))
