"""Loops over time stay loops: in the graph, in the emitted forward, and in what they give."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models import time_loops
from tests.models.emitted import Emitted, compiled, emit_module
from tests.models.time_loops import STEPS, WIDTH
from torch import nn
from torch.utils import _pytree as pytree

from opweld.capture import capture
from opweld.ir.loop import loop_of


def made(model: Any, tmp_path: Path, training: bool = False, **asked: Any) -> Emitted:
    torch.manual_seed(3)
    example = ((torch.randn(16, STEPS, WIDTH),), {})
    return emit_module(model().train(training), example, tmp_path, **asked)


def adopted(emitted: Emitted) -> Any:
    return type(emitted.new).adopt(copy.deepcopy(emitted.original))


def loops_in(model: Any) -> list[Any]:
    captured = capture(model().eval(), (torch.randn(16, STEPS, WIDTH),), name="model")
    return [loop for n in captured.variants[0].graph.nodes() if (loop := loop_of(n)) is not None]


@pytest.mark.parametrize("model", time_loops.LOOPS, ids=lambda model: model.__name__)
def test_results_and_gradients_are_the_originals(model: Any, tmp_path: Path) -> None:
    emitted = made(model, tmp_path, training=model is time_loops.OfModules)
    module = adopted(emitted)
    for rows in (16, 1, 0):
        x = torch.randn(rows, STEPS, WIDTH)
        with torch.no_grad():
            assert kernels_in(partial(module, x)) >= 8
        agrees(module, emitted.original, x)


@pytest.mark.parametrize("model", [time_loops.Cell, time_loops.Scan, time_loops.Layers])
def test_gradients_come_through_the_kernels_of_a_loop(model: Any, tmp_path: Path) -> None:
    emitted = made(model, tmp_path, True)
    module, x = adopted(emitted), torch.randn(9000, STEPS, WIDTH, requires_grad=True)
    assert kernels_in(lambda: module(x)) >= STEPS
    given, old = x.detach(), emitted.original
    exact = gradients(copy.deepcopy(old).double(), given.double())
    eager = [copy.deepcopy(old)]
    if model is time_loops.Cell:  # its layer of the input is one product of all steps now
        eager.append(time_loops.OfAllSteps())
        eager[1].load_state_dict(old.state_dict())
    errors = [distances(gradients(each, given), exact) for each in (module, *eager)]
    for found, *others in zip(*errors, strict=True):
        assert found <= 4 * max(others)


def distances(found: list[torch.Tensor], exact: list[torch.Tensor]) -> list[float]:
    return [float((a - b).abs().max()) for a, b in zip(found, exact, strict=True)]


def gradients(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    sum(each.square().sum() for each in pytree.tree_leaves(module(x))).backward()
    return [each.grad.double() for each in (x, *module.parameters())]


def agrees(new: nn.Module, old: nn.Module, x: torch.Tensor) -> None:
    """Results and gradients, without gradients asked for and with."""
    new, old = copy.deepcopy(new), copy.deepcopy(old)
    found = []
    for module in (new, old):
        torch.manual_seed(5)  # for what drops elements
        given = x.clone().requires_grad_()
        with torch.no_grad():
            bare = module(x)
        results = [*pytree.tree_leaves(module(given))]
        sum((n + 1) * each.square().sum() for n, each in enumerate(results)).backward()
        found.append((bare, results, [each.grad for each in (given, *module.parameters())]))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("model", time_loops.LOOPS, ids=lambda model: model.__name__)
def test_the_graph_has_loops(model: Any) -> None:
    turns = {
        time_loops.NoFirstState: [STEPS - 1],
        time_loops.BothWays: [STEPS, STEPS],
        time_loops.Layers: [STEPS] * 3,
        time_loops.Windows: [STEPS // 2 - 2],
        time_loops.Turns: [20],
        time_loops.TwoStates: [STEPS - 2],
        time_loops.FastWeights: [STEPS - 1],  # the last state is not read
    }
    assert [loop.turns for loop in loops_in(model)] == turns.get(model, [STEPS])


@pytest.mark.parametrize("model", time_loops.WRITTEN_OUT, ids=lambda model: model.__name__)
def test_what_is_no_loop_is_written_out(model: Any, tmp_path: Path) -> None:
    assert loops_in(model) == []
    emitted = made(model, tmp_path)
    x = torch.randn(3, STEPS, WIDTH)
    agrees(adopted(emitted), emitted.original, x)


def test_a_part_that_all_turns_read_is_none_of_a_turn(tmp_path: Path) -> None:
    emitted = made(time_loops.OneFixedPart, tmp_path)
    agrees(adopted(emitted), emitted.original, torch.randn(3, STEPS, WIDTH))


def test_more_turns_add_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    for steps in (STEPS, 2 * STEPS):
        torch.manual_seed(3)
        account = compiled(time_loops.Cell().eval(), ((torch.randn(16, steps, WIDTH),), {}), "cpu")
        texts.append(account.text.splitlines())
    assert len(texts[0]) == len(texts[1])


def test_layers_have_the_kernels_of_a_loop_in_common(tmp_path: Path) -> None:
    emitted = made(time_loops.Layers, tmp_path)
    names = [row.name for row in emitted.compiled.fused if row.name.endswith("_loop")]
    assert len(set(names)) == 1
    assert not any(row.name.endswith("_loop_2") for row in emitted.compiled.fused)


def test_linear_layers_of_the_steps_are_one_matmul_before_the_loop() -> None:
    def products(graph: Any) -> int:
        return sum(str(node.attrs) == "aten.linear.default" for node in graph.nodes())

    for model, before, inside in (
        (time_loops.Cell, 1, 1),
        (time_loops.Backwards, 1, 1),
        (time_loops.Turns, 0, 1),
        (time_loops.TwoStates, 0, 1),
        (time_loops.StepsLast, 0, 2),
        (time_loops.EverySecond, 0, 2),
        (time_loops.FastWeights, 1, 1),  # the last turn stands behind the loop
    ):
        graph = (
            capture(model().eval(), (torch.randn(16, STEPS, WIDTH),), name="model")
            .variants[0]
            .graph
        )
        bodies = [loop.body for n in graph.nodes() if (loop := loop_of(n)) is not None]
        assert (products(graph), [*map(products, bodies)]) == (before, [inside])
