"""The one node of autograd that a replayed step has: for hooks, graphs that are kept, gradients of
gradients, and who waits for single weights.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.replayed_steps import (
    SOURCE,
    STEPS,
    TWICE,
    gradients,
    inputs,
    model,
    ready,
    weighted,
)
from tests.behaviour.replaying import Watch, compiled
from torch import Tensor, nn
from torch.utils import checkpoint


@pytest.fixture(scope="module")
def file(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("replay"), SOURCE, **STEPS)


@pytest.fixture(scope="module")
def twice(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("replay"), TWICE, **STEPS)


def test_a_graph_that_is_retained_can_be_used_again(file: ModuleType) -> None:
    net = ready(file)
    loss, weights = weighted(net(*inputs())["scores"]), [net.table.weight, net.blocks[2].up.weight]
    first = torch.autograd.grad(loss, weights, retain_graph=True)
    second = torch.autograd.grad(loss, weights)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, weights)


def test_second_derivatives_are_python_s(twice: ModuleType) -> None:
    def second() -> tuple[Tensor, ...]:
        (first,) = torch.autograd.grad(
            weighted(net(*given)["scores"]), [given[1]], create_graph=True
        )
        return torch.autograd.grad(first.square().sum(), [given[1], net.table.weight])

    net, given = model(twice), inputs()
    given[1].requires_grad_()
    with Watch(twice) as ways:
        for _ in range(3):
            net(*given)
        found = second()
    assert ways[-2:] == ["replayed", "python"]  # the last is the backward's
    held = twice.ModelNew._opweld
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "replay", lambda *_: None)
        wanted = second()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivatives_of_what_has_changed_are_an_error(twice: ModuleType) -> None:
    net, given = ready(twice), inputs()
    scores = net(*given)["scores"]
    with torch.no_grad():
        net.blocks[0].down.bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(weighted(scores), [net.table.weight], create_graph=True)


@pytest.mark.parametrize(("of", "fails"), [("weight", True), ("bias", False)])
def test_what_a_backward_reads_must_not_change(file: ModuleType, of: str, fails: bool) -> None:
    net = ready(file)
    wanted = gradients(net, inputs())
    net.zero_grad(set_to_none=True)
    scores = net(*inputs())["scores"]
    with torch.no_grad():
        getattr(net.blocks[1].up, of).add_(1)
    if fails:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            weighted(scores).backward()
    else:
        weighted(scores).backward()
        assert torch.equal(net.blocks[0].up.weight.grad, wanted["blocks.0.up.weight"])


def test_many_gradients_at_once(twice: ModuleType) -> None:
    net = ready(twice)
    scores = net(*inputs())["scores"]
    weight = [net.blocks[0].up.weight]
    given = torch.randn(3, *scores.shape)
    (found,) = torch.autograd.grad(scores, weight, given, is_grads_batched=True)
    for place, each in enumerate(given):
        (wanted,) = torch.autograd.grad(net(*inputs())["scores"], weight, each)
        torch.testing.assert_close(found[place], wanted)


def test_under_autocast_gradients_stay_exact(file: ModuleType) -> None:
    net = ready(file)
    wanted = gradients(net, inputs())
    net.zero_grad(set_to_none=True)
    loss = weighted(net(*inputs())["scores"])
    with torch.autocast("cpu", torch.bfloat16):
        loss.backward()
    assert torch.equal(net.blocks[0].qkv.weight.grad, wanted["blocks.0.qkv.weight"])


def test_hooks_of_weights_run_once_a_step(file: ModuleType) -> None:
    net, seen = ready(file), []
    net.table.weight.register_hook(lambda grad: seen.append("gradient") or grad * 2)
    net.table.weight.register_post_accumulate_grad_hook(lambda _: seen.append("accumulated"))
    with Watch(file) as ways:
        found = gradients(net, inputs())
    assert ways == ["replayed"] and seen == ["gradient", "accumulated"]
    del seen[:]
    net.table.weight._backward_hooks.clear()
    torch.testing.assert_close(found["table.weight"], 2 * gradients(net, inputs())["table.weight"])


def test_what_is_hooked_is_not_recorded(file: ModuleType) -> None:
    """A hook would run once more for it, and what it does would be recorded."""
    net, seen = model(file), []
    net.table.weight.register_hook(lambda _: seen.append(1))
    for _ in range(4):
        with Watch(file) as ways:
            gradients(net, inputs())
        assert "replayed" not in ways
    assert len(seen) == 4


def _hooked(call: Callable[[], Any]) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        return call()


def _in_checkpoint(call: Callable[[], Any]) -> Any:
    return checkpoint.checkpoint(call, use_reentrant=False)


def _anomalies_seen(call: Callable[[], Any]) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        return call()


def _in_ddp(call: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.parallel.DistributedDataParallel, "_active_ddp_module", object())
        return call()


@pytest.mark.parametrize("way", [_hooked, _in_checkpoint, _anomalies_seen, _in_ddp])
def test_who_waits_for_single_weights_sees_python(file: ModuleType, way: Any) -> None:
    net = ready(file)
    wanted = gradients(net, inputs())
    net.zero_grad(set_to_none=True)
    with Watch(file) as ways:
        scores = way(lambda: net(*inputs())["scores"])
        weighted(scores).backward()
    assert set(ways) == {"python"}
    torch.testing.assert_close(net.blocks[0].up.weight.grad, wanted["blocks.0.up.weight"])


def test_functional_gradients_are_python_s(file: ModuleType) -> None:
    net = ready(file)
    wanted = gradients(net, inputs())["blocks.0.up.weight"]
    weights = {"blocks.0.up.weight": net.blocks[0].up.weight.detach()}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return weighted(torch.func.functional_call(net, weights, tuple(inputs()))["scores"])

    with Watch(file) as ways:
        found = torch.func.grad(loss)(weights)["blocks.0.up.weight"]
    assert "replayed" not in ways
    torch.testing.assert_close(found, wanted)


def test_inputs_go_with_the_backward_and_not_with_the_result(file: ModuleType) -> None:
    """Losses that are collected, with their graphs, would keep all batches otherwise."""
    net, given = ready(file), inputs()
    scores = net(*given)["scores"]
    x = weakref.ref(given[1])
    weighted(scores).backward(retain_graph=True)
    del given
    gc.collect()
    assert x() is not None, "it may be asked for again"
    weighted(scores).backward()
    gc.collect()
    assert x() is None and scores.grad_fn is not None


def test_what_a_forward_left_goes_with_its_graph(file: ModuleType) -> None:
    net = ready(file)
    backward, done = file.ModelNew._opweld.op("opweld_replay_backward"), []
    for use in (True, False):
        scores = net(*inputs())["scores"]
        node = scores.grad_fn
        program, left = node.its.second, node.left
        given = [torch.ones_like(scores), *node.saved_tensors[: len(node.its.read)]]
        assert len(backward(given, program, left, True)) == sum(node.its.found)
        if use:
            weighted(scores).backward()
        else:
            del scores, node
            gc.collect()
        with pytest.raises(IndexError):
            backward(given, program, left, True)
        done.append(use)
    assert done == [True, False]
