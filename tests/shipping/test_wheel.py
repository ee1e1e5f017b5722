"""Wheels of emitted files: they run where no compiler is, and say what does not fit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from tests.nvcc import needs_nvcc
from typer.testing import CliRunner

from opweld.driver import compile_file
from opweld.interface.cli import app
from opweld.options import Options
from opweld.shipping.architectures import LEVELS, architectures

MODEL = """
import torch
from torch import nn

class Gate(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.scale = Gate(), nn.Parameter(torch.full((64,), 0.5))

    def forward(self, x):
        return self.gate(x) * self.scale + 1.0

def get_inputs():
    return [torch.randn(8, 64)]

def get_init_inputs():
    return []
"""
BARE = {"PATH": "/nonexistent", "TORCH_EXTENSIONS_DIR": "/nonexistent"}
RUN = CliRunner()


def emitted(folder: Path, target: str, name: str = "gate_new") -> Path:
    model, out = folder / "gate.py", folder / f"{name}.py"
    model.write_text(MODEL)
    out.write_text(compile_file(model, Options(target=target, batch=8, check=False)).text)
    return out


def packaged(*words: str) -> Path:
    done = RUN.invoke(app, ["package", *words])
    assert done.exit_code == 0, done.output
    wheel, _, size = done.output.rpartition(": ")
    assert size.endswith(" kB\n")
    return Path(wheel)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    level = "x86-64-v2"  # what any machine with these tests has
    return packaged(str(emitted(folder, "cpu")), "--arch", level, "-o", str(folder / "dist"))


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """Where it is installed by pip, as in an environment of its own."""
    place = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-compile", "-q"]
    subprocess.run(
        [*command, "--no-deps", "--target", str(place), str(wheel)], check=True, timeout=120
    )
    return place


def python(code: str, site: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """In a process that finds neither compilers nor opweld."""
    environ = {**BARE, "PYTHONPATH": str(site), "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_it_runs_without_a_compiler_and_is_loaded_from_a_saved_file(
    site: Path, tmp_path: Path
) -> None:
    saves = """
import sys, warnings, torch
warnings.simplefilter("error", UserWarning)
import gate_new
model, x = gate_new.ModelNew(), torch.randn(3, 64)
with torch.profiler.profile(acc_events=True) as found, torch.no_grad():
    y = model(x)
ops = {event.name for event in found.events() if event.name.startswith("opweld_gate")}
assert len(ops) == 1, ops
original = gate_new.Model()
torch.testing.assert_close(y, original(x))
model(x).sum().backward()
assert model.scale.grad is not None
torch.save((model, x, y), "saved.pt")
assert "opweld" not in sys.modules and "torch.utils.cpp_extension" not in sys.modules
print(*ops)
"""
    done = python(saves, site, tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"opweld_gate_new_[0-9a-f]{12}::k1_\w+\n", done.stdout), done.stdout
    loads = """
import torch
model, x, y = torch.load("saved.pt", weights_only=False)
with torch.no_grad():
    assert torch.equal(model(x), y) and type(model).__module__ == "gate_new"
print(model._opweld.devices)
"""
    done = python(loads, site, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[device(type='cpu')]\n"


def test_its_library_is_no_matter_of_pythons_and_its_metadata_say_what_it_needs(
    wheel: Path,
) -> None:
    assert re.fullmatch(r"gate_new-1\.0\+g[0-9a-f]{8}-py3-none-linux_x86_64\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (library,) = (archive.read(name) for name in names if name.endswith(".so"))
        (about,) = (archive.read(name).decode() for name in names if name.endswith("METADATA"))
    assert b"PyObject" not in library and b"libpython" not in library
    assert b"libtorch_cpu.so" in library
    assert "Requires-Dist: torch>=2.11\n" in about and "Requires-Python: >=3.11\n" in about
    assert "Architectures: x86-64-v2\nCUDA: none, it runs on the CPU\n" in about
    newest = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library))
    assert newest > 2 and f"\nglibc: 2.{newest} or newer" in about


def test_the_same_text_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """So that operators have the same names wherever it is built; other text has others."""
    words = ("--arch", "x86-64-v2", "-o", str(tmp_path / "dist"))
    path = emitted(tmp_path, "cpu")
    again = packaged(str(path), *words)
    assert again.read_bytes() == wheel.read_bytes() and again.name == wheel.name
    path.write_text(path.read_text().replace("// k1_", "// the k1_", 1))
    other = packaged(str(path), *words)
    assert other.name != wheel.name


MISMATCHES = {
    r"'glibc': '[\d.]+'": ("'glibc': '9.9'", "it needs glibc 9.9, here is glibc 2."),
    r"'torch': '[\d.]+'": ("'torch': '99.1'", "it needs torch 99.1 or newer, here is 2."),
    r"'cpu_flags': \(": ("'cpu_flags': ('warp9', ", "this processor lacks warp9"),
    r"'machine': '\w+'": (
        "'machine': 'riscv'",
        "built for Linux on riscv, this is Linux on",
    ),
    r"_\w{12}\.so'": ("_gone.so'", "a library cannot be loaded"),
}


@pytest.mark.parametrize("fact", MISMATCHES)
def test_what_does_not_fit_is_one_sentence_and_the_original_runs(
    fact: str, site: Path, tmp_path: Path
) -> None:
    main = site / "gate_new" / "__init__.py"
    instead, sentence = MISMATCHES[fact]
    text, count = re.subn(fact, instead, main.read_text(), count=1)
    assert count == 1
    main.write_text(text)
    code = "import torch, gate_new; x = torch.ones(2, 64)\n"
    code += "assert torch.equal(gate_new.ModelNew()(x), gate_new.Model()(x))"
    done = python(code, site, tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "UserWarning" in line]
    assert len(said) == 1, done.stderr
    assert "gate: ModelNew runs the original, not its kernels: " in said[0]
    assert sentence in said[0]


def shipped_for(cuda: str | None, version: str | None, *here: tuple[int, int]) -> tuple[Any, str]:
    """What a shipped file says on a machine with these devices."""
    made = architectures("sm_90a,sm_80", "sm_90a")
    fake = types.SimpleNamespace(
        __version__="2.11.0+cu130",
        version=types.SimpleNamespace(cuda=version),
        device=lambda kind, number: (kind, number),
        cuda=types.SimpleNamespace(
            get_device_capability=lambda number: here[number], device_count=lambda: len(here)
        ),
    )
    facts = {
        "cuda": cuda, "glibc": "2.17", "torch": "2.11", "machine": os.uname().machine,
        "archs": made.names, "capabilities": made.capabilities, "cpu_flags": (),
    }  # fmt: skip
    space: dict[str, Any] = {"torch": fake, "_SHIPPED": facts}
    exec(resources.files("opweld.shipping").joinpath("texts", "needs.txt").read_text(), space)
    return tuple(space["_shipped_for"]())  # type: ignore[return-value]


def test_gpus_that_it_was_built_for_and_others() -> None:
    """sm_90a is for 9.0 alone, sm_80 for all of 8.x."""
    assert shipped_for("13", "13.0", (9, 0), (8, 9)) == ([("cuda", 0), ("cuda", 1)], "")
    assert shipped_for("13", "13.2", (12, 0), (8, 0)) == ([("cuda", 1)], "")
    assert shipped_for("13", "13.0", (12, 0), (12, 0)) == (
        (),
        "it was built for sm_90a, sm_80, here is sm_120",
    )
    assert shipped_for("13", "13.0")[1] == "it was built for sm_90a, sm_80, here is no CUDA device"
    assert shipped_for("13", "12.8", (9, 0))[1] == (
        "it was built for CUDA 13, this torch is for CUDA 12.8"
    )
    assert shipped_for("13", None)[1] == "it was built for CUDA 13, this torch is for the CPU alone"


@needs_nvcc
def test_a_wheel_for_gpus_is_built_where_there_is_none(tmp_path: Path) -> None:
    path = emitted(tmp_path, "sm_90a")
    made = packaged(str(path), "--arch", "sm_90a,sm_80", "-o", str(tmp_path / "dist"))
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
        (library,) = (archive.read(name) for name in names if name.endswith(".so"))
        about = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert b"libtorch_cuda.so" in library and re.search(rb"libcudart\.so\.\d+\0", library)
    assert b".nv_fatbin" in library and str(tmp_path).encode() not in library
    assert "Architectures: sm_90a, sm_80\nCUDA: CUDA 1" in about
    assert "Classifier: Environment :: GPU :: NVIDIA CUDA :: 1" in about


def refused(*words: str) -> str:
    done = RUN.invoke(app, ["package", *words])
    assert done.exit_code == 2 and done.output.count("\n") == 1
    return done.output


def test_the_compiler_is_asked_for_the_level_and_not_for_this_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked, compiler = emitted(tmp_path, "cpu"), tmp_path / "asked", tmp_path / "compiler"
    assert '"-march=native"' in path.read_text()
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert "compiler refused a library: it said nothing" in refused(str(path))
    assert [w for w in asked.read_text().split() if "march" in w] == ["-march=x86-64-v3"]


def test_what_cannot_be_packaged_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = emitted(tmp_path, "cpu")
    assert "is no file that opweld wrote" in refused(str(tmp_path / "gate.py"))
    assert "no architecture 'sm_90a' for a file that was made for cpu" in refused(
        str(path), "--arch", "sm_90a"
    )
    assert "is of one level" in refused(str(path), "--arch", "x86-64-v2,x86-64-v3")
    odd = path
    for name in ("gate-new", "_gate", "gate_", "class", "gàte"):
        odd = odd.rename(tmp_path / f"{name}.py")
        assert "a name that Python cannot import" in refused(str(odd))
    odd = odd.rename(tmp_path / "__init__.py")
    assert "is of a package, and a wheel is made of a single file" in refused(str(odd))
    bare = tmp_path / "bare_new.py"
    bare.write_text('"""ModelNew for m.py, by opweld 0.1.0 for cpu.\n"""\nimport torch\n')
    assert "has no kernels" in refused(str(bare))
    path = odd.rename(path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "there is no C++ compiler (no-such-compiler); install g++" in refused(str(path))
    monkeypatch.undo()
    path.write_text(path.read_text().replace("OPWELD_FN float", "OPWELD_FN no_type", 1))
    out = tmp_path / "dist"
    assert "refused a library" in refused(str(path), "-o", str(out))
    assert not out.exists()


def test_levels_of_processors_hold_what_those_below_do() -> None:
    flags = [set(architectures(level, "cpu").cpu_flags) for level in LEVELS]
    assert all(low < high for low, high in zip(flags, flags[1:], strict=False))
    assert architectures(None, "cpu").names == ("x86-64-v3",)
    assert architectures(None, "sm_90a").gencode == ["-gencode=arch=compute_90a,code=sm_90a"]
