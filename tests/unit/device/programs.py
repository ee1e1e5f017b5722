"""The device functions as callable code: C++ loops, and CUDA kernels for the emulation and nvcc."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from tests.emulation.emulate import emulate
from tests.unit.device.functions import FUNCTIONS, Function, call

from opweld.device import CPP_FLAGS, pieces

C_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
}
FLOATS = (torch.float32, torch.float64)
INTEGERS = tuple(dtype for dtype in C_TYPES if dtype not in FLOATS)


def variants() -> Iterable[tuple[Function, torch.dtype]]:
    for function in FUNCTIONS:
        for dtype in C_TYPES:
            if function.floats if dtype in FLOATS else function.integers:
                yield function, dtype


def _signature(function: Function, dtype: torch.dtype) -> tuple[str, str, str]:
    kind = C_TYPES[dtype]
    values = tuple(f"v{i}[i]" for i in range(function.num_values))
    inputs = ", ".join(f"const {kind}* __restrict__ v{i}" for i in range(function.num_values))
    result = "bool" if function.returns_bool else kind
    return inputs, f"{result}* __restrict__ out", call(function, values, kind)


def cpp_text() -> str:
    """`void <function>_<type>(values..., out, n)`, one vectorised loop each."""
    parts = list(pieces([f.name for f in FUNCTIONS], "cpp"))
    for function, dtype in variants():
        inputs, out, value = _signature(function, dtype)
        parts.append(
            f'extern "C" void {function.name}_{C_TYPES[dtype]}({inputs}, {out}, long n) {{\n'
            "#pragma omp simd\n"
            f"  for (long i = 0; i < n; ++i) out[i] = {value};  // {function.name} {dtype}\n}}"
        )
    return "\n".join(parts)


@cache
def cuda_text() -> str:
    """Kernels of the same names, and launchers `<name>_launch` for the emulation."""
    parts = list(pieces([f.name for f in FUNCTIONS], "cuda"))
    for function, dtype in variants():
        name = f"{function.name}_{C_TYPES[dtype]}"
        inputs, out, value = _signature(function, dtype)
        parts.append(
            f"__global__ void {name}({inputs}, {out}, int n) {{\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
            f"  if (i < n) out[i] = {value};\n}}"
        )
        passed = ", ".join(f"v{i}" for i in range(function.num_values))
        parts.append(
            f'extern "C" int {name}_launch({inputs}, {out}, int n, void* stream) {{\n'
            f"  {name}<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>({passed}, out, n);\n"
            "  return cudaGetLastError();\n}"
        )
    return "\n".join(["#include <cuda_runtime.h>", *parts])


def build_cpp(text: str, folder: Path, *extra: str) -> tuple[ctypes.CDLL, str]:
    """The library of a C++ text, and what the compiler said. Warnings are errors."""
    source, library = folder / "text.cpp", folder / "text.so"
    source.write_text(text)
    flags = ("-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *CPP_FLAGS, *extra)
    command = ["g++", *flags, str(source), "-o", str(library), "-lmvec"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library)), done.stderr


def run_cpp(
    library: ctypes.CDLL, function: Function, values: Sequence[torch.Tensor]
) -> torch.Tensor:
    out = _result(function, values[0])
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (*values, out)]
    name = f"{function.name}_{C_TYPES[values[0].dtype]}"
    getattr(library, name)(*pointers, ctypes.c_long(out.numel()))
    return out


def run_emulated(function: Function, values: Sequence[torch.Tensor]) -> torch.Tensor:
    out = _result(function, values[0]).numpy()
    arrays: list[np.ndarray | int] = [v.numpy() for v in values]
    name = f"{function.name}_{C_TYPES[values[0].dtype]}_launch"
    emulate(cuda_text(), name, [*arrays, out, out.size])
    return torch.from_numpy(out)


def _result(function: Function, like: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like, dtype=torch.bool if function.returns_bool else like.dtype)
