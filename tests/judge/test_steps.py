"""Steps of training as timed calls, and whether their gradients are eager's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.judge.pairs import write_pair
from torch import nn

from opweld.judge import check as judge_pair
from opweld.judge.load import Call
from opweld.judge.measure import speed
from opweld.judge.measure.blocks import LocalTimed
from opweld.judge.measure.clock import WallClock
from opweld.judge.measure.steps import NAME, Gradients, apart, are_as_exact, can_step, stepping
from opweld.judge.values import Settings
from opweld.judge.verify.run import of_outputs

CPU = torch.device("cpu")


def call(rows: int = 4) -> Call:
    return Call((torch.randn(rows, 6),), {})


def gradients_of(model: nn.Module, given: Call) -> list[torch.Tensor]:
    return stepping(model)(given)()  # type: ignore[no-any-return]


def test_a_step_gives_the_gradients_of_the_parameters() -> None:
    model, given = nn.Linear(6, 3), call()
    found = gradients_of(model, given)
    out = model(*given.args)
    outgoing = torch.linspace(-1.0, 1.0, 12).view(4, 3)
    wanted = torch.autograd.grad(out, [model.weight, model.bias], outgoing)
    assert all(map(torch.equal, found, wanted)) and model.weight.grad is None


def test_without_parameters_it_gives_those_of_the_inputs() -> None:
    (found,) = gradients_of(nn.Tanh(), given := call())
    x = given.args[0].detach().requires_grad_()
    (wanted,) = torch.autograd.grad(x.tanh(), x, torch.linspace(-1.0, 1.0, 24).view(4, 6))
    assert torch.equal(found, wanted)


def test_what_has_no_gradients_makes_no_step() -> None:
    assert can_step(nn.Linear(6, 3), call())
    assert not can_step(nn.Linear(6, 3).requires_grad_(False), Call((torch.arange(6),), {}))

    class Least(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.argmin(-1)

    assert not can_step(Least(), call())


def test_blocks_of_steps_keep_gradients() -> None:
    model = nn.Linear(6, 3)
    side = LocalTimed(model, WallClock())
    side.prepare([call()], True)
    side.arm([(0, 1), (0, 2)])
    assert len(side.block(True)) == 2
    assert [tuple(leaf.shape) for leaf in side.result(1).leaves] == [(3, 6), (3,)]
    side.prepare([call()])
    side.arm([(0, 1)])
    side.block(True)
    assert [tuple(leaf.shape) for leaf in side.result(0).leaves] == [(4, 3)]


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        (lambda found: found, True),
        (lambda found: [each * (1 + 1e-4) for each in found], True),
        (lambda found: [each * 1.1 for each in found], False),
        (lambda found: [found[0], torch.zeros_like(found[1])], False),
        (lambda found: found[:1], False),
        (lambda found: [found[0], found[1] * float("nan")], False),
    ],
    ids=["equal", "rounded", "scaled", "one of zeros", "one too few", "NaN"],
)
def test_gradients_of_a_step_are_compared(change: Any, passes: bool) -> None:
    model, given = nn.Linear(6, 3), call()
    audit = Gradients(model)
    audit.add(given, of_outputs(change(gradients_of(copy.deepcopy(model), given))))
    assert audit.check().passed is passes and not audit.check().skipped


class Coarse(nn.Module):
    """In float32 a ramp is added to the gradients of its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 40), nn.Linear(40, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if x.dtype is torch.float32 and y.requires_grad:
            y.register_hook(lambda g: g + g.abs().mean() * torch.linspace(-0.5, 0.5, 40))
        return self.last(torch.relu(y))


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        (lambda exact, eager: exact, True),
        (lambda exact, eager: [2 * a - b for a, b in zip(exact, eager, strict=True)], True),
        (lambda exact, eager: [4 * a - 3 * b for a, b in zip(exact, eager, strict=True)], False),
        (lambda exact, eager: [torch.zeros_like(each) for each in eager], False),
        (lambda exact, eager: [*exact[:2], *(1.1 * each for each in exact[2:])], False),
    ],
    ids=["exact", "as far on the other side", "thrice as far", "zeros", "the exact ones are wrong"],
)
def test_gradients_may_be_as_far_from_float64s_as_eagers(change: Any, passes: bool) -> None:
    torch.manual_seed(0)
    model, given = Coarse(), call()
    wide = gradients_of(copy.deepcopy(model).double(), given.map(torch.Tensor.double))
    exact, eager = [each.float() for each in wide], gradients_of(copy.deepcopy(model), given)
    assert apart(eager, exact) > 0.02
    audit = Gradients(model)
    audit.add(given, of_outputs(change(exact, eager)))
    assert audit.check().passed is passes and not audit.check().skipped


