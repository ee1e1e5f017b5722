"""Emitted convolutions in groups of several channels, emulated: beside float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.behaviour.products import Pair, pair_of_texts, text_of
from tests.emulation.convolution_models import require_kernels, require_near_float64, source
from tests.emulation.emulate import EmulationFault
from tests.gpu.emitting import all_convolutions_ours


def grouped(channels: int, filters: int, example: str, **given: object) -> str:
    """A convolution, and something behind it."""
    kernel, rank = given.pop("kernel", 3), example.count(",") - 1
    more = "".join(f", {name}={value}" for name, value in given.items())
    return source(
        f"self.conv = nn.Conv{rank}d({channels}, {filters}, {kernel}{more})",
        "return torch.relu(self.conv(x)) * 0.5",
        example,
    )


MODELS = {
    "eights": grouped(128, 128, "2, 128, 6, 9", groups=16, padding=1),
    "fours and strides": grouped(128, 256, "2, 128, 9, 9", groups=32, stride=2, bias=False),
    "one tap": grouped(60, 60, "2, 60, 5, 7", groups=3, kernel=1),
    "two groups": grouped(96, 256, "2, 96, 7, 7", groups=2, padding=2, kernel=5),
    "many filters": grouped(192, 384, "2, 192, 5, 5", groups=3),
    "odd": grouped(15, 35, "2, 15, 8, 9", groups=5, dilation=2),
    "one axis": grouped(64, 64, "2, 64, 40", groups=4, padding=1),
    "three axes": grouped(32, 32, "2, 32, 3, 4, 5", groups=4, padding=1),
}


def pair_of(name: str, directory: Path, fault: tuple[str, str] = ("", ""), mode: str = "") -> Pair:
    """The emitted file of a model, all of whose convolutions are kernels of ours."""
    stem = name.replace(" ", "_")
    with all_convolutions_ours():
        text = text_of(stem, MODELS[name], "sm90", mode=mode or "eval")
    assert "op::GroupTiles<" in text and fault[0] in text
    return pair_of_texts(stem, MODELS[name], text.replace(*fault), 0, directory)


@pytest.fixture(autouse=True)
def pairs_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of wide tiles share what they read."""
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "2")


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str, tmp_path: Path) -> None:
    pair = pair_of(name, tmp_path)
    require_kernels(pair, 1)
    for batch in (1, 3):
        require_near_float64(pair, batch, 1)


def require_in_their_group(pair: Pair, *, is_exact: bool = False) -> None:
    """What is not finite, or as large, of a channel is seen by the filters of its group alone."""
    original, new = pair.models()
    (x,) = pair.inputs(2)
    x[0, 3, 2, 2], x[1, 70, 0, 0], x[1, 127, 5, 8] = torch.inf, torch.nan, 1e30
    with torch.no_grad():
        found, right = new(x), original(x)
    for each in (torch.isnan, torch.isposinf):
        assert torch.equal(each(found), each(right))
    quiet = torch.ones(right.shape[1], dtype=torch.bool)
    quiet[[*range(8), *range(64, 72), *range(120, 128)]] = False
    bound = 1e-5 if is_exact else 4e-3
    torch.testing.assert_close(found[:, quiet], right[:, quiet], rtol=bound, atol=bound)


def test_what_is_not_finite_stays_in_its_group(tmp_path: Path) -> None:
    require_in_their_group(pair_of("eights", tmp_path))


def test_channels_last(tmp_path: Path) -> None:
    pair = pair_of("eights", tmp_path)
    original, new = pair.models()
    (x,) = pair.inputs(2)
    last = x.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.testing.assert_close(new(last), original(x), rtol=4e-3, atol=4e-3)


NO_TILES = ("if (Form::takes(c))", "if (false)")


@pytest.mark.parametrize("name", ["eights", "odd", "two groups"])
def test_what_tiles_do_not_take_is_made_group_by_group(name: str, tmp_path: Path) -> None:
    pair = pair_of(name, tmp_path, NO_TILES)
    original, new = pair.models()
    (x,) = pair.inputs(2)
    with torch.no_grad():
        torch.testing.assert_close(new(x), original(x), rtol=1e-5, atol=1e-5)
    if name == "eights":
        require_in_their_group(pair, is_exact=True)


BROKEN = {
    "the channels of the first product": (
        "return column / (filters * joined) * of_product;",
        "return 0;",
    ),
    "the next group's channels": (
        "channel - column / filters % joined * seen",
        "channel - (column / filters + 1) % joined * seen",
    ),
    "zeros that are multiplied": ("if (place < 0) continue;  // another group's", ""),
    "pixels of the first product": ("image, at, before + channel)", "image, at, channel)"),
    "scales of the first product": (
        "PixelScales::Pixel(c, kernel, of_image, first, corner)",
        "PixelScales::Pixel(c, kernel, of_image, 0, corner)",
    ),
}


@pytest.mark.parametrize("fault", BROKEN.values(), ids=BROKEN)
def test_a_broken_kernel_is_noticed(fault: tuple[str, str], tmp_path: Path) -> None:
    pair = pair_of("eights", tmp_path, fault)
    with pytest.raises((AssertionError, EmulationFault)):
        require_near_float64(pair, 2, 1)
        require_in_their_group(pair)
