"""Graphs of products and of what follows them, for the rules that change what is computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tests.rules.torch_ops import run_torch

from opweld.ir.attrs import CallAttrs, Operand, ReduceAttrs, ShapeAttrs
from opweld.ir.graph import Arena, Graph, Node
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

ROWS, DEPTH, FEATURES = 6, 16, 24


@dataclass(slots=True)
class Maker:
    """Makes nodes in one arena."""

    arena: Arena
    dtype: DType = DType.F64

    def call(self, target: str, shape, *operands: Node) -> Node:
        places = tuple(map(Operand, range(len(operands))))
        result = TensorType(operands[0].type.dtype, tuple(shape))
        return self.arena.call(operands, CallAttrs(f"aten.{target}", places, (), (result,), ""))

    def input(self, name: str, *shape) -> Node:
        return self.arena.source(Op.INPUT, name, name, TensorType(self.dtype, shape))

    def weight(self, name: str, *shape) -> Node:
        return self.arena.source(Op.WEIGHT, name, f"self.{name}", TensorType(self.dtype, shape))

    def linear(self, x: Node, features: int = FEATURES, name: str = "fc", bias: bool = True):
        weight = self.weight(f"{name}.weight", features, x.type.shape[-1])
        operands = [x, weight, *([self.weight(f"{name}.bias", features)] if bias else [])]
        return self.call("linear.default", (*x.type.shape[:-1], features), *operands)

    def number(self, value: float) -> Node:
        return self.arena.const(value, self.dtype.compute)

    def make(self, op: Op, *operands: Node, attrs=None) -> Node:
        return self.arena.make(op, *operands, **({"attrs": attrs} if attrs is not None else {}))

    def sum(self, x: Node, *axes: int) -> Node:
        return self.make(Op.SUM, x, attrs=ReduceAttrs(axes))

    def reshape(self, x: Node, *shape) -> Node:
        return self.make(Op.RESHAPE, x, attrs=ShapeAttrs(shape))


def feeds_of(graph: Graph, seed: int = 0, sizes: dict[str, int] | None = None):
    """Normal numbers for all inputs and weights, as arrays of float64."""
    rng = np.random.default_rng(seed)
    found = {}
    for node in (*graph.inputs, *graph.weights):
        shape = [s if isinstance(s, int) else (sizes or {}).get(str(s), 5) for s in node.type.shape]
        found[node.attrs.access] = rng.normal(size=shape)
    return found


def as_tensors(feeds, dtype=torch.float64):
    return {name: torch.tensor(value, dtype=dtype) for name, value in feeds.items()}


def values_of(graph: Graph, feeds) -> list[np.ndarray]:
    """The outputs by PyTorch."""
    given = run_torch(graph, feeds)
    given = given if isinstance(given, tuple) else (given,)
    return [each.detach().to(torch.float64).numpy() for each in given]


def gradients_of(graph: Graph, feeds) -> dict[str, np.ndarray]:
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in feeds.items()}
    given = run_torch(graph, leaves)
    given = given if isinstance(given, tuple) else (given,)
    total = sum(
        (each * torch.linspace(0.5, 2, each.numel()).reshape(each.shape)).sum() for each in given
    )
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    zeros = (torch.zeros_like(leaf) for leaf in leaves.values())
    return {
        name: (z if g is None else g).numpy()
        for name, g, z in zip(leaves, found, zeros, strict=True)
    }
