"""Memory safety on the device: compute-sanitizer finds nothing, and a kernel that is broken on
purpose ends as a verdict, not as a failure of the tool.

    python3 -m pytest -m "gpu and slow" tests/gpu/test_safety.py

runs what needs compute-sanitizer on PATH.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.gpu.emitting import write_pair
from tests.gpu.sanitizing import KERNELS_ALONE, LOADED, needs_sanitizer, require_nothing_found

from opweld.process.worker import child_environment

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

CALLS = f"""{KERNELS_ALONE}model = emitted.ModelNew()
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


PRODUCT = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(1001, 2047)

    def forward(self, x):
        return torch.tanh(self.fc(x)) * 2.0

def get_inputs():
    return [torch.randn(512, 1001)]

def get_init_inputs():
    return []
"""
# Few rows, small tiles with k in parts, large tiles in clusters; operands that cannot be read four
# at a time, or lie across; data that the float32 kernel takes; a weight that was changed.
PRODUCT_CALLS = f"""{KERNELS_ALONE}
kernels = "".join(v for n, v in vars(emitted).items() if n.startswith("_CUDA"))
assert "_contract(" in kernels, "the product is the library's"
model = emitted.ModelNew().cuda()
with torch.no_grad():
    for rows in (1, 3, 9, 130, 4100):
        model(torch.randn(rows, 1001, device="cuda"))
    model(torch.randn(1001, 131, device="cuda").t())
    model(torch.randn(129, 1001, device="cuda").index_fill(0, torch.tensor(5).cuda(), torch.inf))
    model.fc.weight.data.mul_(2)
    model(torch.randn(130, 1001, device="cuda"))
torch.cuda.synchronize()
"""


ATTENTION = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def forward(self, q, k, v, few):
        whole = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return whole, F.scaled_dot_product_attention(few, few, few)

def get_inputs():
    return [*(torch.randn(1, 3, 300, 64) for _ in range(3)), torch.randn(2, 2, 150, 24)]

def get_init_inputs():
    return []
"""
# By both families; rows that are made again.
ATTENTION_CALLS = f"""{KERNELS_ALONE}
kernels = "".join(v for n, v in vars(emitted).items() if n.startswith("_CUDA"))
assert kernels.count("_attention_attend(") == 2, "attention is the library's"
model = emitted.ModelNew()
with torch.no_grad():
    few = torch.randn(2, 2, 150, 24, device="cuda")
    for factor in (1.0, 1e30):
        model(*(torch.randn(1, 3, 300, 64, device="cuda") * factor for _ in range(3)), few * factor)
torch.cuda.synchronize()
"""


@pytest.mark.slow
@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_nothing_is_found_in_attention(tool: str, tmp_path: Path) -> None:
    _, new = write_pair(tmp_path, "attention", ATTENTION)
    require_nothing_found(tool, ATTENTION_CALLS, new)


@pytest.mark.slow
@needs_sanitizer
def test_memcheck_finds_nothing(pair: tuple[Path, Path]) -> None:
    require_nothing_found("memcheck", CALLS, pair[1])


@pytest.mark.slow
@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found_in_products(tool: str, tmp_path: Path) -> None:
    _, new = write_pair(tmp_path, "product", PRODUCT)
    require_nothing_found(tool, PRODUCT_CALLS, new)


ERRORS = f"""{LOADED}
def require_error(words, call):
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError("no error")

model, x, row = emitted.ModelNew(), torch.randn(5, 1003).cuda(), torch.randn(1003).cuda()
with torch.no_grad():
    wanted = model(x, row)
    fused = emitted.ModelNew._opweld.op("k1_mul_tanh_add")
    require_error("operand 2 does not fit", lambda: fused(x, row[:7]))
    require_error("CUDA out of memory", lambda: model(x[:1].expand(2**40, 1003), row))
    for new, old in zip(model(x, row), wanted):
        assert torch.equal(new, old)
print("ENDED")
"""


def test_errors_of_kernels_are_errors(pair: tuple[Path, Path]) -> None:
    """Of a wrong call, and of a result for which there is no memory; the next call is as before."""
    done = subprocess.run(
        [sys.executable, "-c", ERRORS, str(pair[1])], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "ENDED" in done.stdout, done.stderr[-2000:]


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
