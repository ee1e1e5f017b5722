"""What values are called in the forward."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from opweld.driver import compile_module
from opweld.emission.signature import handed_on
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


@pytest.mark.parametrize(
    ("signature", "arguments"),
    [
        ("self, x, mask", "x, mask"),
        ("self, x, mask=None, scale=1.0", "x, mask=mask, scale=scale"),
        ("self, x, /, mask=None", "x, mask=mask"),
        ("self, x=None, /, mask=None", "x, mask=mask"),
        ("self, x, mask=None, *more, flag=True", "x, mask, *more, flag=flag"),
        ("self, x, mask=None, **more", "x, mask=mask, **more"),
        ("self, x=1", "x=x"),
    ],
)
def test_the_original_is_given_by_name_what_has_a_default(signature: str, arguments: str) -> None:
    assert handed_on(signature) == arguments
