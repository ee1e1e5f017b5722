"""Recurrent layers are one call of the library, however many steps they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import load_file
from torch import nn
from torch._decomp import decompositions
from torch._subclasses import FakeTensorMode

from opweld.capture.exporting.recurrent import shapes_of_recurrent_layers
from opweld.compiled import Compiled
from opweld.driver import compile_file
from opweld.options import Options

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.layer = LAYER
        self.outer = nn.LazyLinear(4)
        self(*get_inputs())

    def forward(self, x):
        y, _ = self.layer(torch.relu(self.inner(x)) * 2.0 + 1.0)
        return torch.sigmoid(self.outer(y)) * 3.0


def get_inputs():
    return [torch.randn(3, STEPS, 6)]


def get_init_inputs():
    return []
"""
LAYERS = {
    "LSTM": "nn.LSTM(8, 5, batch_first=True)",
    "GRU": "nn.GRU(8, 5, 2, bidirectional=True)",
    "RNN": "nn.RNN(8, 5, nonlinearity='relu', batch_first=True, bias=False)",
    "projected": "nn.LSTM(8, 5, 2, batch_first=True, bidirectional=True, proj_size=2)",
}


def compiled(folder: Path, layer: str, steps: int, **options: Any) -> Compiled:
    path = folder / "recurrent.py"
    path.write_text(SOURCE.replace("LAYER", layer).replace("STEPS", str(steps)), "utf-8")
    return compile_file(path, Options(target="cpu", check=False, **options))


def fused(found: Compiled) -> list[str]:
    return [row.name for row in found.main_rows if row.kind == "pointwise"]


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_what_stands_around_a_layer_is_fused(
    layer: str, build_folder: Path, tmp_path: Path
) -> None:
    """In training too, for nothing is dropped."""
    found = compiled(tmp_path, layer, 7)
    assert len(fused(found)) == 2
    file = load_file(tmp_path / "recurrent_new.py", found.text)
    new = file.ModelNew()
    for batch in (1, 4):
        x = torch.randn(batch, 7, 6)
        with torch.no_grad():
            assert new._opweld_fits(x)
            torch.testing.assert_close(new(x), file.Model.forward(new, x))


def test_no_step_is_run_to_learn_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cell(*args: Any) -> Any:
        raise AssertionError("a step was run")

    for name in ("lstm_cell", "gru_cell"):
        monkeypatch.setattr(decompositions, name, cell)
    for layer in (LAYERS["LSTM"], LAYERS["GRU"]):
        assert len(fused(compiled(tmp_path, layer, 3000))) == 2


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_shapes_are_those_of_the_layer(kind: Any, several: bool, batch_first: bool) -> None:
    more = {"num_layers": 2, "bidirectional": True} if several else {}
    layer, x = kind(6, 5, batch_first=batch_first, **more), torch.randn(3, 7, 6)
    wanted = torch.utils._pytree.tree_leaves(layer(x))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, shapes_of_recurrent_layers():
        found = torch.utils._pytree.tree_leaves(layer(mode.from_tensor(x)))
    assert [each.shape for each in found] == [each.shape for each in wanted]
    assert all(each.requires_grad for each in found)


def test_what_drops_between_layers_draws_in_training(tmp_path: Path) -> None:
    layer = "nn.LSTM(8, 5, 2, batch_first=True, dropout=0.5)"
    assert not fused(compiled(tmp_path, layer, 4))
    assert len(fused(compiled(tmp_path, layer, 4, mode="eval"))) == 2
    alone = "nn.LSTM(8, 5, batch_first=True, dropout=0.0)"
    assert len(fused(compiled(tmp_path, alone, 4))) == 2


def test_layers_of_elements_run_as_ever() -> None:
    layer, x = nn.LSTM(4, 3), torch.randn(5, 2, 4)
    with torch.no_grad():
        with shapes_of_recurrent_layers():
            inside = layer(x)[0]
        # oneDNN's steps for a gradient may round otherwise.
        assert torch.equal(inside, layer(x)[0])
