"""Libraries of emitted files, of which a process may load many: what they share with each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.nvcc import needs_nvcc
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.emission.support import OWN_SYMBOLS, support_text
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render.cuda.texts import cuda_text
from opweld.target import SM_90A

needs_nm = pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not on PATH")


def shared_symbols(library: Path) -> list[str]:
    """Of static data, one for all libraries of a process that have the name; the standard library's
    are the same everywhere.
    """
    command = ["nm", "-D", "--defined-only", str(library)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [line.split()[-1] for line in lines if line.split()[-2] == "u"]
    return [name for name in found if not re.match("_ZZ?N?K?St", name)]


def test_kernels_of_both_languages_are_built_with_symbols_of_their_own() -> None:
    (flags,) = re.findall(r'\["extra_cflags"\] = \[([^\]]*)\]', support_text("c++"))
    assert f'"{OWN_SYMBOLS}"' in flags
    (flags,) = re.findall(r'"extra_cuda_cflags": \[([^\]]*)\]', support_text("cuda"))
    assert f'"-Xcompiler={OWN_SYMBOLS}"' in flags


@needs_nvcc
@needs_nm
def test_kernel_libraries_share_no_static_data(tmp_path: Path) -> None:
    """Two files may have rows of one name along other axes."""
    m = Make()
    plan = make_plan(graph(m.reduced("sum", m.x("x", BATCH, 7, 14, 96), 3)), SM_90A)
    source, library = tmp_path / "kernels.cu", tmp_path / "kernels.so"
    source.write_text(cuda_text(lower(plan)), "utf-8")
    assert "kAxesOfRows" in source.read_text("utf-8")
    command = ["nvcc", "-shared", "-Xcompiler=-fPIC", "-O3", "-std=c++17", "-arch=sm_90a"]
    command += ["--expt-relaxed-constexpr", str(source), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    assert any("kAxesOfRows" in name for name in shared_symbols(library)), "without the option"
    subprocess.run([*command, f"-Xcompiler={OWN_SYMBOLS}"], check=True, capture_output=True)
    assert not shared_symbols(library)
