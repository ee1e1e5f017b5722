"""Convolutions of the library whose bias a kernel of ours adds: emitted files against float64."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, leaves
from tests.behaviour.products import pair_of_texts, text_of
from tests.behaviour.test_products import gradients, require_near
from torch import nn

from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options

SOURCE = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 8, 3, padding="same", padding_mode="circular")
        self.across = nn.Conv2d(8, 4, 1, groups=2)
        self.line = nn.Conv1d(5, 8, 3, stride=2, padding=1)
        self.volume = nn.Conv3d(2, 4, 2, dilation=2)
        self.up = nn.ConvTranspose2d(6, 5, 3, stride=2, output_padding=1)
        self.up_line = nn.ConvTranspose1d(5, 4, 3)
        self.up_volume = nn.ConvTranspose3d(2, 3, 2, bias=False)
        self.given = nn.Parameter(torch.randn(7, 6, 2, 2))
        self.shift = nn.Parameter(torch.randn(7))

    def forward(self, x, y, z):
        first = torch.tanh(self.across(torch.relu(self.conv(x))))
        second = F.silu(self.line(y)).sum(2)
        third = torch.softmax(self.volume(z), 1)
        fourth = self.up(x) * torch.sigmoid(self.up(x))
        fifth = torch.exp(-self.up_line(y).abs()), torch.relu(self.up_volume(z))
        sixth = F.gelu(F.conv2d(x, self.given, bias=self.shift, stride=2, padding="valid"))
        alone = torch.tanh(F.conv2d(x[0], self.given, self.shift)).amax((1, 2))
        return first, second, third, fourth, fifth, sixth, alone, self.line(y)


def get_inputs():
    return [torch.randn(3, 6, 7, 5), torch.randn(3, 5, 11), torch.randn(3, 2, 6, 5, 4)]


def get_init_inputs():
    return []
"""


# Two convolutions with their tails, in this order, and what reads the others.
NUM_KERNELS = 9


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    text = text_of("convolutions", SOURCE)
    folder = tmp_path_factory.mktemp("convolutions")
    return pair_of_texts("convolutions", SOURCE, text, NUM_KERNELS, folder)


def exactly(original: Any, inputs: list[torch.Tensor]) -> Any:
    return original.double()(*(x.double() for x in inputs))


@pytest.mark.parametrize("batch", [3, 1])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    inputs = pair.inputs(batch)
    with torch.no_grad():
        assert kernels_in(lambda: new(*inputs)) == NUM_KERNELS
        require_near(new(*inputs), exactly(original, inputs))


def test_gradients_reach_biases(pair: Pair) -> None:
    original, new = pair.models()
    inputs = pair.inputs(2)
    found = gradients(new, inputs)
    exact = gradients(original.double(), [x.double() for x in inputs])
    assert len(found) == len(exact) > 12
    require_near(found, exact)


def test_channels_last_stays(pair: Pair) -> None:
    original, new = pair.models()
    x, y, z = pair.inputs()
    inputs = [x.to(memory_format=torch.channels_last), y, z]
    with torch.no_grad():
        found, wanted = (leaves(model(*inputs)) for model in (new, original))
    assert [each.stride() for each in found] == [each.stride() for each in wanted]


def calls_of(text: str) -> list[str]:
    return re.findall(r"= torch\.nn\.functional\.(conv\w+\(.*)", text)


def test_a_bias_is_added_by_the_kernel_that_reads_the_result(pair: Pair) -> None:
    """What no kernel reads, or runs on the CPU, keeps its own."""
    calls = calls_of(pair.text)
    with_bias = [each for each in calls if "bias" in each or "shift" in each]
    assert len(calls) == 10 and with_bias == ["conv1d(y, line_weight, line_bias, [2], [1])"]
    module = nn.Sequential(nn.Conv1d(4, 4, 3), nn.ReLU())
    call = (torch.randn(2, 4, 8),)
    original = Original("sequential.py", __name__, "Sequential", None)
    texts = {
        target: compile_module(module, call, {}, original, Options(target=target)).text
        for target in ("cpu", "sm_90a")
    }
    assert ["None" in calls_of(text)[0] for text in texts.values()] == [False, True]


def test_under_autocast_the_bias_is_cast() -> None:
    module = nn.Sequential(nn.Conv1d(4, 4, 3), nn.ReLU())
    options = Options(target="sm_90a", autocast=("bfloat16",))
    original = Original("sequential.py", __name__, "Sequential", None)
    text = compile_module(module, (torch.randn(2, 4, 8),), {}, original, options).text
    assert re.search(r"\+ op::to_compute\(op::from_compute<op::bfloat16>\(\w+bias\)\)", text)
