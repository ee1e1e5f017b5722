"""The hand-written CUDA files of the benchmarks compile, and compute what the models do."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tests.emulation.emulate import emulate
from torch.utils import cpp_extension

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "benchmarks" / "by_hand").glob("*.py"))
KERNEL = re.compile(r"__global__ void (?P<name>\w+)\((?P<params>[^)]*)\) \{.*?\n\}\n", re.DOTALL)
SMALL: dict[str, tuple[int, ...]] = {"linear_sigmoid": (24, 40, 2)}
# What the text needs of torch's C++ interface, so that it compiles without its headers in seconds.
STAND_IN = """\
#pragma once
#include <cuda_runtime.h>
#include <cstdint>
namespace torch {
struct Tensor {
    float* data;
    int64_t size;
    int device() const { return 0; }
    int64_t numel() const { return size; }
    template <typename T> T* data_ptr() const { return data; }
};
inline Tensor empty_like(const Tensor& x) { return x; }
}
namespace at::cuda { inline cudaStream_t getCurrentCUDAStream() { return nullptr; } }
namespace c10::cuda { struct CUDAGuard { explicit CUDAGuard(int) {} }; }
#define C10_CUDA_KERNEL_LAUNCH_CHECK() (void)cudaGetLastError()
"""


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, str]:
    """The file with its kernel under emulation, and its CUDA text."""
    built: dict[str, Any] = {}

    def load_inline(**given: Any) -> SimpleNamespace:
        built.update(given)
        (function,) = given["functions"]
        return SimpleNamespace(**{function: emulated(given["cuda_sources"])})

    monkeypatch.setattr(cpp_extension, "load_inline", load_inline)
    return module_of(ROOT / "benchmarks" / "by_hand" / f"{name}.py"), built["cuda_sources"]


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def emulated(text: str) -> Callable[..., torch.Tensor]:
    """The kernel as a function of its tensors and numbers, in the order of its parameters."""
    kernel = KERNEL.search(text)
    assert kernel
    params = " ".join(kernel["params"].split())
    names = [param.split()[-1].lstrip("*") for param in params.split(",")]
    launcher = (
        f"#include <cuda_runtime.h>\n#include <cstdint>\n{kernel[0]}\n"
        f'extern "C" int launch({params}, cudaStream_t stream) {{\n'
        f"    {kernel['name']}<<<(n + 255) / 256, 256, 0, stream>>>({', '.join(names)});\n"
        "    return (int)cudaGetLastError();\n}\n"
    )

    def call(y: torch.Tensor, *more: Any) -> torch.Tensor:
        out = torch.full_like(y, float("nan"))
        tensors = [each.detach().numpy() for each in (y, *more) if isinstance(each, torch.Tensor)]
        columns = [each.size for each in tensors[1:]]
        numbers = [each for each in more if not isinstance(each, torch.Tensor)]
        emulate(launcher, "launch", [*tensors, *columns, *numbers, out.numpy(), y.numel()])
        return out

    return call


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_the_model_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hand, _ = imported(name, monkeypatch)
    original = module_of(ROOT / "examples" / f"{name}.py")
    sizes = SMALL.get(name, (24, 40)) if original.get_init_inputs() else ()
    models = []
    for cls in (original.Model, hand.ModelNew):
        torch.manual_seed(5)
        models.append(cls(*sizes).eval())
    state, new_state = (model.state_dict() for model in models)
    assert list(state) == list(new_state)
    assert all(torch.equal(state[key], new_state[key]) for key in state)
    x = torch.randn(37, 24) * 3.0
    x[3, 5], x[4, 6], x[5, 7] = float("nan"), float("inf"), 1e-30
    with torch.no_grad():
        expected, found = (model(x) for model in models)
        transposed = models[1](x.t().contiguous().t())
    torch.testing.assert_close(transposed, found, equal_nan=True)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert expected.isnan().any()


def test_there_is_one_for_each_founding_model() -> None:
    assert NAMES == ["gelu", "linear_relu", "linear_sigmoid", "linear_swish", "relu"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvcc_compiles_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [imported(name, monkeypatch)[1] for name in NAMES]
    for header in set(re.findall(r"#include <(.+?)>", "".join(texts))):
        path = tmp_path / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#include "stand_in.h"\n')
    (tmp_path / "stand_in.h").write_text(STAND_IN)
    (tmp_path / "all.cu").write_text("\n".join(texts))
    command = ["nvcc", "-c", "-arch=sm_90", "-std=c++17", "-Werror", "all-warnings", "-I", "."]
    done = subprocess.run(
        [*command, "all.cu", "-o", "all.o"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
