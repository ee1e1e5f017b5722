"""The same module gives the same graph in two processes with different hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
import torch
from torch import nn
from opweld.capture import capture
from opweld.capture.specialise import canonical

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop, self.names = nn.Linear(4, 4), nn.Dropout(), {"b": 1, "a": 2}
    def forward(self, x, options):
        y = self.drop(self.fc(x)) * options["k"] + len(self.names)
        return {"z": y.tanh(), "y": torch.cat([y, x], 1)[:, 1:]}

torch.manual_seed(0)
result = capture(Model(), (torch.randn(3, 4), {"k": torch.randn(3, 1)}), {}, name="model")
for variant in result.variants:
    print(canonical(variant.graph), variant.graph.origins, variant.contract)
print([variant.also for variant in result.variants])
"""


def captured_with(seed: str) -> str:
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.mark.slow
def test_two_processes_print_the_same() -> None:
    first = captured_with("1")
    assert "aten.linear.default" in first
    assert first == captured_with("2")
