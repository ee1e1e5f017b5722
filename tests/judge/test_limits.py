"""The limit that is shown."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from opweld.judge.load import Call
from opweld.judge.measure import limits


def test_the_limit_is_the_larger_of_moving_and_multiplying() -> None:
    ms, reason = limits.limit(2 * 10**9, 10**9, copy_gbps=4000, product_tflops=50)
    assert ms == pytest.approx(0.5)
    assert reason == "memory: 2000 MB at the copy's 4000 GB/s"
    ms, reason = limits.limit(10**6, 137 * 10**9, copy_gbps=4000, product_tflops=50)
    assert ms == pytest.approx(2.74)
    assert reason == "products: 137 GFLOP at 50 TFLOP/s"
    assert limits.limit(4 * 10**6, 0, 1000, None)[0] == pytest.approx(0.004)


def test_bytes_count_distinct_elements_once() -> None:
    model = nn.Linear(8, 4, bias=False)
    x = torch.ones(16, 8)
    with torch.no_grad():
        out = model(x)
    call = Call((x, x), {})
    assert limits.moved_bytes(model, call, [out, out]) == 4 * (8 * 4 + 16 * 8 + 16 * 4)
    assert limits.touched_bytes(torch.ones(1, 8).expand(100, 8)) == 32
    assert limits.touched_bytes(torch.ones(0, 8, dtype=torch.float16)) == 0
    with torch.no_grad():
        assert limits.product_flops(model, Call((x,), {})) == 2 * 16 * 8 * 4


def test_three_products_of_halves_are_enough_for_one_of_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = {torch.float32: 51.0, torch.float16: 690.0, torch.float64: 60.0}
    monkeypatch.setattr(limits, "_rate", lambda device, dtype: rates[dtype])
    gpu = torch.device("cuda")
    assert limits.product_tflops(gpu, torch.float32) == 230.0
    assert limits.product_tflops(gpu, torch.float64) == 60.0
    assert limits.product_tflops(torch.device("cpu"), torch.float32) == 51.0
    rates[torch.float32] = 380.0  # TF32, where the flags allow it
    assert limits.product_tflops(gpu, torch.float32) == 380.0
