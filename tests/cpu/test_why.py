"""Why a call runs the original; what is logged; what a result says of itself."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opweld
from opweld.errors import JudgeFailed, UserError
from opweld.interface import logs
from opweld.judge.values import Judgement, Verdict
from opweld.options import Options

ROOT = Path(__file__).parents[2]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return torch.tanh(self.norm(self.linear(x))) * scale


@pytest.fixture(scope="module")
def result() -> opweld.Result:
    return opweld.optimize(Scaled().eval(), torch.randn(5, 8), check=False, autocast="float16")


def test_a_call_like_the_example_runs_the_kernels(result: opweld.Result) -> None:
    with torch.no_grad():
        assert result.why(torch.randn(7, 8)) == "the kernels run"
        assert result.why(x=torch.randn(0, 8), scale=2.0) == "the kernels run"
        with torch.autocast("cpu", torch.float16):
            assert result.why(torch.randn(7, 8)) == "the kernels run"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ((torch.randn(7, 9),), "x.shape[1] == 8` does not hold (x is float32[7, 9] on cpu)"),
        ((torch.randn(7, 8).double(),), "`--dtype float64` makes kernels for it"),
        ((torch.randn(7, 8), 3.0), "scale == 2.0"),
    ],
)
def test_the_first_clause_that_does_not_hold(
    result: opweld.Result, call: tuple[Any, ...], says: str
) -> None:
    with torch.no_grad():
        found = result.why(*call)
    assert found.startswith("the original runs: ") and says in found


def test_other_reasons(result: opweld.Result) -> None:
    assert "a small call with gradients" in result.why(torch.randn(7, 8))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert "`--autocast bfloat16` makes kernels for it" in result.why(torch.randn(7, 8))
    result.module.train()
    with torch.no_grad():
        assert "the original runs: " in result.why(torch.randn(7, 8))
    result.module.eval()
    with pytest.raises(TypeError, match="argument"):
        result.why()


def test_a_module_of_which_nothing_was_fused() -> None:
    result = opweld.optimize(nn.Identity(), torch.randn(2, 3), check=False)
    assert "nothing of this model was fused" in result.why(torch.randn(2, 3))


def test_print_is_one_paragraph(result: opweld.Result) -> None:
    text = repr(result)
    assert "\n" not in text and len(text) < 400
    assert text.startswith("opweld: not verified; 1 kernel, 1 call left to PyTorch.")


def test_nothing_that_is_not_verified_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict(False, "F", (), "it is wrong")
    judged: list[Any] = []

    def judge(*args: Any) -> Judgement:
        judged.append(args)
        return Judgement(verdict, None, (), None, 1)

    monkeypatch.setattr("opweld.api.judge_pair", judge)
    with pytest.raises(JudgeFailed, match="it is wrong"):
        opweld.optimize(nn.Tanh(), torch.randn(4, 8))
    assert len(judged) == 1


def test_options_reach_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []

    def run(model: Path, out: Path, options: Options, *rest: Any) -> None:
        asked.append(options)
        raise UserError("enough")

    monkeypatch.setattr("opweld.api.run_line", run)
    more: dict[str, Any] = {"baselines": ["eager"], "thorough": True, "pass_env": "A"}
    with pytest.raises(UserError, match="enough"):
        opweld.optimize(nn.Tanh(), torch.randn(4), sandbox="off", **more)
    (options,) = asked
    assert (options.baseline_names, options.thorough) == (("eager",), True)
    assert (options.sandbox, options.pass_env) == ("off", ("A",))


def test_logging_says_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "opweld"):
        opweld.optimize(nn.Tanh(), torch.randn(4, 8), check=False)
    told = {record.name: record.getMessage() for record in caplog.records}
    assert told["opweld.plan"].startswith("plan Tanh for cpu")
    assert "input.shape[1] == 8" in told["opweld.guards"]
    assert any("compiled for cpu: capture" in record.getMessage() for record in caplog.records)


def test_the_variable_shows_what_it_names(tmp_path: Path) -> None:
    out, command = tmp_path / "m.py", [sys.executable, "-m", "opweld", "optimize", "--no-check"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPWELD_LOG": "info, guards"}
    model = str(ROOT / "examples" / "gelu.py")
    done = subprocess.run(
        [*command, model, "--batch", "4", "-o", out], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert any(line.startswith("opweld: compiled for ") for line in lines)
    assert any(line.startswith("opweld.guards: _opweld_fits: type(self) is ") for line in lines)
    assert not any(line.startswith("opweld.plan: ") for line in lines)


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(UserError, match="OPWELD_LOG cannot be 'loud'; use some of info, plan, gu"):
        logs.show({"OPWELD_LOG": "info,loud"})
