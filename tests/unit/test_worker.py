"""The compiling child: what comes back of it, and each way in which a model file can break it.

The driver is replaced by a few lines that run in a real child process.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

import opweld
from opweld.compiled import Compiled, PlanRow
from opweld.errors import (
    CaptureError,
    InternalError,
    ModelFileError,
    ModelOutOfMemory,
    ModelTimeout,
    OpweldError,
    Where,
)
from opweld.options import Options
from opweld.process.worker import child_environment, compile_in_child

CHILD = """
import os, sys
from pathlib import Path
from opweld.process import worker
from opweld.compiled import Compiled, PlanRow
from opweld.errors import CaptureError, Where
from opweld.model_file import load, make_inputs

def compile_file(path, options, on_stage):
{body}

worker.serve(compile_file, Path(sys.argv[1]), Path(sys.argv[2]))
"""
RUNS_THE_MODEL = "make_inputs(path, load(path)); return Compiled('text', 'cpu')"
MODEL = """
import os, signal, sys, time
class Model: ...
def get_inputs():
    {body}
def get_init_inputs(): return []
"""


def command(body: str) -> list[str]:
    return [sys.executable, "-P", "-c", CHILD.format(body=textwrap.indent(body, "    "))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.py"
    path.write_text(MODEL.format(body="return [1]"))
    return path


def test_the_result_and_the_stages_arrive(model: Path) -> None:
    body = """
on_stage("capture"); on_stage("plan")
row = PlanRow("k1_exp", "pointwise", ("exp", "mul"), f"seed {options.seed}", flops=7)
return Compiled("text é", "cpu", (row,), {"graph": "g"}, (("sort", "unknown"),),
                (("mul-one", "EXACT"),), {"plan": 0.5})
"""
    stages: list[str] = []
    result = compile_in_child(model, Options(seed=4), stages.append, command(body))
    assert stages == ["capture", "plan"]
    assert result == Compiled(
        "text é",
        "cpu",
        (PlanRow("k1_exp", "pointwise", ("exp", "mul"), "seed 4", flops=7),),
        {"graph": "g"},
        (("sort", "unknown"),),
        (("mul-one", "EXACT"),),
        {"plan": 0.5},
    )


def test_every_option_reaches_the_driver(model: Path) -> None:
    options = Options(
        "cpu",
        batch=3,
        seed=1,
        weight_cache=False,
        exclude=frozenset("ab"),
        debug=0,
        mode="both",
        autocast=("bfloat16",),
        dtype=("float16", "float64"),
    )
    result = compile_in_child(
        model, options, command=command("return Compiled(repr(sorted(options.exclude)) + str("
        "(options.target, options.batch, options.seed, options.weight_cache, options.mode,"
        " options.autocast, options.dtype)), 'cpu')")
    )  # fmt: skip
    assert result.text == (
        "['a', 'b']('cpu', 3, 1, False, 'both', ('bfloat16',), ('float16', 'float64'))"
    )


def test_an_explained_error_arrives_whole(model: Path) -> None:
    body = "raise CaptureError('depends on data', where=Where('m.py', 3), next_step='do this')"
    with pytest.raises(CaptureError) as caught:
        compile_in_child(model, Options(), command=command(body))
    assert str(caught.value) == f"{model}:3: depends on data; do this"
    assert caught.value.where == Where(str(model), 3)
    assert "in compile_file" in (caught.value.child_traceback or "")


def test_a_bug_of_ours_is_told_as_one(model: Path) -> None:
    with pytest.raises(InternalError, match="opweld itself failed with KeyError: 'x'") as caught:
        compile_in_child(model, Options(), command=command("return {}['x']"))
    assert "KeyError" in (caught.value.child_traceback or "")


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("os._exit(3)", ModelFileError, "the process that runs the model ended with status 3"),
        ("os._exit(0)", ModelFileError, "the process that runs the model ended with status 0"),
        (
            "os.kill(os.getpid(), signal.SIGSEGV)",
            ModelFileError,
            "the process that runs the model was ended by SIGSEGV before it was captured",
        ),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            ModelOutOfMemory,
            "was killed while it was captured, most likely for want of memory; use --batch N",
        ),
        (
            "print('a word before', flush=True); os._exit(1)",
            ModelFileError,
            "the process that runs the model ended with status 1 before it was captured"
            " after printing 'a word before'",
        ),
        (
            "while True: time.sleep(1)",
            ModelTimeout,
            "did not return within 2 s while it was captured; look for an endless loop",
        ),
        ("sys.exit()", ModelFileError, "get_inputs() ends the program by SystemExit"),
        ("raise MemoryError", ModelOutOfMemory, "get_inputs() runs out of memory; use --batch N"),
    ],
)
def test_a_model_that_breaks_its_process(
    model: Path, body: str, kind: type[OpweldError], says: str
) -> None:
    model.write_text(MODEL.format(body=body))
    with pytest.raises(kind) as caught:
        compile_in_child(model, Options(time_limit_s=2), command=command(RUNS_THE_MODEL))
    assert type(caught.value) is kind
    assert f": {says}" in str(caught.value)
    assert str(caught.value).startswith(str(model))
    assert caught.value.exit_code == 2


def test_a_model_that_prints_a_flood_is_compiled(model: Path) -> None:
    model.write_text(MODEL.format(body="print('x' * 10_000_000); return [1]"))
    assert compile_in_child(model, Options(), command=command(RUNS_THE_MODEL)).text == "text"


def test_debugging_shows_what_the_child_prints(
    model: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for debug, shown in ((0, False), (1, True)):
        body = command("print('a timing', file=sys.stderr); return Compiled('text', 'cpu')")
        compile_in_child(model, Options(debug=debug), command=body)
        assert (b"a timing" in capfdbinary.readouterr().err) is shown


def test_a_child_finds_the_same_opweld() -> None:
    first = Path(child_environment()["PYTHONPATH"].split(os.pathsep)[0])
    assert (first / "opweld" / "__init__.py").samefile(opweld.__file__)
