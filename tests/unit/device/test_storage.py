"""16-bit types round as PyTorch does, and packets move what they should."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.emulation.emulate import EmulationFault, Shifted, emulate
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.device.programs import build_cpp

import opweld.device
from opweld.device import pieces

CONVERSIONS = {"half": torch.float16, "bfloat16": torch.bfloat16}
STORAGE_PIECES = ("half", "bfloat16", "to_compute", "from_compute")
Convert = Callable[[str, torch.Tensor, torch.Tensor], None]

CPP = "\n".join(
    [
        *pieces([*STORAGE_PIECES, "widen_block", "narrow_block"], "cpp"),
        'extern "C" void widen_blocks(const op::half* x, float* out, long n) {\n'
        "  op::widen_block(x, n, out);\n}\n"
        'extern "C" void narrow_blocks(const float* x, op::half* out, long n) {\n'
        "  op::narrow_block(x, n, out);\n}\n",
        *(
            f'extern "C" void widen_{t}(const op::{t}* __restrict__ x, float* __restrict__ out, '
            "long n) {\n#pragma omp simd\n"
            "  for (long i = 0; i < n; ++i) out[i] = op::to_compute(x[i]);\n}\n"
            f'extern "C" void narrow_{t}(const float* __restrict__ x, op::{t}* __restrict__ out, '
            "long n) {\n#pragma omp simd\n"
            f"  for (long i = 0; i < n; ++i) out[i] = op::from_compute<op::{t}>(x[i]);\n}}\n"
            for t in CONVERSIONS
        ),
    ]
)

CUDA = "\n".join(
    [
        *pieces(STORAGE_PIECES, "cuda"),
        """
