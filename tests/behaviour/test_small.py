"""Gradients of small tensors: PyTorch's own operations run, as eager's do, and no kernel."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import EVERY_STATE, CountCalls, kernels_in, leaves, load_file

from opweld.driver import compile_file
from opweld.options import Options

# The second result has a gradient of y alone, the third and the last one of nothing.
SOURCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))

    def forward(self, x, y):
        with torch.no_grad():
            apart = x * y + 1
        return torch.tanh(x) * y + self.scale, torch.exp(y) * 2, (x > y).to(x.dtype) * 3, apart


def get_inputs():
    return [torch.randn(6, 24), torch.randn(6, 24)]


def get_init_inputs():
    return []
"""


STATISTICS = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(4, 3, 5, 5)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def module(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(SOURCE, tmp_path_factory.mktemp("small"))


def compiled(source: str, folder: Path) -> ModuleType:
    path = folder / "small.py"
    path.write_text(source, "utf-8")
    text = compile_file(path, Options(target="cpu", check=False, **EVERY_STATE)).text
    return load_file(folder / "small_new.py", text, always_kernels=False)


def called(model: Any, inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[Any]]:
    """Results, and the gradients that the inputs and the parameters get of some of their sums."""
    wanted = [x for x in (*inputs, *model.parameters()) if x.requires_grad]
    results = leaves(model(*inputs))
    sums = [(r * r).sum() for r in results if r.requires_grad]
    return results, list(torch.autograd.grad(sums, wanted, allow_unused=True)) if sums else []


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("frozen", [False, True])
def test_results_gradients_and_what_requires_them(
    module: ModuleType, needed: tuple[bool, bool], frozen: bool
) -> None:
    old, new = module.Model(), module.ModelNew()
    for model in (old, new):
        model.requires_grad_(not frozen)
    torch.manual_seed(1)
    inputs = [x.requires_grad_(n) for x, n in zip(module.get_inputs(), needed, strict=True)]
    (want, want_grads), (have, have_grads) = called(old, inputs), called(new, inputs)
    assert [r.requires_grad for r in have] == [r.requires_grad for r in want]
    for ours, theirs in zip([*have, *have_grads], [*want, *want_grads], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, check_stride=True)
    anything = any(needed) or not frozen
    assert kernels_in(lambda: new(*inputs)) == (0 if anything else 1)


def with_gradients(shape: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(2)
    return [torch.randn(shape, requires_grad=True) for _ in range(2)]


def test_kernels_run_on_large_ones_and_without_gradients(module: ModuleType) -> None:
    new = module.ModelNew()
    small, large = with_gradients((1024, 24)), with_gradients((2048, 24))
    assert kernels_in(lambda: new(*small)) == 0
    assert kernels_in(lambda: new(*large)) == 1
    with torch.no_grad():
        assert kernels_in(lambda: new(*small)) == 1


def test_kernels_run_where_layouts_or_dtypes_would_differ(module: ModuleType) -> None:
    """A kernel's results have layouts of their own; under autocast operations change dtypes."""
    old, new = module.Model(), module.ModelNew()
    x, y = with_gradients((6, 24))
    wide = torch.randn(6, 48, requires_grad=True)[:, ::2]
    assert kernels_in(lambda: new(wide, y)) == 1
    torch.testing.assert_close(new(wide, y), old(wide, y), check_stride=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert kernels_in(lambda: new(x, y)) == 1


def test_second_derivatives(module: ModuleType) -> None:
    inputs = with_gradients((3, 24))
    found = []
    for model in (module.Model(), module.ModelNew()):
        first = torch.autograd.grad(model(*inputs)[0].sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(sum((g * g).sum() for g in first), inputs))
    torch.testing.assert_close(found[1], found[0])


def test_transforms_and_the_compiler_see_the_operator(module: ModuleType) -> None:
    new, inputs = module.ModelNew(), with_gradients((3, 24))
    with CountCalls() as counted:
        torch.func.grad(lambda x: new(x, inputs[1])[0].sum())(inputs[0].detach())
    assert counted.ours
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph.code)
        return graph.forward

    results = torch.compile(new, backend=backend, fullgraph=True)(*inputs)
    torch.testing.assert_close(results, new(*inputs))
    assert len(graphs) == 1 and "autograd_function_apply" in graphs[0]


def test_statistics_keep_the_kernel(build_folder: Path, tmp_path: Path) -> None:
    """The reference does not compute them."""
    module = compiled(STATISTICS, tmp_path)
    old, new = module.Model(), module.ModelNew()
    inputs = [torch.randn(4, 3, 5, 5, requires_grad=True)]
    want, have = called(old, inputs), called(new, inputs)
    for ours, theirs in zip([*have[0], *have[1]], [*want[0], *want[1]], strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(dict(new.named_buffers()), dict(old.named_buffers()))
    assert kernels_in(lambda: new(*inputs)) == 1
