"""Which models have kernels for calls without gradients alone: read from their emitted texts."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options


class Patches(nn.Module):
    """A convolution before a product that computes so many times as much."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 64, 4, stride=4)
        self.linear = nn.Linear(64, features)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).flatten(2).transpose(1, 2)
        return torch.relu(self.linear(y).tanh())


class Normed(Patches):
    """In training the norm takes statistics."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.conv = nn.Sequential(self.conv, nn.BatchNorm2d(64))  # type: ignore[assignment]


class Up(nn.Module):
    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(x))


class Last(nn.Module):
    """A product over the channels."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(64, features)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x.movedim(1, 3)))


def text_of(module: nn.Module, *shape: int, **options: object) -> str:
    original = Original("asked.py", __name__, type(module).__name__, None)
    given = Options(target="h200", check=False, **options)  # type: ignore[arg-type]
    return compile_module(module, (torch.randn(shape),), {}, original, given).text


@pytest.mark.parametrize(
    ("module", "shape", "alone"),
    [
        (Patches(32), (8, 16, 64, 64), True),
        (Patches(2048), (8, 16, 64, 64), False),
        (Up(), (8, 64, 32, 32), True),
        (nn.Sequential(Up(), Last(192)), (8, 64, 32, 32), True),
        (nn.Sequential(Up(), Last(512)), (8, 64, 32, 32), False),
        (Up(groups=32), (8, 64, 32, 32), False),  # the library's
        (nn.Sequential(nn.Linear(64, 64), nn.GELU()), (4096, 64), False),
    ],
    ids=[
        "convolution",
        "product",
        "transposed",
        "more than a product",
        "less than a product",
        "groups",
        "no convolution",
    ],
)
def test_where_convolutions_of_ours_are_most_of_it(
    module: nn.Module, shape: tuple[int, ...], alone: bool
) -> None:
    text = text_of(module.eval(), *shape)
    assert ("if _kernels.asks_for_gradients(self, " in text) == alone
    assert ("gradients=False" in text) == alone
    references = re.findall(r"^def _k\d+_(\w+)_reference\(", text, re.M)
    assert (set(references) <= {"copy"}) == alone, "a view may stand for what is only moved"
    assert ("autograd.Function" in text) != alone
    assert ("Calls that ask for gradients run the original" in text) == alone


def test_other_dtypes_under_autocast_are_the_originals_with_gradients_too() -> None:
    """One guard is for both, and refuses gradients."""
    text = text_of(Up(), 8, 64, 32, 32, autocast=("bfloat16",))
    assert "if _kernels.asks_for_gradients(self, x):" in text
    assert "autograd.Function" not in text


def test_one_mode_may_have_kernels_where_gradients_are_asked_for() -> None:
    text = text_of(Normed(2048), 8, 16, 64, 64, mode="both")
    assert "if self.training and _kernels.asks_for_gradients(self, x):" in text
    assert text.count("gradients=False") == 1 and "autograd.Function" in text


def test_where_the_mode_does_not_tell_the_guard_does() -> None:
    """Convolutions in float16 are the library's."""
    text = text_of(Up(), 8, 64, 32, 32, dtype=("float16",))
    assert text.count("gradients=False") == 1 and "autograd.Function" in text
    told = """
        if _kernels.plain(x, torch.float32, _kernels.devices):
            _kernels.asks_for_gradients(self, x)
        _kernels.tell(self, x)
        return super().forward(x)
"""
    assert told in text and text.count("asks_for_gradients(self") == 1


def test_with_kernels_for_gradients_it_is_for_both() -> None:
    text = text_of(Up(), 8, 64, 32, 32, training=True)
    assert "asks_for_gradients" not in text and "_backward(_kernels, _need" in text
