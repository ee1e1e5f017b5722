"""The training level: who learns as the original does, who does not, and where nothing is told."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.judge.pairs import LINEAR, POINTWISE, SAME, judge_pair, named, write_pair
from tests.judge.training import pair_of_files, train

from opweld.judge import check as judge_in_processes
from opweld.judge.inputs.kinds import OwnInputs
from opweld.judge.load import NEW, Call, Pair
from opweld.judge.numerics.effective import ACCEPTED
from opweld.judge.training import curves
from opweld.judge.training.curves import EAGER, MOVED, NUM_SEEDS, Asked, Outcome, Training, few_rows
from opweld.judge.training.distances import STILL, Distances, concluded
from opweld.judge.training.objective import MOST_PARTS, Objective
from opweld.judge.training.rates import share_for, unit_rates
from opweld.judge.training.trainees import NotTrained, Start
from opweld.judge.values import FLOAT64_RUN, LOSS_CURVES, Settings
from opweld.judge.verify.weights import copy_state

STEPS = 12


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pair_of(folder: Path, model: str, new: str) -> Pair:
    return pair_of_files(*write_pair(folder, model, new))


def outcome(folder: Path, model: str, new: str, **asked: Any) -> Outcome:
    return train(pair_of(folder, model, new), **{"steps": STEPS, **asked})


def hooked(change: str) -> str:
    """A candidate whose results are right, and whose gradients are changed on their way."""
    return f"""
    class ModelNew(Base):
        def forward(self, *given):
            y = super().forward(*given)
            if y.requires_grad:
                y.register_hook(lambda g: {change})
            return y
    """


# Of LINEAR.
OTHERWISE = """
class ModelNew(Base):
    def forward(self, x):
        y = torch.addmm(self.fc.bias, x, self.fc.weight.t())
        return torch.tanh(F.silu(y))
"""
FROZEN = """
class ModelNew(Base):
    def forward(self, x):
        y = F.linear(x, self.fc.weight, self.fc.bias.detach())
        return torch.tanh(y * torch.sigmoid(y))
"""
# Right as often as the checks of gradients ask.
LATER = """
calls = [0]

def _change(g):
    calls[0] += 1
    return g if calls[0] < 40 else g * 0

class ModelNew(Base):
    def forward(self, x):
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(_change)
        return y
"""


@pytest.mark.parametrize("new", [SAME, OTHERWISE], ids=["the same", "another formula"])
def test_who_learns_alike_passes(new: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, LINEAR, new)
    told = found.curves
    assert found.check.passed and not found.check.skipped and told is not None
    assert told.num_steps == told.asked_steps == STEPS and told.num_seeds == NUM_SEEDS
    assert 0 < told.distance <= 1.5 * told.allowed_distance < 1e-6 and told.reference == FLOAT64_RUN
    assert told.last_loss < told.first_loss


@pytest.mark.parametrize(
    "new",
    [
        hooked("g * 0"),
        hooked("-g"),
        hooked("g * 1.1"),
        hooked("g.half().float()"),
        hooked("g * float('nan')"),
        FROZEN,
        LATER,
    ],
    ids=["zero", "wrong sign", "scaled", "float16", "NaN", "a frozen bias", "zero later"],
)
def test_who_learns_otherwise_fails(new: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, LINEAR, new)
    assert not found.check.passed and found.curves is not None
    assert "learns otherwise" in found.check.detail and "in the worst seed" in found.check.detail
    assert found.curves.ratio > 10 or new == LATER  # then it is right in most seeds


def test_small_errors_add_up(tmp_path: Path) -> None:
    """Gradients that no one comparison could refuse: a part in 10^5."""
    assert not outcome(tmp_path, LINEAR, hooked("g * 1.00001"), steps=60).check.passed


def test_what_is_accepted_beside_eager_is_a_standard(tmp_path: Path) -> None:
    new = """
    class ModelNew(Base):
        def forward(self, x):
            y = F.linear(x.bfloat16(), self.fc.weight.bfloat16(), self.fc.bias.bfloat16()).float()
            return torch.tanh(y * torch.sigmoid(y))
    """
    assert not outcome(tmp_path, LINEAR, new).check.passed
    assert outcome(tmp_path, LINEAR, new, lowering=ACCEPTED["bf16"]).check.passed


def model_of(init: str, forward: str, inputs: str) -> str:
    return f"""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


