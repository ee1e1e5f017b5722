"""Reads by the numbers of an index: what the graph means, and its text with the gradient of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.capturing import assert_row, exported, module_of, ops_of
from tests.spelled import gradients, run_spelled

from opweld.ir.ops import Op

X = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(1))
W = torch.randn(7, 3, generator=torch.Generator().manual_seed(2))
PLACES = torch.tensor([[0, 3, 4], [4, 4, 1]])
ROWS = torch.tensor([2, 0, 5, 5])
EVERYWHERE = torch.tensor([3, -1, 4, -5])
AT = torch.randint(0, 5, (6, 2, 4), generator=torch.Generator().manual_seed(3))

WELDED: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], Any]]] = {
    "embedding": (W, lambda w: F.embedding(PLACES, w)),
    "embedding of int32": (W, lambda w: F.embedding(PLACES.int(), w).relu()),
    "embedding of one": (W, lambda w: F.embedding(PLACES[0, 1], w)),
    "embedding of none": (W, lambda w: F.embedding(PLACES[:, :0], w)),
    "embedding with padding": (W, lambda w: F.embedding(PLACES, w, padding_idx=4) * 2),
    "embedding with padding from the end": (W, lambda w: F.embedding(PLACES, w, padding_idx=-3)),
    "selection": (X, lambda x: x.index_select(0, ROWS).exp()),
    "selection of an inner axis": (X, lambda x: x.index_select(-2, ROWS[:2].int())),
    "selection of a vector": (X, lambda x: x[0, 0].index_select(0, ROWS[:2])),
    "rows": (X, lambda x: x[ROWS]),
    "columns from either end": (X, lambda x: x[:, EVERYWHERE].tanh()),
    "a matrix of numbers": (X, lambda x: x[:, PLACES - 3]),
    "one number": (X, lambda x: x[:, PLACES[1, 2]]),
    "gather": (X, lambda x: x.gather(1, AT).exp()),
    "gather of a part": (X, lambda x: x.gather(1, AT[:4, :, :3])),
    "gather of a column": (X, lambda x: x.gather(2, AT[:, :, :1].clamp(max=3)) + x),
    "gather of log-softmax": (X, lambda x: x.log_softmax(1).gather(1, AT[:, :1])),
    "along an axis": (X, lambda x: torch.take_along_dim(x, AT[:1], 1)),
    "along all": (X, lambda x: torch.take_along_dim(x, PLACES)),
    "where the largest are": (X, lambda x: x.gather(1, x.argmax(1, keepdim=True))),
    "numbers that are counted": (W, lambda w: F.embedding(torch.arange(1, 5), w)),
}


def module_for(function: Callable[[torch.Tensor], Any]) -> Any:
    return module_of(lambda self, x: function(x))


@pytest.mark.parametrize("name", WELDED)
def test_graph_and_text(name: str) -> None:
    source, function = WELDED[name]
    module, x = module_for(function), source.clone().requires_grad_()
    graph = assert_row(module, source)
    assert not [op for op in ops_of(graph) if op.startswith("aten.") and "clone" not in op]
    text = run_spelled(exported(module, source).graph, module, x)
    expected = module(x)
    torch.testing.assert_close(text[0], expected)
    torch.testing.assert_close(gradients(text, [x])[0], gradients([expected], [x])[0])


def test_what_counts_up_is_a_slice() -> None:
    graph = assert_row(module_for(lambda w: F.embedding(torch.arange(1, 7, 2), w).exp()), W)
    assert ops_of(graph) == ["slice", "exp"]


def test_one_hot() -> None:
    graph = assert_row(module_of(lambda self, i: F.one_hot(i, 6).float() * 2), PLACES)
    assert Op.PICK.value in ops_of(graph)


LIBRARY: dict[str, Callable[[torch.Tensor], Any]] = {
    "several indices": lambda x: x[ROWS, PLACES[0, 0]],
    "a mask": lambda x: x.masked_select(x > 0).sum() if x.is_meta else x[:, torch.tensor([True] * 5)],
    "a frequency": lambda x: F.embedding(PLACES, x[0], scale_grad_by_freq=True),
    "a number": lambda x: x.sum().gather(0, torch.tensor(0)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_what_stays_the_librarys(name: str) -> None:
    graph = assert_row(module_for(LIBRARY[name]), X)
    assert Op.PICK.value not in ops_of(graph)
