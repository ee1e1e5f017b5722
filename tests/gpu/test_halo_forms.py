"""Convolutions by halos on the device, which come to shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.emulation.convolutions import (
    CHAIN,
    Case,
    Form,
    convolve,
    require_as_exact,
    require_of_11_bits,
    windows,
)
from tests.emulation.test_halos import FORMS, laid_out, plain, require_near_behind
from tests.gpu.emitting import all_halos_ours, model_text, write_pair
from tests.gpu.forms import Builds, built_side_by_side, on_the_device
from tests.gpu.sanitizing import KERNELS_ALONE, needs_sanitizer, require_nothing_found

pytestmark = pytest.mark.gpu

LINE = Form("Halo", blocks="kLine, 2")
ALL = FORMS | {"a line": LINE}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builds]:
    """A library of each form; all are built side by side."""
    yield from built_side_by_side(ALL, tmp_path_factory)


def require(builds: Builds, name: str, last: bool, what: Case, calls: int) -> None:
    """Bit-equal in so many calls, and as exact as operands of 11 bits."""
    x, weight = what.operands
    library = builds[name].result()
    found = on_the_device(library, ALL[name], what, laid_out(x, last), weight, calls=calls)
    require_as_exact(found, x, weight, what.how)
    require_of_11_bits(found, x, weight, what.how)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("name", FORMS)
class TestHalos:
    @pytest.mark.parametrize("size", [(1, 1), (8, 8), (9, 17), (33, 7), (130, 131)])
    def test_images_at_the_edges_of_patches(
        self, builds: Builds, name: str, last: bool, size: tuple[int, ...]
    ) -> None:
        require(builds, name, last, plain(3, 40, size, 72), calls=200)

    @pytest.mark.parametrize("channels", [8, 24, 64, 136, 512])
    def test_channels_at_the_edges_of_intervals(
        self, builds: Builds, name: str, last: bool, channels: int
    ) -> None:
        require(builds, name, last, plain(2, channels, (14, 20), 96), calls=50)

    @pytest.mark.parametrize("filters", [1, 63, 64, 65, 127, 130, 200])
    def test_filters_at_the_edges_of_tiles(
        self, builds: Builds, name: str, last: bool, filters: int
    ) -> None:
        require(builds, name, last, plain(2, 16, (28, 28), filters), calls=50)


@pytest.mark.parametrize("pixels", [1, 256, 1000, 70000])
def test_one_axis(builds: Builds, pixels: int) -> None:
    what = Case(2, 72, (pixels,), 66, (7,), windows(1, padding=3))
    require(builds, "a line", False, what, calls=200)


def test_three_axes(builds: Builds) -> None:
    require(builds, "deep", False, plain(2, 72, (9, 17, 30), 66), calls=200)


def test_one_pixel_above_all_others(builds: Builds) -> None:
    what = plain(1, 40, (8, 30), 20)
    x, weight = what.operands
    x[0, :, 4, 4] *= np.float32(2.0**60)
    found = on_the_device(builds["columns"].result(), ALL["columns"], what, x, weight, calls=50)
    require_near_behind(8, found, what, x, weight)


def test_what_is_not_finite_stays_in_its_sums(builds: Builds) -> None:
    what = plain(1, 16, (9, 20), 20)
    x, weight = what.operands
    x[0, 3, 0, 0], x[0, 5, 1, 12], x[0, 0, 8, 19] = np.inf, np.nan, 3e38
    found = on_the_device(builds["columns"].result(), ALL["columns"], what, x, weight)
    expected = convolve(x, weight, what.how, form=CHAIN)[0]
    for each in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(each(found), each(expected))


MODEL = model_text(
    "self.conv, self.gain = nn.Conv2d(32, 64, 5, padding=2), nn.Parameter(torch.rand(64, 1, 1))",
    "torch.relu(self.conv(x)) * self.gain",
    "torch.randn(8, 32, 192, 192)",
)


@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found(tool: str, tmp_path: Path) -> None:
    with all_halos_ours():
        _, new = write_pair(tmp_path, "halos", MODEL, mode="eval")
    assert "op::HaloTiles<" in new.read_text("utf-8")
    calls = f"""{KERNELS_ALONE}
model = emitted.ModelNew().cuda().eval()
with torch.no_grad():
    for batch in (1, 3):
        for scale in (1.0, 1e6):
            model(scale * torch.randn(batch, 32, 192, 192, device="cuda"))
torch.cuda.synchronize()
"""
    require_nothing_found(tool, calls, new)
