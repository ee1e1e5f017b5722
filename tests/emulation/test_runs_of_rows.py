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
    "WindowTiles": (
        "self.conv, self.norm = nn.Conv2d(20, 20, 3, padding=1), nn.BatchNorm2d(20)",
        "return F.silu(self.norm(self.conv(x)) + x)",
    ),
    "OneTapTiles": ("self.conv = nn.Conv2d(20, 36, 1)", "return torch.tanh(self.conv(x))"),
}
RUNS = "columns[i] * step[k]"


def emitted(form: str, sizes: str) -> tuple[str, str]:
    """A model whose images have these sizes, and its emitted file."""
    model = source(*MODELS[form], f"2, 20, {sizes}")
    with all_convolutions_ours(), no_halos():
        text = text_of(form.lower(), model, "sm90", mode="eval")
    assert f"op::{form}<" in text and RUNS in text
    return model, text


@pytest.mark.parametrize("form", MODELS)
def test_four_pixels_are_given_at_once(form: str, tmp_path: Path) -> None:
    """A fault in how they are is seen, and so they are."""
    model, text = emitted(form, "6, 10")
    pair = pair_of_texts(form.lower(), model, text, 0, tmp_path)
    for batch in (1, 3):
        require_near_float64(pair, batch, 1)
    broken = text.replace(RUNS, "columns[0] * step[k]")
    other = pair_of_texts(f"{form.lower()}_broken", model, broken, 0, tmp_path)
    (x,) = pair.inputs(2)
    padded = torch.randn(2, 20, 61)[..., :60].unflatten(2, (6, 10)).copy_(x)
    last = x.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        found, wrong = (each.models()[1](x) for each in (pair, other))
        assert not torch.equal(found, wrong)
        for otherwise in (last, padded):
            torch.testing.assert_close(pair.models()[1](otherwise), found, rtol=1e-5, atol=1e-5)
        if form == "WindowTiles":  # it reads x beside its sums, no four at 16 bytes: one by one
            torch.testing.assert_close(other.models()[1](padded), found, rtol=1e-5, atol=1e-5)


def test_fours_of_pixels_end_with_their_image(tmp_path: Path) -> None:
    """Four images of 35 pixels are 35 fours of them. (Images of one tap are whole fours.)"""
    model, text = emitted("WindowTiles", "5, 7")
    require_near_float64(pair_of_texts("odd", model, text, 0, tmp_path), 4, 1)
