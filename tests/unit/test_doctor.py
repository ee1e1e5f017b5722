"""The doctor: what it finds on a machine that lacks something, and the remedy it names."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from opweld.interface import doctor
from opweld.interface.doctor import MISSING, NOTE, OK, Finding

SOURCE = str(Path(__file__).parents[2] / "src")


def named(findings: tuple[Finding, ...], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing on the path, no toolkit, no variables."""
    for variable in ("CXX", "CUDA_HOME", "CUDA_PATH", "TORCH_EXTENSIONS_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_this_machine_can_build() -> None:
    findings = doctor.examine()
    assert [f.name for f in findings if f.state == MISSING and f.name != "nvcc"] == []
    assert named(findings, "trial build").found == "a shared library compiles and links"


def test_no_compiler(bare_machine: Path) -> None:
    for finding in (doctor.cxx(), doctor.trial_build()):
        assert finding.state == MISSING
        assert "apt-get install g++" in finding.remedy


def test_a_compiler_that_fails(bare_machine: Path) -> None:
    tool(bare_machine, "c++", "echo 'cannot find crt1.o'; exit 1")
    finding = doctor.trial_build()
    assert (finding.state, finding.found) == (MISSING, "cannot find crt1.o")


def test_the_compiler_that_cxx_names(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(bare_machine, "my-cxx", "echo my compiler 7")
    monkeypatch.setenv("CXX", "my-cxx")
    assert doctor.cxx() == Finding("c++ compiler", OK, "my compiler 7")


def test_a_gpu_without_a_toolkit(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(bare_machine, "nvidia-smi", "echo 'NVIDIA H200, 9.0, 580.1'")
    monkeypatch.setattr(doctor, "DEFAULT_CUDA", bare_machine / "no-cuda")
    assert doctor.gpu() == Finding("gpu", OK, "NVIDIA H200, sm_90, driver 580.1")
    assert doctor.nvcc().state == MISSING
    assert doctor.nvcc().remedy.startswith("pip install nvidia-cuda-nvcc")


def test_without_a_gpu_a_toolkit_is_no_need(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "DEFAULT_CUDA", bare_machine / "no-cuda")
    assert (doctor.gpu().state, doctor.nvcc().state, doctor.cuda_home().state) == (NOTE,) * 3


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/proc/no")
    finding = doctor.build_cache()
    assert finding.state == MISSING
    assert finding.remedy == "set TORCH_EXTENSIONS_DIR to a folder that can be written"


@pytest.mark.parametrize(
    ("version", "state"), [("2.10.1", MISSING), ("2.9", MISSING), ("2.11.0+cu130", OK)]
)
def test_the_version_of_torch(monkeypatch: pytest.MonkeyPatch, version: str, state: str) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda package: version)
    assert doctor.torch().state == state


def test_without_torch_it_still_answers() -> None:
    code = (
        "import sys, importlib.metadata as metadata; sys.modules['torch'] = None\n"
        "installed = metadata.version\n"
        "def version(name):\n"
        "    if name == 'torch': raise metadata.PackageNotFoundError(name)\n"
        "    return installed(name)\n"
        "metadata.version = version\n"
        "from opweld.interface import cli; sys.argv[1:] = ['doctor', '--json']; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert {f["name"] for f in json.loads(done.stdout)["findings"]} >= {"torch", "ninja", "gpu"}


def test_what_is_shown() -> None:
    stream = io.StringIO()
    findings = (Finding("ninja", MISSING, "not found", "pip install ninja"), Finding("a", OK, "b"))
    doctor.show(findings, Console(file=stream, width=200))
    assert stream.getvalue().split("\n") == [
        "MISSING ninja         not found",
        "                      -> pip install ninja",
        "ok      a             b",
        "",
        "Missing: ninja",
        "",
    ]


def test_the_build_cache_is_where_torch_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert doctor.build_cache().found == str(tmp_path / "torch_extensions")
