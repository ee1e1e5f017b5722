"""Each form of the kernels of convolutions by itself, on the device."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.emulation.convolutions import (
    Case,
    Form,
    drawn,
    numbers_of,
    require_as_exact,
    require_faithful,
    text,
    windows,
)
from tests.nvcc import build_cuda
from torch import Tensor

pytestmark = pytest.mark.gpu

FORMS = {
    "plane, 64": Form(),
    "plane, 128": Form(columns=128),
    "space, 64": Form(space=3),
    "space, 128": Form(space=3, columns=128),
    "plane, 64, faithful": Form("Faithful"),
    "plane, 128, faithful": Form("Faithful", columns=128),
    "space, 64, faithful": Form("Faithful", space=3),
    "plane, 64, joined": Form(rows=6),
    "plane, 128, joined": Form(columns=128, rows=6),
    "space, 64, joined": Form(space=3, rows=6),
    "plane, 64, of 32 channels": Form(width=32),
    "plane, 128, of 32 channels": Form(columns=128, width=32),
    "plane, 64, of 16 channels": Form(width=16),
    "plane, 128, of 16 channels": Form(columns=128, width=16),
    "space, 64, of 16 channels": Form(space=3, width=16),
    "plane, 64, joined, of 16": Form(rows=6, width=16),
    "space, 64, joined, of 32": Form(space=3, rows=6, width=32),
}


Builds = dict[str, Future[ctypes.CDLL]]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builds]:
    """A library of each form; all are built side by side."""
    with ThreadPoolExecutor(len(FORMS)) as pool:
        yield {
            name: pool.submit(_built, form, tmp_path_factory.mktemp(form.name))
            for name, form in FORMS.items()
        }


def _built(form: Form, directory: Path) -> ctypes.CDLL:
    return build_cuda(text(form), directory)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("seed", range(40))
def test_a_form_makes_any_windows(builds: Builds, name: str, seed: int) -> None:
    form = FORMS[name]
    is_faithful = form.mode == "Faithful"
    case = drawn(seed, 3 if form.space == 3 else seed % 2 + 1, many=is_faithful)
    if form.rows:  # whole steps of all the strides
        channels = (1, 2, 3, 7, 16, 31)
        case = replace(case, channels=channels[seed % len(channels)])
    x, weight = case.operands
    found = on_the_device(builds[name].result(), form, case, x, weight)
    require = require_faithful if is_faithful else require_as_exact
    require(found, x, weight, case.how)


@pytest.mark.parametrize("rows", [127, 128, 129, 255, 256, 257, 40000])
@pytest.mark.parametrize(
    "name",
    [
        "plane, 64",
        "plane, 128",
        "plane, 64, of 32 channels",
        "plane, 128, of 32 channels",
        "plane, 64, of 16 channels",
        "plane, 128, of 16 channels",
    ],
)
def test_a_form_at_the_edges_of_tiles(builds: Builds, name: str, rows: int) -> None:
    form = FORMS[name]
    case = Case(1, 70, (rows,), 65, (3,), windows(1, 1, 1))
    x, weight = case.operands
    found = on_the_device(builds[name].result(), form, case, x, weight, calls=200)
    require_as_exact(found, x, weight, case.how)


def on_the_device(
    library: ctypes.CDLL,
    form: Form,
    case: Case,
    x: np.ndarray,
    weight: np.ndarray,
    calls: int = 10,
) -> np.ndarray:
    """Bit by bit the same in all calls; each element is handed over once."""
    numbers = numbers_of(x, weight, case.how)
    name = f"{form.name}_{1 if case.filters % 4 else 4}"
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    bytes_ = ctypes.c_int64()
    assert getattr(library, f"{name}_needs")(_address(numbers), ctypes.byref(bytes_), None) == 0
    assert bytes_.value > 0
    shape = (case.batch, *case.how.out(case.size, case.kernel), case.filters)
    operands = [torch.from_numpy(each).cuda() for each in (x, weight)]
    first: Tensor | None = None
    for _ in range(calls):
        result = torch.full(shape, math.nan, device="cuda")
        times = torch.zeros(shape, dtype=torch.int32, device="cuda")
        workspace = torch.full((bytes_.value,), 0xFF, dtype=torch.uint8, device="cuda")
        given = [*operands, numbers, result, times, workspace]
        assert getattr(library, name)(*map(_address, given), 1, 1, stream) == 0
        torch.cuda.synchronize()
        assert (times == 1).all()
        first = result if first is None else first
        assert torch.equal(result, first)
    assert first is not None
    return first.cpu().numpy()


def _address(of: Tensor | np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(of.ctypes.data if isinstance(of, np.ndarray) else of.data_ptr())
