"""Training mode of emitted files: values, buffers, gradients and random numbers are eager's."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models.comparing import (
    assert_close,
    assert_delivered,
    assert_graded,
    assert_same_gradients,
    copied,
    run,
    tensors,
)
from tests.models.emitted import Emitted, emit_module
from tests.models.training import Frozen, LongRows, Norms, Residual, Vision, norms_call
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

# What a gradient ends in.
LEAVES = {"AccumulateGrad", "NoneType"}


def images(batch: int, seed: int = 2) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(batch, 3, 8, 8)


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("vision")
    asked = {"mode": "both", "autocast": ("bfloat16",)}
    return emit_module(Vision().eval(), ((images(6),), {}), folder, **asked)


def both(emitted: Emitted) -> tuple[nn.Module, nn.Module]:
    """The new module and the original, in training, with states of their own."""
    return copy.deepcopy(emitted.new).train(), copy.deepcopy(emitted.original).train()


def num_kernels(emitted: Emitted, state: str = "training") -> int:
    fused = emitted.compiled.fused
    return len([row for row in emitted.compiled.plan_rows if row in fused and row.variant == state])


def assert_same_state(new: nn.Module, old: nn.Module) -> None:
    """Buffers as exact as eager's; counts are the same."""
    for (name, ours), (_, theirs) in zip(new.named_buffers(), old.named_buffers(), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
        assert_close(ours, theirs)


def assert_trains(emitted: Emitted, calls: Sequence[tuple[Any, ...]], graded: bool = True) -> None:
    """Several calls with kernels of ours: results, gradients, buffers, what is drawn afterwards."""
    new, old = both(emitted)
    assert kernels_in(lambda: copy.deepcopy(new)(*copied(calls[0]))) == num_kernels(emitted) > 0
    for args in calls:
        assert_same_gradients(new, old, args, {})
        before, found = copy.deepcopy(old), []
        for module in (new, old):
            results = run(module, args, {})
            found.append([*tensors(results), torch.rand(2)])
        if graded:
            assert_graded(found[0][:-1], found[1][:-1], before, args, {})
        assert_close(*found)
        assert_same_state(new, old)


def test_values_buffers_and_gradients(vision: Emitted) -> None:
    assert num_kernels(vision) == 3
    norms = ("torch.batch_norm(conv2d, norm_weight, norm_bias", ", last_weight, last_bias")
    assert all(norm in vision.compiled.text for norm in norms)
    assert_trains(vision, [(images(6),), (images(9, 3),), (images(5, 4),)], graded=False)


def test_statistics_are_as_exact_as_eagers(vision: Emitted) -> None:
    """Against float64, where the mean is far from zero."""
    new, old = both(vision)
    exact = copy.deepcopy(old).double()
    x = images(64) + 3
    with torch.no_grad():
        for module, value in ((new, x), (old, x), (exact, x.double())):
            module.drop.p = 0.0 if module is exact else module.drop.p
            module.norm(module.conv(value)) if module is exact else run(module, (value,), {})
    for name in ("running_mean", "running_var"):
        ours, theirs, truth = (getattr(module.norm, name) for module in (new, old, exact))
        assert_delivered(ours, theirs, truth)


def test_numbers_are_drawn_in_the_order_of_memory(vision: Emitted) -> None:
    """Channels that lie last, in the input or in a weight, are drawn for as by eager."""
    last = images(4).contiguous(memory_format=torch.channels_last)
    new, old = both(vision)
    for x, order in ((last, torch.contiguous_format), (images(4), torch.channels_last)):
        for module in (new, old):
            module.conv.to(memory_format=order)
        assert_close(run(new, (x,), {}), run(old, (x,), {}))
        assert kernels_in(lambda: copy.deepcopy(new)(x)) == 0  # noqa: B023


def test_modes_take_turns(vision: Emitted) -> None:
    new, old = both(vision)
    for training in (True, False, True, True, False):
        for module in (new, old):
            module.train(training)
        assert_close(run(new, (images(4),), {}), run(old, (images(4),), {}))
        assert_same_state(new, old)
        wanted = num_kernels(vision, "training" if training else "")
        assert kernels_in(lambda: copy.deepcopy(new)(images(4))) == wanted


@pytest.mark.parametrize("frozen", ["norm", "last", "drop"])
def test_a_part_in_another_mode_runs_the_original(vision: Emitted, frozen: str) -> None:
    new, old = both(vision)
    for module in (new, old):
        module.get_submodule(frozen).eval()
    assert kernels_in(lambda: copy.deepcopy(new)(images(4))) == 0
    assert_close(run(new, (images(4),), {}), run(old, (images(4),), {}))
    assert_same_state(new, old)


def test_one_value_a_channel_is_refused_as_by_eager(vision: Emitted) -> None:
    new, old = both(vision)
    for module in (new, old):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            run(module, (images(1),), {})
    assert_same_state(new, old)


def test_states_are_copied_saved_and_loaded(vision: Emitted) -> None:
    new, old = both(vision)
    run(new, (images(4),), {})
    old.load_state_dict(new.state_dict())
    other = copy.deepcopy(new)
    held = other.norm.running_mean
    for module in (other, old):
        run(module, (images(5, 9),), {})
    assert_same_state(other, old)
    assert other.norm.running_mean is held and int(new.norm.num_batches_tracked) == 1
    other.load_state_dict(new.state_dict())
    assert_same_state(other, new)
    assert kernels_in(lambda: other(images(4))) == num_kernels(vision)


def test_without_gradients_the_statistics_move_too(vision: Emitted) -> None:
    for mode in (torch.no_grad, torch.inference_mode):
        new, old = both(vision)
        for module in (new, old):
            with mode():
                run(module, (images(4),), {})
        assert_same_state(new, old)
    assert_same_gradients(new, old, (images(4),), {})


def test_the_backward_moves_and_draws_nothing(vision: Emitted) -> None:
    new, _ = both(vision)
    result = run(new, (images(4),), {})
    before = {name: buffer.clone() for name, buffer in new.named_buffers()}
    state = torch.get_rng_state()
    result.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(buffer, before[name]) for name, buffer in new.named_buffers())


