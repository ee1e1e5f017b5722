"""The model file: everything that can be wrong with it is one sentence with the user's line."""

from pathlib import Path

import pytest

from opweld.errors import ModelFileError, ModelOutOfMemory
from opweld.model_file import explain, load, make_inputs, make_model, read_source

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
    assert sentence(tmp_path, read_source) == ": is a folder, not a model file"


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, "import torch\ndef forward(self x):\n    pass\n")
    said = sentence(path, read_source)
    assert said.startswith(":2 `def forward(self x):`: is not Python: ")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\x00", b"x = 1\x00"])
def test_not_python(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(content)
    assert sentence(path, read_source).startswith(": is not Python")


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
    assert make_model(path, load(path)).sum == 42


@pytest.mark.parametrize(
    ("init", "total"), [("[3]", 5), ("[3, 4]", 7), ("[[3], {'b': 5}]", 8), ("{'a': 1}", 3)]
)
def test_the_forms_of_init_inputs(tmp_path: Path, init: str, total: int) -> None:
    path = write(tmp_path, WHOLE.format(init=init))
    module = load(path)
    assert make_model(path, module).sum == total
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
    assert sentence(path, lambda p: make_model(p, module)).startswith(says)


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
