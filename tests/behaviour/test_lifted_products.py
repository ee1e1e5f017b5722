"""Products that differ in sizes only are one kernel, also in the backward; run under emulation."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from tests.behaviour.emitted import CountCalls, Pair
from tests.behaviour.products import pair_of_texts, text_of

SOURCE = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(12, 40) / 4)
        self.second = nn.Parameter(torch.randn(40, 36) / 6)
        self.across = nn.Parameter(torch.randn(28, 36) / 6)
        self.stack = nn.Parameter(torch.randn(3, 40, 20) / 6)
        self.biased = nn.Linear(12, 40)
        self.other = nn.Linear(12, 36)
        self.wide = nn.Parameter(torch.randn(5, 40, 24) / 6)

    def forward(self, x, y):
        small, large = x @ self.first, y @ self.second
        across = F.linear(large, self.across)
        added, more = (x @ self.first) * 2.0 + y, (y @ self.second) * 2.0 + large
        stacked = torch.bmm(y.expand(3, *y.shape).contiguous(), self.stack)
        wide = torch.bmm(y.expand(5, *y.shape).contiguous(), self.wide)
        return small, large, across, added, more, stacked, wide, self.biased(x), self.other(x)


def get_inputs():
    return [torch.randn(6, 12), torch.randn(6, 40)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module", params=[False, True], ids=["closed", "kernels"])
def pair(request, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("lifted")
    text = text_of("lifted", SOURCE, training=request.param)
    return pair_of_texts("lifted", SOURCE, text, 0, folder)


def kernels_of(pair: Pair) -> set[str]:
    return set(re.findall(r"^struct (k\w*matmul\w*)_epilogue", pair.text, re.MULTILINE))


def test_alike_products_are_one_kernel(pair: Pair) -> None:
    _, new = pair.models()
    with torch.no_grad(), CountCalls() as count:
        new(*pair.inputs())
    made = [str(function).split(".")[1] for function, _ in count.ours]
    products = [name for name in made if re.search("matmul|bmm|linear", name)]
    assert len(products) == 9
    # A bias is read along the columns, in packets where their number is known to allow these.
    assert sorted(map(products.count, set(products))) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("batch", [6, 1, 17, 0])
def test_results_and_gradients_are_near_float64(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    inputs = pair.inputs(batch)
    exact = copy.deepcopy(original).double()
    found = []
    for model, given in ((new, inputs), (exact, [x.double() for x in inputs])):
        leaves = [x.clone().requires_grad_() for x in given]
        results = model(*leaves)
        total = sum((r * torch.linspace(-1, 1, r.numel()).view_as(r)).sum() for r in results)
        wanted = [*leaves, *model.parameters()]
        found.append([*results, *torch.autograd.grad(total, wanted)])
    for mine, theirs in zip(*found, strict=True):
        scale = float(theirs.detach().abs().max()) if theirs.numel() else 0.0
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5 * scale)
