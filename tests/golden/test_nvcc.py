"""The kept graphs' CUDA texts compile without warnings and spills, and move 16 bytes an access."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from tests.golden.cases import EXAMPLES
from tests.golden.texts import example_graph, kernels_for, small_graphs
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills

from opweld.ir.kernels.reduction import Lowered, Reduction, Scan
from opweld.render import render
from opweld.target import TARGETS

# All operands of these lie packet by packet, and every result does.
PLAIN = (
    *("broadcasts", "sliced", "flipped_rows", "bfloat16", "double", "library_call"),
    *(name for name in EXAMPLES if not name.startswith("linear")),
)


@cache
def kernels(arch: str) -> tuple[Lowered, ...]:
    """Without those of reductions, which have a test of their own (test_reductions.py of emulation)."""
    graphs = small_graphs() | {name: example_graph(name) for name in EXAMPLES}
    return tuple(
        fused
        for name, graph in graphs.items()
        for fused in kernels_for(graph, TARGETS[arch], suffix=f"_{name}")
        if not isinstance(fused, Reduction)
    )


@cache
def text(arch: str = "sm_90a") -> str:
    """The kernels of every graph in one text: nvcc takes seconds to begin."""
    return render("golden", kernels(arch), "cuda").text


@needs_nvcc
@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90a"])
def test_kernels_compile_without_warnings_and_spills(arch: str) -> None:
    uses = compile_cuda(text(arch), arch)
    require_no_spills(uses)
    entries = len(re.findall(r"^__global__ .*_(contiguous|strided)_kernel", text(arch), re.M))
    assert len(uses) >= 2 * entries  # each with 32- and with 64-bit indices
    scans = "|".join(each.group for each in kernels(arch) if isinstance(each, Scan))
    own = [
        use
        for use in uses
        if re.search("_(contiguous|strided)_kernel", use.name) and not re.search(scans, use.name)
    ]
    assert max(use.registers for use in own) <= 64  # four blocks of 128 threads wait for memory


@pytest.mark.slow
@needs_nvcc
def test_packets_are_moved_by_16_byte_accesses(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(text())
    command = ["nvcc", "-ptx", "-arch=sm_90a", "-O3", "-std=c++17", "kernel.cu", "-o", "kernel.ptx"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=110)
    ptx = (tmp_path / "kernel.ptx").read_text()
    bodies = re.split(r"^\.visible \.entry ", ptx, flags=re.MULTILINE)[1:]
    wide = r"\.global(\.nc)?\.(v4\.\w32|v2\.\w64) "
    for name in PLAIN:
        instances = [body for body in bodies if f"_{name}_contiguous_kernel" in body.split("(")[0]]
        # Of four instances two handle packets, with 32- and with 64-bit indices.
        packets = [body for body in instances if re.search(f"[ls][dt]{wide}", body)]
        assert len(packets) * 2 == len(instances) > 0, name
        for body in packets:
            assert re.search(f"ld{wide}", body), f"{name} loads smaller words"
            assert re.search(f"st{wide}", body), f"{name} stores smaller words"
