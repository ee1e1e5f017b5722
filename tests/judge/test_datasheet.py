"""Peaks by device name."""

from __future__ import annotations

import pytest

from opweld.judge.measure.datasheet import (
    PEAKS,
    memory_gbps,
    of_bandwidth,
    peaks_of,
    product_tflops,
)


@pytest.mark.parametrize(
    ("name", "gbps", "bf16"),
    [
        ("NVIDIA H200", 4800.0, 989.4),
        ("NVIDIA H200 NVL", 4800.0, 835.5),
        ("NVIDIA H100 80GB HBM3", 3352.0, 989.4),
        ("NVIDIA H100 PCIe", 2039.0, 756.5),
        ("NVIDIA A100-SXM4-40GB", 1555.0, 312.0),
        ("NVIDIA A100-SXM4-80GB", 2039.0, 312.0),
        ("NVIDIA A100 80GB PCIe", 1935.0, 312.0),
        ("NVIDIA L40S", 864.0, 362.1),
        ("NVIDIA GeForce RTX 4090", 1008.0, 165.2),
        ("Tesla V100-SXM2-16GB", 900.0, None),
    ],
)
def test_a_device_is_found_by_its_name(name: str, gbps: float, bf16: float | None) -> None:
    peaks = peaks_of(name)
    assert peaks is not None and (peaks.gbps, peaks.bf16) == (gbps, bf16)


def test_what_has_no_row_is_unknown() -> None:
    assert peaks_of("AMD EPYC 9B45") is None
    assert peaks_of("NVIDIA A1000") is None


def test_numbers_are_in_a_sensible_order_and_have_a_source() -> None:
    for row in PEAKS:
        assert row.source and row.gbps > 100
        rates = [r for r in (row.fp32, row.tf32, row.fp16, row.fp8) if r]
        assert rates == sorted(rates), row.names
        assert not (row.fp64 and row.fp32) or row.fp64 <= row.fp32


def test_more_digits_can_come_from_products_of_fewer() -> None:
    h200 = peaks_of("NVIDIA H200")
    assert h200 is not None
    assert product_tflops(h200, "float32") == pytest.approx(989.4 / 3)
    assert product_tflops(h200, "tf32") == product_tflops(h200, "float16") == 989.4
    assert product_tflops(h200, "float64") == pytest.approx(1978.9 / 28)
    assert product_tflops(of_bandwidth("x", 100.0, 0, "made up"), "float32") is None
    assert product_tflops(h200, "int32") is None


def test_bandwidth_follows_from_the_memory_clock() -> None:
    assert memory_gbps(2619000, 5120) == pytest.approx(3352.0, rel=1e-3)
