"""Convolutions of each channel by itself, channels first: as exact as eager's, in its layout."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.gpu.building import SideBySide, built_side_by_side
from tests.gpu.convolution_models import model
from tests.gpu.emitting import all_convolutions_ours, cuda_of
from tests.gpu.test_convolutions import (
    as_exact_as_float32,
    inputs_of,
    models,
    require_as_exact_as_eager,
    results,
    with_channels_last,
)

pytestmark = pytest.mark.gpu


def one(arguments: str, example: str) -> str:
    layer = f"nn.Conv{example.count(',') - 1}d({arguments})"
    text = model(f"self.a = {layer}", "y = torch.relu(self.a(x))", example)
    return text.replace("return y.sum(1),", "return y, #")


MODELS = {
    "3 by 3": one("96, 96, 3, padding=1, groups=96", "4, 96, 56, 56"),
    "7 by 7": one("48, 48, 7, padding=3, groups=48", "3, 48, 28, 28"),
    "wide": one("8, 8, 5, padding=2, groups=8", "2, 8, 150, 700"),
    "small planes": one("200, 200, 3, padding=1, groups=200", "3, 200, 7, 7"),
    "even planes": one("64, 64, 5, stride=2, padding=2, groups=64", "3, 64, 28, 27"),
    "several filters": one("40, 120, 3, stride=2, padding=1, groups=40", "3, 40, 33, 29"),
    "dilated": one("24, 24, (3, 5), padding='same', dilation=(2, 3), groups=24", "2, 24, 31, 40"),
    "many taps": one("16, 16, 31, padding=15, groups=16", "2, 16, 28, 28"),
    "line": one("24, 24, 31, padding=15, groups=24", "3, 24, 1000"),
    "long taps": one("24, 24, 80, groups=24", "3, 24, 1000"),
    "volume": one("24, 24, 3, stride=(1, 2, 1), padding=1, groups=24", "2, 24, 6, 15, 20"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    with built_side_by_side(MODELS, tmp_path_factory, all_convolutions_ours) as models_of:
        yield models_of


@pytest.mark.parametrize("name", MODELS)
def test_as_exact_as_eager_in_any_batch_and_layout(built: SideBySide, name: str) -> None:
    module = built[name]
    form = "AnyPlanes" if name == "long taps" else "PlaneTiles<"
    assert f"op::{form}" in cuda_of(module).partition("convolve_planes<k1")[2]
    new, old = models(module)
    with as_exact_as_float32():
        for batch in (1, 2, 7):
            require_as_exact_as_eager(new, old, inputs_of(module, batch))
        x = inputs_of(module)
        first, last = results(new, x), results(new, with_channels_last(x))
        assert all(map(torch.equal, first, last))
        for _ in range(50):
            assert all(map(torch.equal, results(new, x), first))


@pytest.mark.parametrize("name", MODELS)
def test_output_strides_match_eager(built: SideBySide, name: str) -> None:
    module = built[name]
    new, old = models(module)
    x = inputs_of(module)
    for each in (x, with_channels_last(x)) if x.dim() == 4 else (x,):
        (found,), (eager,) = results(new, each), results(old, each)
        assert found.shape == eager.shape and found.stride() == eager.stride()
