"""Times against the peaks of a device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from opweld.judge.load import Call
from opweld.judge.measure import roofline
from opweld.judge.measure.datasheet import of_bandwidth
from opweld.judge.measure.roofline import Ceiling, Work, hold_against

X = torch.randn(100, 10, generator=torch.Generator().manual_seed(5))
# 1.05 MB in a second, so a byte takes a microsecond less what data sheets round
SLOW = Ceiling(of_bandwidth("slow", 1e-3, 0, "made up"), 0, False)


class Sliced(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:10] * 2


@pytest.mark.parametrize(
    ("model", "num_bytes", "call_ms", "passed"),
    [
        (nn.ReLU(), 8000, 8.0, True),
        (nn.ReLU(), 8000, 7.0, False),
        # the original reads all of its inputs, says who counts bytes, and a rewrite need not
        (Sliced(), 4400, 0.5, True),
    ],
)
def test_only_what_is_required_accuses(
    model: nn.Module, num_bytes: int, call_ms: float, passed: bool
) -> None:
    work = Work(num_bytes, 0, "float32")
    call = Call((X,), {})
    check, least_ms = hold_against(SLOW, call_ms, work, model, lambda: call.map(torch.clone))
    assert check.passed is passed and check.name == "the data sheet"
    assert least_ms == pytest.approx(num_bytes / 1e3 / 1.05)


def test_without_a_data_sheet_nothing_is_said() -> None:
    work = Work(9, 9, "float32")
    check, least_ms = hold_against(None, 0.0, work, nn.ReLU(), lambda: Call((), {}))
    assert check.skipped and least_ms is None


def test_the_processor_is_bound_beyond_its_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "cpu_cache_bytes", lambda: 1000)
    ceiling = roofline.ceiling_of(torch.device("cpu"), 10.0)
    assert ceiling and (ceiling.peaks.gbps, ceiling.cached_bytes) == (20.0, 2000)
    monkeypatch.setattr(roofline, "cpu_cache_bytes", lambda: None)
    assert roofline.ceiling_of(torch.device("cpu"), 10.0) is None


def test_the_caches_of_the_processor_are_known_or_not() -> None:
    size = roofline.cpu_cache_bytes()
    assert size is None or 2**16 < size < 2**33


def test_the_precision_of_products_follows_the_flags() -> None:
    model, call = nn.Linear(2, 2), Call((torch.ones(1, 2),), {})
    assert roofline.product_precision(model, call) == "float32"
    torch.set_float32_matmul_precision("high")
    try:
        assert roofline.product_precision(model, call) == "tf32"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert roofline.product_precision(model.double(), call.map(torch.Tensor.double)) == "float64"
