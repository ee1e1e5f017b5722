"""Outputs that simplification would make one tensor stay two."""

from __future__ import annotations

import torch
from tests.capturing import graph_of, module_of, ops_of

from opweld.ir.check import check
from opweld.ir.graph import arena_of
from opweld.ir.ops import Op
from opweld.plan import make_plan
from opweld.simplify import simplify
from opweld.target import SM_90A


def test_two_comparisons_that_only_nan_decides_are_made_twice_in_their_new_form() -> None:
    """The old form of the second one is what the compiler of CUDA takes for always true."""
    module = module_of(lambda self, x: (x.abs() > -1, x.abs() > -2))
    graph = graph_of(module, torch.randn(4, 6))
    simplified = simplify(graph, arena_of(graph)).graph
    assert ops_of(simplified) == ["abs", "eq", "eq"]
    first, second = simplified.outputs
    assert first is not second
    plan = make_plan(simplified, SM_90A)
    check(plan)
    assert len({node.serial for node in plan.graph.outputs}) == 2
    assert all(node.op is Op.EQ for node in plan.graph.outputs)
