"""Models whose products run in row blocks, and their emitted files for the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from tests.behaviour.emitted import Pair, load_file

from opweld import target
from opweld.driver import compile_file
from opweld.options import Options
from opweld.target import CPU

ROWS = 64
"""The most rows of a block here."""

HEAD = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(24, 40)
        self.odd = nn.Linear(24, 7, bias=False)
        self.weight = nn.Parameter(torch.randn(24, 40) / 5)
        self.gain = nn.Parameter(torch.randn(40))
{more}
    def forward(self, x, y, column, z):
{body}


def get_inputs():
    shapes = (4, 24), (4, 40), (4, 1), (4, 5, 24)
    return [torch.randn(*shape{dtype}) for shape in shapes]


def get_init_inputs():
    return []
"""
BODIES = {
    # A bias in the product, a row, a column and a residual in the tail; two results.
    "tails": """
        h = self.fc(x)
        return torch.relu(h) * self.gain + y * column, h > 0
""",
    # Rows of several axes; no bias; a weight that is not turned; factors; rows of odd length.
    "calls": """
        rows = torch.sigmoid(z @ self.weight) * 2.0
        scaled = torch.tanh(torch.addmm(self.fc.bias, x, self.weight, beta=0.5, alpha=2))
        odd = torch.relu(self.odd(x)) + x[:, 3:10]
        return rows, scaled, odd
""",
    # One after the other, where the second reads what the first wrote.
    "chain": """
        h = torch.nn.functional.gelu(self.fc(x))
        return x + torch.tanh(h @ self.weight.t())
""",
    "double": """
        return torch.nn.functional.silu(self.fc(x)) - y
""",
}
NUM_PRODUCTS = {"tails": 1, "calls": 3, "chain": 2, "double": 1}


@contextmanager
def every_product_in_blocks() -> Iterator[None]:
    """As if results of any size left the cache, and packing cost nothing."""
    assert CPU.row_blocks is not None
    limits = replace(CPU.row_blocks, least_rows=ROWS, most_rows=ROWS, least_bytes=0, packings=0)
    target.TARGETS["cpu"] = replace(CPU, row_blocks=limits)
    try:
        yield
    finally:
        target.TARGETS["cpu"] = CPU


def row_blocks_pair(name: str, folder: Path, training: bool = False) -> Pair:
    double = name == "double"
    source = HEAD.format(
        body=BODIES[name].strip("\n"),
        more="        self.double()\n" if double else "",
        dtype=", dtype=torch.float64" if double else "",
    )
    original = load_file(folder / f"blocks_{name}.py", source)
    with every_product_in_blocks():
        torch.manual_seed(0)
        asked = {"autocast": ("bfloat16",), "training": training}
        options = Options(target="cpu", check=False, **asked)
        text = compile_file(folder / f"blocks_{name}.py", options).text
    emitted = load_file(folder / f"blocks_{name}_new.py", text)
    return Pair(name, source, text, NUM_PRODUCTS[name], original, emitted)
