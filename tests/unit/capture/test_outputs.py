"""What the forward returns, and which tensors share memory."""

from __future__ import annotations

import torch
from tests.capturing import assert_row, captured, graph_of, module_of, ops_of

from opweld.ir.expr import symbol
from opweld.ir.graph import Leaf
from opweld.ir.ops import Op

X = torch.randn(4, 6)
CLONE = "aten.clone.default"


def test_the_same_tensor_twice_is_one_output() -> None:
    graph = assert_row(module_of(lambda self, x: (y := x * 2, y)), X)
    assert len(graph.outputs) == 1
    assert graph.structure == ("tuple", (Leaf(0), Leaf(0)))


def test_equal_computations_are_two_tensors() -> None:
    graph = assert_row(module_of(lambda self, x: (x + 1, x + 1)), X)
    assert ops_of(graph) == ["add", CLONE]
    assert graph.outputs[0] is not graph.outputs[1]


def test_views_of_a_result_share_its_memory() -> None:
    graph = assert_row(module_of(lambda self, x: (y := x * 2, y.view(-1), y[:, 1:])), X)
    assert ops_of(graph) == ["mul", "reshape", "slice"]


def test_views_of_an_input_are_views_and_copies_are_copies() -> None:
    def forward(self, x):
        return x, x.t(), x.unbind(1)[0], x.to(torch.float32), x.clone(), x.t().contiguous()

    graph = assert_row(module_of(forward), X)
    assert ops_of(graph) == ["permute", "slice", "reshape", CLONE, CLONE]
    assert graph.structure[1][3] == Leaf(0)


def test_copies_that_nobody_can_tell_vanish() -> None:
    graph = assert_row(module_of(lambda self, x: x.clone().contiguous() * 2), X)
    assert ops_of(graph) == ["mul"]


def test_a_repeated_input_is_repeated_by_the_library() -> None:
    graph = assert_row(module_of(lambda self, x: x.repeat(2, 1)), X)
    assert ops_of(graph) == ["aten.repeat.default"]
    graph = assert_row(module_of(lambda self, x: x.repeat(2, 1) * 2), X)
    assert ops_of(graph) == ["reshape", "expand", "reshape", "mul"]


def test_a_gradient_stops_at_a_call() -> None:
    graph = assert_row(module_of(lambda self, x: (x * 2).detach() + x), X)
    assert ops_of(graph) == ["mul", "aten.detach.default", "add"]


def test_nested_structure() -> None:
    graph = graph_of(module_of(lambda self, x: {"a": [x * 2, None], 3: (x.shape[0], "s", 1.5)}), X)
    assert graph.structure == (
        "dict",
        (
            ("a", ("list", (Leaf(0), ("const", None)))),
            (3, ("tuple", (("const", symbol("s0")), ("const", "s"), ("const", 1.5)))),
        ),
    )


def test_what_is_written_in_place_is_a_copy_with_a_gradient() -> None:
    """As a cache of states that a forward fills, and returns."""

    def forward(self, x):
        kept = torch.zeros(6, 8, 2)
        kept.copy_(x.reshape(6, 2, 8).transpose(1, 2))
        return torch.tanh(x), kept

    graph = captured(module_of(forward), torch.randn(6, 16), batch=False).variants[0].graph
    calls = [node.attrs.target for node in graph.nodes() if node.op is Op.CALL]
    assert calls == ["aten.clone.default"]
