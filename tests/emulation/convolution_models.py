"""What tests of emitted convolutions share: models written as sources, and their results beside
float64.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, leaves
from tests.behaviour.products import pair_of_texts, text_of
from tests.emulation.distributions import rounded
from tests.gpu.emitting import all_convolutions_ours
from torch import Tensor

SOURCE = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layers}

    def forward(self, x):
{lines}


def get_inputs():
    return [torch.randn({example})]


def get_init_inputs():
    return []
"""


def source(layers: str, lines: str, example: str) -> str:
    def indented(text: str) -> str:
        return "\n".join(" " * 8 + line.strip() for line in text.strip().splitlines())

    return SOURCE.format(layers=indented(layers), lines=indented(lines), example=example)


def convolution_pair(name: str, model: str, directory: Path, mode: str = "eval") -> Pair:
    """The emitted file of a model's source, each of whose convolutions is a kernel of ours."""
    with all_convolutions_ours():
        text = text_of(name, model, "sm90", mode=mode)
    return pair_of_texts(name, model, text, 0, directory)


def require_kernels(pair: Pair, num_convolutions: int) -> None:
    forward = pair.text[: pair.text.index("    def _opweld_fits")]
    forward = forward[forward.rindex("    def forward") :]
    assert forward.count("_conv") == num_convolutions and "functional" not in forward


def quick_first(names: Collection[str], quick: Collection[str]) -> list[Any]:
    """Parameters of tests, of which those that are not `quick` are left to the slow ones."""
    assert set(quick) <= set(names)
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


class Rounded(torch.overrides.TorchFunctionMode):
    """Convolutions of several channels together see operands of 11 bits; gradients go past that."""

    PLAIN = (torch.conv1d, torch.conv2d, torch.conv3d)
    TRANSPOSED = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        depthwise = function in self.PLAIN and args[6:7] not in ((), (1,)) and args[1].shape[1] == 1
        if (function in self.PLAIN and not depthwise) or function in self.TRANSPOSED:
            x, weight, *rest = args
            args = (*(self.of_11_bits(each) for each in (x, weight)), *rest)
        return function(*args, **(kwargs or {}))

    @staticmethod
    def of_11_bits(x: Tensor) -> Tensor:
        found = torch.from_numpy(rounded(x.detach().float().numpy())).double()
        return x + (found - x).detach() if x.requires_grad else found


def require_near_float64(pair: Pair, batch: int, num_convolutions: int) -> None:
    """By kernels of ours, with the strides of eager's results."""
    original, new = pair.models()
    (x,) = pair.inputs(batch)
    with torch.no_grad():
        found, eager = leaves(new(x)), leaves(original(x))
        assert kernels_in(lambda: new(x)) >= num_convolutions
        with Rounded():
            exact = leaves(original.double()(x.double()))
    assert [each.stride() for each in found] == [each.stride() for each in eager]
    for mine, right in zip(found, exact, strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=1e-4)
