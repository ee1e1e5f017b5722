"""Models whose output does not depend on what they are given, and who is to blame."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from opweld.judge.load import Call
from opweld.judge.verify.degenerate import Variation, clause, examine

HEAD = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x, y=None):
"""

CASES = {
    "softmax over one": (
        "return torch.softmax(self.fc(x).sum(1, keepdim=True), 1) * 2",
        "output is the constant 2 for any inputs: _softmax at model.py:11",
    ),
    "minus its own mean": (
        "z = self.fc(x).amax(1, keepdim=True)\n"
        "        return torch.tanh(z - z.mean(1, keepdim=True))",
        "output is the constant 0 for any inputs: sub at model.py:12",
    ),
    "a clamp that all exceed": (
        "return self.fc(x).clamp(5, 6)",
        "output is the constant 5 for any inputs: clamp at model.py:11",
    ),
    "rounding is all that is left": (
        "return torch.softmax(self.fc(x), 1).sum(1)",
        "output is the constant 1 for any inputs: sum at model.py:11",
    ),
    "weights alone": (
        "return self.fc.weight * 2",
        "output does not depend on the inputs",
    ),
    "inputs alone": ("return x * 2", "output does not depend on the weights"),
    "an input for nothing": ("return self.fc(x)", "no output depends on input 1"),
    "ordinary": ("return torch.relu(self.fc(x)) + y[:, :4]", None),
    "saturated in part": ("return torch.sign(self.fc(x)) * y.sum()", None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_collapse_and_its_cause_are_named(case: str, tmp_path: Path) -> None:
    body, expected = CASES[case]
    path = tmp_path / "model.py"
    path.write_text(f"{HEAD}        {body}\n")
    spec = importlib.util.spec_from_file_location("degenerate_model", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model = module.Model()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    calls = [Call((torch.randn(6, 8), torch.randn(6, 8)), {}) for _ in range(2)]
    with torch.no_grad():
        eager = [model(*calls[0].args)]
    found = examine(model, calls, 1, path, eager)
    assert (found or "").startswith(expected or "\0") if expected else found is None
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_inputs_that_draws_leave_alone_are_turned() -> None:
    class Gather(torch.nn.Module):
        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return index * 2

    calls = [Call((torch.randn(4), torch.arange(4)), {}) for _ in range(2)]
    found = examine(Gather(), calls, 1, Path("model.py"), [torch.arange(4) * 2])
    assert found == "no output depends on input 0"
    same = [Call((torch.randn(4), torch.ones(4, dtype=torch.int64)), {}) for _ in range(2)]
    eager = [torch.full((4,), 2)]
    assert examine(Gather(), same, 1, Path("model.py"), eager) is None, "nothing can be told"


def test_what_moves_less_than_the_error_does_not_depend() -> None:
    ordinary = Variation("output", 1e-8, 0.5, 0.5, 0.9, 0.1)
    assert clause(ordinary) is None
    assert clause(Variation("output", 1e-8, 1e-9, 0.5, 0.9, 0.1)) == (
        "output does not depend on the inputs"
    )
    assert clause(Variation("output", 1e-8, 1e-9, 0.5, 1e-9, 1e-9)) == (
        "output is the constant 0 for any inputs"
    )
    assert clause(Variation("output", 1e-8, 0.5, 0.0, 0.9, 0.1)) == (
        "output does not depend on the weights"
    )
    assert clause(Variation("output", 1e-8, 0.5, None, 0.9, 0.1)) is None
