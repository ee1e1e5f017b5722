"""Why a call runs the original; what is logged; what a result says of itself."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile

import opweld
from opweld import api
from opweld.errors import BuildFailed, InternalError, JudgeFailed, UserError
from opweld.give_back import Decision
from opweld.interface import logs
from opweld.interface.why import HELD, HOST_BOUND
from opweld.judge.values import Judgement, Verdict
from opweld.options import Options
from opweld.pipeline import TERMS

ROOT = Path(__file__).parents[2]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return torch.tanh(self.norm(self.linear(x))) * scale


class Fixed(nn.Module):
    """Of one shape, and nothing below it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.reshape(4, 8)) * 2.0


class Straight(torch.autograd.Function):
    """Has a gradient that its kernels lack."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * x * 2.0

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad


class Estimated(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(Straight.apply(x)) * 2.0


class Pair(nn.Module):
    """Its tensors are found in the guard, so what is host-bound is asked behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, xs: list[torch.Tensor], *, scale: float = 2.0) -> torch.Tensor:
        return torch.tanh(self.linear(xs[0]) + xs[1]) * scale


def asked(result: opweld.Result, *args: Any, **kwargs: Any) -> str:
    """What `why` says of a call, which is held against what the call then runs."""
    said = result.why(*args, **kwargs)
    with profile() as record:
        result.module(*args, **kwargs)
    ran = any(event.key.startswith("opweld_") for event in record.key_averages())
    assert ran == (said == HELD), said
    assert ran or said.startswith("the original runs: ")
    return said.removeprefix("the original runs: ")


@pytest.fixture(scope="module")
def shared() -> opweld.Result:
    return opweld.optimize(Scaled().eval(), torch.randn(5, 8), check=False, autocast="float16")


@pytest.fixture
def result(shared: opweld.Result) -> opweld.Result:
    """With a module of its own, of the same class."""
    module = type(shared.module).adopt(Scaled().eval())  # type: ignore[attr-defined]
    return replace(shared, module=module)


def test_a_call_like_the_example_runs_the_kernels(result: opweld.Result) -> None:
    with torch.no_grad():
        assert asked(result, torch.randn(7, 8)) == HELD
        assert asked(result, x=torch.randn(1, 8), scale=2.0) == HELD
        with torch.autocast("cpu", torch.float16):
            assert asked(result, torch.randn(7, 8)) == HELD
    assert asked(result, torch.randn(8192, 8)) == HELD  # with gradients


def test_the_arguments_may_be_others(result: opweld.Result) -> None:
    with torch.no_grad():
        said = asked(result, torch.randn(7, 8), 3.0)
        assert said == "`scale == 2.0` does not hold (scale is 3.0)"
        said = result.why(torch.randn(7, 9))
        assert "`x.shape[1] == 8` does not hold (x is float32[7, 9] on cpu); opweld" in said
        assert said.endswith("--dynamic INPUT:AXIS makes kernels for it")
        said = result.why(torch.randn(7, 8).double())
        assert said.endswith("x is float64[7, 8] on cpu, and the kernels are for float32 on cpu")
        said = result.why(torch.randn(7, 8, device="meta"))
        assert said.endswith("x is float32[7, 8] on meta, and the kernels are for float32 on cpu")
    with pytest.raises(TypeError, match="argument"):
        result.why(torch.randn(2, 8), 1, 2, 3)


def test_without_arguments_it_gives_the_reasons_of_the_plan(result: opweld.Result) -> None:
    said = result.why().splitlines()
    assert said == [f"{row.name}: {row.reason}" for row in result.plan] and len(said) > 0


def test_a_forward_without_arguments_is_asked_about_its_call() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8))

        def forward(self, *rest: object) -> torch.Tensor:
            return torch.tanh(self.weight) * 2

    found = Constant().eval()
    assert not api._takes_arguments(found)