FC = "self.fc = nn.Linear(16, 10)"
ROWS = "torch.randn(12, 16)"
NORM = model_of(
    "self.c, self.n = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)",
    "return torch.relu(self.n(self.c(x))).mean((2, 3))",
    "torch.randn(6, 3, 6, 6)",
)
KINDS = {
    "a norm's statistics": NORM,
    "no parameters": POINTWISE,
    "one number": model_of(FC, "return self.fc(x).logsumexp(1).mean()", ROWS),
    "float64": model_of(f"{FC}.double()", "return torch.tanh(self.fc(x))", f"{ROWS}.double()"),
    "bfloat16": model_of(f"{FC}.bfloat16()", "return self.fc(x).tanh()", f"{ROWS}.bfloat16()"),
    "float16": model_of(f"{FC}.half()", "return self.fc(x).tanh()", f"{ROWS}.half()"),
    "random numbers": model_of(FC, "return F.dropout(self.fc(x), 0.3, True)", ROWS),
    "tied weights": model_of(
        "self.e, self.f = nn.Embedding(20, 12), nn.Linear(12, 20)\n"
        "        self.f.weight = self.e.weight",
        "return self.f(self.e(x))",
        "torch.randint(0, 20, (5, 6))",
    ),
    "weights of zeros": model_of(
        "self.w = nn.Parameter(torch.zeros(16))", "return (x * self.w).tanh()", ROWS
    ),
    "it counts": model_of(
        f"{FC}\n        self.register_buffer('n', torch.zeros(()))",
        "self.n += 1\n        return self.fc(x) * torch.cos(self.n)",
        ROWS,
    ),
}


@pytest.mark.parametrize("model", KINDS.values(), ids=KINDS)
def test_kinds_of_models(model: str, tmp_path: Path) -> None:
    """The original against itself passes, and what learns nothing fails."""
    found = outcome(tmp_path, model, SAME)
    assert found.check.passed and not found.check.skipped, found.check.detail
    zero = outcome(tmp_path, model, hooked("g * 0"))
    assert not zero.check.passed and zero.curves is not None
    assert zero.curves.distance > 2 * zero.curves.allowed_distance


def test_random_models_are_compared_with_eager(tmp_path: Path) -> None:
    found = outcome(tmp_path, KINDS["random numbers"], SAME).curves
    assert found is not None and found.reference == EAGER and found.distance == 0.0
    assert found.allowed_distance > 0.0


def test_both_are_left_as_they_were(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, NORM, SAME)
    before = copy_state(pair.original)
    train(pair, 4)
    for now in (copy_state(pair.original), pair.new.state()):
        assert all(torch.equal(now[name], t) for name, t in before.items())


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (model_of("pass", "return x * 2", "torch.arange(9)"), "neither parameters nor"),
        (model_of(FC, "return self.fc(x).argmax(1)", ROWS), "has no gradients"),
        (model_of(FC, "return torch.relu(self.fc(x) - 99)", ROWS), "has no slope"),
        (
            model_of(FC, "return torch.softmax(self.fc(x).sum(1, keepdim=True), 1)", ROWS),
            "has no slope",
        ),
        (model_of(FC, "return torch.log(self.fc(x))", ROWS), "gradients of the original are not"),
    ],
    ids=["nothing to train", "no gradients", "no slope", "a constant", "NaN"],
)
def test_what_cannot_be_told_is_skipped(model: str, reason: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, model, SAME)
    assert found.check.skipped and reason in found.check.detail and found.curves is None


@pytest.mark.parametrize(
    ("new", "clause"),
    [
        ("raise ValueError('not today')", "not today"),
        ("return super().forward(x)[:3]", "output"),
        ("return super().forward(x).detach()", "ModelNew: its outputs carry no gradients"),
    ],
    ids=["raises", "another shape", "no gradients"],
)
def test_who_does_not_train_fails(new: str, clause: str, tmp_path: Path) -> None:
    text = f"class ModelNew(Base):\n    def forward(self, x):\n        {new}\n"
    found = outcome(tmp_path, LINEAR, text)
    assert not found.check.passed and clause in found.check.detail


def test_few_steps_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "fitting", lambda asked, step_s: 5)
    found = outcome(tmp_path, LINEAR, SAME, steps=STEPS)
    assert found.curves is not None and found.curves.num_steps == 5
    assert f"5 steps (there is no time for {STEPS})" in found.check.detail


