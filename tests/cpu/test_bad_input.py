"""Bad model files through the whole command: one sentence with the user's line, exit code 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[2] / "src")
FORWARD = "def forward(self, x):\n        return torch.tanh(x) * 2.0"
MODEL = """\
import torch
class Model(torch.nn.Module):
    {forward}
def get_inputs():
    return {inputs}
def get_init_inputs():
    return {init}
"""


def optimize(path: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opweld", "optimize", str(path), "--target", "cpu", *args],
        env={**os.environ, "PYTHONPATH": SOURCE, **environ},
        capture_output=True,
        text=True,
        timeout=600,
    )


def model(
    folder: Path, forward: str = FORWARD, inputs: str = "[torch.ones(4, 8)]", init: str = "[]"
) -> Path:
    path = folder / "m.py"
    path.write_text(MODEL.format(forward=forward, inputs=inputs, init=init))
    return path


def refusal(path: Path, done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The sentence without the file; nothing but the model stands in the folder."""
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"opweld: {path}"), last
    left = {each.name for each in path.parent.iterdir()} - {"__pycache__", "bin"}
    assert left == {path.name}
    return last.removeprefix(f"opweld: {path}")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"init": "[1, 2]"}, ": Model\\(\\*get_init_inputs\\(\\)\\) raises TypeError: "),
        ({"init": "3"}, ": get_init_inputs\\(\\) gives a value of type int; give a list"),
        ({"inputs": "[torch.ones(2, 3, requires_grad=True) @ torch.ones(4)]"}, ":6 .*get_inputs"),
        ({"inputs": "torch.no_such_name()"}, ":6 .* has no attribute 'no_such_name'"),
        ({"inputs": "['a']"}, ".*tensor"),
        ({"inputs": "[]"}, ": the inputs do not fit the forward's parameters: .* argument: 'x'"),
        ({"inputs": "5"}, ": get_inputs\\(\\) gives a value of type int; give a list"),
        (
            {"forward": "def forward(self, x):\n        raise ValueError('not today')"},
            ":4 .*not today",
        ),
        ({"forward": "def forward(self, x):\n        return x @ torch.ones(3)"}, ":4 "),
        (
            {"forward": "def forward(self, x):\n        return x if x.sum() > 0 else -x"},
            ":4 `return x if x.sum\\(\\) > 0 else -x`: the forward decides by the elements",
        ),
        ({"forward": "def forward(self, x, y):\n        return x + y"}, ".*y"),
    ],
)
def test_refused_with_the_users_line(tmp_path: Path, parts: dict[str, str], says: str) -> None:
    path = model(tmp_path, **parts)
    said = refusal(path, optimize(path))
    assert re.match(says, said), said


@pytest.mark.slow
def test_a_model_that_never_returns(tmp_path: Path) -> None:
    path = model(tmp_path, inputs="[__import__('time').sleep(900)]")
    said = refusal(path, optimize(path, "--time-limit", "8"))
    assert said.startswith(": did not return within 8 s while it was captured")


def test_out_of_memory(tmp_path: Path) -> None:
    path = model(tmp_path, inputs="[torch.ones(2**46)]")
    said = refusal(path, optimize(path))
    assert said == (
        ":6 `return [torch.ones(2**46)]`: get_inputs() runs out of memory;"
        " use --batch N for smaller inputs"
    )


def bare_path(folder: Path, **tools: str) -> str:
    """A folder of commands with these shell scripts alone; a script may use absolute paths."""
    (folder / "bin").mkdir()
    for name, script in tools.items():
        tool = folder / "bin" / name.replace("_", "+")
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    return str(folder / "bin")


def test_no_compiler(tmp_path: Path) -> None:
    path = model(tmp_path)
    done = optimize(path, PATH=bare_path(tmp_path), CXX="")
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("opweld: the kernels cannot be built: c++ compiler c++ not found;")
    assert "apt-get install g++" in last
    assert not (tmp_path / "m_new.py").exists()


FAILING = """
case "$*" in --version | -v) exec /usr/bin/c++ "$@";; esac
echo 'm.cpp:1: error: no'
exit 1
"""


@pytest.mark.slow
def test_a_compiler_that_fails(tmp_path: Path) -> None:
    path = model(tmp_path)
    folder = bare_path(tmp_path, c__=FAILING)
    extensions = str(tmp_path / "bin" / "extensions")
    done = optimize(path, PATH=f"{folder}:/usr/bin:/bin", TORCH_EXTENSIONS_DIR=extensions)
    said = refusal(path, done)
    assert said == (
        ": the kernels cannot be built: the build failed: m.cpp:1: error: no;"
        " see what is missing with `opweld doctor`"
    )
