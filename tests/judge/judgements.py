"""Figures that no machine took, for tests of what is shown of them."""

from __future__ import annotations

from opweld.judge.values import Comparison, Environment, Samples, Timing

TIMING = Timing(
    eager_ms=Samples(1.2, 1.1, 1.3, 50),
    compile_ms=Samples(0.3, 0.29, 0.31, 50),
    opweld_ms=Samples(0.15, 0.14, 0.16, 50),
    limit_ms=0.12,
    limit_reason="memory: 512 MB at the copy's 4240 GB/s",
    protocol="medians",
    copy_gbps=4240.0,
    product_tflops=None,
    device="cuda:0",
    vs_eager=Comparison(0.125, 0.12, 0.13, 1.0, 50, slower=False),
)
ENVIRONMENT = Environment(
    "cuda:0", "NVIDIA H200", "a CPU", 16, "3.12", "2.11", "13.0", "580", "default", "highest"
)
