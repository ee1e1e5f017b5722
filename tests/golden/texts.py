"""The canonical text of every stage for the kept graphs, small and captured ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from opweld.ir.check import check
from opweld.ir.graph import Graph
from opweld.ir.kernels.kernel import RowBlocks
from opweld.ir.kernels.source import Source
from opweld.ir.kernels.reduction import Lowered
from opweld.ir.text import to_text
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.traffic import with_traffic
from opweld.target import CPU, SM_90A, Target
from tests.examples import EXAMPLES
from tests.golden.cases import SMALL, small_graph

HERE = Path(__file__).parent
ROWS = 16  # captured with few rows: their number is a symbol of the graph
FILES = ("graph.txt", "plan.txt", "kernel.txt", "source.cu", "source.cpp")


def small_graphs() -> dict[str, Graph]:
    return {case.__name__: small_graph(case) for case in SMALL}


def example_graph(name: str) -> Graph:
    """The simplified graph of an example, captured without touching its weights."""
    import torch

    from opweld.capture import capture
    from opweld.ir.graph import arena_of
    from opweld.simplify import simplify

    spec = importlib.util.spec_from_file_location(f"golden_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROWS = ROWS
    with torch.device("meta"):
        model = module.Model(*module.get_init_inputs())
    inputs = tuple(module.get_inputs())
    captured = capture(model.to_empty(device="cpu").eval(), inputs, name=name)
    graph = captured.variants[0].graph
    return simplify(graph, arena_of(graph)).graph


def kernels_for(graph: Graph, target: Target, suffix: str = "") -> tuple[Lowered, ...]:
    return lower(make_plan(graph, target, suffix=suffix))


def texts_of(graph: Graph) -> dict[str, str]:
    """The texts by file name; of the sources what follows the device functions."""
    plan = make_plan(graph, SM_90A)
    check(plan)
    kernels = lower(plan)
    for fused in kernels:
        check(fused)
    on_cpu = kernels_for(graph, CPU)
    return {
        "graph.txt": to_text(graph),
        "plan.txt": to_text(with_traffic(plan, kernels, SM_90A)),
        "kernel.txt": "\n".join(map(to_text, kernels)),
        "source.cu": _own_text(render(graph.name, kernels, "cuda"), kernels),
        "source.cpp": _own_text(render(graph.name, on_cpu, "c++"), on_cpu),
    }


def _own_text(source: Source, kernels: tuple[Lowered, ...]) -> str:
    if not source.entry_points:
        return ""
    titled = (each.tail if isinstance(each, RowBlocks) else each for each in kernels)
    found = (source.text.find(f"// {each.group}: ") for each in titled)
    return source.text[next(place for place in found if place >= 0) :]
