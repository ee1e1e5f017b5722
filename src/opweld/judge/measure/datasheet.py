"""What a device can do at most, from its maker's data sheet.

Bandwidths are in GB/s and rates in TFLOP/s (TOP/s for integers), dense, without sparsity, at the
boost clock and the board's full power. A card whose power is capped, or which shares its board with
another, stays below; none is above. None stands where the source gives no number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Data sheets round: the H200's memory clock times its bus width is 4.92 TB/s, its sheet says 4.8.
FASTER_THAN_ROUNDED = 1.05


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peaks of one device; `names` are words of what the driver calls it, in lower case.

    `fp64` and `fp32` are the larger of the rates with and without tensor cores; `tf32` and below
    are those of tensor cores, `fp16` with the cheapest accumulation. `l2_bytes` is the last cache.
    """

    names: tuple[str, ...]
    gbps: float
    fp64: float | None
    fp32: float | None
    tf32: float | None
    fp16: float | None
    bf16: float | None
    fp8: float | None
    int8: float | None
    l2_bytes: int | None
    source: str


_MIB = 2**20
_H100 = (
    "NVIDIA H100 Tensor Core GPU data sheet, halved where it counts sparsity; L2: H100 white paper"
)
_H200 = "NVIDIA H200 Tensor Core GPU data sheet, halved where it counts sparsity"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet; L2: A100 white paper"
_ADA = "NVIDIA Ada GPU architecture white paper, appendix"

# The first row whose words are all in the device's name counts, so more words stand first.
PEAKS: tuple[Peaks, ...] = (
    Peaks(
        ("b200",), 8000.0, 40.0, 80.0, 1250.0, 2500.0, 2500.0, 5000.0, 5000.0, None,
        "NVIDIA Blackwell architecture brief, a B200 of an HGX board, halved for sparsity",
    ),
    # both memories go by names that differ in the size only
    Peaks(
        ("gh200", "144g"), 4900.0, 67.0, 67.0, 494.7, 989.4, 989.4, 1978.9, 1978.9, 50 * _MIB,
        "NVIDIA GH200 Grace Hopper Superchip data sheet, halved where it counts sparsity",
    ),
    Peaks(
        ("gh200",), 4000.0, 67.0, 67.0, 494.7, 989.4, 989.4, 1978.9, 1978.9, 50 * _MIB,
        "NVIDIA GH200 Grace Hopper Superchip data sheet, halved where it counts sparsity",
    ),
    Peaks(
        ("h200", "nvl"), 4800.0, 60.0, 60.0, 417.5, 835.5, 835.5, 1670.5, 1670.5, 50 * _MIB, _H200
    ),
    Peaks(("h200",), 4800.0, 67.0, 67.0, 494.7, 989.4, 989.4, 1978.9, 1978.9, 50 * _MIB, _H200),
    Peaks(
        ("h100", "nvl"), 3938.0, 60.0, 60.0, 417.5, 835.5, 835.5, 1670.5, 1670.5, 50 * _MIB, _H100
    ),
    Peaks(
        ("h100", "pcie"), 2039.0, 51.2, 51.2, 378.0, 756.5, 756.5, 1513.0, 1513.0, 50 * _MIB, _H100
    ),
    Peaks(("h100",), 3352.0, 67.0, 67.0, 494.7, 989.4, 989.4, 1978.9, 1978.9, 50 * _MIB, _H100),
    Peaks(
        ("a100", "80gb", "pcie"), 1935.0, 19.5, 19.5, 156.0, 312.0, 312.0, None, 624.0, 40 * _MIB,
        _A100,
    ),
    Peaks(
        ("a100", "80gb"), 2039.0, 19.5, 19.5, 156.0, 312.0, 312.0, None, 624.0, 40 * _MIB, _A100
    ),
    Peaks(("a100",), 1555.0, 19.5, 19.5, 156.0, 312.0, 312.0, None, 624.0, 40 * _MIB, _A100),
    Peaks(
        ("l40s",), 864.0, None, 91.6, 183.0, 362.1, 362.1, 733.0, 733.0, 96 * _MIB,
        "NVIDIA L40S data sheet, the dense column; L2: Ada white paper",
    ),
    Peaks(
        ("l4",), 300.0, None, 30.3, 60.0, 121.0, 121.0, 242.5, 242.5, 48 * _MIB,
        "NVIDIA L4 data sheet, halved where it counts sparsity; L2: Ada white paper",
    ),
    Peaks(
        ("a10",), 600.0, None, 31.2, 62.5, 125.0, 125.0, None, 250.0, 6 * _MIB,
        "NVIDIA A10 data sheet; L2: GA102 white paper",
    ),
    Peaks(
        ("rtx", "5090"), 1792.0, 1.6, 104.8, 104.8, 419.0, 209.5, 838.0, 838.0, 96 * _MIB,
        "NVIDIA RTX Blackwell GPU architecture white paper, appendix",
    ),
    Peaks(("rtx", "4090"), 1008.0, 1.3, 82.6, 82.6, 330.3, 165.2, 660.6, 660.6, 72 * _MIB, _ADA),
    Peaks(
        ("rtx", "3090"), 936.0, 0.6, 35.6, 35.6, 142.0, 71.0, None, 284.0, 6 * _MIB,
        "NVIDIA Ampere GA102 GPU architecture white paper, appendix",
    ),
    Peaks(
        ("v100",), 900.0, 7.8, 15.7, None, 125.0, None, None, None, 6 * _MIB,
        "NVIDIA V100 data sheet (SXM2); L2: Volta white paper",
    ),
    Peaks(
        ("t4",), 320.0, None, 8.1, None, 65.0, None, None, 130.0, 4 * _MIB,
        "NVIDIA T4 data sheet; L2: Turing white paper",
    ),
)  # fmt: skip

