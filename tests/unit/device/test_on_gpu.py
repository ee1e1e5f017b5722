"""The device functions on a GPU, against PyTorch on the same GPU and in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pytest
import torch
from tests.nvcc import build_cuda, needs_nvcc
from tests.unit.device import approximate
from tests.unit.device.functions import BY_NAME, FLOAT_TO_FLOAT, OF_FLOATS, Function
from tests.unit.device.programs import C_TYPES, FLOATS, cuda_text
from tests.unit.device.samples import dense, hard, near, rms, scale, show

pytestmark = [
    pytest.mark.gpu,
    needs_nvcc,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_cuda(cuda_text(), tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def approximate_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_cuda(approximate.cuda_text(), tmp_path_factory.mktemp("approximate"))


def _launch(
    library: ctypes.CDLL, launcher: str, values: Sequence[torch.Tensor], out: torch.Tensor
) -> None:
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (*values, out)]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert getattr(library, launcher)(*pointers, ctypes.c_int(out.numel()), stream) == 0
    torch.cuda.synchronize()


def _run(library: ctypes.CDLL, function: Function, values: Sequence[torch.Tensor]) -> torch.Tensor:
    kind = torch.bool if function.returns_bool else values[0].dtype
    out = torch.empty_like(values[0], dtype=kind)
    _launch(library, f"{function.name}_{C_TYPES[values[0].dtype]}_launch", values, out)
    return out


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", OF_FLOATS)
def test_hard_values(library: ctypes.CDLL, name: str, dtype: torch.dtype):
    function = BY_NAME[name]
    values = [v.cuda() for v in hard(function, dtype)]
    result, eager = _run(library, function, values), function.reference(*values)
    if function.returns_bool:
        assert torch.equal(result, eager)
        return
    # On the CPU: CUDA eager rounds one sixth to float32 in float64 hardsigmoid and hardswish.
    exact = function.reference(*[v.double().cpu() for v in values]).cuda()
    smallest = torch.finfo(dtype).smallest_normal * 1e-3
    allowed = 8 * torch.finfo(dtype).eps * scale(function, values, exact) + smallest
    wrong = ~(near(result, eager, allowed) | near(result.double(), exact, allowed))
    assert not wrong.any(), show(values, result, eager, wrong)


@pytest.mark.parametrize("name", FLOAT_TO_FLOAT)
def test_float32_is_as_exact_as_eager(library: ctypes.CDLL, name: str):
    function = BY_NAME[name]
    values = [v.cuda() for v in dense(function, torch.float32, 200_000)]
    # On the CPU: CUDA eager rounds one sixth to float32 in float64 hardsigmoid and hardswish.
    exact = function.reference(*[v.double().cpu() for v in values]).cuda()
    ours = _run(library, function, values).double() - exact
    eager = function.reference(*values).double() - exact
    finite = torch.isfinite(exact) & torch.isfinite(eager)
    assert torch.isfinite(ours[finite]).all()
    assert rms(ours[finite]) <= 1.1 * rms(eager[finite]) + 1e-30


@pytest.mark.parametrize(("name", "dtype"), approximate.CASES, ids=str)
def test_approximate_functions_on_all_16_bit_values(
    approximate_library: ctypes.CDLL, name: str, dtype: torch.dtype
):
    function = approximate.function_of(name)
    values = [v.cuda() for v in approximate.operands(function, dtype)]
    out = torch.empty_like(values[0])
    _launch(approximate_library, f"{name}_launch", values, out)
    approximate.require_exact_enough(name, dtype, values, out)
