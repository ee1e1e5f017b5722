"""The emitted file as a package: the same kernels, in files that are read one at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from tests.behaviour.test_build import environment, start
from tests.behaviour.test_libraries import STATES, TWO, USE, emitted
from tests.nvcc import compile_cuda, needs_nvcc

from opweld.delivery import partial_result, publish
from opweld.emission.package import package_files
from opweld.render import libraries

CHAIN = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(torch.sigmoid(x) * 2 + x) * 3 - torch.exp(-x * x)


def get_inputs():
    return [torch.randn(2048, 1024)]


def get_init_inputs():
    return []
"""


WITHOUT_KERNELS = '''"""ModelNew for a.py."""

import torch


# a.py as it was.
_ORIGINAL = r"""x = 1
"""


def _apart(source, file):
    return None


_original = _apart(_ORIGINAL, 'a.py')
_Original = _original.Model
'''


def apart(folder: Path, source: str, target: str) -> str:
    """The text of a file in which every kernel has a library of its own."""
    with (
        mock.patch.object(libraries, "_SECONDS", -1.0),
        mock.patch.object(libraries, "_LEAST_SECONDS", 0.0),
    ):
        return emitted(folder, source, target)


def written(out: Path, text: str) -> None:
    with partial_result(out, text) as partial:
        publish(partial, out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package `emitted` for the CPU."""
    found = tmp_path_factory.mktemp("package")
    written(found / "emitted", apart(found, TWO, "cpu"))
    return found


def test_it_runs_the_kernels_of_all_its_libraries(folder: Path) -> None:
    out, err = start(folder, USE, MAX_JOBS="2").communicate(timeout=300)
    assert out.splitlines() == ["2"], err
    built = list((folder / "extensions" / "opweld").iterdir())
    names = {each.name.rpartition("_")[0] for each in built}
    assert len(built) == 2 and names == {"opweld_layers"}


def test_each_text_is_a_file(folder: Path) -> None:
    package = folder / "emitted"
    kernels = sorted(each.name for each in (package / "kernels").iterdir())
    hosts = [name for name in kernels if name.endswith("_host.cpp")]
    assert len(hosts) == 2 and "device.h" in kernels and "host.h" in kernels
    assert {name.replace("_host", "") for name in hosts} <= set(kernels)
    assert (package / "original.py").read_text("utf-8") == TWO
    main = (package / "__init__.py").read_text("utf-8")
    assert (
        "namespace" not in main
        and "def _fuse(" not in main
        and max(map(len, main.splitlines())) <= 100
    )
    assert '_library("' in main and "from . import original as _original" in main


def test_a_header_that_changes_is_another_library(folder: Path, tmp_path: Path) -> None:
    package = tmp_path / "emitted"
    package.mkdir()
    for each in (path for path in (folder / "emitted").rglob("*") if path.is_file()):
        if each.suffix != ".pyc":
            copy = package / each.relative_to(folder / "emitted")
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(each.read_bytes())
    header = package / "kernels" / "host.h"
    header.write_text("#error no operators here\n" + header.read_text("utf-8"), "utf-8")
    out, err = start(tmp_path, USE).communicate(timeout=300)
    calls, warning = out.splitlines()
    assert calls == "0" and "no operators here" in warning, err


def test_a_model_of_it_is_loaded_in_another_process(folder: Path) -> None:
    dump = "import pickle, emitted; pickle.dump(emitted.ModelNew(), open('model', 'wb'))"
    load = "import pickle; print(type(pickle.load(open('model', 'rb'))))"
    for script in (dump, load):
        out, err = start(folder, script).communicate(timeout=300)
    assert out == "<class 'emitted.ModelNew'>\n", err


def test_the_command_writes_judges_and_replaces_it(tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN, "utf-8")
    command = [sys.executable, "-m", "opweld", "optimize", "chain.py", "--target", "cpu"]
    for more in (["--no-check"], ["--baselines", "eager"]):
        done = subprocess.run(
            [*command, "-o", "out/chain_new", *more],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
    names = {each.name for each in (tmp_path / "out").iterdir()}
    assert names == {"chain_new"}
    main = (tmp_path / "out" / "chain_new" / "__init__.py").read_text("utf-8")
    assert "Verified on " in main and "EQUIVALENT" in done.stdout + done.stderr


def test_a_broken_one_fails_the_check(folder: Path, tmp_path: Path) -> None:
    """The judge looks at the package itself, and names its line."""
    (tmp_path / "layers.py").write_text(TWO, "utf-8")
    written(tmp_path / "layers_new", apart(tmp_path, TWO, "cpu"))
    main = tmp_path / "layers_new" / "__init__.py"
    text = main.read_text("utf-8")
    main.write_text(text + "\n\nModelNew.forward = lambda self, x, y: (x, 1 / 0)\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "opweld", "check", "layers.py", "layers_new", "--target", "cpu"],
        cwd=tmp_path,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=600,
    )
    line = len(text.splitlines()) + 3
    assert done.returncode == 1 and f"layers_new/__init__.py:{line}" in done.stdout, done.stdout


@pytest.fixture(scope="module")
def for_a_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return package_files(emitted(tmp_path_factory.mktemp("states"), STATES, "sm_90a"))


def test_files_for_a_gpu(for_a_gpu: dict[str, str]) -> None:
    sources = [name for name in for_a_gpu if name.endswith(".cu")]
    assert len(sources) >= 2 and "kernels/device.cuh" in for_a_gpu
    assert all(for_a_gpu[name].startswith('#include "device.cuh"\n') for name in sources)
    assert all(name.replace(".cu", "_host.cpp") in for_a_gpu for name in sources)


@needs_nvcc
def test_nvcc_takes_a_file_as_it_is(for_a_gpu: dict[str, str], tmp_path: Path) -> None:
    """With the folder of the kernels, where its header is, on the include path."""
    (tmp_path / "device.cuh").write_text(for_a_gpu["kernels/device.cuh"], "utf-8")
    source = next(text for name, text in for_a_gpu.items() if name.endswith(".cu"))
    assert compile_cuda(source, "sm_90a", ("-diag-suppress", "177", "-I", str(tmp_path)))


def test_a_file_without_kernels_has_two() -> None:
    files = package_files(WITHOUT_KERNELS)
    assert sorted(files) == ["__init__.py", "original.py"] and files["original.py"] == "x = 1\n"
    assert "_Original = _original.Model" in files["__init__.py"]
    assert "_apart" not in files["__init__.py"]
