"""Convolutions in tiles of pixels that give results with channels first, four pixels at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.behaviour.products import pair_of_texts, text_of
from tests.emulation.convolution_models import require_near_float64, source
from tests.gpu.emitting import all_convolutions_ours
from tests.unit.plan.convolving import no_halos

MODELS = {
    "WindowTiles": source(
        "self.conv, self.norm = nn.Conv2d(20, 20, 3, padding=1), nn.BatchNorm2d(20)",
        "return F.silu(self.norm(self.conv(x)) + x)",
        "2, 20, 6, 10",
    ),
    "OneTapTiles": source(
        "self.conv = nn.Conv2d(20, 36, 1)", "return torch.tanh(self.conv(x))", "2, 20, 6, 10"
    ),
}
RUNS = "columns[i] * step[k]"


@pytest.mark.parametrize("form", MODELS)
def test_four_pixels_are_given_at_once(form: str, tmp_path: Path) -> None:
    """A fault in how they are is seen, and so they are."""
    with all_convolutions_ours(), no_halos():
        text = text_of(form.lower(), MODELS[form], "sm90", mode="eval")
    assert f"op::{form}<" in text and RUNS in text
    pair = pair_of_texts(form.lower(), MODELS[form], text, 0, tmp_path)
    for batch in (1, 3):
        require_near_float64(pair, batch, 1)
    broken = text.replace(RUNS, "columns[0] * step[k]")
    other = pair_of_texts(f"{form.lower()}_broken", MODELS[form], broken, 0, tmp_path)
    (x,) = pair.inputs(2)
    with torch.no_grad():
        found, wrong = (each.models()[1](x) for each in (pair, other))
        assert not torch.equal(found, wrong)
        last = x.contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(pair.models()[1](last), found, rtol=1e-5, atol=1e-5)
