"""Files of changed buffers, and of submodules with kernels, as packages."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models import by_submodules, updates
from tests.models.emitted import emit_module

from opweld.delivery import partial_result, publish


@pytest.mark.parametrize(
    "model",
    [updates.Averages, updates.Both, by_submodules.Routed],
    ids=lambda model: model.__name__,
)
def test_a_package_runs_the_same_kernels(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    emitted = emit_module(model().eval(), ((torch.randn(64, 8),), {}), tmp_path)
    name = f"package_{model.__name__.lower()}"
    with partial_result(tmp_path / name, emitted.compiled.text) as partial:
        publish(partial, tmp_path / name)
    monkeypatch.syspath_prepend(tmp_path)
    new = importlib.import_module(name).ModelNew.adopt(copy.deepcopy(emitted.original))
    old = emitted.original
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(64, 8)
            torch.testing.assert_close(new(x), old(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(list(new.buffers()), list(old.buffers()))
        assert kernels_in(lambda: new(x)) > 0
