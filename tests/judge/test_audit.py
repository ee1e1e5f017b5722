"""The outputs of timed calls, judged together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from opweld.judge.load import Call, Pair
from opweld.judge.process.side import Side
from opweld.judge.values import Check
from opweld.judge.verify.audit import TimedResults
from opweld.judge.verify.run import of_outputs
from opweld.judge.verify.trial import Trial

CPU = torch.device("cpu")
GENERATOR = torch.Generator().manual_seed(11)


def judged(model: nn.Module, *pairs: tuple[torch.Tensor, Any]) -> Check:
    """Of calls with these inputs, which returned these outputs."""
    path = Path("m.py")
    pair = Pair(model, Side(), torch, path, path, CPU, None)  # type: ignore[arg-type]
    results = TimedResults(Trial(pair, 1, lambda who, what: None))
    with torch.no_grad():
        for x, outputs in pairs:
            results.add(lambda x=x: Call((x.clone(),), {}), of_outputs(outputs))
    return results.check()


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR)


def test_right_outputs_pass_whether_bit_equal_or_not() -> None:
    model, inputs = nn.GELU(), [drawn(8, 64) for _ in range(3)]
    exact = [(x, model(x)) for x in inputs]
    check = judged(model, *exact)
    assert (check.passed, check.detail) == (True, "of 3 calls, chosen afterwards")
    close = [(x, model(x.double()).float()) for x in inputs]
    check = judged(model, *close)
    assert check.passed and check.error_vs_f64 and check.error_vs_f64.max < 1e-6


def test_one_wrong_output_among_right_ones_fails() -> None:
    inputs = [drawn(8, 16) for _ in range(3)]
    pairs = [(x, torch.tanh(x)) for x in inputs]
    pairs[1] = (inputs[1], torch.tanh(inputs[0]))
    check = judged(nn.Tanh(), *pairs)
    assert not check.passed and check.name == "timed results" and check.grade == "F"
    pairs[1] = (inputs[1], torch.tanh(inputs[1])[:7])
    assert "shape" in judged(nn.Tanh(), *pairs).detail


def test_few_elements_need_only_be_close() -> None:
    """One element has no chance to even out: its error may be many times eager's."""

    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    x = drawn(1000)
    other = x.double().sum().float() * (1 + 5e-7)
    assert judged(Sum(), (x, other)).passed
    assert not judged(Sum(), (x, other * 1.01)).passed


def test_random_models_are_left_out() -> None:
    x = drawn(4)
    check = judged(nn.Dropout(0.5).train(), (x, x))
    assert check.skipped and check.passed
    assert judged(nn.Tanh()).skipped


def test_inputs_written_by_the_original_are_not_outputs() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1.0)

    x = drawn(8, 16)
    assert judged(InPlace(), (x, x + 1)).passed
    assert not judged(InPlace(), (x, x + 2)).passed


@pytest.mark.parametrize("scale", [1.0, 1.001])
def test_nested_outputs_are_followed(scale: float) -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"a": torch.tanh(x), "b": x * 2}

    x = drawn(8, 16)
    assert judged(Both(), (x, {"a": torch.tanh(x), "b": x * 2 * scale})).passed is (scale == 1.0)
    assert not judged(Both(), (x, [torch.tanh(x), x * 2])).passed
