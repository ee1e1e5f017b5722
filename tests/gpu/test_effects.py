"""On the device: buffers that a forward changes, and models whose submodules alone have kernels."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.gpu.recording import recorded
from tests.models import by_submodules, updates
from tests.models.emitted import Emitted, emit_module
from tests.models.test_by_submodules import adopted
from tests.models.test_by_submodules import agrees as agree_by_submodules
from tests.models.test_updates import agrees, assert_equal_state

pytestmark = pytest.mark.gpu


def made(model: Any, tmp_path: Path, training: bool = True) -> Emitted:
    torch.manual_seed(3)
    call = (torch.randn(600, 8),), {}
    return emit_module(model().train(training), call, tmp_path, target="cuda")


@pytest.mark.parametrize("model", updates.FUSED, ids=lambda model: model.__name__)
def test_buffers_are_left_as_eager_leaves_them(model: Any, tmp_path: Path) -> None:
    emitted = made(model, tmp_path)
    for rows in (2, 1000):
        x = torch.randn(rows, 8, device="cuda")
        with torch.no_grad():
            assert kernels_in(partial(adopted(emitted), x)) > 0
        agrees(emitted, x)


def test_a_recorded_graph_changes_buffers_at_each_replay(tmp_path: Path) -> None:
    emitted = made(updates.Averages, tmp_path)
    new, old = adopted(emitted), copy.deepcopy(emitted.original)
    x = torch.randn(64, 8, device="cuda")
    with torch.no_grad():
        graph, shown = recorded(partial(new, x), partial(old, x))
        for _ in range(5):
            graph.replay()
            expected = old(x)
        torch.testing.assert_close(shown, expected, rtol=1e-4, atol=1e-5)
    assert_equal_state(new, old)


@pytest.mark.parametrize(("model", "names"), by_submodules.FUSED, ids=str)
def test_submodules_run_their_kernels(model: Any, names: tuple[str, ...], tmp_path: Path) -> None:
    emitted = made(model, tmp_path, training=False)
    module = adopted(emitted)
    assert {type(child).__name__ for child in module.modules()} >= set(names)
    for rows in (1, 33, 5000):
        x = torch.randn(rows, 8, device="cuda")
        with torch.no_grad():
            assert kernels_in(partial(module, x)) > 0
            results = [module(x) for _ in range(20)]
        assert all(torch.equal(results[0], each) for each in results)
        agree_by_submodules(module, emitted.original, x)
