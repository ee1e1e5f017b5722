"""Buffers that a forward changes: kernels compute their new values, as eager would leave them."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models import updates
from tests.models.emitted import Emitted, emit_module
from tests.models.test_modules import adopted, seen
from torch import nn


def made(model: Any, tmp_path: Path, training: bool = True) -> Emitted:
    torch.manual_seed(3)
    return emit_module(model().train(training), ((torch.randn(6, 8),), {}), tmp_path)


@pytest.mark.parametrize("model", updates.FUSED, ids=lambda model: model.__name__)
def test_results_gradients_and_buffers_are_the_originals(model: Any, tmp_path: Path) -> None:
    emitted = made(model, tmp_path)
    assert emitted.num_kernels > 0
    for batch in (2, 6):
        x = torch.randn(batch, 8)
        assert kernels_in(partial(adopted(emitted), x)) > 0
        agrees(emitted, x)


def agrees(emitted: Emitted, x: torch.Tensor) -> None:
    """Results, gradients and buffers, three times in a row; without gradients also by
    torch.compile, whose backward reads buffers after they have changed, of the original, too.
    """
    original, new = copy.deepcopy(emitted.original), adopted(emitted)
    for _ in range(3):
        torch.testing.assert_close(seen(new, (x,)), seen(original, (x,)), rtol=1e-4, atol=1e-5)
    original, new = copy.deepcopy(emitted.original), adopted(emitted)
    whole = torch.compile(new, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(whole(x), original(x), rtol=1e-4, atol=1e-5)
    assert_equal_state(new, original)


@pytest.mark.parametrize(("model", "words"), updates.KEPT, ids=lambda value: str(value)[:30])
def test_what_would_show_elsewhere_is_the_originals(model: Any, words: str, tmp_path: Path) -> None:
    emitted = made(model, tmp_path)
    (row,) = emitted.compiled.plan_rows
    assert words in row.reason


def test_a_buffer_is_the_same_tensor_unless_the_user_assigns_another(tmp_path: Path) -> None:
    for model, same in ((updates.Averages, True), (updates.Assigns, False)):
        (tmp_path / model.__name__).mkdir()
        module = adopted(made(model, tmp_path / model.__name__))
        held, steps, x = module.mean, getattr(module, "steps", None), torch.randn(4, 8)
        for _ in range(3):
            assert kernels_in(partial(module, x)) > 0
        assert (module.mean is held) == same
        assert not module.mean.requires_grad
        if same:  # `self.steps += 1` is no other tensor
            assert module.steps is steps and module.steps == 3


def test_an_input_in_the_memory_of_a_buffer_is_the_originals(tmp_path: Path) -> None:
    emitted = made(updates.Averages, tmp_path)
    new, old = adopted(emitted), copy.deepcopy(emitted.original)
    for module in (new, old):
        module.mean = torch.randn(48, generator=torch.Generator().manual_seed(1))[40:]
    x = new.mean.new_empty(0).set_(new.mean.untyped_storage(), 0, (6, 8), (8, 1))
    y = old.mean.new_empty(0).set_(old.mean.untyped_storage(), 0, (6, 8), (8, 1))
    assert kernels_in(lambda: new(x)) == 0
    old(y)
    torch.testing.assert_close(new.mean, old.mean)


def test_training_moves_buffers_as_the_original_does(tmp_path: Path) -> None:
    emitted = made(updates.Blocks, tmp_path)
    new, old = adopted(emitted), copy.deepcopy(emitted.original)
    for module in (new, old):
        steps = torch.optim.SGD(module.parameters(), lr=0.1)
        torch.manual_seed(7)
        for _ in range(5):
            steps.zero_grad()
            module(torch.randn(6, 8)).square().mean().backward()
            steps.step()
    assert_equal_state(new, old)


def assert_equal_state(new: nn.Module, old: nn.Module) -> None:
    state = old.state_dict()
    assert set(state) == set(new.state_dict())
    for name, value in new.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=1e-4, atol=1e-5, msg=name)


def test_what_is_assigned_has_the_gradient_that_eager_gives_it(tmp_path: Path) -> None:
    emitted, x = made(updates.AssignsAlone, tmp_path), torch.randn(6, 8)
    grads = []
    for module in (adopted(emitted), copy.deepcopy(emitted.original)):
        module(x)
        assert module.mean.requires_grad
        (module.mean * torch.linspace(-1, 1, 8)).sum().backward()
        grads.append(module.linear.weight.grad)
    torch.testing.assert_close(*grads)


def test_a_buffer_that_asks_for_a_gradient_is_changed_too(tmp_path: Path) -> None:
    emitted, x = made(updates.Averages, tmp_path), torch.randn(6, 8)
    new, old = adopted(emitted), copy.deepcopy(emitted.original)
    for module in (new, old):
        module.mean.requires_grad_()
        module(x)
        assert module.mean.is_leaf
    torch.testing.assert_close(new.mean, old.mean)
