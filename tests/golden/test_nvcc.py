"""The kept graphs' CUDA texts compile without warnings and spills, and move 16 bytes an access."""

from __future__ import annotations

import re
import subprocess
import tempfile
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
    *("broadcasts", "sliced", "flipped_rows", "bfloat16", "double", "library_call", "small_product"),
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


_WIDE = r"\.global(\.nc|\.wb)?\.(v4\.\w32|v2\.\w64) "


@cache
def instances() -> dict[str, tuple[str, ...]]:
    """The PTX of those that take packets of each graph's kernels, by the width of their indices."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.cu").write_text(text())
        command = ["nvcc", "-ptx", "-arch=sm_90a", "-O3", "-std=c++17", "kernel.cu"]
        subprocess.run([*command, "-o", "kernel.ptx"], cwd=folder, check=True, timeout=110)
        ptx = Path(folder, "kernel.ptx").read_text()
    found: dict[str, tuple[str, ...]] = {}
    for body in re.split(r"^\.(?:visible|weak) \.entry ", ptx, flags=re.MULTILINE)[1:]:
        head = re.search(r"_(?:element|contiguous_kernelI)Li(\d+)E([jm])", body.partition("(")[0])
        if head and int(head[1]) > 1:
            found[head[2]] = (*found.get(head[2], ()), body)
    return found


def of_graph(name: str, index: str) -> list[str]:
    kernel = re.compile(rf"_{name}_(?:element|contiguous_kernel)")
    return [body for body in instances()[index] if kernel.search(body.partition("(")[0])]


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("index", ["j", "m"], ids=["32 bits", "64 bits"])
def test_packets_are_loaded_by_16_byte_accesses(index: str) -> None:
    for name in PLAIN:
        packets = of_graph(name, index)
        assert packets, name
        for body in packets:
            assert re.search(f"ld{_WIDE}", body), f"{name} loads smaller words"


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("index", ["j", "m"], ids=["32 bits", "64 bits"])
def test_packets_are_stored_by_16_byte_accesses(index: str) -> None:
    for name in PLAIN:
        for body in of_graph(name, index):
            assert re.search(f"st{_WIDE}", body), f"{name} stores smaller words"
