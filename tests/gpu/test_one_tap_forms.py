"""Convolutions of one tap on the device, whose pixels are multiplied as they lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.emulation.convolutions import Case, Form, channels_last, normal, windows
from tests.emulation.test_one_tap import CUDA_NAN, FORMS, laid_out, require_of_tf32
from tests.gpu.emitting import all_convolutions_ours, model_text, write_pair
from tests.gpu.forms import Builds, built_side_by_side, on_the_device
from tests.gpu.sanitizing import KERNELS_ALONE, needs_sanitizer, require_nothing_found

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builds]:
    """A library of each form; all are built side by side."""
    yield from built_side_by_side(FORMS, tmp_path_factory)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("name", FORMS)
class TestOneTap:
    def case(self, batch: int, channels: int, pixels: int, filters: int) -> Case:
        return Case(batch, channels, (pixels,), filters, (1,), windows(1))

    def require(self, builds: Builds, name: str, last: bool, case: Case, calls: int) -> None:
        x, weight = case.operands
        library = builds[name].result()
        found = on_the_device(library, FORMS[name], case, laid_out(x, last), weight, calls=calls)
        require_of_tf32(found, x, weight, case.how)

    @pytest.mark.parametrize("pixels", [4, 28, 32, 36, 124, 128, 132, 256, 40000])
    def test_pixels_at_the_edges_of_tiles(
        self, builds: Builds, name: str, last: bool, pixels: int
    ) -> None:
        self.require(builds, name, last, self.case(3, 72, pixels, 72), calls=200)

    @pytest.mark.parametrize("channels", [4, 28, 32, 36, 64, 96, 100, 512, 2048])
    def test_channels_at_the_edges_of_stages(
        self, builds: Builds, name: str, last: bool, channels: int
    ) -> None:
        self.require(builds, name, last, self.case(2, channels, 196, 96), calls=50)

    @pytest.mark.parametrize("filters", [1, 3, 31, 32, 60, 63, 64, 66, 127, 128, 130, 200, 520])
    def test_filters_at_the_edges_of_tiles(
        self, builds: Builds, name: str, last: bool, filters: int
    ) -> None:
        self.require(builds, name, last, self.case(2, 36, 784, filters), calls=50)

    def test_what_is_not_finite_stays_in_its_sums(
        self, builds: Builds, name: str, last: bool
    ) -> None:
        case = self.case(2, 64, 256, 64)
        x, weight = case.operands
        x[0, 3, 0], x[0, 35, 9], x[1, 0, 200] = np.inf, CUDA_NAN, 3e38
        weight[4, 7], weight[19, 35] = -np.inf, CUDA_NAN
        found = on_the_device(builds[name].result(), FORMS[name], case, laid_out(x, last), weight)
        with np.errstate(invalid="ignore", over="ignore"):
            exact = np.einsum("bcp,fc->bpf", x, weight[..., 0], dtype=np.float64)
            expected = exact.astype(np.float32)
        for each in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(each(found), each(expected))


def test_rows_of_pixels_with_gaps(builds: Builds) -> None:
    case = Case(3, 36, (130,), 40, (1,), windows(1))
    x, weight = case.operands
    gaps = channels_last(np.concatenate([x, normal(3, 4, 130)], 1))[:, :36]
    form: Form = FORMS["64 columns"]
    found = on_the_device(builds["64 columns"].result(), form, case, gaps, weight)
    require_of_tf32(found, x, weight, case.how)


BOTTLENECK = model_text(
    "self.down, self.norm, self.up = nn.Conv2d(96, 64, 1, bias=False), nn.BatchNorm2d(64), "
    "nn.Conv2d(64, 96, 1)",
    "torch.relu(self.up(torch.relu(self.norm(self.down(x)))) + x)",
    "torch.randn(3, 96, 20, 20)",
)


@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found(tool: str, tmp_path: Path) -> None:
    with all_convolutions_ours():
        _, new = write_pair(tmp_path, "bottleneck", BOTTLENECK, mode="eval")
    text = new.read_text("utf-8")
    assert "op::OneTapTiles<64>" in text and "op::OneTapTiles<128>" in text
    calls = f"""{KERNELS_ALONE}
model = emitted.ModelNew().cuda().eval()
with torch.no_grad():
    for batch in (1, 3, 7):
        x = torch.randn(batch, 96, 20, 20, device="cuda")
        model(x), model(x.to(memory_format=torch.channels_last))
torch.cuda.synchronize()
"""
    require_nothing_found(tool, calls, new)