def test_the_option_is_that_of_the_files_own_warning(result: opweld.Result) -> None:
    x = torch.randn(7, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        said = asked(result, x)
        wanted = "autocast to bfloat16 is on; opweld optimize --autocast bfloat16 makes kernels"
        assert said.startswith(wanted)
    with torch.no_grad():
        result.module.train()
        said = asked(result, x)
        assert said == "it is in training mode; opweld optimize --mode both makes kernels for it"
        result.module.eval().double()
        said = asked(result, x.double())
        assert (
            said == "its tensors are float64; opweld optimize --dtype float64 makes kernels for it"
        )


def test_the_module_may_be_another(result: opweld.Result) -> None:
    module: Any = result.module
    x = torch.randn(7, 8)
    with torch.no_grad():
        module.norm.train()
        assert asked(result, x) == (
            "self.norm.training is True, and was False when the kernels were made"
        )
        module.norm.eval()
        hook = module.linear.register_forward_hook(lambda *given: None)
        assert asked(result, x) == "self.linear is of another class, or has hooks"
        hook.remove()
        module.linear.bias = None
        said = asked(result, x)
        assert said == "self.linear.bias is None, and the kernels are for float32[8]"


def test_a_small_call_with_gradients_is_host_bound(result: opweld.Result) -> None:
    assert asked(result, torch.randn(7, 8)).startswith("a small call with gradients")


def test_what_is_asked_behind_the_guard() -> None:
    x = torch.randn(4, 8)
    result = opweld.optimize(Pair(), ([x, x],), check=False)
    assert asked(result, [x, x]).startswith("a small call with gradients")
    with torch.no_grad():
        assert asked(result, [x, x]) == HELD
        said = asked(result, (x, x))
        assert said.endswith("== 'list'` does not hold (xs is of type tuple)")
        said = asked(result, [x, x], scale=3.0)
        assert said == "`scale == 2.0` does not hold (scale is 3.0)"


def test_several_guards() -> None:
    x = torch.randn(4, 8)
    result = opweld.optimize(Scaled(), x, check=False, mode="both", dtype="float64")
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64):
            for training in (True, False):
                result.module.train(training).to(dtype)
                assert asked(result, x.to(dtype)) == HELD
        said = result.why(x)
        assert "self.linear.weight is float64[8, 8] on cpu, and the kernels are for float32" in said
        result.module.float().train()
        assert "x.shape[0] >= 2" in result.why(x[:1])


def test_a_guard_of_two_statements() -> None:
    """That of kernels without a gradient."""
    x = torch.randn(4, 8)
    result = opweld.optimize(Estimated(), x, check=False)
    assert asked(result, x) == HELD
    assert "x.shape[1] == 8" in asked(result, torch.randn(4, 9))
    assert "--dtype float64" in asked(result, x.double())
    large = torch.randn(8192, 8, requires_grad=True)
    assert asked(result, large).startswith("a gradient is asked for, which the kernels lack")


def test_no_option_is_named_for_another_shape() -> None:
    result = opweld.optimize(Fixed(), torch.randn(4, 8), check=False)
    said = asked(result, torch.randn(8, 4))
    wanted = "x is float32[8, 4] on cpu, and the kernels are for float32[4, 8] on cpu; opweld"
    assert said == f"{wanted} optimize --dynamic INPUT:AXIS makes kernels for it"