template <typename T>
__global__ void widen(const T* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = op::to_compute(x[i]);
}
template <typename T>
__global__ void narrow(const float* x, T* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = op::from_compute<T>(x[i]);
}
""",
        *(
            f'extern "C" int widen_{t}(const void* x, void* out, int n, void* stream) {{\n'
            f"  widen<<<(n + 255) / 256, 256>>>((const op::{t}*)x, (float*)out, n);\n"
            "  return cudaGetLastError();\n}\n"
            f'extern "C" int narrow_{t}(const void* x, void* out, int n, void* stream) {{\n'
            f"  narrow<<<(n + 255) / 256, 256>>>((const float*)x, (op::{t}*)out, n);\n"
            "  return cudaGetLastError();\n}\n"
            for t in CONVERSIONS
        ),
    ]
)


def _convert_emulated(name: str, x: torch.Tensor, out: torch.Tensor) -> None:
    emulate(CUDA, name, [_bits(x), _bits(out), x.numel()])


def _bits(t: torch.Tensor) -> np.ndarray:
    return (t.view(torch.int16) if t.element_size() == 2 else t).numpy()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    return build_cpp(CPP, tmp_path_factory.mktemp("storage"), "-fopt-info-vec-optimized")


@pytest.fixture(params=["c++", "cuda"])
def convert(request: pytest.FixtureRequest, library: tuple[ctypes.CDLL, str]) -> Convert:
    if request.param == "cuda":
        return _convert_emulated
    return lambda name, x, out: getattr(library[0], name)(
        ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel())
    )


@pytest.mark.parametrize("name", CONVERSIONS)
def test_every_16_bit_value_widens_exactly(convert: Convert, name: str):
    patterns = torch.from_numpy(np.arange(1 << 16, dtype=np.uint16).view(np.int16))
    x = patterns.view(CONVERSIONS[name])
    out = torch.empty(x.numel())
    convert(f"widen_{name}", x, out)
    assert torch.equal(torch.isnan(out), torch.isnan(x))
    assert torch.equal(out.nan_to_num(nan=0.5), x.float().nan_to_num(nan=0.5))
    assert torch.equal(torch.signbit(out), torch.signbit(x))


def _hard_floats(dtype: torch.dtype) -> torch.Tensor:
    """Any bits, the values of a 16-bit type, and what lies half-way between them or next to it."""
    generator = np.random.default_rng(0)
    some = generator.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    patterns = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    stored = torch.from_numpy(patterns).view(dtype).float()
    ties = torch.cat([stored * (1 + s * 2.0**-k) for k in (8, 9, 11, 12) for s in (1, -1)])
    near = [ties, ties * (1 + 2**-20), ties * (1 - 2**-20)]
    return torch.cat([torch.from_numpy(some), stored, *near])


@pytest.mark.parametrize("name", CONVERSIONS)
def test_narrowing_rounds_to_nearest_even(convert: Convert, name: str):
    x = _hard_floats(CONVERSIONS[name])
    out = torch.empty(x.numel(), dtype=CONVERSIONS[name])
    convert(f"narrow_{name}", x, out)
    _require_equal(out, x.to(CONVERSIONS[name]))


@pytest.mark.parametrize("left_out", [0, 3])
def test_blocks_of_half_convert_as_single_values_do(
    library: tuple[ctypes.CDLL, str], left_out: int
):
    def run(name: str, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        count = ctypes.c_long(x.numel() - left_out)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr())
        getattr(library[0], name)(*pointers, count)
        return out

    stored = torch.from_numpy(np.arange(1 << 16, dtype=np.uint16).view(np.int16))
    x = stored.view(torch.float16)
    wide = run("widen_blocks", x, torch.zeros(x.numel()))
    _require_equal(wide[: x.numel() - left_out], x.float()[: x.numel() - left_out])
    values = _hard_floats(torch.float16)
    narrow = run("narrow_blocks", values, torch.zeros(values.numel(), dtype=torch.float16))
    kept = values.numel() - left_out
    _require_equal(narrow[:kept], values.half()[:kept])
    assert not narrow[kept:].any() and not wide[x.numel() - left_out :].any()


def _require_equal(got: torch.Tensor, want: torch.Tensor) -> None:
    """The same numbers and the same zeros; NaN for NaN."""
    bits = torch.int16 if got.element_size() == 2 else torch.int32
    assert torch.equal(torch.isnan(got), torch.isnan(want))
    kept = ~torch.isnan(want)
    assert torch.equal(got.view(bits)[kept], want.view(bits)[kept])


def test_conversions_are_vectorised(library: tuple[ctypes.CDLL, str]):
    for line, text in enumerate(CPP.splitlines(), 1):
        if text.startswith("  for (long i"):
            assert f"text.cpp:{line}:" in library[1], text


STORED = {
    "bool": np.bool_,
    "uint8_t": np.uint8,
    "int16_t": np.int16,
    "op::half": np.float16,
    "op::bfloat16": np.uint16,
    "int32_t": np.int32,
    "float": np.float32,
    "int64_t": np.int64,
    "double": np.float64,
}
LANES = (1, 2, 4, 8, 16)


def _vector_text() -> str:
    used = ["half", "bfloat16", "load_vector", "store_vector", "is_aligned"]
    used += ["load_vector_streaming", "store_vector_streaming"]
    parts = list(pieces(used, "cuda"))
    for kind in STORED:
        for lanes in LANES:
            for suffix in ("", "_streaming"):
                name = f"{kind.removeprefix('op::')}_{lanes}{suffix}"
                parts.append(
                    f"__global__ void copy_{name}(const {kind}* __restrict__ x, "
                    f"{kind}* __restrict__ out) {{\n"
                    f"  int i = threadIdx.x * {lanes};\n"
                    f"  op::store_vector{suffix}(out + i, "
                    f"op::load_vector{suffix}<{lanes}>(x + i));\n}}\n"
                    f'extern "C" int {name}(const void* x, void* out, int packets, '
                    "void* stream) {\n"
                    f"  copy_{name}<<<1, packets>>>((const {kind}*)x, ({kind}*)out);\n"
                    "  return cudaGetLastError();\n}\n"
                )
    parts.append(
        'extern "C" int alignment(const void* x, void* out, void* stream) {\n'
        "  *(int32_t*)out = op::is_aligned<4>((const float*)x) + "
        "2 * op::is_aligned<2>((const float*)x) + 4 * op::is_aligned<8>((const float*)x);\n"
        "  return 0;\n}\n"
    )
    return "\n".join(parts)


VECTORS = _vector_text()


@pytest.mark.parametrize("suffix", ["", "_streaming"])
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("kind", STORED)
def test_vectors_move_their_lanes(kind: str, lanes: int, suffix: str):
    name = f"{kind.removeprefix('op::')}_{lanes}{suffix}"
    generator = np.random.default_rng(lanes)
    bits = generator.integers(0, 2 if kind == "bool" else 256, 8 * lanes * 8, dtype=np.uint8)
    x = bits.view(STORED[kind])[: 8 * lanes]
    out = np.zeros_like(x)
    emulate(VECTORS, name, [x, out, 8])
    assert out.tobytes() == x.tobytes()


def test_misaligned_vectors_are_reported():
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    for args in ([Shifted(x, 8), out, 2], [x, Shifted(out, 8), 2]):
        with pytest.raises(EmulationFault, match="misaligned access"):
            emulate(VECTORS, "float_4", args)


@pytest.mark.parametrize(("offset_bytes", "want"), [(0, 7), (8, 2), (4, 0), (16, 7)])
def test_is_aligned(offset_bytes: int, want: int):
    out = np.zeros(1, np.int32)
    emulate(VECTORS, "alignment", [Shifted(np.ones(8, np.float32), offset_bytes), out])
    assert out[0] == want


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_vectors_compile_without_spills(arch: str):
    uses = compile_cuda(VECTORS, arch)
    assert len(uses) == 2 * len(STORED) * len(LANES)
    require_no_spills(uses)


@needs_nvcc
@pytest.mark.skipif(shutil.which("cuobjdump") is None, reason="cuobjdump is not on PATH")
def test_16_bytes_are_one_access():
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "v.cu", Path(folder) / "v.cubin"
        source.write_text(VECTORS)
        command = ["nvcc", "-cubin", "-arch=sm_90a", "-std=c++17", "-o", str(cubin), str(source)]
        subprocess.run(command, check=True, timeout=300)
        sass = subprocess.run(
            ["cuobjdump", "-sass", str(cubin)], capture_output=True, text=True, timeout=300
        )
    assert sass.returncode == 0, sass.stderr
    functions = {f.split("\n")[0].strip(): f for f in sass.stdout.split("Function : ")[1:]}
    for kind, dtype in STORED.items():
        lanes = 16 // np.dtype(dtype).itemsize
        for suffix, access in (("", "E"), ("_streaming", "E.EF")):
            name = f"copy_{kind.removeprefix('op::')}_{lanes}{suffix}"
            (text,) = [f for mangled, f in functions.items() if f"{len(name)}{name}P" in mangled]
            assert f"LDG.{access}.128" in text, name
            assert f"STG.{access}.128" in text, name


def test_host_code_writes_no_numbers_to_streams() -> None:
    """As these macros of PyTorch do: with some toolchains that ends the process."""
    for path in Path(opweld.device.__file__).parent.rglob("*.h"):
        for macro in ("STD_TORCH_CHECK", "TORCH_ERROR_CODE_CHECK"):
            assert macro not in path.read_text("utf-8"), path.name
