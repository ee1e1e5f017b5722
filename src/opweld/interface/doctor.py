"""What this machine has, what is missing, and the command that installs it.

Needs no torch: it is what a user runs when an import fails.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.version import Version
from rich.console import Console

from opweld import sandbox
from opweld.errors import MissingCompiler

OK, MISSING, NOTE = "ok", "missing", "note"
COMMAND_LIMIT_S = 60.0
LEAST_TORCH = (2, 11)
INSTALL_GXX = "install g++ 9 or newer: apt-get install g++ (Debian), dnf install gcc-c++ (Fedora)"
INSTALL_TORCH = "pip install torch==2.13.0"
INSTALL_NINJA = "pip install ninja"
INSTALL_NVCC = "pip install nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime"

DEFAULT_CUDA = Path("/usr/local/cuda")

TRIAL = """#include <cmath>
extern "C" void trial(float* y, const float* x, long n) {
    for (long i = 0; i < n; ++i) y[i] = std::tanh(x[i]);
}
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: its state (ok, missing, note), what was found, and the remedy."""

    name: str
    state: str
    found: str
    remedy: str = ""


def examine() -> tuple[Finding, ...]:
    """Everything that opweld needs or profits from on this machine."""
    checks: tuple[Callable[[], Finding], ...] = (
        python,
        torch,
        ninja,
        cxx,
        trial_build,
        vector_math,
        cores,
        build_cache,
        gpu,
        cuda_home,
        nvcc,
        confinement,
    )
    return tuple(check() for check in checks)


def require_build_tools(target: str) -> None:
    """Raises MissingCompiler where kernels for `target` cannot be built on this machine."""
    tools = (ninja, cxx) if target == "cpu" else (ninja, cxx, nvcc)
    lacking = next((tool for tool in (each() for each in tools) if tool.state != OK), None)
    if lacking:
        raise MissingCompiler(
            f"the kernels cannot be built: {lacking.name} {lacking.found}",
            next_step=f"{lacking.remedy or INSTALL_NVCC}, or write the file with --no-check",
        )


def python() -> Finding:
    return Finding("python", OK, f"{platform.python_version()} at {sys.executable}")


def torch() -> Finding:
    version = _installed("torch")
    if version is None:
        return Finding("torch", MISSING, "not installed", INSTALL_TORCH)
    if Version(version).release < LEAST_TORCH:
        return Finding("torch", MISSING, f"{version} is too old", INSTALL_TORCH)
    return Finding("torch", OK, version)


def ninja() -> Finding:
    beside = Path(sys.executable).with_name("ninja")
    path = str(beside) if beside.exists() else shutil.which("ninja")
    if path is None:
        return Finding("ninja", MISSING, "not found", INSTALL_NINJA)
    return Finding("ninja", OK, f"{_version([path, '--version'])} at {path}")


def cxx() -> Finding:
    compiler = cxx_command()
    path = shutil.which(compiler)
    if path is None:
        return Finding("c++ compiler", MISSING, f"{compiler} not found", INSTALL_GXX)
    return Finding("c++ compiler", OK, _version([path, "--version"]))


def cxx_command() -> str:
    """The C++ compiler that torch's extension builder will call."""
    return os.environ.get("CXX") or "c++"


def trial_build() -> Finding:
    """Compiles and links three lines, as the CPU kernels will be."""
    name = "trial build"
    if shutil.which(cxx_command()) is None:
        return Finding(name, MISSING, "no compiler to try", INSTALL_GXX)
    with tempfile.TemporaryDirectory(prefix="opweld-doctor-") as folder:
        source = Path(folder, "trial.cpp")
        source.write_text(TRIAL, "utf-8")
        command = [cxx_command(), "-O3", "-shared", "-fPIC", str(source), "-o", f"{folder}/t.so"]
        status, said = _run(command)
    if status != 0:
        return Finding(name, MISSING, _last_line(said), INSTALL_GXX)
    return Finding(name, OK, "a shared library compiles and links")


