"""`opweld tune` on a GPU: every schedule is built and timed; who wins is the machine's affair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[2] / "src")
MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2048, 2048)
    def forward(self, x, y):
        return torch.relu(self.fc(x)), torch.exp(y) * 0.5
def get_inputs():
    return [torch.rand(1024, 2048), torch.rand(2048, 4096)]
def get_init_inputs():
    return []
"""


@pytest.mark.gpu
def test_pointwise_groups_and_products(tmp_path: Path) -> None:
    model, account, table = tmp_path / "m.py", tmp_path / "account.json", tmp_path / "table.txt"
    model.write_text(MODEL)
    table.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "opweld", "tune", str(model), "--target", "cuda", "--write",
         "--json", str(account)],
        env={**os.environ, "PYTHONPATH": SOURCE, "OPWELD_SCHEDULES": str(table)},
        capture_output=True,
        text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(account.read_text())
    assert data["notes"] == []
    pointwise, product = sorted(data["outcomes"], key=lambda outcome: -len(outcome["trials"]))
    assert pointwise["kind"] == "pointwise" and pointwise["shape"].startswith("elems 2^23 ")
    assert len(pointwise["trials"]) == 15 and pointwise["copy_us"] > 0
    assert product["shape"] == "m 2^10 n 2^11 k 2^11 batches 2^0 held tail"
    assert {trial["schedule"] for trial in product["trials"]} == {"ours", "library"}
    for trial in (*pointwise["trials"], *product["trials"]):
        assert trial["us"] > 0 and trial["runs"] >= 5
    assert len(data["rows"]) == len(
        [line for line in table.read_text().splitlines() if "2^" in line]
    )
