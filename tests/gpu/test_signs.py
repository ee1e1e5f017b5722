"""Comparisons that only NaN decides, and reads from the end of a row, on the device.

Both were kernels that mean what is right, of which the compilers of CUDA 13.0 make something else.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.fuzz.test_found import FOUND
from tests.gpu.emitting import emitted_module

pytestmark = pytest.mark.gpu

FLIPPED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x.flip(1) * 2.0, x.flip(-1).exp(), x.flip(-1).cumsum(-1), x.flip(0, 1).sum(-1)

def get_inputs():
    return [torch.randn(5, 64, dtype=torch.bfloat16)]

def get_init_inputs():
    return []
"""


def require_eagers(source: str, folder: Path, *args: torch.Tensor) -> None:
    module = emitted_module(folder, "here", source)
    assert module.ModelNew._opweld.devices, "the kernels were not built"
    with torch.no_grad():
        found, wanted = module.ModelNew()(*args), module._Original()(*args)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_signs_of_nan(tmp_path: Path) -> None:
    (path,) = (path for path in FOUND if path.stem == "signs_and_nan")
    x = torch.tensor([torch.nan, -0.0, 1.0, torch.inf, -torch.inf, -3.0] * 33, device="cuda")
    require_eagers(path.read_text("utf-8"), tmp_path, x.view(-1, 33))


@pytest.mark.parametrize("rows", [1, 7])
def test_the_first_row_from_its_end(tmp_path: Path, rows: int) -> None:
    x = torch.arange(rows * 64, device="cuda").view(rows, 64) % 7 - 3
    require_eagers(FLIPPED, tmp_path, x.bfloat16())
