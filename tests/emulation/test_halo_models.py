"""Emitted convolutions by halos, with what follows them, emulated: beside float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.behaviour.products import pair_of_texts, text_of
from tests.emulation.convolution_models import require_kernels, require_near_float64, source
from tests.gpu.emitting import all_halos_ours

MODELS = {
    "gain and mean": source(
        "self.conv = nn.Conv2d(40, 72, 3, padding=1)\n"
        "self.gain = nn.Parameter(torch.rand(72, 1, 1))",
        "return torch.relu(self.conv(x)) * self.gain + x.mean(1, keepdim=True)",
        "2, 40, 12, 16",
    ),
    "odd lines": source(
        "self.conv = nn.Conv2d(16, 24, 3)", "return torch.tanh(self.conv(x))", "2, 16, 9, 11"
    ),
    "lines of 14": source(
        "self.conv = nn.Conv2d(16, 24, (3, 1), padding=(1, 0))",
        "return self.conv(x).clamp(-1, 1)",
        "2, 16, 6, 14",
    ),
    "one axis": source(
        "self.conv = nn.Conv1d(24, 130, 7, padding=3)",
        "return torch.relu(self.conv(x))",
        "2, 24, 300",
    ),
    "three axes": source(
        "self.conv = nn.Conv3d(16, 20, 3, padding=1)",
        "return torch.relu(self.conv(x)) - 0.25",
        "2, 16, 3, 9, 12",
    ),
}

# The second one's input, operand and result have their channels last.
LAYERS = source(
    "self.first, self.second, self.third = (nn.Conv2d(*each, 3, padding=1)\n"
    "                                       for each in ((16, 40), (40, 40), (40, 20)))",
    "y = torch.relu(self.first(x))\n    return self.third(torch.relu(self.second(y)) + y)",
    "2, 16, 11, 18",
)


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str, tmp_path: Path) -> None:
    with all_halos_ours():
        text = text_of(name.replace(" ", "_"), MODELS[name], "sm90", mode="eval")
    assert "op::HaloTiles<" in text
    pair = pair_of_texts(name.replace(" ", "_"), MODELS[name], text, 0, tmp_path)
    require_kernels(pair, 1)
    for batch in (1, 3):
        require_near_float64(pair, batch, 1)


def test_runs_of_rows_are_as_rows_one_by_one(tmp_path: Path) -> None:
    """Also where the input lies with its channels last, and the result with them first."""
    with all_halos_ours():
        text = text_of("runs", MODELS["gain and mean"], "sm90", mode="eval")
    pair = pair_of_texts("runs", MODELS["gain and mean"], text, 0, tmp_path)
    one_by_one = pair_of_texts(
        "rows",
        MODELS["gain and mean"],
        text.replace("return across && all.num_axes > 1", "return false && all.num_axes > 1"),
        0,
        tmp_path,
    )
    runs = "columns[i] * step[k]"
    assert runs in text
    broken = pair_of_texts(
        "broken", MODELS["gain and mean"], text.replace(runs, "columns[0] * step[k]"), 0, tmp_path
    )
    (x,) = pair.inputs(2)
    _, new = pair.models()
    _, other = one_by_one.models()
    with torch.no_grad():
        assert torch.equal(new(x), other(x))
        assert not torch.equal(new(x), broken.models()[1](x)), "runs are what it gives"
        last = x.contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(new(last), new(x), rtol=1e-5, atol=1e-5)


def test_columns_four_by_four_are_as_one_by_one(tmp_path: Path) -> None:
    with all_halos_ours():
        text = text_of("layers", LAYERS, "sm90", mode="eval")
    assert text.count("op::HaloTiles<") >= 3
    pair = pair_of_texts("layers", LAYERS, text, 0, tmp_path)
    require_kernels(pair, 3)
    for batch in (1, 3):
        require_near_float64(pair, batch, 1)
    wanted = "sink.narrow && sink.paired && halos.c.filters % 4 == 0"
    assert wanted in text
    other = pair_of_texts("apart", LAYERS, text.replace(wanted, "false"), 0, tmp_path)
    (x,) = pair.inputs(2)
    with torch.no_grad():
        assert torch.equal(pair.models()[1](x), other.models()[1](x))
