"""The bytes that a forward keeps for its gradients."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch.nn import functional as F

from opweld.driver import compile_file
from opweld.driver.kept_bytes import kept_by
from opweld.options import Options

MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear({width}, 32)

    def forward(self, x):
        y = self.up(x)
        return {results}


def get_inputs():
    return [torch.randn(16, {width})]


def get_init_inputs():
    return []
"""


def test_what_stays_anyway_does_not_count() -> None:
    x, w = torch.randn(5, 8), torch.randn(4, 8, requires_grad=True)
    num_bytes = 5 * 4 * 4
    assert kept_by(lambda: F.linear(x, w).relu(), [x, w]) == num_bytes
    assert kept_by(lambda: F.linear(x, w).relu(), [w]) == num_bytes + x.nbytes
    assert kept_by(lambda: F.linear(x, w), [x, w]) == 0


def test_what_shares_memory_counts_once() -> None:
    w = torch.randn(4, 8, requires_grad=True)
    assert kept_by(lambda: [(y := w * 2.0).sin(), y.t().cos(), y[1:].exp()], [w]) == 4 * 8 * 4 + 96


def planned(folder: Path, results: str) -> float:
    """What the plan says, in bytes."""
    path = folder / "model.py"
    path.write_text(MODEL.format(width=8, results=results), "utf-8")
    options = Options(target="cpu", check=False, training=True, counts_kept=True)
    (own,) = re.findall(r"([0-9.e+-]+) MB by this", compile_file(path, options).stages["kept"])
    return float(own) * 1e6


def test_operands_of_two_kernels_and_their_views_count_once(tmp_path: Path) -> None:
    num_bytes = 16 * 32 * 4
    assert planned(tmp_path, "torch.sin(y) * 2.0, torch.cos(y.t()) + 1.0") == num_bytes
    assert planned(tmp_path, "y.t() @ torch.sin(y)") == 2 * num_bytes
    # Of each row, and of each column, the largest and the sum.
    results = "torch.softmax(y, 1), torch.softmax(y.t().reshape(4, 8, 16), 2)"
    assert planned(tmp_path, results) == num_bytes + 2 * 16 * 4 + 2 * 32 * 4
