"""Sequences of any length: kernels for axes that the user says are dynamic."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.behaviour.emitted import kernels_in
from tests.models.emitted import emit_module
from torch import nn

import opweld
from opweld.errors import UserError
from opweld.options import Options


class Block(nn.Module):
    """Attention over what came before, with places of its own, and a mask of what is padding."""

    def __init__(self, width: int = 16, heads: int = 2, most: int = 40) -> None:
        super().__init__()
        self.heads, self.place = heads, nn.Parameter(torch.randn(most, width))
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x, kept):
        batch, length, width = x.shape
        x = x + self.place[:length]
        parts = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (z.view(batch, length, self.heads, -1).transpose(1, 2) for z in parts)
        seen = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        y = F.scaled_dot_product_attention(q, k, v, seen & kept[:, None, None, :])
        x = x + y.transpose(1, 2).reshape(batch, length, width)
        return x + self.down(F.gelu(self.up(x)))


def call(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.arange(batch) % length
    return torch.randn(batch, length, 16), torch.arange(length) <= lengths[:, None]


def test_a_file_serves_sequences_of_any_length(tmp_path: Path) -> None:
    torch.manual_seed(3)
    asked = ("x:1", "kept:1")
    emitted = emit_module(Block().eval(), (call(4, 12), {}), tmp_path, dynamic=asked)
    new, old = emitted.new, emitted.original
    with torch.no_grad():
        for batch, length in ((4, 12), (2, 40), (1, 3), (5, 39), (3, 1)):
            given = call(batch, length)
            assert kernels_in(partial(new, *given)) > 0
            torch.testing.assert_close(new(*given), old(*given), rtol=1e-4, atol=1e-5)


def test_python_takes_what_export_takes() -> None:
    made = [
        opweld.optimize(Block().eval(), call(4, 12), dynamic_shapes=shapes, check=False)
        for shapes in (
            {"x": {1: "length"}, "kept": {1: "length"}},
            {"x": (None, "length", None), "kept": (None, "length")},
        )
    ]
    for each in made:
        with torch.no_grad():
            assert each.why(*call(3, 31)) == "the kernels run"


@pytest.mark.parametrize("text", ["x", "x:", "x:a", ":1", "x:1,,2"])
def test_what_names_no_axis_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--dynamic cannot be"):
        Options(dynamic=(text,))


def test_axes_are_read_from_the_option() -> None:
    assert Options(dynamic=("x:0,2", "pair[1]:1")).dynamic_axes == (
        ("x", 0),
        ("x", 2),
        ("pair[1]", 1),
    )
