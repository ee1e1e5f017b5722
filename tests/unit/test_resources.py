"""What ptxas reports is read whole, and finds its way to the right group."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.nvcc import needs_nvcc

from opweld.compiled import Compiled, PlanRow
from opweld.process.resources import PYTORCHS_FLAGS, parse_report, with_resources

REPORT = """\
ptxas info    : Compiling entry function '_Z9k1_kernelv' for 'sm_90a'
ptxas info    : Function properties for _Z9k1_kernelv
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 2048 bytes smem
ptxas info    : Function properties for _Z9k2_kernelv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers
"""

SOURCE = """
template <int kLanes, typename Index>
__global__ void k1_double_contiguous_kernel(const float* x, float* y, Index n) {
  Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
template __global__ void k1_double_contiguous_kernel<4, unsigned int>(
    const float*, float*, unsigned int);
"""


def test_a_report_is_read() -> None:
    first, second = parse_report(REPORT)
    assert not first.serialised and not second.serialised
    told = "ptxas info : (C7520) wgmma.mma_async instructions are serialized due to a call in the "
    assert parse_report(f"{told}function '{second.name}'\n{REPORT}")[1].serialised
    assert (first.name, first.registers, first.stack_bytes) == ("_Z9k1_kernelv", 40, 16)
    assert (first.spill_bytes, first.shared_bytes) == (20, 2048)
    assert (second.registers, second.spill_bytes, second.shared_bytes) == (18, 0, 0)


@needs_nvcc
def test_a_group_gets_its_kernels_figures() -> None:
    rows = (PlanRow("k1_double", "pointwise", ("mul",), ""), PlanRow("linear", "library", (), ""))
    compiled = Compiled("", "sm_90a", rows, {"source": SOURCE})
    spent, found = with_resources(compiled, lambda: 1.5)
    fused, library = found.plan_rows
    assert spent == 1.5
    assert fused.registers is not None and 4 <= fused.registers <= 64
    assert fused.spills == 0
    assert library.registers is None


EPILOGUE = """
namespace op {
template <typename Element> struct ElementEpilogue {};
template <int kRows, typename Epilogue> __global__ void product_kernel(float* y) { y[0] = kRows; }
template <typename Element, int kLanes, typename Index, int kNum>
__global__ void elements(float* y, Index n) { y[n] = kLanes; }
}  // namespace op
struct k1_conv_relu_element {};
struct k2_add_element {};
struct k4_sum_row {};
template __global__ void op::product_kernel<64, op::ElementEpilogue<k1_conv_relu_element>>(float*);
template __global__ void op::elements<k2_add_element, 4, unsigned int, 2>(float*, unsigned int);
template __global__ void op::elements<k4_sum_row, 4, unsigned int, 2>(float*, unsigned int);
"""


@needs_nvcc
def test_a_product_gets_the_figures_of_what_has_its_element() -> None:
    names = ("k1_conv_relu", "k2_add", "k3_sum", "k4_sum", "add")
    rows = tuple(PlanRow(name, "pointwise", (), "") for name in names)
    compiled = Compiled("", "sm_90a", rows, {"source": EPILOGUE})
    found = with_resources(compiled, lambda: None)[1].plan_rows
    assert [row.registers is not None for row in found] == [True, True, False, True, False]


def test_a_text_that_does_not_compile_is_left_to_the_judge() -> None:
    compiled = Compiled("", "sm_90a", (), {"source": "__global__ nonsense"})
    assert with_resources(compiled, lambda: 2) == (2, compiled)


def test_nobody_waits_long_for_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow nvcc is ended, with what it has started, where the build ends and where it fails."""
    nvcc, started = tmp_path / "nvcc", tmp_path / "started"
    nvcc.write_text(f"#!/bin/sh\nsleep 300 & echo $! >> {started}\nwait\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("opweld.process.resources._PATIENCE_S", 0.2)
    compiled = Compiled("", "sm_90a", (), {"source": SOURCE})

    def build() -> str:
        while not started.exists() or not started.read_text().endswith("\n"):
            time.sleep(0.01)
        return "built"

    def fails() -> str:
        build()
        raise KeyboardInterrupt

    assert with_resources(compiled, build) == ("built", compiled)
    with pytest.raises(KeyboardInterrupt):
        with_resources(compiled, fails)
    for pid in started.read_text().split():
        status = Path("/proc", pid, "status")
        assert not status.exists() or "Z (zombie)" in status.read_text()


def test_texts_are_compiled_as_pytorch_compiles_them() -> None:
    from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

    assert set(COMMON_NVCC_FLAGS) <= set(PYTORCHS_FLAGS)
