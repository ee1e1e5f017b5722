"""What the allowances for chance may not excuse: larger errors than eager's, whatever the outputs
are like.

The outputs below are those of which few elements may decide both figures: rows of a softmax, of
which one element may be near 1, exponentials over ten decades, sums. Judged by `Trial` on every
kind of values, as honest pairs are in `test_false_alarms.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.judge.test_false_alarms import InProcess
from torch import Tensor, nn
from torch.nn import functional as F

from opweld.judge.inputs.kinds import Kind, value_kinds
from opweld.judge.load import Call, Pair
from opweld.judge.numerics.effective import round_tf32
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.trial import Trial

Rule = Callable[[Tensor], Tensor]
SHAPE, NUM_SEEDS = (8, 33), 3
MODELS: dict[str, Rule] = {
    "softmax": lambda x: (2 * x).softmax(1),
    "exponentials": lambda x: (5 * x).exp(),
    "sums": lambda x: x.sum(1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "over the norm of all": lambda x: x / x.norm(),
}


def times(factor: float) -> Callable[[Rule], Rule]:
    """Every error is so many times eager's, those aside that made it infinite or NaN."""

    def wrong(rule: Rule) -> Rule:
        def run(x: Tensor) -> Tensor:
            eager, exact = rule(x).double(), rule(x.double())
            more = ((factor - 1) * (eager - exact)).where(eager.isfinite(), 0.0)
            return (eager + more).float()

        return run

    return wrong


def one_element(factor: float, place: Callable[[Tensor], int]) -> Callable[[Rule], Rule]:
    """One element is wrong by so many times eager's largest error."""

    def wrong(rule: Rule) -> Rule:
        def run(x: Tensor) -> Tensor:
            eager, exact = rule(x), rule(x.double())
            most = (eager.double() - exact).abs().nan_to_num(0, 0, 0).max()
            found = eager.clone().view(-1)
            found[place(exact.nan_to_num(0, 0, 0).abs().view(-1))] += factor * float(most)
            return found.view_as(eager)

        return run

    return wrong


def rounded(to: Callable[[Tensor], Tensor]) -> Callable[[Rule], Rule]:
    """The inputs have a lower precision, and so have the operations where `to` gives them one."""
    return lambda rule: lambda x: rule(to(x)).float()


def largest(values: Tensor) -> int:
    return int(values.argmax())


def middle(values: Tensor) -> int:
    return int(values.argsort()[values.numel() // 2])


WRONG: dict[str, Callable[[Rule], Rule]] = {
    "errors 4 times eager's": times(4),
    "errors 10 times eager's": times(10),
    "the largest element, by 10 times": one_element(10, largest),
    "an element, by 10 times": one_element(10, middle),
    "bfloat16": rounded(torch.Tensor.bfloat16),
    "float16": rounded(torch.Tensor.half),
    "TF32": rounded(round_tf32),
}


class Module(nn.Module):
    """A function as a module."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.forward = rule


def is_refused(original: Rule, new: Rule, seed: int) -> bool:
    def own(draw: int) -> Call:
        generator = torch.Generator().manual_seed(stream(seed, "own inputs", draw))
        return Call((torch.randn(SHAPE, generator=generator),), {})

    device, nowhere = torch.device("cpu"), Path("nowhere")
    sides = Module(original), InProcess(Module(new))
    pair = Pair(*sides, ModuleType("none"), nowhere, nowhere, device, None)
    trial = Trial(pair, seed, lambda who, what: None)
    kinds = (Kind("own inputs", own), *value_kinds(own, seed))
    return any(not trial.compare(kind).passed for kind in kinds)


@pytest.mark.parametrize("model", MODELS)
def test_errors_of_the_other_sign_are_not_refused(model: str) -> None:
    original = MODELS[model]
    assert not any(is_refused(original, times(-1)(original), s) for s in range(NUM_SEEDS))


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("model", MODELS)
def test_larger_errors_are_refused(model: str, wrong: str) -> None:
    original = MODELS[model]
    passed = [s for s in range(NUM_SEEDS) if not is_refused(original, WRONG[wrong](original), s)]
    assert not passed, f"seeds {passed}"
