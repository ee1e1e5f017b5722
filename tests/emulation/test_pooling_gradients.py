"""Gradients of pooling in both orders of the axes, with convolutions and norms in training around
it: emitted CUDA under emulation, beside float64.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import CountCalls
from tests.behaviour.products import pair_of_texts, text_of
from tests.emulation.convolution_models import source
from torch import Tensor

# Odd sizes, so that neither a stride nor a size hides a step to the wrong side of an edge.
POOLS = {
    "overlapping": "nn.MaxPool2d(3, 2, 1)",
    "three_windows": "nn.MaxPool2d(5, 2, 1)",
    "wider_than_tall": "nn.MaxPool2d((2, 5), (1, 2), (0, 2))",
    "apart": "nn.MaxPool2d(2, 2)",
    "dilated": "nn.MaxPool2d(2, 2, 0, dilation=2)",
    "every_place": "nn.MaxPool2d(3, 1, 1)",
    "ceil": "nn.MaxPool2d(3, 2, ceil_mode=True)",
    "average": "nn.AvgPool2d(3, 2, 1)",
    "average_of_two_steps": "nn.AvgPool2d(4, 2)",
}


IN_3D = source(
    """self.first = nn.Conv3d(3, 5, 3, bias=False)
    self.norm = nn.BatchNorm3d(5)
    self.pool = nn.MaxPool3d(3, 2, 1)
    self.last = nn.Conv3d(5, 4, 1)""",
    "return self.last(self.pool(torch.relu(self.norm(self.first(x)))))",
    "2, 3, 5, 7, 9",
)


def test_gradients_in_three_axes_of_space(tmp_path: Path) -> None:
    require_near_float64("in_3d", IN_3D, ".permute(0, 4, 1, 2, 3)", tmp_path)


@pytest.mark.parametrize("name", POOLS)
def test_gradients_behind_a_norm(name: str, tmp_path: Path) -> None:
    model = source(
        f"""self.first = nn.Conv2d(3, 5, 3, bias=False)
    self.norm = nn.BatchNorm2d(5)
    self.pool = {POOLS[name]}
    self.last = nn.Conv2d(5, 4, 1)""",
        "return self.last(self.pool(torch.relu(self.norm(self.first(x)))))",
        "2, 3, 13, 11",
    )
    require_near_float64(name, model, ".permute(0, 3, 1, 2)", tmp_path)


def require_near_float64(name: str, model: str, moved: str, tmp_path: Path) -> None:
    """Of a step with kernels of both passes, and convolutions of the library's, channels last."""
    text = text_of(name, model, "sm90", training=True)
    assert moved in text
    made = pair_of_texts(name, model, text, 0, tmp_path)
    original, new = (model.train() for model in made.models())
    (x,) = made.inputs(2)
    exact, eager, ours = (
        step(each, given)
        for each, given in (
            (copy.deepcopy(original).double(), x.double()),
            (original, x),
            (new, x),
        )
    )
    with CountCalls() as counted:
        step(new, x)
    assert any("_of_" in str(function) for function, _ in counted.ours)  # of a backward
    for value, theirs, mine in zip(exact, eager, ours, strict=True):
        usual, scale = (theirs - value).abs().max(), value.abs().max()
        assert (mine - value).abs().max() <= 2 * usual + 1e-5 * scale


def step(model: Any, x: Tensor) -> list[Tensor]:
    """The result, the gradients of input and parameters, and what a norm keeps, in float64."""
    model, x = copy.deepcopy(model), x.clone().requires_grad_()
    result = model(x)
    weight = torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape).sin()
    (result * weight).sum().backward()
    grads = [each.grad for each in (x, *model.parameters())]
    return [each.detach().double() for each in (result, *grads, *model.buffers())]
