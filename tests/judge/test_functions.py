"""Pairs of functions, of files and of this process, and pairs in one file."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy
import pytest
import torch
from tests.judge.pairs import HEAD, LINEAR, failing, named, write
from torch import nn

import opweld
from opweld.errors import ModelFileError, UserError
from opweld.judge import Judgement, Server, Settings, check
from opweld.judge.functions import assert_equivalent, check_functions

QUICK = Settings(device="cpu", measure=False, seed=1)
FUNCTIONS = """
def reference(x, scale=2.0):
    return torch.softmax(x * scale, dim=-1)

def candidate(x, scale=2.0):
    y = torch.exp(x * scale - (x * scale).amax(-1, keepdim=True))
    return y / y.sum(-1, keepdim=True)

def without_the_maximum(x, scale=2.0):
    y = torch.exp(x * scale)
    return y / y.sum(-1, keepdim=True)

def without_the_scale(x, scale=2.0):
    return torch.softmax(x * 2.0, dim=-1)

def with_another_name(x, factor=2.0):
    return reference(x, factor)

def get_inputs():
    return [torch.randn(8, 33)]

NUMBER = 3
"""


Judged = Callable[..., Judgement]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as warm:
        yield warm


@pytest.fixture
def judged(server: Server) -> Judged:
    def judged(path: Path, candidate: str, reference: str = "reference") -> Judgement:
        chosen = replace(QUICK, stop_at_first=False, reference=reference, candidate=candidate)
        return check(path, path, chosen, server=server)

    return judged


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    return write(tmp_path / "functions.py", FUNCTIONS)


def test_a_function_of_a_file_is_judged_against_another(judged: Judged, functions: Path) -> None:
    judgement = judged(functions, "candidate")
    assert judgement.verdict.passed, judgement.verdict.reason
    assert any(c.name.startswith("argument scale") for c in judgement.verdict.checks)


@pytest.mark.parametrize(
    ("candidate", "fails"),
    [
        ("without_the_maximum", "large values"),
        ("with_another_name", "signature"),
        ("without_the_scale", "argument scale"),
    ],
)
def test_a_wrong_function_fails(
    judged: Judged, functions: Path, candidate: str, fails: str
) -> None:
    assert any(name.startswith(fails) for name in failing(judged(functions, candidate)))


@pytest.mark.parametrize(("name", "said"), [("nothing", "does not define"), ("NUMBER", "int")])
def test_a_name_that_is_no_function_is_refused(
    judged: Judged, functions: Path, name: str, said: str
) -> None:
    with pytest.raises(ModelFileError, match=said):
        judged(functions, "candidate", reference=name)
    with pytest.raises(ModelFileError, match=said):
        judged(functions, name)


def test_functions_need_inputs(judged: Judged, tmp_path: Path) -> None:
    path = write(tmp_path / "functions.py", FUNCTIONS.replace("def get_inputs", "def inputs"))
    with pytest.raises(ModelFileError, match="does not define get_inputs"):
        judged(path, "candidate")


def test_one_file_may_have_both_models(server: Server, tmp_path: Path) -> None:
    new = LINEAR.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    right = write(tmp_path / "right.py", LINEAR + new)
    assert check(right, right, QUICK, server=server).verdict.passed
    wrong = write(tmp_path / "wrong.py", LINEAR + new.replace("tanh", "sinh"))
    assert not check(wrong, wrong, QUICK, server=server).verdict.passed


def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x - x.amax(-1, keepdim=True))
    return y / y.sum(-1, keepdim=True)


def make() -> list[torch.Tensor]:
    return [torch.randn(8, 33)]


def test_objects_of_this_process_are_judged_here() -> None:
    judgement = check_functions(lambda x: torch.softmax(x, -1), softmax, make, settings=QUICK)
    assert judgement.verdict.passed and judgement.timing is None, judgement.verdict.reason
    wrong = check_functions(lambda x: torch.softmax(x, -1), lambda x: softmax(x) + 1e-4, make)
    assert failing(wrong) == {"own inputs"}, "the first failure is the last"


def test_two_ulps_of_one_large_element_are_no_error() -> None:
    """Of the first sparse values one element is three times the next. Eager has it right by chance,
    and an error of two of its ulps is 10 times eager's largest.
    """
    seeded = replace(QUICK, seed=968415356192473)
    judgement = check_functions(lambda x: torch.softmax(x, -1), softmax, make, settings=seeded)
    assert judgement.verdict.passed, judgement.verdict.reason


def test_given_tensors_will_do() -> None:
    assert_equivalent(torch.tanh, lambda x: x.tanh(), [torch.randn(5, 7)])
    with pytest.raises(AssertionError, match=r"seed 3.*\n  own inputs: "):
        assert_equivalent(torch.tanh, lambda x: x.sinh(), (torch.randn(5, 7),), seed=3)


def test_modules_are_compared_with_their_parameters() -> None:
    model = nn.Linear(5, 7)
    twin = nn.Linear(5, 7)
    inputs = [torch.randn(3, 5)]
    with pytest.raises(AssertionError, match="state|weight"):
        assert_equivalent(model, twin, inputs)
    twin.load_state_dict(model.state_dict())
    judgement = assert_equivalent(model, twin, inputs)
    assert not named(judgement, "other weights by load_state_dict").skipped


def test_a_scope_can_be_asked_for() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        if not x.is_contiguous():
            raise ValueError("only dense rows")
        return softmax(x)

    judgement = assert_equivalent(lambda x: torch.softmax(x, -1), refuses, make)
    assert "transposed storage" in judgement.verdict.unsupported
    with pytest.raises(AssertionError, match="only dense rows"):
        assert_equivalent(lambda x: torch.softmax(x, -1), refuses, make, scope="full")


def test_random_generators_are_restored() -> None:
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)  # type: ignore[func-returns-value]
    expected = random.random(), numpy.random.rand(), torch.rand(())
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)  # type: ignore[func-returns-value]
    check_functions(torch.tanh, torch.tanh, make)
    assert (random.random(), numpy.random.rand(), torch.rand(())) == expected


@pytest.mark.parametrize(
    ("reference", "candidate", "inputs", "said"),
    [
        (3, torch.tanh, make, "the reference is a value of type int"),
        (torch.tanh, None, make, "the candidate is a value of type NoneType"),
        (torch.tanh, torch.tanh, lambda: [3], "no tensor"),
        (torch.tanh, torch.tanh, lambda: 3, "gives a value of type int"),
    ],
)
def test_bad_arguments_are_refused(
    reference: object, candidate: object, inputs: object, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        check_functions(reference, candidate, inputs)  # type: ignore[arg-type]


PLUGIN = "opweld.interface.pytest_plugin"
TESTS = """
def test_right(assert_equivalent):
    assert_equivalent(torch.softmax, lambda x, dim: x.softmax(dim), lambda: [torch.randn(4, 9), -1])

def test_wrong(assert_equivalent):
    assert_equivalent(torch.tanh, torch.sinh, [torch.randn(4, 9)])
"""


def test_the_plugin_is_a_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HEAD + textwrap.dedent(TESTS))
    # where opweld is installed, pytest finds it by itself
    installed = any(each.name == "opweld" for each in entry_points(group="pytest11"))
    command = [sys.executable, "-m", "pytest", "-q", "--opweld-seed", "11"]
    command += [] if installed else ["-p", PLUGIN]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "AssertionError: not equivalent: own inputs" in done.stdout
    assert "(seed 11)" in done.stdout and "functions.py" not in done.stdout


def test_the_plugin_imports_no_torch() -> None:
    code = f"import sys, {PLUGIN}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert opweld.assert_equivalent is assert_equivalent
