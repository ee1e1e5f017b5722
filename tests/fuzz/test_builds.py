"""Kernels of several emitted files as one text: compilers take it, and each file finds its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from tests.fuzz.builds import Order, noted_orders, together
from tests.nvcc import compile_cuda, needs_nvcc
from torch.utils import cpp_extension

from opweld.driver import compile_file
from opweld.options import Options

# Two files with kernels of one name, and one with several types.
LINES = {
    "one": "x.exp() * 2",
    "other": "x.exp() * 3, x.flatten().tanh()",
    "third": "(x.half() + 1).bfloat16(), x.double().sin(), x > 0.5",
}
MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {line}

def get_inputs():
    return [torch.randn(5, 7)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> list[Order]:
    """What the emitted files ask for; those for CUDA are told that there is a device."""
    files = []
    for name, line in LINES.items():
        model, new = tmp_path / f"{name}.py", tmp_path / f"{name}_new.py"
        model.write_text(MODEL.format(line=line))
        text = compile_file(model, Options(target=request.param)).text
        found = "libraries if devices else ()"
        assert found in text
        new.write_text(text.replace(found, "libraries"))
        files.append(new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
        if compiler := shutil.which("nvcc"):
            patch.setattr(cpp_extension, "CUDA_HOME", str(Path(compiler).resolve().parents[1]))
        return noted_orders(files)


def check_host(text: str, flags: list[str], folder: Path) -> None:
    path, include = folder / "main.cpp", Path(torch.__file__).parent / "include"
    path.write_text(text)
    command = ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-function"]
    includes = [f"-isystem{include}", f"-isystem{include}/torch/csrc/api/include"]
    command += [f for f in flags if f != "-march=native"]
    done = subprocess.run(
        [*command, *includes, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("orders", ["cpu"], indirect=True)
def test_gcc_takes_the_common_text(orders: list[Order], tmp_path: Path) -> None:
    assert len({order.name for order in orders}) == len(LINES)
    inputs = together(orders)
    check_host("".join(inputs["cpp_sources"]), inputs["extra_cflags"], tmp_path)


@needs_nvcc
@pytest.mark.parametrize("orders", ["sm_90a"], indirect=True)
def test_nvcc_takes_the_common_text(orders: list[Order], tmp_path: Path) -> None:
    assert len(orders) == len(LINES)
    inputs = together(orders)
    # Of the whole library, each file uses some functions.
    compile_cuda(inputs["cuda_sources"][0], "sm_90a", ("-diag-suppress", "177"))
    check_host(inputs["cpp_sources"][0], inputs["extra_cflags"], tmp_path)
