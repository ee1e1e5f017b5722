"""Products on the device of two new operands, few tiles, long sums: errors beside eager's."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from tests.gpu.emitting import all_products_ours, cuda_of, emitted_module
from torch import Tensor

pytestmark = pytest.mark.gpu

# Result rows, columns, terms; and how the operands lie.
SHAPES = {
    "across": (200, 260, 20000, "torch.matmul(x, y)"),
    "along": (130, 96, 4100, "torch.matmul(x, y.mT)"),
    "a_across": (256, 256, 8192, "torch.matmul(x.mT, y)"),
    "batched": (100, 64, 2048, "torch.bmm(x, y)"),
}
MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu({product}) + 1.0

def get_inputs():
    return [torch.randn({x}), torch.randn({y})]

def get_init_inputs():
    return []
"""


def sizes(name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    m, n, k, product = SHAPES[name]
    x = (k, m) if "x.mT" in product else (m, k)
    y = (n, k) if "y.mT" in product else (k, n)
    return ((3, *x), (3, *y)) if name == "batched" else (x, y)


def source(name: str) -> str:
    x, y = (", ".join(map(str, size)) for size in sizes(name))
    return MODEL.format(product=SHAPES[name][3], x=x, y=y)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """Whatever the plan expects of products of these sizes."""
    folder = tmp_path_factory.mktemp("live")
    with all_products_ours():
        found = {name: emitted_module(folder, name, source(name)) for name in SHAPES}
    assert all(module.ModelNew._opweld.devices for module in found.values()), (
        "kernels were not built"
    )
    return found


def product(name: str, x: Tensor, y: Tensor) -> Tensor:
    found = eval(SHAPES[name][3], {"torch": torch, "x": x, "y": y})
    assert isinstance(found, Tensor)
    return torch.relu(found) + 1.0


@pytest.mark.parametrize("name", SHAPES)
def test_errors_are_no_larger_than_eagers(modules: dict[str, ModuleType], name: str) -> None:
    module: ModuleType = modules[name]
    assert "op::LiveSm90" in cuda_of(module)
    x, y = (torch.randn(size, device="cuda") for size in sizes(name))
    with torch.no_grad():
        found, eager = module.ModelNew()(x, y), product(name, x, y)
        true = product(name, x.double(), y.double())
    off, of_eager = ((each.double() - true).square().mean().sqrt() for each in (found, eager))
    assert off <= 1.05 * of_eager


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 1e25, 1e-30])
def test_what_does_not_fit_is_another_kernels(modules: dict[str, ModuleType], odd: float) -> None:
    new = modules["across"].ModelNew()
    x, y = (torch.randn(size, device="cuda") for size in sizes("across"))
    if odd < 1:
        x, y = x * odd, y / odd
    else:
        x[3, 70] = odd
    with torch.no_grad():
        found, eager = new(x, y), product("across", x, y)
    assert (found.isnan() == eager.isnan()).all() and (found.isinf() == eager.isinf()).all()
    plain = eager.isfinite() & (eager.abs() < 1e20)
    torch.testing.assert_close(found[plain], eager[plain], rtol=2e-3, atol=2e-3)


def test_operands_that_may_not_be_read_four_at_once(modules: dict[str, ModuleType]) -> None:
    new = modules["across"].ModelNew()
    (m, k), (_, n) = sizes("across")
    x = torch.randn(m * k + 1, device="cuda")[1:].view(m, k)
    y = torch.randn(k, n + 1, device="cuda")[:, :n]
    with torch.no_grad():
        found, true = new(x, y), product("across", x.double(), y.double())
    torch.testing.assert_close(found.double(), true, rtol=1e-3, atol=1e-3)


def test_a_cuda_graph_replays(modules: dict[str, ModuleType]) -> None:
    new = modules["a_across"].ModelNew()
    x, y = (torch.randn(size, device="cuda") for size in sizes("a_across"))
    with torch.no_grad():
        new(x, y)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = new(x, y)
        x.normal_()
        graph.replay()
        torch.testing.assert_close(found, new(x, y))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one device")
def test_a_second_device_makes_them_too(modules: dict[str, ModuleType]) -> None:
    """What a kernel may ask for, and how many blocks run together, is found out on each device."""
    model = modules["along"].ModelNew()
    x, y = (torch.randn(size) for size in sizes("along"))
    with torch.no_grad():
        found = [model(x.to(f"cuda:{i}"), y.to(f"cuda:{i}")).cpu() for i in range(2)]
    assert torch.equal(*found)