def test_as_many_steps_as_there_is_time_for() -> None:
    assert curves.fitting(Asked(200, 60.0), 0.001) == 200
    assert curves.fitting(Asked(200, 60.0), 0.5) == 24
    with pytest.raises(NotTrained, match="take longer than 60 s"):
        curves.fitting(Asked(200, 60.0), 5.0)


def test_weights_that_take_too_much_memory_are_not_trained() -> None:
    curves.require_memory(10**6, 2**30)
    with pytest.raises(NotTrained, match="67 million weights"):
        curves.require_memory(67 * 10**6, 16 * 2**30)


def test_large_inputs_have_fewer_rows(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, POINTWISE, SAME)
    own = OwnInputs(pair, 7)
    assert few_rows(own, pair.original, 6 * 33)(0).args[0].shape == (6, 33)
    assert few_rows(own, pair.original, 10**6) is own
    picky = model_of("pass", "return x.view(9, 33)", "torch.randn(9, 33)")
    pair = pair_of(tmp_path, picky, SAME)
    assert few_rows(own, pair.original, 6 * 33) is own


def distances(new: float, eager: float, still: float = 1.0) -> Distances:
    named = {FLOAT64_RUN: 0.0, EAGER: eager, MOVED: eager / 2, NEW: new, STILL: still}
    return Distances({name: value**2 for name, value in named.items()}, 1, [2.0])


@pytest.mark.parametrize(
    ("new", "passes"),
    [
        ([1.4] * 5, True),
        ([1.6] * 5, False),
        ([1.6, 1.6, 1.6, 1.0, 1.0], False),
        ([9.0, 9.0, 1.0, 1.0, 1.0], True),
        ([11.0, 1.0, 1.0, 1.0, 1.0], False),
        ([math.inf, 1.0, 1.0, 1.0, 1.0], False),
    ],
    ids=["within", "beyond", "three beyond", "two by chance", "one far away", "one infinite"],
)
def test_the_median_counts_and_no_seed_is_far(new: list[float], passes: bool) -> None:
    found = [distances(each * 1e-7, 1e-7) for each in new]
    assert concluded(found, FLOAT64_RUN, 9, 9).check.passed is passes


def test_a_curve_that_does_not_move_tells_nothing() -> None:
    with pytest.raises(NotTrained, match="learns nothing would pass"):
        concluded([distances(1e-7, 1e-7, 1.2e-7)] * 5, FLOAT64_RUN, 9, 9)
    assert not concluded([distances(1.0, 1e-7, 1e-7)] * 5, FLOAT64_RUN, 9, 9).check.passed


def test_weights_are_moved_by_roundings() -> None:
    start = Start({"w": torch.ones(99).bfloat16()}, {"w": torch.full((99,), 3.0).double()}, False)
    moved = (curves.moved_by_rounding(start, Call((), {}), 7)["w"] / 3.0 - 1.0).abs()
    assert 0.4 < float(moved.max()) / torch.finfo(torch.bfloat16).eps <= 0.5


def test_what_is_near_by_eagers_own_spread_is_tried_again() -> None:
    near = concluded([distances(0.2, 0.1)] * 5, FLOAT64_RUN, 9, 9)
    assert not near.check.passed and near.is_close
    assert not concluded([distances(2.0, 0.1)] * 5, FLOAT64_RUN, 9, 9).is_close


def test_losses_that_are_not_finite_tell_nothing() -> None:
    def lost() -> Distances:
        made = distances(1e-7, 1e-7)
        made.losses, made.squares = [2.0, math.nan], dict.fromkeys(made.squares, math.nan)
        return made

    with pytest.raises(NotTrained, match="not finite"):
        concluded([distances(1e-7, 1e-7), distances(1e-7, 1e-7), *[lost()] * 3], EAGER, 9, 9)
    told = concluded([lost(), *[distances(1e-7, 1e-7)] * 3, lost()], FLOAT64_RUN, 9, 9)
    assert told.check.passed and told.curves is not None and told.curves.num_seeds == 3
    assert not concluded([lost(), *[distances(2e-7, 1e-7)] * 4], FLOAT64_RUN, 9, 9).check.passed


def test_other_seeds_decide_where_chance_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: list[int] = []
    found = iter([2.0] * 10 + [1.0] * 5)

    def one_seed(self: Training, number: int, asked: Asked) -> Distances:
        numbers.append(number)
        return distances(next(found) * 1e-7, 1e-7)

    monkeypatch.setattr(Training, "_one_seed", one_seed)
    assert outcome(tmp_path, LINEAR, SAME).check.passed and numbers == list(range(15))
    for distance, tried in ((20.0, 15), (2e6, 5)):
        numbers.clear()
        found = iter([distance, *[1.0] * 4] * 3)
        assert not outcome(tmp_path, LINEAR, SAME).check.passed and numbers == list(range(tried))


