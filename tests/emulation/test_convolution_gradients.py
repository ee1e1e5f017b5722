"""Gradients through convolutions of ours, whose kernels leave the convolution itself beside what
follows it: emitted files under emulation.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from tests.behaviour.emitted import CountCalls
from tests.behaviour.products import pair_of_texts, text_of
from tests.behaviour.test_training import require_same_as_eager
from tests.emulation.convolution_models import source
from tests.gpu.emitting import all_convolutions_ours

MODEL = source(
    """self.each = nn.Conv2d(36, 36, 3, padding=1, groups=36)
    self.all = nn.Conv2d(36, 36, 3, padding=1)""",
    "return F.gelu(self.all(F.gelu(self.each(x) + x)))",
    "2, 36, 6, 7",
)


def test_gradients_are_near_float64(tmp_path: Path) -> None:
    with all_convolutions_ours():
        text = text_of("convolutions", MODEL, "sm90", mode="eval", training=True)
    saving = set(re.findall(r"^extern \"C\" int (k\d+_conv\w+_saving)_launch", text, re.M))
    assert len(saving) == 2
    # In TF32, as eager's are on a GPU where these kernels run.
    require_same_as_eager(pair_of_texts("convolutions", MODEL, text, 0, tmp_path), 2, 2**-8)


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
