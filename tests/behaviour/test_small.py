"""Gradients of small tensors: the original runs, as it costs the host less than kernels do."""

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


# Its tensors stand in the arguments, and are no arguments.
NESTED = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))

    def forward(self, pair):
        return torch.tanh(pair[0]) * pair[1] * self.scale


def get_inputs():
    return [(torch.randn(6, 24), torch.randn(6, 24))]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def module(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(SOURCE, tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def statistics(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(STATISTICS, tmp_path_factory.mktemp("statistics"))


@pytest.fixture
def by_kernel(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As if no call were host-bound."""
    monkeypatch.setattr(module.ModelNew._opweld, "host_bound", lambda *_: False)
    return module


def compiled(source: str, folder: Path) -> ModuleType:
    path = folder / "small.py"
    path.write_text(source, "utf-8")
    text = compile_file(path, Options(target="cpu", check=False, **EVERY_STATE)).text
    return load_file(folder / "small_new.py", text, always_kernels=False)


def called(model: Any, inputs: list[Any]) -> tuple[list[torch.Tensor], list[Any]]:
    """Results, and the gradients that the inputs and the parameters get of some of their sums."""
    wanted = [x for x in (*leaves(inputs), *model.parameters()) if x.requires_grad]
    results = leaves(model(*inputs))
    sums = [(r * r).sum() for r in results if r.requires_grad]
    return results, list(torch.autograd.grad(sums, wanted, allow_unused=True)) if sums else []


def assert_alike(module: ModuleType, inputs: list[Any], frozen: bool = False) -> None:
    """Results of both models, their layouts, what requires gradients, and these: to the bit, for
    the same operations run.
    """
    old, new = module.Model(), module.ModelNew()
    for model in (old, new):
        model.requires_grad_(not frozen)
    (want, want_grads), (have, have_grads) = called(old, inputs), called(new, inputs)
    assert [r.requires_grad for r in have] == [r.requires_grad for r in want]
    for ours, theirs in zip([*have, *have_grads], [*want, *want_grads], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, check_stride=True)
    buffers = zip(new.buffers(), old.buffers(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in buffers)


NEEDED = [(True, True), (True, False), (False, True)]


@pytest.mark.parametrize("needed", NEEDED)
@pytest.mark.parametrize("frozen", [False, True])
def test_the_original_runs_where_gradients_are_asked_for(
    module: ModuleType, needed: tuple[bool, bool], frozen: bool
) -> None:
    torch.manual_seed(1)
    inputs = [x.requires_grad_(n) for x, n in zip(module.get_inputs(), needed, strict=True)]
    assert_alike(module, inputs, frozen)
    new = module.ModelNew().requires_grad_(not frozen)
    assert kernels_in(lambda: new(*inputs)) == 0


def test_parameters_alone_ask_for_them(module: ModuleType) -> None:
    inputs = module.get_inputs()
    assert_alike(module, inputs)
    assert kernels_in(lambda: module.ModelNew()(*inputs)) == 0
    new = module.ModelNew().requires_grad_(False)
    assert kernels_in(lambda: new(*inputs)) == 1
    new.scale.requires_grad_()
    assert kernels_in(lambda: new(*inputs)) == 0


def test_layouts_are_eagers(module: ModuleType) -> None:
    x, y = with_gradients((24, 6))
    assert_alike(module, [x.mT, y.mT])
    assert_alike(module, [x.mT, torch.randn(6, 48)[:, ::2]])
    assert kernels_in(lambda: module.ModelNew()(x.mT, y.mT)) == 0


def test_autocast_and_hooks_are_the_originals(module: ModuleType) -> None:
    x, y = with_gradients((6, 24))
    with torch.autocast("cpu", torch.bfloat16):
        assert_alike(module, [x, y])
        assert kernels_in(lambda: module.ModelNew()(x, y)) == 0
    new, seen = module.ModelNew(), list[str]()
    new.register_forward_pre_hook(lambda *_: seen.append("before"))
    new.register_forward_hook(lambda *_: seen.append("after"))
    new(x, y)
    assert seen == ["before", "after"]


@pytest.mark.parametrize("training", [True, False])
def test_statistics_are_the_originals(statistics: ModuleType, training: bool) -> None:
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    assert_alike(statistics, [x])
    new = statistics.ModelNew().train(training)
    assert kernels_in(lambda: new(x)) == 0
    with torch.no_grad():
        assert kernels_in(lambda: new(x)) == 1


def test_tensors_in_arguments(build_folder: Path, tmp_path: Path) -> None:
    module = compiled(NESTED, tmp_path)
    assert_alike(module, [tuple(with_gradients((6, 24)))])
    new = module.ModelNew()
    assert kernels_in(lambda: new(module.get_inputs()[0])) == 0
    assert kernels_in(lambda: new(tuple(with_gradients((2048, 24))))) == 1
    with pytest.raises(TypeError):
        new(None)


def test_what_no_kernel_takes_is_the_originals(module: ModuleType) -> None:
    for model in (module.Model(), module.ModelNew()):
        with pytest.raises(TypeError, match=r"tanh\(\): argument"):
            model(3.0, 4.0)
    assert_alike(module, [torch.randn((), requires_grad=True), torch.randn(())])


@pytest.mark.parametrize("needed", [*NEEDED, (False, False)])
@pytest.mark.parametrize("frozen", [False, True])
def test_results_gradients_and_what_requires_them(
    by_kernel: ModuleType, needed: tuple[bool, bool], frozen: bool
) -> None:
    old, new = by_kernel.Model(), by_kernel.ModelNew()
    for model in (old, new):
        model.requires_grad_(not frozen)
    torch.manual_seed(1)
    inputs = [x.requires_grad_(n) for x, n in zip(by_kernel.get_inputs(), needed, strict=True)]
    (want, want_grads), (have, have_grads) = called(old, inputs), called(new, inputs)
    assert [r.requires_grad for r in have] == [r.requires_grad for r in want]
    for ours, theirs in zip([*have, *have_grads], [*want, *want_grads], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, check_stride=True)
    assert kernels_in(lambda: new(*inputs)) == 1


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


@pytest.mark.parametrize("host_bound", [True, False])
def test_second_derivatives(
    module: ModuleType, host_bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not host_bound:
        monkeypatch.setattr(module.ModelNew._opweld, "host_bound", lambda *_: False)
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