def vector_math() -> Finding:
    """glibc's vector functions: without them the CPU kernels are right, and slow."""
    name = "libmvec"
    status, path = _run([cxx_command(), "-print-file-name=libmvec.so.1"])
    if status == 0 and Path(path.strip()).is_absolute():
        return Finding(name, OK, path.strip())
    return Finding(name, NOTE, "not found: exp, tanh and the like stay scalar on the CPU")


def cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("cpu", OK, f"{usable} usable cores, {_cpu_name()}")


def build_cache() -> Finding:
    """Where torch keeps the kernels it has built."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    default = Path(cache) / "torch_extensions"
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR", default))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Finding("build cache", OK, str(folder))
    except OSError as error:
        remedy = "set TORCH_EXTENSIONS_DIR to a folder that can be written"
        return Finding("build cache", MISSING, f"{folder}: {error.strerror}", remedy)


def gpu() -> Finding:
    status, said = _run(
        ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    )
    if status != 0 or not said.strip():
        return Finding("gpu", NOTE, "no NVIDIA GPU: the target is the CPU")
    devices = [line.split(", ") for line in said.strip().splitlines()]
    described = [
        f"{name}, sm_{cap.replace('.', '')}, driver {driver}" for name, cap, driver in devices
    ]
    return Finding("gpu", OK, "; ".join(described))


def cuda_home() -> Finding:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            return Finding("cuda toolkit", OK, f"{os.environ[variable]} (from {variable})")
    compiler = shutil.which("nvcc")
    if compiler:
        return Finding("cuda toolkit", OK, str(Path(compiler).resolve().parents[1]))
    if DEFAULT_CUDA.exists():
        return Finding("cuda toolkit", OK, str(DEFAULT_CUDA))
    return _cuda_missing("cuda toolkit", "not found")


def nvcc() -> Finding:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or DEFAULT_CUDA
    beside = Path(home, "bin", "nvcc")
    path = str(beside) if beside.exists() else shutil.which("nvcc")
    if path is None:
        return _cuda_missing("nvcc", "not found")
    return Finding("nvcc", OK, f"{_version([path, '--version'], 'release')} at {path}")


def confinement() -> Finding:
    """What the kernel has for the sandbox of model files and candidates."""
    lacking = sandbox.missing()
    if not lacking:
        return Finding("sandbox", OK, "Landlock and seccomp have all of its parts")
    return Finding("sandbox", NOTE, f"this kernel cannot prevent {' or '.join(lacking)}")


def _cuda_missing(name: str, found: str) -> Finding:
    needed = gpu().state == OK
    return Finding(name, MISSING if needed else NOTE, found, INSTALL_NVCC if needed else "")


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _run(command: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_LIMIT_S,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout


def _version(command: Sequence[str], sign: str = "") -> str:
    """The first line that a tool prints, or the first with `sign` in it."""
    lines = [line.strip() for line in _run(command)[1].splitlines() if sign in line]
    return lines[0] if lines else "of unknown version"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it failed without a word"


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.machine()
    named = re.search(r"model name\s*:\s*(.+)", text)
    return named.group(1).strip() if named else platform.machine()


def as_json(findings: Sequence[Finding]) -> str:
    missing = [finding.name for finding in findings if finding.state == MISSING]
    data = {"schema_version": 1, "missing": missing, "findings": [asdict(f) for f in findings]}
    return json.dumps(data, indent=2)


def show(findings: Sequence[Finding], console: Console) -> None:
    """One line a finding, the remedy below what is missing, and a last line that sums up."""
    signs = {OK: "ok", MISSING: "MISSING", NOTE: "-"}
    for finding in findings:
        _line(console, f"{signs[finding.state]:8}{finding.name:14}{finding.found}")
        if finding.remedy:
            _line(console, f"{'':22}-> {finding.remedy}")
    missing = [finding.name for finding in findings if finding.state == MISSING]
    _line(console, f"\nMissing: {', '.join(missing)}" if missing else "\nNothing is missing.")


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
