"""Each form of the kernels of transposed convolutions by itself, on the device."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.emulation.convolutions import Form
from tests.emulation.transposed_convolutions import (
    Case,
    case,
    drawn,
    name_of,
    numbers_of,
    others_of,
    require_as_exact,
    require_faithful,
    text,
)
from tests.nvcc import build_cuda
from torch import Tensor

pytestmark = pytest.mark.gpu

# With the axes of space, and how many phases are columns of a filter.
FORMS = {
    "line, 128": (Form(columns=128), 1, 1),
    "plane, 64": (Form(), 2, 1),
    "plane, 128": (Form(columns=128), 2, 1),
    "volume, 64": (Form(space=3), 3, 1),
    "plane, 64, faithful": (Form("Faithful"), 2, 1),
    "line, 128, faithful": (Form("Faithful", columns=128), 1, 1),
    "line, 128, 8 phases": (Form(columns=128), 1, 8),
    "plane, 64, 2 phases": (Form(), 2, 2),
    "plane, 128, 4 phases": (Form(columns=128), 2, 4),
    "volume, 64, 2 phases": (Form(space=3), 3, 2),
}
Builds = dict[str, Future[ctypes.CDLL]]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builds]:
    """A library of each form; all are built side by side."""

    def built(form: Form, space: int, phases: int, directory: Path) -> ctypes.CDLL:
        return build_cuda(text(form, space, phases=phases), directory)

    with ThreadPoolExecutor(len(FORMS)) as pool:
        yield {
            name: pool.submit(built, *form, tmp_path_factory.mktemp("built"))
            for name, form in FORMS.items()
        }


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("seed", range(40))
def test_a_form_makes_any_windows(builds: Builds, name: str, seed: int) -> None:
    form, space, phases = FORMS[name]
    is_faithful = form.mode == "Faithful"
    how = drawn(seed, space, many=is_faithful)
    found = on_the_device(builds[name].result(), form, how, phases)
    require = require_faithful if is_faithful else require_as_exact
    require(found, *how.operands, how)


@pytest.mark.parametrize(
    "how",
    [
        case((127, 129), (4, 4), 2, 1, channels=70, filters=65),
        case((130, 61), (3, 3), 2, 1, 1, batch=3, channels=64, filters=64),
        case((40, 41), (5, 5), 5, 0, 0, 1, batch=2, channels=128, filters=36),
        case((150, 160), (3, 3), 2, 140, 1, channels=33, filters=8),
    ],
    ids=["4 by 4", "3 by 3", "25 phases", "windows that begin inside"],
)
@pytest.mark.parametrize(
    "name", ["plane, 64", "plane, 128", "plane, 64, 2 phases", "plane, 128, 4 phases"]
)
def test_many_tiles(builds: Builds, name: str, how: Case) -> None:
    form, _, phases = FORMS[name]
    found = on_the_device(builds[name].result(), form, how, phases, calls=200)
    require_as_exact(found, *how.operands, how)


def on_the_device(
    library: ctypes.CDLL, form: Form, how: Case, phases: int, calls: int = 10
) -> np.ndarray:
    """Bit by bit the same in all calls; what stands beside the sums was read at their places."""
    x, weight = how.operands
    residual, shift, *_ = others = others_of(how)
    numbers = numbers_of(how, x, weight, *others)
    name = name_of(form, len(how.size), 1 if how.filters % 4 else 4, phases)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    bytes_ = ctypes.c_int64()
    assert getattr(library, f"{name}_needs")(_address(numbers), ctypes.byref(bytes_), None) == 0
    operands = [torch.from_numpy(each).cuda() for each in (x, weight, residual, shift)]
    first: Tensor | None = None
    for _ in range(calls):
        result, beside = (torch.full(how.shape, math.nan, device="cuda") for _ in range(2))
        workspace = torch.full((bytes_.value,), 0xFF, dtype=torch.uint8, device="cuda")
        given = [*operands, numbers, result, beside, workspace]
        assert getattr(library, name)(*map(_address, given), stream) == 0
        torch.cuda.synchronize()
        assert torch.equal(beside, operands[2] + operands[3])
        first = result if first is None else first
        assert torch.equal(result, first)
    assert first is not None
    return first.cpu().numpy()


def _address(of: Tensor | np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(of.ctypes.data if isinstance(of, np.ndarray) else of.data_ptr())
