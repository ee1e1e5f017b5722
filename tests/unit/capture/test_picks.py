"""Reads by the numbers of an index: the graph, and its text with the gradient of that."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
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
NUMBERS = {"places": PLACES, "rows": ROWS, "everywhere": EVERYWHERE, "at": AT}

WELDED: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor, Any], Any]]] = {
    "embedding": (W, lambda w, t: F.embedding(t.places, w)),
    "embedding of int32": (W, lambda w, t: F.embedding(t.places.int(), w).relu()),
    "embedding of one": (W, lambda w, t: F.embedding(t.places[0, 1], w)),
    "embedding of none": (W, lambda w, t: F.embedding(t.places[:, :0], w)),
    "embedding with padding": (W, lambda w, t: F.embedding(t.places, w, padding_idx=4) * 2),
    "embedding with padding from the end": (
        W,
        lambda w, t: F.embedding(t.places, w, padding_idx=-3),
    ),
    "selection": (X, lambda x, t: x.index_select(0, t.rows).exp()),
    "selection of an inner axis": (X, lambda x, t: x.index_select(-2, t.rows[:2].int())),
    "selection of a vector": (X, lambda x, t: x[0, 0].index_select(0, t.rows[:2])),
    "rows": (X, lambda x, t: x[t.rows]),
    "columns from either end": (X, lambda x, t: x[:, t.everywhere].tanh()),
    "a matrix of numbers": (X, lambda x, t: x[:, t.places - 3]),
    "gather": (X, lambda x, t: x.gather(1, t.at).exp()),
    "gather of a part": (X, lambda x, t: x.gather(1, t.at[:4, :, :3])),
    "gather of a column": (X, lambda x, t: x.gather(2, t.at[:, :1, :1].clamp(max=3)) + x),
    "gather of log-softmax": (X, lambda x, t: x.log_softmax(1).gather(1, t.at[:, :1])),
    "along an axis": (X, lambda x, t: torch.take_along_dim(x, t.at[:1], 1)),
    "along an axis from its end": (X, lambda x, t: torch.take_along_dim(x, t.at[:1] - 5, 1)),
    "along all": (X, lambda x, t: torch.take_along_dim(x, t.places)),
    "where the largest are": (X, lambda x, t: x.gather(1, x.argmax(1, keepdim=True))),
    "numbers that are counted": (W, lambda w, t: F.embedding(torch.arange(1, 5), w) * 2),
}


def module_for(function: Callable[[torch.Tensor, Any], Any]) -> Any:
    """The numbers are inputs, too."""

    def forward(self: Any, x: torch.Tensor, *numbers: torch.Tensor) -> Any:
        return function(x, SimpleNamespace(**dict(zip(NUMBERS, numbers, strict=True))))

    return module_of(forward)


@pytest.mark.parametrize("name", WELDED)
def test_graph_and_text(name: str) -> None:
    source, function = WELDED[name]
    module, x = module_for(function), source.clone().requires_grad_()
    given = tuple(NUMBERS.values())
    graph = assert_row(module, source, *NUMBERS.values())
    assert not [op for op in ops_of(graph) if op.startswith("aten.") and "clone" not in op]
    text = run_spelled(exported(module, source, *given).graph, module, x, *given)
    expected = module(x, *given)
    torch.testing.assert_close(text[0], expected)
    torch.testing.assert_close(gradients(text, [x])[0], gradients([expected], [x])[0])


def test_what_counts_up_is_a_slice() -> None:
    graph = assert_row(
        module_for(lambda w, t: F.embedding(torch.arange(1, 7, 2), w).exp()), W, *NUMBERS.values()
    )
    assert ops_of(graph) == ["slice", "exp"]


def test_one_hot() -> None:
    graph = assert_row(module_of(lambda self, i: F.one_hot(i, 6).float() * 2), PLACES)
    assert Op.GATHER.value in ops_of(graph)


LIBRARY: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "several indices": lambda x, t: x[t.rows, t.rows[:1]],
    "a matrix of others": lambda x, t: x.take(t.places),
    "a frequency": lambda x, t: F.embedding(t.places, x[0], scale_grad_by_freq=True),
    "a number": lambda x, t: x.sum().gather(0, torch.tensor(0)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_what_stays_the_librarys(name: str) -> None:
    graph = assert_row(module_for(LIBRARY[name]), X, *NUMBERS.values())
    assert Op.GATHER.value not in ops_of(graph)
