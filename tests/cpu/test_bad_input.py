"""Bad model files: one sentence with the user's line, and exit code 2 of the whole command.

A command takes seconds, so most faults are put to the compiler in this process, and some to each
command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opweld.driver import compile_file
from opweld.errors import UserError, from_data
from opweld.options import Options
from opweld.process.worker import answer_with

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


def opweld(command: str, *args: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opweld", command, *map(str, args), "--target", "cpu"],
        env={**os.environ, "PYTHONPATH": SOURCE, **environ},
        capture_output=True,
        text=True,
        timeout=600,
    )


def optimize(path: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return opweld("optimize", path, *args, **environ)


def model(
    folder: Path, forward: str = FORWARD, inputs: str = "[torch.ones(4, 8)]", init: str = "[]"
) -> Path:
    path = folder / "m.py"
    path.write_text(MODEL.format(forward=forward, inputs=inputs, init=init))
    return path


def refused(path: Path) -> str:
    """What the process that compiles says of a file, without its name."""
    options, answer = Options(target="cpu", check=False), path.with_suffix(".json")
    answer_with(answer, path, lambda: compile_file(path, options).to_data())
    error = from_data(json.loads(answer.read_text())["error"])
    assert isinstance(error, UserError)
    return str(error).removeprefix(str(path))


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
        (
            {"init": "[1, 2]"},
            ": Model\\(\\*get_init_inputs\\(\\)\\) raises TypeError: .* 3 were given;"
            " let get_init_inputs\\(\\) give what its constructor takes$",
        ),
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
    said = refused(model(tmp_path, **parts))
    assert re.match(says, said), said


FILES = {
    "text.txt": (MODEL, ": is not a Python file by its name; use a name that ends in .py"),
    "folder.py": (None, ": is a folder, not a Python file; name a file"),
    "latin.py": ("x = 'é'\n", ": is not text in UTF-8 or in an encoding .*; save it as UTF-8"),
    "syntax.py": ("def f(:\n", ":1 `def f\\(:`: is not Python: invalid syntax"),
}
COMMANDS = ("optimize", "plan", "check", "tune")


def run_on(command: str, path: Path) -> subprocess.CompletedProcess[str]:
    return opweld(command, path, *([path] if command == "check" else []))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_files_that_no_command_reads(tmp_path: Path, command: str, name: str) -> None:
    text, says = FILES[name]
    path = tmp_path / name
    path.mkdir() if text is None else path.write_bytes(text.encode("latin-1"))
    said = refusal(path, run_on(command, path))
    assert re.match(says, said), said


MODULE = "class Model(torch.nn.Module):\n    "
CLASS = "; make it a class that derives from torch.nn.Module"
MODELS = {
    "a plain class": (
        "class Model:\n    def forward(self, x):\n        return x",
        ": Model is a class that is not a torch.nn.Module; derive it from that",
    ),
    "a function": ("def Model(x):\n    return torch.tanh(x)", f": Model is a function{CLASS}"),
    "an object": ("Model = torch.nn.ReLU()", f": Model is a value of type ReLU{CLASS}"),
    "nothing": ("", ": does not define Model; a model file defines Model, get_inputs() and"),
    "no forward": (f"{MODULE}pass", ": Model has no forward; define forward(self, ...) in it"),
    "a constructor with arguments": (
        f"{MODULE}def __init__(self, n):\n        super().__init__()",
        ": Model(*get_init_inputs()) raises TypeError: Model.__init__() missing 1 required"
        " positional argument: 'n'; let get_init_inputs() give what its constructor takes",
    ),
}
REST = "def get_inputs():\n    return [torch.ones(3)]\ndef get_init_inputs():\n    return []\n"


def faulty(folder: Path, fault: str) -> Path:
    path = folder / "m.py"
    path.write_text(f"import torch\n{MODELS[fault][0]}\n{REST}")
    return path


@pytest.mark.parametrize("fault", MODELS)
def test_models_that_are_no_modules(tmp_path: Path, fault: str) -> None:
    assert refused(faulty(tmp_path, fault)).startswith(MODELS[fault][1])


@pytest.mark.parametrize(
    ("command", "fault"),
    [("optimize", "a plain class"), ("plan", "a function"), ("check", "a function")],
)
def test_commands_for_models_that_are_no_modules(tmp_path: Path, command: str, fault: str) -> None:
    path = faulty(tmp_path, fault)
    assert refusal(path, run_on(command, path)).startswith(MODELS[fault][1])


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("get_inputs", "[torch.ones(3)]", ": get_inputs is a value of type list; make it a funct"),
        ("get_inputs", "lambda: 3", ": get_inputs() gives a value of type int; give a list"),
        ("get_inputs", "lambda: [1]", ": none of the inputs is a tensor; give at least one tensor"),
        ("get_init_inputs", "lambda: 'a'", ": get_init_inputs() gives a value of type str; give"),
    ],
)
def test_functions_of_no_use(tmp_path: Path, name: str, value: str, says: str) -> None:
    path = model(tmp_path)
    path.write_text(f"{path.read_text()}{name} = {value}\n")
    assert refused(path).startswith(says)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("")
    assert refusal(path, run_on("check", path)).startswith(
        ": does not define Model and get_inputs and get_init_inputs; "
    )


@pytest.mark.slow
def test_a_model_that_never_returns(tmp_path: Path) -> None:
    path = model(tmp_path, inputs="[__import__('time').sleep(900)]")
    said = refusal(path, optimize(path, "--time-limit", "8"))
    assert said.startswith(": did not return within 8 s while it was captured")


def test_out_of_memory(tmp_path: Path) -> None:
    path = model(tmp_path, inputs="[torch.ones(2**46)]")
    assert refused(path) == (
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
    done = optimize(
        path, PATH=f"{folder}:/usr/bin:/bin", CXX="c++", TORCH_EXTENSIONS_DIR=extensions
    )
    said = refusal(path, done)
    assert said == (
        ": the kernels cannot be built: the build failed: m.cpp:1: error: no;"
        " see what is missing with `opweld doctor`"
    )