def test_zeros_do_not_pass_for_what_is_mostly_error() -> None:
    """Where eager's are 60 % from float64's: not all of them, and not a third."""
    torch.manual_seed(0)
    exact = [torch.randn(4000) for _ in range(9)]
    eager = [each + 0.6 * torch.randn(4000) for each in exact]
    others = [each + 0.6 * torch.randn(4000) for each in exact]
    zeros = [torch.zeros(4000)] * 9
    assert are_as_exact(others, eager, exact)
    assert not are_as_exact(zeros, eager, exact)
    assert not are_as_exact([*others[:6], *zeros[:3]], eager, exact)


def test_gradients_of_inputs_are_compared_with_float64() -> None:
    """Of a model without parameters, whose forward names a type."""

    class Scale(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.float() * x * torch.ones(6)

    scale, given = Scale(), call()
    found = gradients_of(scale, given)
    for factor, passes in ((1.009, True), (1.05, False)):
        audit = Gradients(scale)
        audit.add(given, of_outputs([each * factor for each in found]))
        assert audit.check().passed is passes
        assert "without" not in audit.check().detail


def test_random_steps_are_not_compared() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    audit = Gradients(model)
    assert audit.check().skipped
    torch.manual_seed(0)
    audit.add(call(64), of_outputs(gradients_of(model, call(64))))
    assert audit.check().skipped and audit.check().passed


def test_large_gradients_are_compared_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opweld.judge.measure.steps._MAX_ELEMS", 12)
    model, given = nn.Linear(6, 30), call()
    audit, found = Gradients(model), gradients_of(model, given)
    audit.add(given, of_outputs(found))
    assert audit.check().passed
    audit.add(given, of_outputs([found[0] * 2, found[1]]))
    assert not audit.check().passed


def test_zero_gradients_are_no_scale() -> None:
    assert apart([torch.full((3,), 1e-9)], [torch.zeros(3)]) < 1e-4
    assert apart([torch.ones(3)], [torch.zeros(3)]) > 1.0


def contest(candidate: nn.Module, model: nn.Module) -> speed.Contest:
    settings = Settings(device="cpu", num_runs=3, baselines=("eager",), step=True)
    pool = speed.make_pool(model, lambda draw: call(), CPU)
    side = LocalTimed(candidate, WallClock())
    return speed.Contest(model, side, speed.Alone(pool), CPU, settings, lambda who, what: None)


def test_steps_are_timed_beside_calls() -> None:
    model = nn.Linear(6, 3)
    measured = speed.time_sides(contest(copy.deepcopy(model), model))
    step = measured.timing.step
    assert step is not None and step.compile_ms is None
    assert step.opweld_ms.n == step.eager_ms.n == 3
    (check,) = (each for each in measured.checks if each.name == NAME)
    assert check.passed and not check.skipped


def test_a_step_with_other_gradients_fails() -> None:
    model, wrong = nn.Linear(6, 3), nn.Linear(6, 3)
    with torch.no_grad():  # the same results of another weight: twice, and half of it
        wrong.weight.copy_(model.weight)
        wrong.bias.copy_(model.bias)
    wrong.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 2,))
    measured = speed.time_sides(contest(wrong, model))
    (check,) = (each for each in measured.checks if each.name == NAME)
    assert not check.passed


SOURCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return torch.tanh(self.fc(x))


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""


def test_a_judgement_has_the_times_of_a_step(tmp_path) -> None:
    """In two processes, as always."""
    new = SOURCE.replace("class Model(", "class ModelNew(")
    asked = {"num_runs": 3, "baselines": ("eager",), "budget_s": 0.2, "training_steps": 6}
    settings = Settings(device="cpu", step=True, **asked)
    found = judge_pair(*write_pair(tmp_path, SOURCE, new), settings)
    assert found.timing is not None and found.timing.step is not None, found
    assert any(check.name == NAME and not check.skipped for check in found.verdict.checks)
