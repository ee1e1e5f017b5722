"""Runs attention of modules on the CPU: captured, planned for CUDA, and its kernels emulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tests.capturing import captured_plainly
from tests.emulation.emulate import emulate
from tests.kernels import memory_of, poisoned
from torch import nn

from opweld.ir.expr import evaluate
from opweld.ir.graph import Graph, arena_of
from opweld.ir.kernels.kernel import Attending
from opweld.ir.numpy.interpret import bind_sizes
from opweld.ir.plan import Group, GroupKind, Plan
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.cuda.products.attention import counts, entry_integers
from opweld.simplify import simplify
from opweld.target import SM_90A, Target


@dataclass(frozen=True)
class Compiled:
    """A module whose forward became one attention kernel."""

    plan: Plan
    group: Group
    attending: Attending
    text: str


def graph_of(module: nn.Module, *inputs: Any) -> Graph:
    graph = captured_plainly(module, *inputs).graph
    return simplify(graph, arena_of(graph)).graph


def compiled(module: nn.Module, *inputs: Any, target: Target = SM_90A) -> Compiled:
    """Fails where the forward is anything but one attention kernel and views."""
    plan = make_plan(graph_of(module, *inputs), target)
    fused = [group for group in plan.groups if group.kind is not GroupKind.VIEW]
    assert [g.kind for g in fused] == [GroupKind.ATTENTION], [(g.name, g.reason) for g in fused]
    (attending,) = lower(plan)
    assert isinstance(attending, Attending)
    return Compiled(plan, fused[0], attending, render("model", (attending,), "cuda").text)


def attend(made: Compiled, feeds: Sequence[torch.Tensor], **options: Any) -> np.ndarray:
    """The result of the kernel on the forward's tensors, of any strides."""
    graph, attending = made.plan.graph, made.attending
    arrays = [_array(tensor) for tensor in feeds]
    named = {n.attrs.access: a for n, a in zip(graph.inputs, arrays, strict=True)}
    sizes = bind_sizes(graph, named, {})
    operands = [named[node.attrs.access] for node in made.group.inputs]
    read = {b.name: operands[b.source] for b in attending.buffers if not b.written}
    result = made.group.outputs[0]
    shape = [evaluate(size, sizes) for size in result.type.shape]
    out = poisoned(shape, result.type.dtype)
    integers = [
        sizes[e.name]
        if e.buffer is None or e.axis is None
        else read[e.buffer].strides[e.axis] // read[e.buffer].itemsize
        for e in entry_integers(attending)
    ]
    *extents, step = (int(evaluate(size, sizes)) for size in counts(attending))
    flat = [
        out if b.written else np.ascontiguousarray(read[b.name]) for b in attending.epilogue.buffers
    ]
    memory = [memory_of(read[b.name]) for b in attending.scores.buffers]
    workspace = np.full(_workspace_bytes(made, extents), 0xFF, np.uint8)
    largest = options.pop("largest", max(a.size for a in (*memory, *flat)))
    arguments = [*memory, *flat, *integers, *extents, step, largest, 1, workspace]
    emulate(made.text, f"{attending.group}_attend", arguments, **options)
    return out


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


_NEEDS = """
extern "C" int {group}_needs(int64_t a, int64_t b, int64_t c, int64_t d, void* out, void*) {{
  *static_cast<int64_t*>(out) = {group}_workspace(a, b, c, d);
  return 0;
}}
"""


def _workspace_bytes(made: Compiled, extents: Sequence[int]) -> int:
    group = made.attending.group
    needed = np.zeros(1, np.int64)
    emulate(made.text + _NEEDS.format(group=group), f"{group}_needs", [*extents, needed])
    return max(int(needed[0]), 1)
