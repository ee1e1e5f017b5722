"""Memory safety on the device: compute-sanitizer finds nothing, and a kernel that is broken on
purpose ends as a verdict, not as a failure of the tool.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gpu.emitting import write_pair

from opweld.worker import child_environment

pytestmark = pytest.mark.gpu

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, row):
        y = torch.tanh(x * row)
        return y + 1.0, torch.cat([y, x], dim=1).exp(), torch.nn.functional.pad(x, (2, 3)).cos()

def get_inputs():
    return [torch.randn(37, 1003), torch.randn(1003)]

def get_init_inputs():
    return []
"""

CALLS = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("emitted", sys.argv[1])
emitted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(emitted)
assert emitted._ops is not None, "the kernels were not built"
model = emitted.ModelNew()
with torch.no_grad():
    for rows in (1, 2, 37):
        row = torch.randn(1003, device="cuda")
        x = torch.randn(rows, 1003, device="cuda")
        model(x, row)
        model(torch.randn(rows, 2006, device="cuda")[:, ::2], row)
        model(torch.randn(rows * 1003 + 1, device="cuda")[1:].view(rows, 1003), row)
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("safety"), "safety", SOURCE)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="needs compute-sanitizer")
def test_memcheck_finds_nothing(pair: tuple[Path, Path]) -> None:
    command = [sys.executable, "-c", CALLS, str(pair[1])]
    # The caching allocator would hide an access past the end of a tensor.
    environ = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    subprocess.run(command, env=environ, check=True, timeout=120)  # builds before it is watched
    done = subprocess.run(
        ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", *command],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout


BREAKAGES = {
    "writes far away": ("store_vector(result + at", "store_vector(result + at + (1u << 30)"),
    "skips the last element": ("at < num_elems &&", "at + 1 < num_elems &&"),
    "computes another function": ("= op::exp(", "= 1.0001f * op::exp("),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_kernel_is_a_verdict(
    pair: tuple[Path, Path], breakage: str, tmp_path: Path
) -> None:
    model, new = pair
    text = new.read_text("utf-8")
    before, after = BREAKAGES[breakage]
    assert before in text, "the text to break is no longer generated"
    broken = tmp_path / "broken_new.py"
    broken.write_text(text.replace(before, after), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "opweld", "check", str(model), str(broken)],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert "NOT EQUIVALENT" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