def test_the_objective_is_a_mean_square_in_units_of_the_outputs() -> None:
    torch.manual_seed(0)
    outputs = [100 * torch.randn(7, 9, requires_grad=True), torch.ones(3)]
    objective = Objective.beside(outputs, 1)
    assert objective is not None
    losses, (first, second) = objective(outputs)
    assert second is None and first is not None and losses.shape == (MOST_PARTS,)
    target = objective.targets[0]
    assert target is not None
    wanted = outputs[0].detach().double().requires_grad_()
    scale = wanted.detach().square().mean().sqrt()
    loss = ((wanted - target) / scale).square().mean()
    loss.backward()
    torch.testing.assert_close(losses.mean(), loss.detach(), rtol=0.3, atol=0.0)
    assert wanted.grad is not None
    torch.testing.assert_close(first.double() / objective.factor, wanted.grad)
    assert 0.1 < float(first.abs().max()) < 10 and math.log2(objective.factor).is_integer()
    assert Objective.beside([torch.ones(3), torch.ones(2, dtype=torch.int64)], 1) is None


def test_rates_move_every_weight_by_its_size() -> None:
    weights = {
        "big": torch.full((4,), 3.0),
        "small": torch.full((2,), 0.1),
        "none": torch.ones(3),
    }
    slopes = {"big": torch.full((4,), 5.0), "small": torch.full((2,), -2.0)}
    rates = unit_rates(weights, slopes)
    assert rates["big"] * 5.0 == pytest.approx(3.0) and rates["small"] * 2.0 == pytest.approx(0.1)
    assert all(math.isfinite(rate) for rate in rates.values())


class Scripted:
    """A lesson whose losses are told by the rate, and by how many steps there were."""

    still = (torch.ones(2), torch.full((2,), 3.0))

    def __init__(self, loss: Callable[[float, int], float]) -> None:
        self.loss = loss

    def step(self, side: Any, number: int, rates: dict[str, float]) -> torch.Tensor:
        return self.loss(rates["w"], number) * self.still[number % 2]


@pytest.mark.parametrize(
    ("loss", "share"),
    [
        (lambda rate, step: 1 - rate * step, 1e-3),
        (lambda rate, step: math.nan if rate > 1e-4 else 0.9, 4e-5),
        (lambda rate, step: 9.0 if rate > 3e-4 and step > 9 else 0.9, 2e-4),
        (lambda rate, step: 1.1 if rate > 5e-5 else 0.9, 4e-5),
        (lambda rate, step: 9.0 if rate > 3e-4 else 1.1, 2e-4),
        (lambda rate, step: 9.0, 8e-6),
    ],
    ids=["falls", "not finite", "rises", "does not fall", "calm at least", "never"],
)
def test_the_rate_is_one_by_which_the_loss_falls_calmly(
    loss: Callable[[float, int], float], share: float
) -> None:
    lesson: Any = Scripted(loss)
    assert share_for(lesson, lambda: None, {"w": 1.0}, math.inf) == share  # type: ignore[arg-type,return-value]
    assert share_for(lesson, lambda: None, {"w": 1.0}, 0.0) == 1e-3  # type: ignore[arg-type,return-value]


def test_a_judgement_trains_where_it_is_asked_to(tmp_path: Path) -> None:
    asked = {"step": True, "training_steps": 5}
    judgement = judge_pair(tmp_path, LINEAR, SAME, **asked)
    assert named(judgement, LOSS_CURVES).passed and judgement.curves is not None
    assert judgement.curves.num_steps == 5
    without = judge_pair(tmp_path, LINEAR, SAME)
    assert without.curves is None
    assert LOSS_CURVES not in [check.name for check in without.verdict.checks]


def test_in_two_processes(tmp_path: Path) -> None:
    """Right in every check of gradients, and wrong once it has been asked for them often."""
    text = textwrap.dedent(LATER).replace("40", "150")
    paths = write_pair(tmp_path, LINEAR, text)
    settings = Settings(device="cpu", seed=7, measure=False, step=True, training_steps=40)
    found = judge_in_processes(*paths, settings)
    assert [check.name for check in found.verdict.failures] == [LOSS_CURVES], found.verdict.reason
    assert found.curves is not None and "in the worst seed" in found.verdict.reason
