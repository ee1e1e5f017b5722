"""Long loops are captured at a few steps, and give the graph that the whole capture gives."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from tests.models import time_loops
from tests.models.time_loops import WIDTH, Cell
from torch import nn

from opweld.capture import capture, variants
from opweld.capture.loops import counting, short
from opweld.capture.loops.extrapolated import Lengths, OtherForm, extrapolated
from opweld.errors import CaptureError
from opweld.ir.loop import loop_of
from opweld.ir.text import to_text

STEPS = 24


@pytest.fixture
def shortened(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each of the captures that follow was made of short ones; 60 calls are many."""
    found: list[bool] = []

    def at_length(*given: Any) -> Any:
        made = short.at_length(*given)
        found.append(made is not None)
        return made

    monkeypatch.setattr(counting, "MOST_CALLS", 60)
    monkeypatch.setattr(counting, "LONG_LOOP", 16)
    monkeypatch.setattr(short, "LONG_LOOP", 16)
    monkeypatch.setattr(variants, "at_length", at_length)
    return found


def text_of(model: nn.Module, monkeypatch: pytest.MonkeyPatch | None = None) -> str:
    torch.manual_seed(1)
    if monkeypatch is not None:
        monkeypatch.setattr(counting, "MOST_CALLS", 1 << 30)
    return to_text(capture(model.eval(), (torch.randn(4, STEPS, WIDTH),), name="model"))


@pytest.mark.parametrize(
    "model",
    [Cell, time_loops.Backwards, time_loops.NoFirstState, time_loops.Scan],
    ids=lambda model: model.__name__,
)
def test_the_graph_is_that_of_the_whole_capture(
    model: Any, shortened: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = text_of(model())
    assert shortened == [True]
    assert found == text_of(model(), monkeypatch)
    assert f"of {STEPS - (model is time_loops.NoFirstState)} turns" in found


class AnotherTurn(Cell):
    """What a late turn does shows at no short length."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = Cell.step(self, x[:, t], h)
            if t == 20:
                h = torch.relu(h)
        return h


class FirstSteps(Cell):
    """The number of turns follows the length up to 20 only."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(min(x.shape[1], 20)):
            h = Cell.step(self, x[:, t], h)
        return h


class FirstOfAll(Cell):
    """Results of the first steps only, which are all at the short lengths."""

    def forward(self, x):
        return super().forward(x)[0][:, : min(x.shape[1], 18)] * 2


class ByItsLength(Cell):
    """A number in the graph is one of the length's, but on no straight line."""

    def forward(self, x):
        return super().forward(x)[0] * (1.0 / x.shape[1])


class LeavesTraces(Cell):
    """Changes buffers, one of them through a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.register_buffer("seen", torch.zeros(WIDTH))

    def forward(self, x):
        with torch.no_grad():
            self.seen += x.mean((0, 1))
        return super().forward(self.norm(x.transpose(1, 2)).transpose(1, 2))[1]


def test_a_call_that_is_counted_changes_nothing(shortened: list[bool]) -> None:
    model, x = LeavesTraces().train(), torch.randn(4, STEPS, WIDTH)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    held = dict(model.named_buffers())
    capture(model, (x,), name="model")
    assert shortened == [True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value is held[name] for name, value in model.named_buffers())


class OfConstantTurns(nn.Module):
    """A loop that no input's size tells."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for _ in range(50):
            x = torch.tanh(self.mix(x)).softmax(-1)
        return x


@pytest.mark.parametrize(
    "model",
    [AnotherTurn, FirstSteps, FirstOfAll, ByItsLength, OfConstantTurns],
    ids=lambda model: model.__name__,
)
def test_what_short_calls_do_not_tell_is_captured_whole(
    model: Any, shortened: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = text_of(model())
    assert shortened == [False]
    assert found == text_of(model(), monkeypatch)


def test_a_loop_that_is_too_long_is_named(
    shortened: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short, "MOST_OPERATIONS", 200)
    with pytest.raises(CaptureError, match=r"the loop of at least \d+ turns") as refusal:
        text_of(OfConstantTurns())
    lines = inspect.getsource(OfConstantTurns).splitlines()
    body = next(number for number, line in enumerate(lines) if "softmax" in line)
    assert refusal.value.where is not None
    assert refusal.value.where.line == inspect.getsourcelines(OfConstantTurns)[1] + body


def test_short_captures_give_loops_of_any_length(shortened: list[bool]) -> None:
    model = Cell().eval()
    captured = capture(model, (torch.randn(4, 3000, WIDTH),), name="model")
    loops = [n for n in captured.variants[0].graph.nodes() if loop_of(n)]
    assert shortened == [True]
    assert [loop_of(n).turns for n in loops] == [3000]
    assert [n.type.shape[1] for n in captured.variants[0].graph.inputs] == [3000]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1.5, 2.5),
        (1.0, 2.5),
        ("a 1", "b 2"),
        ((1, 2), (1, 2, 3)),
        (1, 2.0),
        (True, False),
        ("a1", "a1 2"),
    ],
)
def test_what_differs_in_more_than_numbers_is_refused(one: Any, other: Any) -> None:
    with pytest.raises(OtherForm):
        extrapolated(one, other, Lengths(12, 13, 40))


def test_numbers_go_on_in_a_straight_line() -> None:
    lengths = Lengths(12, 15, 42)
    assert extrapolated((12, "x[:, 24]", 7), (15, "x[:, 30]", 7), lengths) == (42, "x[:, 84]", 7)
    with pytest.raises(OtherForm):
        extrapolated(12, 13, lengths)
