"""Emitted CUDA files of pointwise kernels: their host code as it is, their kernels emulated."""

from __future__ import annotations

import pytest
import torch
from tests.behaviour.emitted import CountCalls, Pair, kernels_in, leaves, text_made_of
from tests.behaviour.models import SOURCES
from tests.behaviour.products import pair_of_texts

# Operands along some axes only, and several results of several types.
SEVERAL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(24))

    def forward(self, x, column):
        y = (x + self.scale) * column[:, :1]
        return torch.sigmoid(y).half(), y > 0, y * y


def get_inputs():
    return [torch.randn(6, 24), torch.randn(6, 1)]


def get_init_inputs():
    return []
"""
MODELS = {"gelu": SOURCES["gelu"], "several": SEVERAL}


@pytest.fixture(scope="module", params=sorted(MODELS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, source = request.param, MODELS[request.param]
    text = text_made_of(source, "sm_90a", name)
    assert text.count("op::pointwise<") == 1
    return pair_of_texts(name, source, text, 1, tmp_path_factory.mktemp("pointwise"))


def column_major(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


def in_padded_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x, x.new_full((len(x), 4), float("nan"))), 1)[:, : x.shape[1]]


def in_odd_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x, x.new_full((len(x), 3), float("nan"))), 1)[:, : x.shape[1]]


def every_second(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, dim=1)[:, ::2]


def shifted(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)


def expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand(x.shape)


LAYOUTS = (torch.clone, column_major, in_padded_rows, in_odd_rows, every_second, shifted, expanded)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [0, 1, 3, 130])
def test_any_layout_of_any_size(pair: Pair, layout, batch: int) -> None:
    if layout is expanded and not batch:
        pytest.skip("there is no row")
    old, new = pair.models()
    inputs = [layout(x) for x in pair.inputs(batch)]
    with torch.no_grad():
        for mine, theirs in zip(leaves(new(*inputs)), leaves(old(*inputs)), strict=True):
            torch.testing.assert_close(mine, theirs, check_stride=True)
        assert kernels_in(lambda: new(*inputs)) == 1


def test_gradients_vmap_and_functional_transforms(pair: Pair) -> None:
    old, new = pair.models()
    inputs = [x.requires_grad_() for x in pair.inputs(3)]

    def gradient(model):
        results = [y for y in leaves(model(*inputs)) if y.is_floating_point()]
        total = sum((y * y.detach().cos()).sum() for y in results)
        return torch.autograd.grad(total, inputs)

    torch.testing.assert_close(gradient(new), gradient(old))
    stacked = [torch.stack((x, x + 1)).detach() for x in inputs]
    both = [leaves(torch.vmap(model)(*stacked)) for model in (new, old)]
    torch.testing.assert_close(*both)
    assert kernels_in(lambda: torch.vmap(new)(*stacked)) == 2


def test_operators_keep_their_promises(pair: Pair) -> None:
    _, new = pair.models()
    with CountCalls() as count, torch.no_grad():
        for layout in (torch.clone, column_major, expanded):
            new(*[layout(x) for x in pair.inputs(3)])
    assert len(count.ours) == 3
    for func, args in count.ours:
        assert set(torch.library.opcheck(func, args).values()) == {"SUCCESS"}


def test_compile_without_graph_break(pair: Pair) -> None:
    torch._dynamo.reset()
    old, new = pair.models()
    compiled = torch.compile(new, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch in (4, 7):
        inputs = pair.inputs(batch)
        with torch.no_grad():
            both = [leaves(model(*inputs)) for model in (compiled, old)]
        torch.testing.assert_close(*both)


def test_what_does_not_fit_is_said(pair: Pair) -> None:
    _, new = pair.models()
    with CountCalls() as count, torch.no_grad():
        new(*pair.inputs(3))
    ((func, args),) = count.ours
    for wrong in (args[0].double(), args[0][0]):
        with pytest.raises(RuntimeError, match="operand 1 does not fit"):
            func(wrong, *args[1:])
    with pytest.raises(RuntimeError, match="out of memory"):
        func(*[x[:1].expand(2**40, *x.shape[1:]) for x in args])
