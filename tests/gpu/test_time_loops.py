"""On the device: loops over time, recorded and not, and their gradients."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.gpu.recording import recorded
from tests.models import time_loops
from tests.models.emitted import Emitted, emit_module
from tests.models.test_time_loops import adopted, agrees
from tests.models.time_loops import STEPS, WIDTH
from torch.utils import _pytree as pytree

pytestmark = pytest.mark.gpu


def made(model: Any, tmp_path: Path, training: bool = False) -> Emitted:
    torch.manual_seed(3)
    call = (torch.randn(64, STEPS, WIDTH),), {}
    return emit_module(model().train(training), call, tmp_path, target="cuda")


@pytest.mark.parametrize("model", time_loops.LOOPS, ids=lambda model: model.__name__)
def test_results_and_gradients_are_the_originals(model: Any, tmp_path: Path) -> None:
    emitted = made(model, tmp_path, model is time_loops.OfModules)
    module = adopted(emitted)
    for rows in (64, 1, 0):
        x = torch.randn(rows, STEPS, WIDTH, device="cuda")
        with torch.no_grad():
            assert kernels_in(partial(module, x)) > 0 or rows < 64
        agrees(module, emitted.original, x)


@pytest.mark.parametrize("model", [time_loops.Cell, time_loops.Scan, time_loops.Layers])
def test_calls_are_equal_bit_for_bit(model: Any, tmp_path: Path) -> None:
    module = adopted(made(model, tmp_path))
    x = torch.randn(64, STEPS, WIDTH, device="cuda")
    with torch.no_grad():
        first = pytree.tree_leaves(module(x))
        first = [each.clone() for each in first]
        for _ in range(200):
            again = pytree.tree_leaves(module(x))
            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_recorded_graph_runs_all_turns(tmp_path: Path) -> None:
    emitted = made(time_loops.Cell, tmp_path)
    new, old = adopted(emitted), copy.deepcopy(emitted.original)
    x = torch.randn(64, STEPS, WIDTH, device="cuda")
    with torch.no_grad():
        graph, shown = recorded(partial(new, x))
        x.normal_()
        graph.replay()
        torch.testing.assert_close(shown, old(x), rtol=1e-4, atol=1e-5)
