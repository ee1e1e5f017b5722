"""Pools of several sizes in one kernel, in files for calls without gradients: emulated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in
from tests.emulation.convolution_models import Rounded, convolution_pair, source

from opweld.driver import compile_file
from opweld.options import Options

MODEL = source(
    """self.first, self.second = nn.Conv2d(16, 32, 3), nn.Conv2d(32, 48, 3, padding=1)""",
    """y = F.max_pool2d(torch.relu(self.first(x)), 3, 2, padding=1)
    z = F.max_pool2d(torch.relu(self.second(y)), 3, 2, padding=1)
    return F.avg_pool2d(y, 2).tanh(), F.avg_pool2d(z, 2).tanh()""",
    "2, 16, 15, 27",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return convolution_pair("pools", MODEL, tmp_path_factory.mktemp("pools"))


def test_there_is_one_kernel_for_each_kind_of_pool(pair: Pair) -> None:
    made = set(re.findall(r"^    (k\d+_\w+)=lambda op: ", pair.text, re.M))
    pools = [name for name in made if "_amax" in name or "_tanh" in name]
    called = re.findall(rf"_kernels\.({'|'.join(pools)})\(", pair.text)
    assert len(pools) == 2 and len(called) == 4


@pytest.mark.parametrize("batch", [2, 1, 5])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    (x,) = pair.inputs(batch)
    with torch.no_grad():
        assert kernels_in(lambda: new(x)) >= 6
        with Rounded():
            exact = original.double()(x.double())
        for mine, theirs in zip(new(x), exact, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)


def test_what_has_gradients_keeps_its_numbers(tmp_path: Path) -> None:
    """PyTorch's pools stand in references, whose gradients are theirs."""
    path = tmp_path / "pools.py"
    path.write_text(MODEL, "utf-8")
    text = compile_file(path, Options(target="h200", check=False, training=True)).text
    assert text.count("torch.nn.functional.max_pool2d(") == 2 and ".unfold(" not in text
