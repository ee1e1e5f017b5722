"""Files for calls without gradients alone: lists of tensors, torch.compile, torch.func."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in
from tests.emulation.convolution_models import Rounded, convolution_pair, source

MODEL = source(
    """self.first, self.second = nn.Conv2d(16, 24, 3, padding=1), nn.Conv2d(16, 40, 1)
    self.norm, self.last = nn.BatchNorm2d(64), nn.Conv2d(64, 32, 3)""",
    """both = torch.cat([self.first(x), self.second(x)], 1)
    return torch.tanh(self.last(torch.relu(self.norm(both))))""",
    "2, 16, 9, 11",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return convolution_pair("alone", MODEL, tmp_path_factory.mktemp("alone"))


def test_a_list_of_tensors_is_given_to_one_kernel(pair: Pair) -> None:
    assert "_fused_over_list(" in pair.text and "autograd.Function" not in pair.text


@pytest.mark.parametrize("batch", [2, 1, 5])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    (x,) = pair.inputs(batch)
    with torch.no_grad():
        assert kernels_in(lambda: new(x)) == 4
        with Rounded():
            exact = original.double()(x.double())
        torch.testing.assert_close(new(x).double(), exact, rtol=1e-4, atol=1e-4)


def test_compiled_it_has_the_kernels(pair: Pair) -> None:
    _, new = pair.models()
    (x,) = pair.inputs(2)
    with torch.no_grad():
        found, called = compiled(new, x)
        assert torch.equal(found, new(x))
    assert sum("opweld" in name for name in called) == 4


def test_compiled_with_gradients_it_is_the_original(pair: Pair) -> None:
    original, new = pair.models()
    (x,) = pair.inputs(2)
    found, called = compiled(new, x)
    assert not any("opweld" in name for name in called)
    grads = [torch.autograd.grad(y.sum(), list(m.parameters()))
             for y, m in ((found, new), (original(x), original))]  # fmt: skip
    assert all(map(torch.equal, *grads))


def compiled(module: Any, x: torch.Tensor) -> tuple[torch.Tensor, list[str]]:
    """What a call gives, and what its one graph calls."""
    called = list[str]()

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    return torch.compile(module, backend=backend, fullgraph=True)(x), called


def test_under_vmap_and_grad_it_is_the_original(pair: Pair) -> None:
    original, new = pair.models()
    xs = torch.stack(pair.inputs(2) * 2)
    with torch.no_grad():
        assert torch.equal(torch.vmap(new)(xs), torch.vmap(original)(xs))
        mine, theirs = (torch.func.grad(lambda x, m=m: m(x).sum())(xs[0]) for m in (new, original))
        assert torch.equal(mine, theirs)
