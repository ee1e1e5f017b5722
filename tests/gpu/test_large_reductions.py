"""Reductions of more than 2^31 elements, and their kernels under compute-sanitizer.

    python3 -m pytest -m "gpu and slow" tests/gpu/test_large_reductions.py

takes about 20 GB of the device's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.gpu.emitting import emitted_module, write_pair
from tests.gpu.sanitizing import KERNELS_ALONE, needs_sanitizer, require_nothing_found
from torch import Tensor

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PAST = 2**31 + 17
PIECE = 2**27
WIDTH = 1000
ROWS = PAST // WIDTH + 1
TEXT = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return {results}

def get_inputs():
    return [torch.ones({shape}, dtype=torch.{dtype})]

def get_init_inputs():
    return []
"""
FLAT = TEXT.format(results="x.sum(), x.argmax(), x.argmin(), x.amax()", shape="2**20", dtype="int8")
TABLE = TEXT.format(
    results="x.sum(0), x.argmax(0), x.amin(0), x.sum(1), x.argmax(1), x.sum()",
    shape=f"2**16, {WIDTH}",
    dtype="int8",
)
SOFTMAX = TEXT.format(results="x.softmax(0)", shape="2**20", dtype="bfloat16")
SOFTMAX_OF_ROWS = TEXT.format(results="x.softmax(1)", shape=f"2**16, {WIDTH}", dtype="bfloat16")
SOFTMAX_OF_COLUMNS = TEXT.format(results="x.softmax(0)", shape=f"2**16, {WIDTH}", dtype="bfloat16")

# Rows that no cluster keeps, and enough of them.
GROUP_NORM = TEXT.format(
    results="nn.functional.group_norm(x.relu(), 4)", shape="66, 8, 512, 520", dtype="float32"
)


@pytest.fixture
def emitted(tmp_path: Path) -> Callable[[str], ModuleType]:
    return lambda source: emitted_module(tmp_path, "large_reduction", source)


def run_fused(module: ModuleType, x: Tensor) -> tuple[Tensor, ...]:
    model = module.ModelNew()
    with torch.no_grad():
        assert kernels_in(lambda: model(x)) > 0
        results = model(x)
    return results if isinstance(results, tuple) else (results,)


def small_integers(*shape: int) -> Tensor:
    return torch.randint(-100, 100, shape, dtype=torch.int8, device="cuda")


def slices(size: int, width: int = 1) -> Iterator[slice]:
    step = PIECE // width
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def test_all_elements(emitted: Callable[[str], ModuleType]) -> None:
    """The places lie behind 2^31, the first of two equal ones."""
    x = small_integers(PAST)
    x[[2**31 + 5, 2**31 + 9]] = 120
    x[[2**31 + 3, 2**31 + 16]] = -120
    total, largest, least, value = run_fused(emitted(FLAT), x)
    assert total.item() == sum(int(x[piece].sum()) for piece in slices(PAST))
    assert (largest.item(), least.item(), value.item()) == (2**31 + 5, 2**31 + 3, 120)


def test_misaligned(emitted: Callable[[str], ModuleType]) -> None:
    x = small_integers(PAST + 1)[1:]
    x[-1] = 120
    total, largest, _, _ = run_fused(emitted(FLAT), x)
    assert total.item() == sum(int(x[piece].sum()) for piece in slices(PAST))
    assert largest.item() == PAST - 1


def test_rows_and_columns(emitted: Callable[[str], ModuleType]) -> None:
    x = small_integers(ROWS, WIDTH)
    x[ROWS - 1] = 120
    x[ROWS - 2, 7] = -120
    sums, places, least, row_sums, row_places, total = run_fused(emitted(TABLE), x)
    wanted = sum(x[piece].sum(0) for piece in slices(ROWS, WIDTH))
    assert torch.equal(sums, wanted)
    assert torch.equal(places, torch.full_like(places, ROWS - 1))
    assert least[7].item() == -120
    assert total.item() == int(wanted.sum())
    for piece in slices(ROWS, WIDTH):
        assert torch.equal(row_sums[piece], x[piece].sum(1))
        assert torch.equal(row_places[piece], x[piece].argmax(1))


def test_group_norm_of_long_rows(emitted: Callable[[str], ModuleType]) -> None:
    x = torch.randn(66, 8, 512, 520, device="cuda") + 1
    x[3, 2, 1, 0], x[4, 7, 0, 5] = float("inf"), float("nan")
    module = emitted(GROUP_NORM)
    model = module.ModelNew()
    with torch.no_grad():
        assert kernels_in(lambda: model(x)) >= 2
        got, again = model(x), model(x)
    assert torch.equal(got.nan_to_num(), again.nan_to_num())
    for image, result in zip(x, got, strict=True):
        wanted = torch.nn.functional.group_norm(image[None].double().relu(), 4)[0]
        torch.testing.assert_close(result.double(), wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def require_softmax(result: Tensor, x: Tensor, axis: int) -> None:
    """Of bfloat16 elements, against float64 in pieces; `axis` 0 goes across them."""
    width = x.numel() // len(x)
    total = 0.0
    if axis == 0:
        total = sum(x[piece].double().exp().sum(0) for piece in slices(len(x), width))
    for piece in slices(len(x), width):
        powers = x[piece].double().exp()
        wanted = powers / (total if axis == 0 else powers.sum(1, keepdim=True))
        torch.testing.assert_close(result[piece].double(), wanted, rtol=5e-3, atol=0)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def test_softmax_of_all(emitted: Callable[[str], ModuleType]) -> None:
    x = normal(PAST)
    require_softmax(run_fused(emitted(SOFTMAX), x)[0], x, 0)


def test_softmax_of_rows(emitted: Callable[[str], ModuleType]) -> None:
    x = normal(ROWS, WIDTH)
    require_softmax(run_fused(emitted(SOFTMAX_OF_ROWS), x)[0], x, 1)


def test_softmax_of_columns(emitted: Callable[[str], ModuleType]) -> None:
    x = normal(ROWS, WIDTH)
    require_softmax(run_fused(emitted(SOFTMAX_OF_COLUMNS), x)[0], x, 0)


# Rows in registers, in a warp and in a block, columns in strips, rows and columns in pieces.
WATCHED = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def forward(self, x, y, z):
        return [
            x.softmax(-1), x.sum(-1), x.argmax(-1), x.var(0), x.sum(0), F.layer_norm(x, (1003,)),
            y.softmax(-1), y.sum(), y.amax(-1), z.sum(0), z.softmax(0), z.argmin(0), z.mean((0, 2)),
        ]

def get_inputs():
    return [torch.randn(37, 1003), torch.randn(5, 40000), torch.randn(36000, 2, 12)]

def get_init_inputs():
    return []
"""
CALLS = f"""{KERNELS_ALONE}model = emitted.ModelNew()

def normal(*shape):
    return torch.randn(*shape, device="cuda")

with torch.no_grad():
    for rows in (2, 37):
        model(normal(rows, 1003), normal(5, 40000), normal(36000, 2, 12))
        z = normal(12, 2, 36000).permute(2, 1, 0)
        model(normal(rows, 2006)[:, ::2], normal(40000, 5).mT, z)
        x = normal(rows * 1003 + 1)[1:].view(rows, 1003)
        y = normal(5 * 40000 + 1)[1:].view(5, 40000)
        model(x, y, normal(2, 36000, 12).transpose(0, 1))
torch.cuda.synchronize()
"""


@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found_in_reductions(tool: str, tmp_path: Path) -> None:
    _, new = write_pair(tmp_path, "reduction", WATCHED)
    require_nothing_found(tool, CALLS, new)
