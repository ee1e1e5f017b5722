"""What is done about models that fail: a crash is an outcome, and a fault is made small."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.fuzz.campaign import Judging
from tests.fuzz.generate import generate
from tests.fuzz.outcome import Outcome
from tests.fuzz.program import Input, Program, Step, run_eagerly
from tests.fuzz.shrink import shrink

CRASH = """
import os
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {line}
        return x + 1

def get_inputs():
    return [torch.ones(3, 4)]

def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_a_crash_is_the_outcome_of_its_model_alone(tmp_path: Path) -> None:
    sources = {
        "crashes": CRASH.format(line="os.abort()"),
        "raises": CRASH.format(line="raise ValueError(x)"),
        "passes": CRASH.format(line="x = x * 2"),
    }
    judging = Judging(tmp_path, seeds=(11,), autocast_every=0)
    found = {name: outcome.kind for name, outcome in judging.outcomes(sources).items()}
    assert found == {
        "crashes": "process was ended by SIGABRT in compile",
        "raises": "refused",
        "passes": "passed",
    }


def program(num_lines: int) -> Program:
    """A chain of lines, the middle one a tangent."""
    steps = [Step(("a0",), "{0} * 2.5", ("x",), "mul")]
    for index in range(1, num_lines):
        before, target = f"a{index - 1}", (f"a{index}",)
        middle = index == num_lines // 2
        text, operands = ("torch.tan({0})", (before,)) if middle else ("{0} + {1}", (before, "y"))
        steps.append(Step(target, text, operands, "tan" if middle else "add"))
    inputs = (Input("x", "3 * torch.randn(33, 17).double()"), Input("y", "torch.randn(33, 1)"))
    return Program(inputs, (), tuple(steps), ("a0", f"a{num_lines - 1}"), "{0}, [{1}]")


def tangents_fail(sources: Mapping[str, str]) -> dict[str, Outcome]:
    return {
        name: Outcome(name, "fault" if "torch.tan" in text else "passed")
        for name, text in sources.items()
    }


def test_a_fault_is_made_small() -> None:
    small = shrink(program(9), "fault", tangents_fail)
    assert [step.line() for step in small.steps] == ["a = torch.tan(x)"]
    assert (small.results, small.returned) == (("a",), "{0}")
    assert [each.value for each in small.inputs] == ["torch.randn(1, 1)"]
    run_eagerly(small)


def test_it_is_made_small_in_the_same_way_each_time() -> None:
    whole = generate(1003)
    called = re.search(r"\w+\(", whole.steps[-1].text)
    assert called is not None, "the last line calls a function"
    word = called[0]

    def judge(sources: Mapping[str, str]) -> dict[str, Outcome]:
        return {n: Outcome(n, "fault" if word in t else "passed") for n, t in sources.items()}

    first, second = (shrink(whole, "fault", judge) for _ in range(2))
    assert first == second
    assert len(first.steps) <= len(whole.steps) and word in first.source()
