"""How this device's tensor cores add: what float32 products rely on holds, the rest is printed.

    python3 -m pytest -m gpu tests/gpu/test_tensor_core.py -rP

shows what was found: bits that are kept, how results are rounded, whether the order counts.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from tests.nvcc import build_cuda, needs_nvcc
from tests.unit.device import tensor_core
from tests.unit.device.tensor_core import Sums, emulated, findings, random_operands

pytestmark = [
    pytest.mark.gpu,
    needs_nvcc,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
IS_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
INSTRUCTIONS = (
    "mma",
    pytest.param("wgmma", marks=pytest.mark.skipif(not IS_HOPPER, reason="needs sm_90a")),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    text = tensor_core.text(with_wgmma=IS_HOPPER)
    return build_cuda(text, tmp_path_factory.mktemp("tensor_core"))


@pytest.fixture(params=INSTRUCTIONS)
def sums(library: ctypes.CDLL, request: pytest.FixtureRequest) -> Sums:
    launch = getattr(library, f"{request.param}_sums")

    def by_instruction(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        given = [torch.from_numpy(np.ascontiguousarray(x)).cuda() for x in (a, b, c)]
        pointers = [ctypes.c_void_p(x.data_ptr()) for x in given]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        assert launch(*pointers, *map(ctypes.c_int, a.shape), stream) == 0
        torch.cuda.synchronize()
        return given[2].cpu().numpy()

    return by_instruction


def test_products_are_exact(sums: Sums) -> None:
    tensor_core.require_exact_products(sums)


def test_sums_of_integers_are_exact(sums: Sums) -> None:
    tensor_core.require_exact_integers(sums)


def test_sums_lose_what_splitting_allows_for(sums: Sums) -> None:
    found = findings(sums)
    print(found)
    # Hopper's 25 bits are what products are promoted by; others keep a float32's at least.
    bits = min(found.product_bits, found.sum_bits)
    assert bits >= (25 if IS_HOPPER else 23)
    tensor_core.require_cut_no_further(sums, bits)


def test_a_sum_is_the_same_at_each_time(sums: Sums) -> None:
    operands = random_operands(np.random.default_rng(5), 1024, 64)
    first = sums(*operands)
    assert all(np.array_equal(sums(*operands), first) for _ in range(5))


def test_the_emulation_is_no_more_exact(sums: Sums) -> None:
    """What passes its tests by a margin does so here."""
    c, a, b = random_operands(np.random.default_rng(6), 4096, 16)
    products = a.astype(np.float64) * b
    exact, size = c + products.sum(1), abs(c) + abs(products).sum(1)
    ours, device = emulated(c, a, b), sums(c, a, b)
    print(f"{100 * (ours == device).mean():.1f} % of the sums are the emulation's, bit by bit")
    errors = [np.sqrt((((x - exact) / size) ** 2).mean()) for x in (device, ours)]
    if IS_HOPPER:
        assert errors[0] <= 1.1 * errors[1], errors
