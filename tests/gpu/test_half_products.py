"""Fused products of 16-bit operands on the device: errors beside eager's, at any rows and layout.

python3 -m pytest -m gpu tests/gpu/test_half_products.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.gpu.emitting import all_products_ours, cuda_of, emitted_module
from torch import Tensor

from opweld.judge.numerics.compare import ErrorSums
from opweld.judge.numerics.grade import grade

pytestmark = pytest.mark.gpu

DTYPES = ("bfloat16", "float16")
ROWS, INNER, COLUMNS = 512, 1536, 1000
LINEAR = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear({inner}, {columns}, dtype=torch.{dtype})

    def forward(self, x, residual):
        return torch.tanh(self.fc(x)) * 2.0 + residual

def get_inputs():
    return [torch.randn({rows}, {inner}, dtype=torch.{dtype}),
            torch.randn({rows}, {columns}, dtype=torch.{dtype})]

def get_init_inputs():
    return []
"""
BATCHED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, q, k):
        return (q @ k.mT).float() * 0.125

def get_inputs():
    return [torch.randn(2, 4, 300, {inner}, dtype=torch.{dtype}),
            torch.randn(2, 4, 260, {inner}, dtype=torch.{dtype})]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ModuleType]]:
    """Whatever the plan expects of them."""
    made = dict[str, ModuleType]()

    def emit(source: str, **sizes: object) -> ModuleType:
        text = source.format(**sizes)
        if text not in made:
            folder = tmp_path_factory.mktemp("half")
            with all_products_ours():
                module = emitted_module(folder, f"half{len(made)}", text)
            assert module.ModelNew._opweld.devices, "the kernels were not built"
            assert "_contract(" in cuda_of(module), "the product is the library's"
            made[text] = module
        return made[text]

    yield emit


def linear(emitted: Callable[..., ModuleType], dtype: str, columns: int = COLUMNS) -> ModuleType:
    return emitted(LINEAR, dtype=dtype, rows=ROWS, inner=INNER, columns=columns)


def require_as_exact(module: ModuleType, *inputs: Tensor) -> None:
    """Grade A of all that float64 has as numbers; NaN and infinities where eager has them."""
    torch.manual_seed(2)
    original = module.Model().cuda()
    model = module.ModelNew().cuda()
    model.load_state_dict(original.state_dict())
    with torch.no_grad():
        assert kernels_in(lambda: model(*inputs)) == 1
        ours, eager = model(*inputs), original(*inputs)
        exact = original.double()(*(x.double() for x in inputs))
    assert (ours.dtype, ours.shape) == (eager.dtype, eager.shape)
    assert torch.equal(ours.isnan(), eager.isnan())
    assert torch.equal(ours.isinf(), eager.isinf())
    sums = ErrorSums(eager.dtype)
    sums.add(*(x[eager.isfinite()] for x in (ours, eager, exact)))
    assert grade(sums.figures()) == "A", sums.figures()


def normal(dtype: str, *shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype))


@pytest.mark.parametrize("rows", [1, 17, 127, 130, 512, 1001, 4100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_number_of_rows(emitted: Callable[..., ModuleType], dtype: str, rows: int) -> None:
    torch.manual_seed(rows)
    inputs = normal(dtype, rows, INNER), normal(dtype, rows, COLUMNS)
    require_as_exact(linear(emitted, dtype), *inputs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_that_the_copy_engine_cannot_read(
    emitted: Callable[..., ModuleType], dtype: str
) -> None:
    module, residual = linear(emitted, dtype), normal(dtype, 200, COLUMNS)
    across = normal(dtype, INNER, 200).t()
    shifted = normal(dtype, 200 * INNER + 1)[1:].view(200, INNER)
    apart = normal(dtype, 200, INNER + 3)[:, 3:]
    every_second = normal(dtype, 200, 2 * INNER)[:, ::2]
    for x in (across, shifted, apart, every_second):
        require_as_exact(module, x, residual)


@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_columns_and_few(emitted: Callable[..., ModuleType], dtype: str) -> None:
    for columns in (1001, 24):
        module = linear(emitted, dtype, columns)
        require_as_exact(module, normal(dtype, 300, INNER), normal(dtype, 300, columns))


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_rows(emitted: Callable[..., ModuleType], dtype: str) -> None:
    model = linear(emitted, dtype).ModelNew().cuda()
    with torch.no_grad():
        assert model(normal(dtype, 0, INNER), normal(dtype, 0, COLUMNS)).shape == (0, COLUMNS)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite(emitted: Callable[..., ModuleType], dtype: str, value: float) -> None:
    x = normal(dtype, 200, INNER)
    x[33, 700] = value
    require_as_exact(linear(emitted, dtype), x, normal(dtype, 200, COLUMNS))


@pytest.mark.parametrize("inner", [64, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_are_not_rounded(emitted: Callable[..., ModuleType], dtype: str, inner: int) -> None:
    """Of batches whose rows are read through a transposition, and stored as float32."""
    module = emitted(BATCHED, dtype=dtype, inner=inner)
    q, k = (normal(dtype, 2, n, 4, inner).transpose(1, 2) for n in (300, 260))
    require_as_exact(module, q, k)
    with torch.no_grad():
        exact = q.double() @ k.double().mT * 0.125
        error = (module.ModelNew()(q, k) - exact).abs().max().item()
    assert error <= 1e-5 * exact.abs().max().item()
