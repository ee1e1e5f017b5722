"""Files whose kernels are built as several libraries, side by side."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from importlib import resources
from pathlib import Path
from unittest import mock

import pytest
import torch
from tests.behaviour.emitted import EVERY_STATE, load_file
from tests.behaviour.test_build import USE, start
from tests.fuzz.test_builds import check_host
from tests.nvcc import compile_cuda, needs_nvcc

from opweld.driver import compile_file
from opweld.emission.support import OWN_SYMBOLS
from opweld.options import Options
from opweld.render import libraries

USE = USE.replace(".get_inputs()[0]", ".get_inputs()").replace("(x)", "(*x)")

TWO = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.tanh(x) * 2, torch.softmax(y, 1)


def get_inputs():
    return [torch.randn(6, 24), torch.randn(3, 7)]


def get_init_inputs():
    return []
"""

STATES = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(24, 24)
        self.norm = nn.BatchNorm1d(24)

    def forward(self, x):
        y = torch.tanh(self.norm(self.fc(x))) * 2
        return torch.softmax(self.fc(y) + x, 1)


def get_inputs():
    return [torch.randn(6, 24)]


def get_init_inputs():
    return []
"""


def emitted(folder: Path, source: str, target: str) -> str:
    path = folder / "layers.py"
    path.write_text(source, "utf-8")
    return compile_file(path, Options(target=target, check=False, **EVERY_STATE)).text


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every kernel has a library of its own."""
    with (
        mock.patch.object(libraries, "_SECONDS", -1.0),
        mock.patch.object(libraries, "_LEAST_SECONDS", 0.0),
    ):
        return emitted(tmp_path_factory.mktemp("apart"), TWO, "cpu")


@pytest.fixture(scope="module")
def built(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the libraries are there."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "emitted.py").write_text(text, "utf-8")
    out, err = start(folder, USE, MAX_JOBS="2").communicate(timeout=300)
    assert out.splitlines() == ["2"], err
    return folder


def times_of(folder: Path) -> list[int]:
    made = (folder / "extensions" / "opweld").iterdir()
    return [each.stat().st_mtime_ns for folder in made for each in folder.glob("*.so")]


def test_kernels_of_all_libraries_run(
    text: str, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(built / "extensions"))
    before = times_of(built), os.environ["PATH"], sys.getdlopenflags(), threading.active_count()
    made = load_file(built / "layers_new.py", text)
    after = times_of(built), os.environ["PATH"], sys.getdlopenflags(), threading.active_count()
    assert after == before, "what is there is not built again, and nothing is left changed"
    assert len(times_of(built)) == text.count("\n_CPU") == 2
    old, new = made.Model(), made.ModelNew()
    given = [x.requires_grad_() for x in made.get_inputs()]
    results = [model(*given) for model in (old, new)]
    torch.testing.assert_close(results[1], results[0])
    found = [torch.autograd.grad([(y * y).sum() for y in each], given) for each in results]
    torch.testing.assert_close(found[1], found[0])


def test_a_path_that_is_not_set_stays_so(
    text: str, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(built / "extensions"))
    monkeypatch.delenv("PATH")
    made = load_file(built / "layers_without_path.py", text)
    assert made.ModelNew._opweld.devices and "PATH" not in os.environ


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"CXX": "no_such_compiler"}, "there is no C++ compiler (no_such_compiler): install g++"),
        ({"MAX_JOBS": "many"}, "the build failed: invalid literal for int"),
    ],
)
def test_without_one_of_them_the_original_runs(
    text: str, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    (tmp_path / "emitted.py").write_text(text, "utf-8")
    out, err = start(tmp_path, USE, **changes).communicate(timeout=100)
    calls, warning = out.splitlines()
    assert calls == "0" and said in warning, err


def test_one_that_does_not_build_leaves_the_original(text: str, tmp_path: Path) -> None:
    broken = text.replace('_MAIN_2 = r"""', '_MAIN_2 = r"""\n#error no operators here\n', 1)
    (tmp_path / "emitted.py").write_text(broken, "utf-8")
    out, err = start(tmp_path, USE).communicate(timeout=300)
    calls, warning = out.splitlines()
    assert calls == "0" and "no operators here" in warning, err


@pytest.fixture(scope="module")
def for_a_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    text = emitted(tmp_path_factory.mktemp("states"), STATES, "sm_90a")
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found[ast.unparse(node.targets[0])] = str(node.value.value)
    return found


def test_the_states_of_a_model_are_several_libraries(for_a_gpu: dict[str, str]) -> None:
    kernels = [name for name in for_a_gpu if name.startswith("_CUDA")]
    assert len(kernels) >= 2
    assert all('extern "C"' in for_a_gpu[name] for name in kernels)


def test_gcc_takes_the_operators_of_each(for_a_gpu: dict[str, str], tmp_path: Path) -> None:
    flags = ["-DUSE_CUDA", "-DTORCH_EXTENSION_NAME=opweld_test"]
    flags += ["-DTORCH_TARGET_VERSION=0x020a000000000000", OWN_SYMBOLS]
    for name in ("_MAIN", "_MAIN_2"):
        check_host(f"{for_a_gpu['_HOST']}\n{for_a_gpu[name]}", flags, tmp_path)


@pytest.mark.parametrize(("flags", "is_shared"), [([OWN_SYMBOLS], False), ([], True)])
def test_libraries_of_a_process_have_their_own_operators(
    flags: list[str], is_shared: bool, tmp_path: Path
) -> None:
    """Their names are a static of a function, of which g++ gives all libraries one."""
    path, made = tmp_path / "main.cpp", tmp_path / "main.so"
    includes = "".join(f"#include <{name}>\n" for name in ("cstdint", "map", "string"))
    names = f"{includes}using StableIValue = uint64_t;\n"
    text = (resources.files("opweld.device") / "host" / "replay.h").read_text("utf-8")
    own = text[text.index("// An operator as") : text.index("inline int64_t address_of")]
    path.write_text(f"{names}{own}void* use() {{ return &operators(); }}\n")
    command = ["g++", "-std=c++17", "-shared", "-fPIC", *flags, str(path), "-o", str(made)]
    subprocess.run(command, check=True, timeout=120)
    table = subprocess.run(["nm", "-D", str(made)], check=True, capture_output=True, text=True)
    lines = table.stdout.splitlines()
    assert any(" u " in line and "operators" in line for line in lines) == is_shared


@needs_nvcc
def test_nvcc_takes_the_kernels_of_each(for_a_gpu: dict[str, str]) -> None:
    """What some library does not use of the common text is no warning."""
    text = f"{for_a_gpu['_DEVICE']}\n{for_a_gpu['_CUDA_2']}"
    assert compile_cuda(text, "sm_90a", ("-diag-suppress", "177"))


def test_lists_are_filled_and_little_is_left_for_none() -> None:
    def divided(*seconds: float) -> list[list[str]]:
        names = "abcdefgh"
        return libraries._divided(list(zip(names, seconds, strict=False)))

    assert divided(1, 2, 2) == [["a", "b", "c"]]
    assert divided(10, 1, 1) == [["a", "b", "c"]]
    assert divided(10, 1, 2) == [["a"], ["b", "c"]]
    assert divided(2, 10, 3) == [["a", "b"], ["c"]]
    assert divided(1, 10, 10) == [["a", "b"], ["c"]]
    assert divided(4, 4, 4, 2) == [["a"], ["b"], ["c", "d"]]
    assert divided(1, 10, 2) == [["a", "b", "c"]]
    assert divided(0, 0, 0) == [["a", "b", "c"]]