def test_kernels_that_were_not_built(
    result: opweld.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels: Any = type(result.module)._opweld
    monkeypatch.setattr(kernels, "devices", ())
    with torch.no_grad():
        assert asked(result, torch.randn(7, 8)).startswith("its kernels were not built")


def test_a_module_of_which_nothing_was_fused() -> None:
    result = opweld.optimize(nn.Identity(), torch.randn(2, 3), check=False)
    assert "nothing of this model was fused" in result.why(torch.randn(2, 3))


def test_print_is_one_paragraph(result: opweld.Result) -> None:
    text = repr(result)
    assert "\n" not in text and len(text) < 400
    assert text.startswith("opweld: not verified; 1 kernel, 1 call left to PyTorch.")
    for attribute in ("module", "text", "save", "plan"):
        assert f"`.{attribute}" in text and hasattr(result, attribute)


def test_the_head_has_the_terms_and_what_it_was_made_with(result: opweld.Result) -> None:
    head = result.text.split('"""')[1]
    assert TERMS in head.splitlines()
    assert f"Not verified: written with --no-check, torch {version('torch')}." in head


PASSED, FAILED = Verdict(True, "A", (), "it is right"), Verdict(False, "F", (), "it is wrong")


def judging(*found: Verdict | Exception) -> Callable[..., Judgement]:
    """A judge that says these things, one a call."""
    rest = iter(found)

    def judge(*args: Any) -> Judgement:
        verdict = next(rest)
        if isinstance(verdict, Exception):
            raise verdict
        return Judgement(verdict, None, (), None, 1)

    return judge


def test_what_was_verified_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opweld.api.judge_pair", judging(PASSED))
    result = opweld.optimize(nn.Tanh(), torch.randn(4, 8))
    assert result.verdict is PASSED
    assert "Verified, " in result.text.split('"""')[1]


@pytest.mark.parametrize(
    "found",
    [FAILED, UserError("no measure"), JudgeFailed("it crashed"), InternalError("a bug")],
    ids=["fails", "is refused", "crashes", "has a bug"],
)
def test_nothing_that_is_not_verified_is_returned(
    found: Verdict | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opweld.api.judge_pair", judging(found))
    module = nn.Tanh()
    with pytest.raises(type(found) if isinstance(found, Exception) else JudgeFailed) as raised:
        opweld.optimize(module, torch.randn(4, 8))
    assert type(module) is nn.Tanh
    if found is FAILED:
        assert "it is wrong" in str(raised.value)
        assert raised.value.judgement.verdict is FAILED  # type: ignore[attr-defined]


def test_a_build_that_fails_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*args: Any) -> float:
        raise BuildFailed("g++ refused it")

    monkeypatch.setattr("opweld.api.build_in_child", build)
    monkeypatch.setattr("opweld.api.judge_pair", judging(PASSED))
    with pytest.raises(BuildFailed, match="g\\+\\+ refused it"):
        opweld.optimize(Fixed(), torch.randn(4, 8))


@pytest.mark.parametrize("second", [PASSED, FAILED])
def test_the_file_behind_one_that_was_slower_is_judged_too(
    second: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(compiled: Any, judgement: Judgement, num_before: int) -> Decision:
        back = () if num_before else tuple(row.name for row in compiled.fused)
        return Decision(back, "it is slower")

    monkeypatch.setattr("opweld.pipeline.decide", decide)
    monkeypatch.setattr("opweld.api.build_in_child", lambda *args: 0.0)
    monkeypatch.setattr("opweld.api.judge_pair", judging(PASSED, second))
    if second is PASSED:
        result = opweld.optimize(Fixed(), torch.randn(4, 8))
        assert result.verdict is second and result.kernels == ()
    else:
        with pytest.raises(JudgeFailed, match="it is wrong"):
            opweld.optimize(Fixed(), torch.randn(4, 8))


def test_options_reach_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Options] = []

    def run(model: Path, out: Path, options: Options, *rest: Any) -> None:
        given.append(options)
        raise UserError("enough")

    monkeypatch.setattr("opweld.api.run_line", run)
    more: dict[str, Any] = {"baselines": ["eager"], "thorough": True, "pass_env": "A"}
    with pytest.raises(UserError, match="enough"):
        opweld.optimize(nn.Tanh(), torch.randn(4), sandbox="off", stop_at_first=False, **more)
    (options,) = given
    assert (options.baseline_names, options.thorough) == (("eager",), True)
    assert (options.sandbox, options.pass_env) == ("off", ("A",))
    assert options.check and not options.stop_at_first


def test_logging_says_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "opweld"):
        opweld.optimize(nn.Tanh(), torch.randn(4, 8), check=False)
    told = {record.name: record.getMessage() for record in caplog.records}
    assert told["opweld.plan"].startswith("plan Tanh for cpu")
    assert "input.shape[1] == 8" in told["opweld.guards"]
    assert any("compiled for cpu: capture" in record.getMessage() for record in caplog.records)


def test_calls_that_the_original_runs_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(4, 8)
    unlogged = opweld.optimize(Scaled().eval(), x, check=False)
    with caplog.at_level(logging.INFO, "opweld.guards"):
        result = opweld.optimize(Scaled().eval(), x, check=False)
        caplog.clear()
        with torch.no_grad():
            result.module(x)
            assert caplog.messages == []
            for _ in range(2):
                result.module(x, scale=3.0)
                result.module(x=x, scale=4.0)
        result.module(x)
        unlogged.module(x)
        compiled = torch.compile(result.module, backend="eager", fullgraph=True)
        compiled(x, 3.0)
    assert caplog.messages == [
        "Scaled: the original runs: `scale == 2.0` does not hold (scale is 3.0)",
        "Scaled: the original runs: `scale == 2.0` does not hold (scale is 4.0)",
        f"Scaled: the original runs: {HOST_BOUND}",
    ]
    assert result.text == unlogged.text


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


def test_what_is_shown_follows_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs.PLAN, "handlers", [])
    monkeypatch.setattr(logs.PLAN, "level", logging.NOTSET)
    logs.show(Options(log="plan"))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    logs.PLAN.info("a plan")
    assert sys.stderr.getvalue() == "opweld.plan: a plan\n"  # type: ignore[attr-defined]


def test_nothing_is_shown_unless_it_is_asked_for() -> None:
    text = "import opweld, logging; logging.getLogger('opweld').warning('unasked')"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_command_refuses_a_name_that_there_is_not() -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPWELD_LOG": "loud"}
    done = subprocess.run(
        [sys.executable, "-m", "opweld", "plan", str(ROOT / "examples" / "gelu.py")],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "opweld: OPWELD_LOG cannot be 'loud'; use info, plan or guards\n"


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(UserError, match="OPWELD_LOG cannot be 'loud'; use info, plan or guards"):
        Options(log="info,loud")
