"""Gradients through convolutions of ours, whose kernels leave the convolution itself beside what
follows it: emitted files under emulation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import CountCalls, Pair
from tests.behaviour.products import pair_of_texts, text_of
from tests.behaviour.test_training import require_same_as_eager
from tests.emulation.convolution_models import source
from tests.gpu.emitting import all_convolutions_ours
from torch.utils._python_dispatch import TorchDispatchMode

MODEL = source(
    """self.each = nn.Conv2d(36, 36, 3, padding=1, groups=36)
    self.all = nn.Conv2d(36, 36, 3, padding=1)""",
    "return F.gelu(self.all(F.gelu(self.each(x) + x)))",
    "2, 36, 6, 7",
)


class Masks(TorchDispatchMode):
    """Notes which gradients each call of a convolution's backward makes: input, weight, bias."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[bool]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if "convolution_backward" in str(func):
            self.found.append(args[-1])
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    with all_convolutions_ours():
        text = text_of("convolutions", MODEL, "sm90", mode="eval", training=True)
    return pair_of_texts("convolutions", MODEL, text, 0, tmp_path_factory.mktemp("convolutions"))


def test_gradients_are_near_float64(pair: Pair) -> None:
    saving = set(re.findall(r"^extern \"C\" int (k\d+_conv\w+_saving)_launch", pair.text, re.M))
    assert len(saving) == 2
    # In TF32, as eager's are on a GPU where these kernels run.
    require_same_as_eager(pair, 2, 2**-8)


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_of_a_convolution_are_one_call_for_what_is_wanted(
    frozen: bool, pair: Pair
) -> None:
    _, new = pair.models()
    new.all.weight.requires_grad_(not frozen)
    loss = new(*pair.inputs(2)).square().sum()
    with Masks() as masks:
        loss.backward()
    assert masks.found == [[True, not frozen, False], [False, True, False]]


def test_backward_without_kernels_recomputes_no_convolution(tmp_path: Path) -> None:
    """PyTorch keeps what it made, as where eager runs."""
    with all_convolutions_ours():
        text = text_of("recorded", MODEL, "sm90", mode="eval")
    pair = pair_of_texts("recorded", MODEL, text, 0, tmp_path)
    original, new = pair.models()
    (x,) = pair.inputs(2)
    found = []
    for model in (original, new):
        with CountCalls() as counted:
            model(x).square().sum().backward()
        made = [name for name in counted.others if name.startswith("aten.convolution.")]
        found.append((len(made), [each.grad for each in model.parameters()]))
    (wanted, theirs), (count, ours) = found
    assert count == wanted == 2
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
