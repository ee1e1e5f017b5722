"""The rows of an account's plan: what each reads, and what the forward returns."""

from __future__ import annotations

import pytest

from opweld.compiled import Compiled
from opweld.driver import compile_file
from opweld.options import Options

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        values, order = torch.sort(torch.tanh(x))
        rows = values.reshape(8, 4, 16).sum(-1)
        return torch.dropout(rows * y, 0.5, self.training) + rows, order

def get_inputs():
    return [torch.randn(8, 64), torch.randn(8, 4)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    path = tmp_path_factory.mktemp("rows") / "m.py"
    path.write_text(MODEL)
    return compile_file(path, Options(target="cpu", check=False, mode="both"))


@pytest.mark.parametrize("state", ["", "eval"], ids=["training", "eval"])
def test_a_row_names_the_rows_and_inputs_that_it_reads(compiled: Compiled, state: str) -> None:
    """Views, and results of a call that has several, stand for what they are of."""
    rows = compiled.plan_rows
    shown = [row for row in rows if row.variant == state and row.ops != ("item",)]
    reads = {row.name: [rows[number].name for number in row.reads] for row in shown}
    inputs = {row.name: row.inputs for row in shown if row.inputs}
    results = [row.name for row in shown if row.is_result]
    assert [row.number for row in rows] == list(range(len(rows)))
    assert all(rows[number].variant == state for row in shown for number in row.reads)
    if state:
        assert reads == {"k1_tanh": [], "sort": ["k1_tanh"], "k2_sum_mul_add_eval": ["sort"]}
        assert inputs == {"k1_tanh": ("x",), "k2_sum_mul_add_eval": ("y",)}
        assert results == ["sort", "k2_sum_mul_add_eval"]
    else:
        assert reads == {
            "k1_tanh": [],
            "sort": ["k1_tanh"],
            "k2_sum_mul": ["sort"],
            "dropout": ["k2_sum_mul"],
            "k3_add": ["dropout", "k2_sum_mul"],
        }
        assert inputs == {"k1_tanh": ("x",), "k2_sum_mul": ("y",)}
        assert results == ["sort", "k3_add"]


def test_the_lines_that_kernels_compute_are_known_by_their_places(compiled: Compiled) -> None:
    lines = MODEL.splitlines()
    places = {place for row in compiled.plan_rows for place in row.places}
    assert places == {"m.py:7", "m.py:8", "m.py:9"} == set(compiled.line_texts)
    for place, text in compiled.line_texts.items():
        assert text == lines[int(place.removeprefix("m.py:")) - 1].strip()
