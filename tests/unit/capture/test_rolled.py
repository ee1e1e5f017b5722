"""Loops mean what the turns that were written out mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.models import time_loops
from tests.models.time_loops import STEPS, WIDTH

from opweld.capture import capture, variants
from opweld.capture.loops.rolled import rolled
from opweld.ir.attrs import CallAttrs, Operand
from opweld.ir.graph import Graph
from opweld.ir.loop import loop_of
from opweld.ir.numpy.interpret import interpret_outputs

LOOPS = (*time_loops.LOOPS, *time_loops.MORE_LOOPS)
LOOPS = tuple(model for model in LOOPS if model is not time_loops.OfModules)  # drops elements


def calls(attrs: CallAttrs, operands: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    """PyTorch's, of the operands and numbers."""
    space, name, overload = attrs.target.split(".")
    tensors = [torch.from_numpy(np.asarray(each)) for each in operands]
    given = [tensors[a.index] if isinstance(a, Operand) else a for a in attrs.arguments]
    made = getattr(getattr(getattr(torch.ops, space), name), overload)(*given)
    return tuple(each.numpy() for each in (made if isinstance(made, tuple | list) else (made,)))


def outputs(graph: Graph) -> tuple[np.ndarray, ...]:
    drawn = np.random.default_rng(4)
    feeds = {
        node.attrs.access: drawn.standard_normal(
            [size if isinstance(size, int) else 3 for size in node.type.shape]
        ).astype(np.float32)
        for node in (*graph.inputs, *graph.weights)
    }
    return interpret_outputs(graph, feeds, calls=calls)


@pytest.mark.parametrize("model", LOOPS, ids=lambda model: model.__name__)
def test_a_loop_gives_what_its_turns_give(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    module, x = model().eval(), torch.randn(4, STEPS, WIDTH)
    monkeypatch.setattr(variants, "rolled", lambda graph, long: graph)
    flat = capture(module, (x,), name="model").variants[0].graph
    loops = rolled(flat)
    assert any(map(loop_of, loops.nodes())) and not any(map(loop_of, flat.nodes()))
    for found, wanted in zip(outputs(loops), outputs(flat), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
