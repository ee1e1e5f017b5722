"""The model file: everything that can be wrong with it is one sentence with the user's line."""

import os
from pathlib import Path

import pytest

from opweld.errors import ModelFileError, ModelOutOfMemory
from opweld.model_file import (
    explain,
    load,
    make_inputs,
    make_model,
    read_source,
    require_class,
    require_instance,
)

WHOLE = """
class Model:
    def __init__(self, a, b=2):
        self.sum = a + b
def get_inputs():
    return [1, 2]
def get_init_inputs():
    return {init}
"""


def write(folder: Path, text: str, name: str = "m.py") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def sentence(path: Path, action: object) -> str:
    with pytest.raises(ModelFileError) as caught:
        action(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text.removeprefix(str(path))


def test_no_such_file(tmp_path: Path) -> None:
    assert sentence(tmp_path / "no.py", read_source) == ": there is no such file"


def test_a_folder(tmp_path: Path) -> None:
    assert sentence(tmp_path, read_source) == ": is a folder, not a Python file; name a file"


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, "import torch\ndef forward(self x):\n    pass\n")
    said = sentence(path, read_source)
    assert said.startswith(":2 `def forward(self x):`: is not Python: ")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\x00", b"x = 1\x00"])
def test_not_python(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(content)
    said = sentence(path, read_source)
    assert said.startswith(": is not Python" if content.isascii() else ": is not text in UTF-8")


@pytest.mark.parametrize("name", ["text.txt", "model", "m.pyc"])
def test_a_name_that_python_does_not_import(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, WHOLE.format(init="[]"), name)
    assert sentence(path, read_source) == (
        ": is not a Python file by its name; use a name that ends in .py"
    )


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    os.mkfifo(path)
    assert sentence(path, read_source) == ": is not a regular file; name a Python file"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encodings_that_python_reads(tmp_path: Path, encoding: str) -> None:
    text = f"# coding: {encoding}\nx = 'é'\n"
    path = tmp_path / "m.py"
    path.write_bytes(text.encode(encoding))
    assert read_source(path) == text


@pytest.mark.parametrize("text", ["x = 'é'\n", "\n\nx = 'é'\n"])
def test_an_encoding_that_is_not_declared(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(text.encode("latin-1"))
    assert sentence(path, read_source) == (
        ": is not text in UTF-8 or in an encoding that it declares; save it as UTF-8"
    )


def test_nested_too_deeply(tmp_path: Path) -> None:
    path = write(tmp_path, f"x = {'-' * 100_000}1\n")
    assert sentence(path, read_source) == ": is nested too deeply for Python"


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    path = write(tmp_path, f"x = {'(' * 500}\n")
    assert len(sentence(path, read_source)) < 300


class Base:
    """Stands for torch.nn.Module, whose own forward is none."""

    def forward(self) -> None: ...


def derived(text: str) -> dict[str, object]:
    names: dict[str, object] = {"Base": Base}
    exec(text, names)
    return names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def Model(): ...", "a function; make it a class that derives from torch.nn.Module"),
        ("Model = len", "a function; make it a class that derives from torch.nn.Module"),
        ("Model = 3", "a value of type int; make it a class that derives from torch.nn.Module"),
        ("class Model: ...", "a class that is not a torch.nn.Module; derive it from that"),
    ],
)
def test_a_model_that_is_no_module_class(tmp_path: Path, text: str, says: str) -> None:
    value = derived(text)["Model"]
    said = sentence(tmp_path / "m.py", lambda path: require_class(path, value, Base))
    assert said == f": Model is {says}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("class Model(Base): ...", "Model has no forward; define forward(self, ...) in it"),
        (
            "class Model(Base):\n def __new__(cls): return 3",
            "Model(*get_init_inputs()) gives a value of type int; let it give a torch.nn.Module",
        ),
    ],
)
def test_a_model_that_makes_no_module(tmp_path: Path, text: str, says: str) -> None:
    model = derived(text)["Model"]()
    said = sentence(tmp_path / "m.py", lambda path: require_instance(path, model, Base))
    assert said == f": {says}"


def test_a_forward_of_the_object_is_one(tmp_path: Path) -> None:
    model = derived("class Model(Base): ...")["Model"]()
    model.forward = lambda: None
    assert require_instance(tmp_path, model, Base) is model


@pytest.mark.parametrize("name", ["get_inputs", "get_init_inputs"])
def test_a_list_in_the_place_of_a_function(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, WHOLE.format(init="[3]") + f"{name} = []\n")
    assert sentence(path, load) == f": {name} is a value of type list; make it a function"


def test_missing_names(tmp_path: Path) -> None:
    path = write(tmp_path, "class Model: ...\n")
    assert sentence(path, load) == (
        ": does not define get_inputs and get_init_inputs;"
        " a model file defines Model, get_inputs() and get_init_inputs()"
    )


def test_import_error_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, "x = 1\nimport no_such_module_anywhere\n")
    assert sentence(path, load) == (
        ":2 `import no_such_module_anywhere`: importing the file raises ModuleNotFoundError:"
        " No module named 'no_such_module_anywhere'"
    )


def test_a_file_that_ends_the_program(tmp_path: Path) -> None:
    path = write(tmp_path, "import sys\nsys.exit(0)\n")
    assert (
        sentence(path, load)
        == ":2 `sys.exit(0)`: importing the file ends the program by SystemExit"
    )


def test_a_file_may_import_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 40\n", "neighbour_of_the_model.py")
    text = "from neighbour_of_the_model import VALUE\n" + WHOLE.format(init="[VALUE]")
    path = write(tmp_path, text)
    assert make_model(path, load(path), object).sum == 42


@pytest.mark.parametrize(
    ("init", "total"), [("[3]", 5), ("[3, 4]", 7), ("[[3], {'b': 5}]", 8), ("{'a': 1}", 3)]
)
def test_the_forms_of_init_inputs(tmp_path: Path, init: str, total: int) -> None:
    path = write(tmp_path, WHOLE.format(init=init))
    module = load(path)
    assert make_model(path, module, object).sum == total
    assert make_inputs(path, module) == (1, 2)


@pytest.mark.parametrize(
    ("init", "says"),
    [
        ("3", ": get_init_inputs() gives a value of type int; give a list"),
        ("[]", ": Model(*get_init_inputs()) raises TypeError: Model.__init__() missing 1"),
        (
            "[None]",
            ":4 `self.sum = a + b`: Model(*get_init_inputs()) raises TypeError: unsupported",
        ),
    ],
)
def test_bad_init_inputs(tmp_path: Path, init: str, says: str) -> None:
    path = write(tmp_path, WHOLE.format(init=init))
    module = load(path)
    assert sentence(path, lambda p: make_model(p, module, object)).startswith(says)


def test_inputs_that_are_no_list(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE.format(init="[]").replace("return [1, 2]", "return 5"))
    said = sentence(path, lambda p: make_inputs(p, load(p)))
    assert said == ": get_inputs() gives a value of type int; give a list"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA out of memory. Tried to allocate 3 GiB"),
    ],
)
def test_out_of_memory_is_told_apart(error: Exception) -> None:
    explained = explain(Path("m.py"), "forward", error)
    assert isinstance(explained, ModelOutOfMemory)
    assert str(explained) == "m.py: forward runs out of memory; use --batch N for smaller inputs"
