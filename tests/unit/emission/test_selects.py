"""One element of an axis is read as a user writes it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from opweld.driver import compile_module
from opweld.emission.spelling.selects import select_of, selects_joined
from opweld.ir.attrs import ShapeAttrs, SliceAttrs
from opweld.ir.graph import Arena, Node
from opweld.ir.ops import Op
from opweld.ir.original import Original
from opweld.ir.plan import Estimate, Group, GroupKind
from opweld.ir.types import DType, TensorType
from opweld.options import Options


class Read(nn.Module):
    """Two places of an axis before a product, and one that something else reads, too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, y):
        part = y[:, 1:2]
        last = self.fc(x[:, :, -1]) + self.fc(part.reshape(-1, 6))
        return torch.tanh(self.fc(x[:, 2]) * 2) + last, self.fc(part)


def test_a_slice_and_a_reshape_are_one_view() -> None:
    original = Original("read.py", __name__, "Read", None)
    inputs = (torch.randn(3, 6, 6), torch.randn(3, 4, 6))
    text = compile_module(Read().eval(), inputs, {}, original, Options(target="cpu")).text
    forward = text[text.index("class ModelNew") :]
    assert re.search(r"= x\[:, 2\]$", forward, re.MULTILINE)
    assert re.search(r"= x\[:, :, 5\]$", forward, re.MULTILINE)
    (shared,) = re.findall(r"^ +(\w+) = y\[:, 1:2\]$", forward, re.MULTILINE)
    assert f"{shared}.reshape(" in forward


def sliced(*sizes: int, dim: int, start: int, length: int) -> tuple[Arena, Node]:
    arena = Arena()
    x = arena.source(Op.INPUT, "x", "x", TensorType(DType.F32, sizes))
    return arena, arena.make(Op.SLICE, x, attrs=SliceAttrs(dim, start, 1, length))


def reshaped(arena: Arena, part: Node, *shape: int) -> Node:
    return arena.make(Op.RESHAPE, part, attrs=ShapeAttrs(shape))


@pytest.mark.parametrize("sizes, dim, length, shape, text", [
    ((5, 3, 8), 1, 1, (5, 8), "{x}[:, 2]"),
    ((5, 3, 8), 0, 1, (3, 8), "{x}[2]"),
    ((5, 3, 8), 1, 1, (40,), None),
    ((5, 3, 8), 1, 1, (8, 5), None),
    ((0, 8), 1, 2, (0,), None),
])  # fmt: skip
def test_what_drops_an_axis(
    sizes: tuple[int, ...], dim: int, length: int, shape: tuple[int, ...], text: str | None
) -> None:
    arena, part = sliced(*sizes, dim=dim, start=2, length=length)
    found = select_of(reshaped(arena, part, *shape))
    assert found == (None if text is None else ("select", text, part.inputs))


def view_of(node: Node) -> Group:
    estimate = Estimate(0, 0, "memory")
    return Group("view", GroupKind.VIEW, (node,), node.inputs, (node,), None, estimate, "")


def test_a_slice_that_is_read_elsewhere_or_returned_stays() -> None:
    arena, part = sliced(5, 3, 8, dim=1, start=2, length=1)
    first, other = reshaped(arena, part, 5, 8), reshaped(arena, part, 40)

    def joined(*nodes: Node, returned: tuple[Node, ...]) -> list[tuple[Node, ...]]:
        graph: Any = SimpleNamespace(nodes=lambda: (*part.inputs, *nodes), outputs=returned)
        return [group.nodes for group in selects_joined(graph, map(view_of, nodes))]

    assert joined(part, first, returned=(first,)) == [(part, first)]
    assert joined(part, first, returned=(part, first)) == [(part,), (first,)]
    assert joined(part, first, other, returned=(first, other)) == [(part,), (first,), (other,)]