# Products of 16-bit halves that a float32 product takes at least, and of 8-bit slices that a
# float64 product takes: splitting an operand is how tensor cores give more digits than they hold
# (Ootomo and Yokota 2022: two halves, three products; Ootomo, Ozaki and Yokota 2024: seven slices
# of the 53 bits, 28 products).
_HALVES_PRODUCTS, _SLICES_PRODUCTS = 3, 28


def peaks_of(device_name: str) -> Peaks | None:
    """The row of the device that the driver calls so; None where there is none.

    A row of several cards of one name (40 and 80 GB, say) is told apart by its name only.
    """
    words = set(re.split(r"[^a-z0-9]+", device_name.lower()))
    return next((row for row in PEAKS if words.issuperset(row.names)), None)


def of_bandwidth(name: str, gbps: float, l2_bytes: int, source: str) -> Peaks:
    """A row for a device of which only the bandwidth is known."""
    return Peaks((name.lower(),), gbps, None, None, None, None, None, None, None, l2_bytes, source)


def memory_gbps(clock_khz: int, bus_bits: int) -> float:
    """Two bits a clock and line, by the driver's way of counting clocks."""
    return 2 * clock_khz * 1e3 * bus_bits / 8 / 1e9


def product_tflops(peaks: Peaks, precision: str) -> float | None:
    """The most that products can reach whose results are as precise as `precision` says.

    `precision` is float64, float32, tf32, float16 or bfloat16. More digits can be had from
    products of fewer, so the fastest way counts, whichever the original takes.
    """
    by_halves = peaks.fp16 / _HALVES_PRODUCTS if peaks.fp16 else None
    by_slices = peaks.int8 / _SLICES_PRODUCTS if peaks.int8 else None
    ways = {
        "float64": (peaks.fp64, by_slices),
        "float32": (peaks.fp32, peaks.fp64, by_halves),
        "tf32": (peaks.tf32, peaks.fp32, peaks.fp16, peaks.bf16),
        "float16": (peaks.fp16, peaks.tf32, peaks.fp32),
        "bfloat16": (peaks.bf16, peaks.fp16, peaks.tf32, peaks.fp32),
    }
    return max((rate for rate in ways.get(precision, ()) if rate), default=None)
