"""What is wrong with a file, in one sentence with its line, and whose fault it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.judge.pairs import POINTWISE, SAME, judge_here, judge_pair, named, write, write_pair

from opweld.errors import ModelFileError, ModelOutOfMemory
from opweld.judge import load
from opweld.judge.load import Call

MODEL_FAULTS = {
    "no Model": (("class Model(", "class Other("), "does not define Model; "),
    "no get_inputs": (("get_inputs", "inputs"), "does not define get_inputs; "),
    "no get_init_inputs": (("get_init_inputs", "init"), "does not define get_init_inputs; "),
    "import raises": (("class Model(", "1 / 0\nclass Model("), "ZeroDivisionError"),
    "constructor raises": (
        ("return []", "return [1]"),
        "Model(*get_init_inputs()) raised TypeError",
    ),
    "forward raises": (("torch.tanh(x)", "torch.tanh(y)"), "Model.forward raised NameError"),
    "inputs raise": (
        ("torch.randn(9, 33)", "torch.randn(9, -1)"),
        "get_inputs() raised RuntimeError",
    ),
    "no tensors": (("[torch.randn(9, 33)]", "[1.5]"), "get_inputs() returns no tensor"),
    "inputs are no list": (
        ("[torch.randn(9, 33)]", "3"),
        "get_inputs() gives a value of type int; give a list",
    ),
    "no module": (("nn.Module", "object"), "Model is a class that is not a torch.nn.Module; "),
    "exit": (
        ("class Model(", "raise SystemExit(3)\nclass Model("),
        "importing it raised SystemExit: 3",
    ),
}


@pytest.mark.parametrize("fault", MODEL_FAULTS)
def test_a_model_file_that_cannot_serve_is_the_users(fault: str, tmp_path: Path) -> None:
    (old, new), sentence = MODEL_FAULTS[fault]
    _, other = write_pair(tmp_path, POINTWISE, SAME)
    model = write(tmp_path / "model.py", POINTWISE.replace(old, new))
    with pytest.raises(ModelFileError) as caught:
        judge_here(model, other)
    assert sentence in str(caught.value)
    assert str(model) in str(caught.value) and "\n" not in str(caught.value)


def test_the_line_that_raised_is_named(tmp_path: Path) -> None:
    model, new = write_pair(tmp_path, POINTWISE.replace("tanh(x)", "tanh(y)"), SAME)
    line = 1 + model.read_text().splitlines().index("        return torch.tanh(y) * x")
    with pytest.raises(ModelFileError) as caught:
        judge_here(model, new)
    assert f"{model}:{line}: " in str(caught.value)


def test_running_out_of_memory_suggests_a_smaller_batch(tmp_path: Path) -> None:
    big = POINTWISE.replace("torch.tanh(x)", "torch.ones(2 ** 50)[0]")
    with pytest.raises(ModelOutOfMemory) as caught:
        judge_pair(tmp_path, big, SAME)
    assert "try a smaller --batch" in str(caught.value)


NEW_FAULTS = {
    "constructor raises": (
        "def __init__(self):\n        raise ValueError('no')",
        "raised ValueError: no",
    ),
    "other constructor": ("def __init__(self, width):\n        super().__init__()", "TypeError"),
    "other forward": ("def forward(self, *args, **kwargs):\n        return args[1]", "IndexError"),
}


@pytest.mark.parametrize("fault", NEW_FAULTS)
def test_a_candidate_that_cannot_be_built_or_called_fails(fault: str, tmp_path: Path) -> None:
    body, sentence = NEW_FAULTS[fault]
    judgement = judge_pair(tmp_path, POINTWISE, f"class ModelNew(Base):\n    {body}\n")
    assert not judgement.verdict.passed and judgement.exit_code == 1
    assert sentence in judgement.verdict.reason and "new.py" in judgement.verdict.reason


def test_a_file_without_modelnew_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no class ModelNew"):
        judge_pair(tmp_path, POINTWISE, "class Newer(Base):\n    pass\n")


@pytest.mark.parametrize(
    "given", ["[[2.0, 3.0], {'c': 4.0}]", "[2.0, 3.0, 4.0]", "{'a': 2.0, 'b': 3.0, 'c': 4.0}"]
)
def test_constructor_arguments_by_position_and_name(given: str, tmp_path: Path) -> None:
    model = f"""
class Model(nn.Module):
    def __init__(self, a, b, c):
        super().__init__()
        assert (a, b, c) == (2.0, 3.0, 4.0)
    def forward(self, x):
        return x + 1
def get_inputs():
    return (torch.randn(4, 5),)
def get_init_inputs():
    return {given}
"""
    assert judge_pair(tmp_path, model, SAME).verdict.passed


def test_batch_cuts_what_has_the_leading_size(tmp_path: Path) -> None:
    model = POINTWISE.replace("forward(self, x)", "forward(self, x, w)").replace(
        "torch.tanh(x) * x", "x * w"
    )
    model = model.replace("[torch.randn(9, 33)]", "[torch.randn(9, 33), torch.randn(33)]")
    module = load.import_model_file(write(tmp_path / "model.py", model))
    call = load.make_inputs(module, tmp_path / "model.py", 0, torch.device("cpu"), batch=2)
    assert [tuple(t.shape) for t in call.tensors()] == [(2, 33), (33,)]
    whole = load.make_inputs(module, tmp_path / "model.py", 0, torch.device("cpu"), batch=None)
    assert torch.equal(call.tensors()[0], whole.tensors()[0][:2])


def test_a_compiler_message_is_cut_to_its_first_error() -> None:
    log = "Error building extension 'x': [1/2] g++ ...\n" + "note: line\n" * 50
    log += "main.cpp:3:5: error: 'foo' was not declared\n" + "more\n" * 50
    expected = "RuntimeError: main.cpp:3:5: error: 'foo' was not declared"
    assert load.brief(RuntimeError(log)) == expected


def test_calls_map_their_tensors() -> None:
    call = Call((torch.ones(2), 3), {"k": [torch.ones(1)]})
    assert [t.item() for t in call.map(lambda t: t.sum()).tensors()] == [2.0, 1.0]


def test_a_helper_beside_the_model_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "own_constants.py").write_text("FACTOR = 3.0\n")
    model = "from own_constants import FACTOR\n" + POINTWISE.replace("* x", "* FACTOR")
    assert named(judge_pair(tmp_path, model, SAME), "own inputs").passed
