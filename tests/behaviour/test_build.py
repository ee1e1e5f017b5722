"""Building on import: what is missing is said in a sentence, and nothing is waited for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.behaviour.emitted import Pair, emitted_text
from tests.unit.device.test_symbols import shared_symbols

USE = """
import sys, warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import emitted
import torch
from torch.utils._python_dispatch import TorchDispatchMode
class Count(TorchDispatchMode):
    ours = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Count.ours += str(func).startswith("opweld_")
        return func(*args, **(kwargs or {}))
torch.manual_seed(0)
new, old = emitted.ModelNew().eval(), emitted.Model().eval()
x = emitted.get_inputs()[0]
with Count(), torch.no_grad():
    out = new(x)
torch.testing.assert_close(out, old(x))
print(Count.ours)
for each in said:
    print(each.message)
"""


@pytest.fixture
def folder(tmp_path: Path, gelu: Pair) -> Path:
    (tmp_path / "emitted.py").write_text(gelu.text, "utf-8")
    return tmp_path


def environment(folder: Path, **changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("CXX", "CC")}
    return {**kept, "TORCH_EXTENSIONS_DIR": str(folder / "extensions"), **changes}


def start(folder: Path, script: str = USE, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment(folder, **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.splitlines()


def use(folder: Path, **changes: str) -> list[str]:
    """What a new process prints: the number of kernels that ran, then every warning."""
    return finish(start(folder, **changes))


def libraries(folder: Path) -> list[Path]:
    return sorted((folder / "extensions" / "opweld").glob("*/*.so"))


def test_built_once(folder: Path) -> None:
    assert use(folder) == ["1"]
    (library,) = libraries(folder)
    assert not shared_symbols(library)
    before = library.stat().st_mtime_ns
    assert use(folder) == ["1"]
    assert [each.stat().st_mtime_ns for each in libraries(folder)] == [before]
    assert {each.name for each in library.parent.parent.iterdir()} == {library.parent.name}


@pytest.mark.slow
def test_two_processes_at_once(folder: Path) -> None:
    processes = [start(folder), start(folder)]
    assert [finish(process) for process in processes] == [["1"], ["1"]]
    assert len(libraries(folder)) == 1


def slow_compiler(folder: Path) -> str:
    """A folder with a c++ that is there to be killed."""
    places = folder / "slow"
    places.mkdir()
    script = places / "c++"
    real = shutil.which("c++")
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *main.cpp*) touch {folder}/compiling; sleep 60;; esac\n'
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    return f"{places}{os.pathsep}{os.environ['PATH']}"


def test_an_interrupted_build_blocks_no_other(folder: Path) -> None:
    process = start(folder, PATH=slow_compiler(folder))
    limit = time.monotonic() + 120
    while not (folder / "compiling").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert (folder / "compiling").exists() and libraries(folder) == []
    assert list((folder / "extensions" / "opweld").glob("*/lock"))
    assert use(folder) == ["1"]


@pytest.mark.slow
def test_half_a_library_is_built_again(folder: Path) -> None:
    use(folder)
    (library,) = libraries(folder)
    library.write_bytes(library.read_bytes()[:1000])
    assert use(folder) == ["1"]


def tools(folder: Path, *names: str) -> str:
    """A PATH with the named programs only."""
    places = folder / "bin"
    places.mkdir()
    for name in names:
        program = shutil.which(name)
        assert program is not None
        (places / name).symlink_to(program)
    return str(places)


def test_without_a_compiler(folder: Path) -> None:
    count, sentence = use(folder, PATH=tools(folder, "ninja", "sh"))
    assert count == "0"
    assert sentence == (
        "emitted: ModelNew runs the original, not its kernels: "
        "there is no C++ compiler (c++): install g++"
    ).replace("emitted", "gelu")


def test_without_ninja(folder: Path) -> None:
    beside = Path(sys.executable).parent / "ninja"
    if beside.exists():
        pytest.skip("ninja stands beside this Python, where it is found")
    count, sentence = use(folder, PATH=tools(folder, "c++", "g++", "sh"))
    assert count == "0"
    assert sentence.endswith("there is no ninja: pip install ninja")


def test_ninja_beside_python_is_found(folder: Path) -> None:
    if not (Path(sys.executable).parent / "ninja").exists():
        pytest.skip("ninja does not stand beside this Python")
    path = tools(folder, "c++", "g++", "gcc", "as", "ld", "sh", "which")
    assert use(folder, PATH=path) == ["1"]


def test_a_compiler_that_refuses(folder: Path) -> None:
    places = folder / "refusing"
    places.mkdir()
    script = places / "c++"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *main.cpp*) echo "main.cpp:1:1: error: no such thing" >&2;'
        f' exit 1;; esac\nexec {shutil.which("c++")} "$@"\n'
    )
    script.chmod(0o755)
    count, sentence = use(folder, PATH=f"{places}{os.pathsep}{os.environ['PATH']}")
    assert count == "0"
    assert sentence.endswith("the build failed: main.cpp:1:1: error: no such thing")
    assert use(folder) == ["1"]


AGAIN = """
import os
import warnings
with warnings.catch_warnings(record=True):
    warnings.simplefilter("always")
    import emitted  # by a compiler that refuses
    del os.environ["CXX"]
    del sys.modules["emitted"]
"""


def test_a_second_try_in_one_process(folder: Path) -> None:
    """As in a notebook, whose user installs what was missing and runs the cell again."""
    script = "import sys\n" + AGAIN + USE
    assert finish(start(folder, script, CXX="false")) == ["1"]


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    blocked = folder / "extensions"
    blocked.write_text("a file where the folder should be")
    assert use(folder) == ["1"]


def test_cuda_file_without_cuda(folder: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("there is a GPU")
    (folder / "emitted.py").write_text(emitted_text("gelu", "sm_90a"), "utf-8")
    count, sentence = use(folder)
    assert count == "0"
    assert sentence.startswith("gelu: ModelNew runs the original, not its kernels: no device")


@pytest.mark.slow
def test_flags_and_versions_are_part_of_the_name(folder: Path) -> None:
    use(folder)
    text = (folder / "emitted.py").read_text("utf-8")
    (folder / "emitted.py").write_text(text.replace('"-O3"', '"-O2"'), "utf-8")
    assert use(folder) == ["1"]
    assert len(libraries(folder)) == 2
