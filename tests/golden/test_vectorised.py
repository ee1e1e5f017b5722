"""g++ turns the loops of the kept graphs' contiguous kernels into vector code, or into a copy of
memory.
"""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest
from tests.golden.texts import kernels_for, small_graphs

from opweld.device import CPP_FLAGS
from opweld.render import render
from opweld.target import CPU

# With AVX-512, whatever this machine has: 64-bit integers become numbers by no instruction of AVX2.
FLAGS = ["-march=icelake-server" if flag == "-march=native" else flag for flag in CPP_FLAGS]
ONE_ELEMENT = ("scalar",)
_FUNCTION = re.compile(r'^extern "C" void \w+?_g_(\w+)_(contiguous|strided)\(')


@pytest.mark.skipif(platform.machine() != "x86_64", reason="vector code of x86-64")
def test_loops_become_vector_code(tmp_path: Path) -> None:
    kernels = [
        fused
        for name, graph in small_graphs().items()
        for fused in kernels_for(graph, CPU, suffix=f"_g_{name}")
    ]
    text = render("golden", tuple(kernels), "c++").text
    (tmp_path / "kernel.cpp").write_text(text)
    # Of equal functions that are made one, one would be told of.
    said = ["-fopt-info-vec-loop-optimized", "-fno-ipa-icf"]
    command = ["g++", "-std=c++17", "-c", *FLAGS, *said, "kernel.cpp"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=200
    )
    became = re.findall(r"^kernel\.cpp:(\d+):\d+: .*(?:loop vec|library call)", done.stderr, re.M)
    vectorised = set(map(int, became))
    loops = _loops(text)
    assert len(loops) >= len(kernels)
    scalar = [name for name, lines in loops if not vectorised & set(lines)]
    assert [name for name in scalar if name not in ONE_ELEMENT] == []


def _loops(text: str) -> list[tuple[str, range]]:
    """The case and the lines of every vector loop of a contiguous kernel."""
    found: list[tuple[str, range]] = []
    case = ""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if head := _FUNCTION.match(line):
            case = head[1] if head[2] == "contiguous" else ""
        if case and line.startswith("#pragma omp simd"):
            length = next(k for k, each in enumerate(lines[number:]) if each.strip() == "}")
            found.append((case, range(number + 1, number + length + 1)))
    return found
