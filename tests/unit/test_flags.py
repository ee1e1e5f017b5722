"""What torch's flags allow, and that emitted files read them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest
import torch

from opweld.capture.flags import allows_tf32, allows_tf32_convolutions

cudnn = torch.backends.cudnn


@pytest.fixture(autouse=True)
def flags_as_before() -> Iterator[None]:
    yield
    cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


def emitted() -> Callable[[], bool]:
    """What an emitted file asks."""
    names: dict[str, Any] = {"torch": torch}
    text = files("opweld").joinpath("emission/texts/flags/tf32_convolutions.txt").read_text("utf-8")
    exec(text, names)
    found: Callable[[], bool] = names["_allows_tf32_convolutions"]
    return found


BOTH = (allows_tf32_convolutions, emitted())


@pytest.mark.parametrize("asked", BOTH, ids=["compiler", "emitted file"])
class TestConvolutions:
    @pytest.mark.parametrize("flag", [True, False])
    def test_by_the_flag_of_all_operators(self, asked: Callable[[], bool], flag: bool) -> None:
        cudnn.allow_tf32 = flag
        assert asked() is flag

    @pytest.mark.parametrize(("precision", "allowed"), [("tf32", True), ("ieee", False)])
    def test_by_their_own(self, asked: Callable[[], bool], precision: str, allowed: bool) -> None:
        if not hasattr(cudnn, "conv"):
            pytest.skip("this PyTorch has no flag for each operator")
        cudnn.conv.fp32_precision = precision
        assert asked() is allowed

    def test_those_of_others_do_not_count(self, asked: Callable[[], bool]) -> None:
        if not hasattr(cudnn, "conv"):
            pytest.skip("this PyTorch has no flag for each operator")
        cudnn.conv.fp32_precision = "ieee"
        cudnn.rnn.fp32_precision = "tf32"
        torch.set_float32_matmul_precision("high")
        assert asked() is False


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_products(precision: str) -> None:
    torch.set_float32_matmul_precision(precision)
    assert allows_tf32() is (precision != "highest")
