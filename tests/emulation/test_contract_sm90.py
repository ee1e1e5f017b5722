"""float32 products by Hopper's tiles: loaded by the copy engine, multiplied by warpgroups."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulation.distributions import chain_of_fmas, error
from tests.emulation.emulate import EmulationFault
from tests.emulation.products import Call, product, text

MODES = ("Faithful", "Tf32")
# The relative error of TF32's products, of values of 11 bits (Higham, 2002, section 3.1).
TF32_ERROR = 2.0**-11


def source() -> str:
    return text(MODES, lanes=(1, 2, 4), family="sm90")


def operands(*extents: int) -> tuple[np.ndarray, np.ndarray]:
    batches, m, n, k = extents
    random = np.random.default_rng(sum(extents))
    a, b = (random.standard_normal((batches, rows, k)).astype(np.float32) for rows in (m, n))
    return a, b


def require_near(found: np.ndarray, a: np.ndarray, b: np.ndarray, mode: str) -> None:
    if mode == "Faithful":
        assert error(found, a, b) <= error(chain_of_fmas(a, b), a, b)
    else:
        assert 1e-5 < error(found, a, b) <= TF32_ERROR


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("extents", "lanes", "multiprocessors"),
    [
        ((1, 40, 36, 96), 1, 132),  # sums of two intervals of 64, the second in part
        ((2, 130, 132, 192), 2, 132),  # tiles' edges, three intervals
        ((1, 129, 124, 640), 4, 132),  # sums in parts
        ((1, 260, 264, 320), 4, 2),  # pairs of wide tiles
    ],
    ids=str,
)
def test_products_of_tiles(
    mode: str, extents: tuple[int, ...], lanes: int, multiprocessors: int
) -> None:
    a, b = operands(*extents)
    call = Call(mode, lanes=lanes, family="sm90", multiprocessors=multiprocessors)
    require_near(product(a, b, call, source=source()), a, b, mode)


@pytest.mark.parametrize("mode", MODES)
def test_inf_and_nan_are_those_of_float32(mode: str) -> None:
    a, b = operands(1, 40, 36, 96)
    a[0, 3, 5], b[0, 7, 11] = np.inf, np.nan
    found = product(a, b, Call(mode, lanes=1, family="sm90"), source=source())
    with np.errstate(invalid="ignore"):
        expected = np.einsum("bmk,bnk->bmn", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        # those of another interval
        pytest.param("scale += step;", "scale += 2 * step;", marks=pytest.mark.slow),
        ("promote(sums.value[0], part.sums, part.upper, part.lower);", ""),
        ("before.advance();", ""),  # a stage is released too early, another never
        pytest.param("start(even);\n    int left", "int left", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_broken_kernel_is_found(line: str, broken: str) -> None:
    sound = source()
    assert line in sound, "the kernel says it otherwise"
    a, b = operands(1, 40, 36, 640)
    call = Call("Tf32", lanes=1, family="sm90", multiprocessors=1)
    require_near(product(a, b, call, source=sound), a, b, "Tf32")
    with pytest.raises((AssertionError, EmulationFault)):
        require_near(product(a, b, call, source=sound.replace(line, broken)), a, b, "Tf32")
