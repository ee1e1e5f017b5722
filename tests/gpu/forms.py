"""Calls of a form of convolutions on the device."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tests.emulation.convolutions import Case, Form, numbers_of, text
from tests.nvcc import build_cuda
from torch import Tensor

Builds = dict[str, Future[ctypes.CDLL]]


def built_side_by_side(
    forms: Mapping[str, Form], directories: pytest.TempPathFactory
) -> Iterator[Builds]:
    """A library of each form, as a fixture."""
    with ThreadPoolExecutor(len(forms)) as pool:
        yield {
            name: pool.submit(build_cuda, text(form), directories.mktemp(form.name))
            for name, form in forms.items()
        }


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
    operands = [_copied(each) for each in (x, weight)]
    first: Tensor | None = None
    for _ in range(calls):
        result = torch.full(shape, math.nan, device="cuda")
        times = torch.zeros(shape, dtype=torch.int32, device="cuda")
        workspace = torch.full((bytes_.value,), 0xFF, dtype=torch.uint8, device="cuda")
        given = [*operands, numbers, result, times, workspace]
        error = getattr(library, name)(*map(_address, given), 1, 1, stream)
        assert error == 0, f"CUDA error {error}"
        torch.cuda.synchronize()
        assert (times == 1).all()
        first = result if first is None else first
        assert torch.equal(result.view(torch.int32), first.view(torch.int32))  # of NaN, too
    assert first is not None
    return first.cpu().numpy()


def _copied(values: np.ndarray) -> Tensor:
    """With the same strides, gaps and all."""
    extent = (
        1 + sum((n - 1) * step for n, step in zip(values.shape, values.strides, strict=True)) // 4
    )
    memory = np.lib.stride_tricks.as_strided(values, (extent,), (4,))
    strides = [step // 4 for step in values.strides]
    return torch.from_numpy(memory.copy()).cuda().as_strided(values.shape, strides)


def _address(of: Tensor | np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(of.ctypes.data if isinstance(of, np.ndarray) else of.data_ptr())
