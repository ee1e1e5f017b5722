"""The host text: its launchers are those of the kernels, and compilers take it silently."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import text_made_of, texts_in
from tests.behaviour.models import SOURCES
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills

from opweld.device.used import declarations, used

# Rows that only all multiprocessors of a GPU keep together.
LONG_ROWS = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(9, 256, 256))

    def forward(self, x):
        return x / x.abs().amax((1, 2, 3), keepdim=True) * self.weight


def get_inputs():
    return [torch.empty(272, 9, 256, 256)]


def get_init_inputs():
    return []
"""
MODELS = {**SOURCES, "long_rows": LONG_ROWS}
LAUNCHER = re.compile(r'extern "C" (?:int|void) (\w+)\(([^)]*)\)', re.DOTALL)
TYPE = re.compile(r"(const )?(void|TensorView)\*|int64_t|int\b")


def texts(name: str, target: str) -> list[tuple[str, str]]:
    """The kernels and the host code in an emitted file, of each of its libraries."""
    found = texts_in(text_made_of(MODELS[name], target))
    kernels = [text for key, text in found.items() if key.startswith(("_CUDA", "_CPU"))]
    hosts = [text for key, text in found.items() if key.startswith("_MAIN")]
    before = found.get("_DEVICE", ""), found.get("_HOST", "")
    pairs = zip(kernels, hosts, strict=True)
    return [(f"{before[0]}\n{kernel}", f"{before[1]}\n{host}") for kernel, host in pairs]


def launchers(text: str) -> dict[str, list[str]]:
    """Types of each C function's parameters, without their names."""
    found = {}
    for name, parameters in LAUNCHER.findall(text):
        found[name] = [TYPE.match(" ".join(p.split()))[0] for p in parameters.split(",")]
    return found


@pytest.mark.parametrize("name", sorted(MODELS))
def test_launchers_agree(name: str) -> None:
    for kernels, host in texts(name, "sm_90a"):
        declared = launchers(host)
        assert declared and declared == launchers(kernels)


@pytest.mark.parametrize("target", ["sm_90a", "cpu"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_all_that_operators_have_in_common_is_used(name: str, target: str) -> None:
    for _, host in texts(name, target):
        common = host.partition("// Makes f the operator")[0]
        kept = used([_unwrapped(common)], [host.removeprefix(common)])
        declared = [
            {word for each in declarations(text) for word in each.names}
            for text in (_unwrapped(common), "\n".join(kept))
        ]
        assert declared[0] == declared[1]


def _unwrapped(text: str) -> str:
    """Without its namespaces."""
    return re.sub(r"^(namespace (\w+ )?\{|\}  // namespace.*)$", "", text, flags=re.MULTILINE)


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_nvcc_takes_the_kernels(name: str, arch: str) -> None:
    found = texts(name, arch)
    # Of the text that libraries have in common, each uses some.
    options = ("-diag-suppress", "177") if len(found) > 1 else ()
    for kernels, _ in found:
        require_no_spills(compile_cuda(kernels, arch, options))


@pytest.mark.parametrize(
    ("name", "target", "flag"),
    [
        *((name, "sm_90a", "-DUSE_CUDA") for name in sorted(MODELS)),
        *((name, "cpu", "-DHOST_ONLY") for name in sorted(SOURCES)),
    ],
)
def test_gcc_takes_the_host_text(name: str, target: str, flag: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on PATH")
    found = texts(name, target)
    include = Path(torch.__file__).parent / "include"
    command = ["g++", "-std=c++17", "-fsyntax-only", "-fopenmp-simd", "-Wall", "-Werror", flag]
    command += ["-Wno-unused-parameter", "-DTORCH_EXTENSION_NAME=opweld_test"]
    command += ["-Wno-unused-function"] if len(found) > 1 else []
    command += ["-DTORCH_TARGET_VERSION=0x020a000000000000"]
    command += [f"-isystem{include}", f"-isystem{include}/torch/csrc/api/include"]
    for kernels, host in found:
        path = tmp_path / "main.cpp"
        path.write_text(kernels * (target == "cpu") + host, "utf-8")
        done = subprocess.run([*command, path], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
