"""What values are called in the forward."""

from __future__ import annotations

import torch
from torch import nn

from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options


class Pooled(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.sort(x.exp().amax(dim=(2, 3)), dim=1))


def test_a_view_that_a_kernel_makes_is_called_as_what_it_shows() -> None:
    original = Original("pooled.py", __name__, "Pooled", None)
    given = (torch.randn(2, 3, 4, 4),)
    text = compile_module(Pooled(), given, {}, original, Options(target="cpu")).text
    forward = text[text.index("def forward(self, x)") : text.index("def _opweld_fits")]
    assert "amax_out = _kernels.k1_exp_amax(x)" in forward
    assert "sort.default(amax_out" in forward and "reshape" not in forward
