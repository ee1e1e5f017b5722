"""A reduction that is given back is the user's own call again."""

from __future__ import annotations

from pathlib import Path

from opweld.driver import compile_file
from opweld.options import Options

MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x, dim=-1)
        return y.sum(dim=0) * 2

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return []
"""


def test_the_line_that_is_excluded_calls_pytorch_and_the_others_are_fused(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(MODEL, "utf-8")
    before = compile_file(path, Options(target="cpu"))
    assert [row.lines for row in before.fused] == [("m.py:6",), ("m.py:7",)]
    after = compile_file(path, Options(target="cpu", exclude=frozenset(["m.py:6"])))
    assert [row.lines for row in after.fused] == [("m.py:7",)]
    assert after.library == (("softmax", "measured slower than the PyTorch call it replaces"),)
    assert "torch.softmax(x, -1)" in after.text.split("class ModelNew")[1]
