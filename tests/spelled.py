"""A captured graph as the PyTorch text that references are made of, run with gradients."""

from __future__ import annotations

from typing import Any

import torch
from tests.capturing import environment
from torch import nn

from opweld.emission.body import Body
from opweld.ir.graph import Graph


def run_spelled(graph: Graph, module: nn.Module, *args: Any) -> list[torch.Tensor]:
    """The graph's outputs (no symbolic sizes in it) by its text, on the module's own inputs."""
    names = environment(module, args, {})
    body = Body(graph, "_device")
    for source in (*graph.inputs, *graph.weights):
        body.texts[source.serial] = source.attrs.access
    results = [body.tensor(node) for node in graph.outputs]
    names["_device"] = torch.device("cpu")
    exec("\n".join([*body.lines, f"_results = [{', '.join(results)}]"]), names)
    return names["_results"]


def gradients(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Of the outputs, weighted at random in the same way at every call."""
    torch.manual_seed(3)
    weighted = [(o, torch.randn(o.shape, dtype=o.dtype)) for o in outputs if o.is_floating_point()]
    terms = [(o * w).sum() for o, w in weighted if o.requires_grad]
    if not terms:
        return [None] * len(inputs)
    return list(torch.autograd.grad(sum(terms), inputs, allow_unused=True))
