"""The emulated tensor core adds as the device's is said to (docs/5-numerics.md)."""

from __future__ import annotations

import pytest
from tests.nvcc import compile_cuda, needs_nvcc
from tests.unit.device import tensor_core
from tests.unit.device.tensor_core import Findings, emulated, findings


def test_sums_are_cut_25_bits_below_the_largest() -> None:
    assert findings(emulated) == Findings(
        product_bits=25,
        sum_bits=25,
        positive="towards zero",
        negative="towards zero",
        together=16,
        order_share=0.0,
    )


def test_products_and_sums_of_integers_are_exact() -> None:
    tensor_core.require_exact_products(emulated)
    tensor_core.require_exact_integers(emulated)


def test_the_rest_of_a_sum_is_lost_within_its_bound() -> None:
    tensor_core.require_cut_no_further(emulated, 25)
    with pytest.raises(AssertionError, match="of what 28 bits allow"):
        tensor_core.require_cut_no_further(emulated, 28)


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_probes_compile(arch: str) -> None:
    uses = compile_cuda(tensor_core.text(with_wgmma=arch == "sm_90a"), arch)
    assert len(uses) == (2 if arch == "sm_90a" else 1)