def test_torch_func_is_refused_as_by_eager(vision: Emitted) -> None:
    new, old = both(vision)

    def gradients(module: nn.Module) -> Any:
        def loss(parameters: Any) -> torch.Tensor:
            return torch.func.functional_call(module, parameters, (images(4),)).square().sum()

        return torch.func.grad(loss)(dict(module.named_parameters()))

    for module in (new, old):
        with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
            gradients(module)
    assert_same_state(new, old)


def test_compiled_whole(vision: Emitted) -> None:
    new, old = both(vision)
    compiled = torch.compile(new, fullgraph=True, backend="aot_eager")
    for batch in (4, 6):
        assert_close(run(compiled, (images(batch),), {}), run(old, (images(batch),), {}))
    assert_same_state(new, old)


def test_every_norm(tmp_path: Path) -> None:
    torch.manual_seed(1)
    emitted = emit_module(Norms().eval(), (norms_call(6), {}), tmp_path, mode="both")
    assert_trains(emitted, [norms_call(6), norms_call(2), norms_call(9)])


def test_a_norm_that_is_frozen_and_one_called_twice(tmp_path: Path) -> None:
    torch.manual_seed(1)
    emitted = emit_module(Frozen().eval(), ((torch.randn(6, 5),), {}), tmp_path, mode="both")
    assert_trains(emitted, [(torch.randn(n, 5),) for n in (6, 2, 33)])


def test_kernels_under_one_gradient(tmp_path: Path) -> None:
    torch.manual_seed(1)
    calls = [(torch.randn(n, 1, 64, 64) + 1,) for n in (16, 2, 9)]
    emitted = emit_module(LongRows().eval(), (calls[0], {}), tmp_path, mode="both")
    assert num_kernels(emitted) == 2
    assert "torch.batch_norm(x, norm_weight, norm_bias" in emitted.compiled.text
    assert_trains(emitted, calls)
    new, _ = both(emitted)
    result = new(calls[0][0])
    assert type(result.grad_fn).__name__ == "ClosedBackward"
    assert {type(given).__name__ for given, _ in result.grad_fn.next_functions} <= LEAVES
    compiled, (_, old) = torch.compile(new, fullgraph=True, backend="aot_eager"), both(emitted)
    old(calls[0][0])
    assert_close(run(compiled, calls[2], {}), run(old, calls[2], {}))
    assert_same_state(new, old)


def test_bfloat16(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()).bfloat16().eval()
    calls = [(torch.randn(n, 4, 6, 6).bfloat16() * 3,) for n in (6, 2, 9)]
    assert_trains(emit_module(module, (calls[0], {}), tmp_path, mode="both"), calls)


def test_under_autocast(vision: Emitted) -> None:
    new, old = both(vision)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = num_kernels(vision, "training, autocast bfloat16")
        assert kernels_in(lambda: copy.deepcopy(new)(images(4))) == wanted > 0
        assert_close(run(new, (images(4),), {}), run(old, (images(4),), {}), coarse=True)
    for ours, theirs in zip(new.buffers(), old.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-6)


class Calls(TorchDispatchMode):
    """Counts what PyTorch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def test_a_backward_repeats_no_product_of_the_forward(vision: Emitted) -> None:
    """No statistics, convolutions and products: as many products as eager's backward has."""
    found = []
    for module in both(vision):
        torch.manual_seed(5)
        loss = module(images(6)).square().sum()
        with Calls() as calls:
            torch.autograd.grad(loss, list(module.parameters()))
        found.append(calls.counts)
    ours, theirs = found
    assert ours["native_batch_norm_backward"] == theirs["native_batch_norm_backward"] == 2
    assert ours["max_pool2d_with_indices_backward"] == 1
    # The second norm is read by a gelu, and made again from its statistics: elementwise.
    assert ours["native_batch_norm"] + ours["_native_batch_norm_legit_no_stats"] == 1
    assert "_normalised(conv2d" not in vision.compiled.text
    for name in ("convolution", "addmm", "gelu", "relu", "var_mean"):
        assert ours[name] == 0
    assert (ours["mm"], ours["convolution_backward"]) == (theirs["mm"], 1)


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("residual")
    return emit_module(Residual().train(), ((images(6),), {}), folder)


@pytest.mark.parametrize("wanted", ["", "norm.0.weight", "norm.2.bias", "conv.0.weight", "short"])
def test_gradients_are_as_exact_as_eagers(residual: Emitted, wanted: str) -> None:
    """Against float64, where the mean is far from zero: of all parameters, or of some."""
    new, old = both(residual)
    exact = copy.deepcopy(old).double()
    found = []
    for module, x in ((new, images(6) + 3), (old, images(6) + 3), (exact, images(6).double() + 3)):
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name.startswith(wanted))
        parameters = [each for each in module.parameters() if each.requires_grad]
        found.append(torch.autograd.grad(module(x).square().sum(), parameters))
    assert kernels_in(lambda: copy.deepcopy(new)(images(6))) == num_kernels(residual, "") == 3
    names = [name for name, each in exact.named_parameters() if each.requires_grad]
    for name, *values in zip(names, *found, strict=True):
        # Biases before a norm have no gradient but roundings.
        if name not in ("conv.0.bias", "conv.1.bias"):
            assert_delivered(*values)


def test_gradients_of_gradients_are_eagers(vision: Emitted) -> None:
    found = []
    for module in both(vision):
        torch.manual_seed(5)
        x = images(6).requires_grad_()
        (first,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        wanted = [module.conv.weight, module.norm.weight, module.norm.bias, module.last.weight]
        found.append(torch.autograd.grad(first.square().sum(), wanted))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))
