"""Steps of files with kernels for gradients: what people do around a backward, beside eager."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.behaviour.emitted import Pair, kernels_in
from tests.behaviour.stepping import (
    backward,
    batch,
    gradients,
    loss_of,
    parameters,
    require_near,
    require_same,
    rms,
    sides,
)
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.func import functional_call, grad, jacrev, vjp, vmap
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

Found = Sequence[Tensor | None]
STEPS = 50


def test_forward_and_backward_are_kernels(trained: Pair) -> None:
    new, *_ = sides(trained)
    loss: list[Tensor] = []
    assert kernels_in(lambda: loss.append(loss_of(new(batch(new, 0))))) > 0
    assert kernels_in(loss[0].backward) > 0


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.05),
    "SGD, momentum": lambda ps: torch.optim.SGD(ps, lr=0.02, momentum=0.9, weight_decay=0.01),
    "SGD, Nesterov, foreach": lambda ps: torch.optim.SGD(
        ps, lr=0.02, momentum=0.9, nesterov=True, foreach=True
    ),
    "SGD, fused": lambda ps: torch.optim.SGD(ps, lr=0.02, momentum=0.9, fused=True),
    "Adam": lambda ps: torch.optim.Adam(ps, lr=0.01, foreach=False),
    "Adam, foreach": lambda ps: torch.optim.Adam(ps, lr=0.01, foreach=True),
    "Adam, fused, amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.01, fused=True, amsgrad=True),
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.01, foreach=False),
    "AdamW, foreach": lambda ps: torch.optim.AdamW(ps, lr=0.01, foreach=True),
    "AdamW, fused": lambda ps: torch.optim.AdamW(ps, lr=0.01, fused=True),
    "RMSprop": lambda ps: torch.optim.RMSprop(ps, lr=0.005, momentum=0.5, centered=True),
    "Adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.05),
    "Adagrad, fused": lambda ps: torch.optim.Adagrad(ps, lr=0.05, fused=True),
    "Adadelta": lambda ps: torch.optim.Adadelta(ps, lr=1.0),
    "Adamax": lambda ps: torch.optim.Adamax(ps, lr=0.01),
    "NAdam": lambda ps: torch.optim.NAdam(ps, lr=0.01),
    "RAdam": lambda ps: torch.optim.RAdam(ps, lr=0.01),
    "ASGD": lambda ps: torch.optim.ASGD(ps, lr=0.05),
    "Rprop": lambda ps: torch.optim.Rprop(ps, lr=0.001),
    "Adafactor": lambda ps: torch.optim.Adafactor(ps, lr=0.01),
    "LBFGS": lambda ps: torch.optim.LBFGS(ps, lr=0.1, max_iter=2),
    "one for matrices, one for vectors": lambda ps: Two(list(ps)),
}


class Two(torch.optim.SGD):
    """Momentum for the matrices, whose rate changes, and plain steps for the rest."""

    def __init__(self, ps: list[Any]) -> None:
        matrices, rest = [p for p in ps if p.dim() > 1], [p for p in ps if p.dim() < 2]
        groups = [{"params": matrices, "momentum": 0.9}, {"params": rest, "lr": 0.1}]
        super().__init__(groups, lr=0.02)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self, STEPS)
        self.register_step_post_hook(lambda *_: self.schedule.step())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fifty_steps_of_an_optimizer(trained: Pair, name: str) -> None:
    """Every parameter is as near that of float64 as eager's, and so is every loss on the way."""
    found, losses = [], []
    for model in sides(trained):
        optimizer, before = OPTIMIZERS[name](model.parameters()), copy.deepcopy(parameters(model))

        def closure(model: nn.Module = model, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            return backward(model, len(losses[-1]) % 7)

        losses.append([])
        for _ in range(STEPS):
            losses[-1].append(optimizer.step(closure))
        found.append(parameters(model))
        moved = zip(before, parameters(model), strict=True)
        assert all(rms(one - other) > 1e-3 * rms(one) for one, other in moved if rms(one))
    require_near(*found)
    require_near(*([torch.stack(each)] for each in losses))
    assert losses[2][-1] < losses[2][0]


def accumulated(model: nn.Module) -> Found:
    for number in range(4):
        backward(model, number, rows=(6, 3, 1, 6)[number])
    return gradients(model)


def clipped(model: nn.Module) -> Found:
    loss = 100 * loss_of(model(batch(model, 1)))
    loss.backward()
    norm = clip_grad_norm_(model.parameters(), 0.5)
    found = [norm, *(g.clone() for g in gradients(model) if g is not None)]
    clip_grad_value_(model.parameters(), 0.01)
    return [*found, *gradients(model)]


def checkpointed(model: nn.Module, reentrant: bool) -> Found:
    x = batch(model, 1).requires_grad_()
    h = checkpoint(model, x, use_reentrant=reentrant)
    loss_of(checkpoint(model, h, use_reentrant=reentrant)).backward()
    return [x.grad, *gradients(model)]


def penalised(model: nn.Module) -> Found:
    """The loss has a gradient in it, and is differentiated in turn."""
    x = batch(model, 1).requires_grad_()
    loss = loss_of(model(x))
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + 10 * slope.square().sum()).backward()
    return [x.grad, *gradients(model)]


def curvature(model: nn.Module) -> Found:
    """A product with the Hessian, by two backwards."""
    weights = list(model.parameters())
    slopes = torch.autograd.grad(loss_of(model(batch(model, 1))), weights, create_graph=True)
    product = sum((slope * w.detach()).sum() for slope, w in zip(slopes, weights, strict=True))
    return torch.autograd.grad(product, weights)


def by_grad(model: nn.Module) -> Found:
    x = batch(model, 1)

    def loss(named: dict[str, Tensor], x: Tensor) -> Tensor:
        return loss_of(functional_call(model, named, (x,)))

    named = {name: p.detach() for name, p in model.named_parameters()}
    of_weights, of_input = grad(loss, argnums=(0, 1))(named, x)
    assert all(p.grad is None for p in model.parameters())
    return [*of_weights.values(), of_input]


def by_vjp(model: nn.Module) -> Found:
    x = batch(model, 1)
    named = {name: p.detach() for name, p in model.named_parameters()}
    result, pull = vjp(lambda named, x: functional_call(model, named, (x,)), named, x)
    of_weights, of_input = pull(torch.cos(result.detach()))
    return [result, *of_weights.values(), of_input]


def by_row(model: nn.Module) -> Found:
    """Gradients of each row's own loss."""
    named = {name: p.detach() for name, p in model.named_parameters()}

    def loss(named: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(model, named, (row[None],)).cos().sum()

    return [*vmap(grad(loss), (None, 0))(named, batch(model, 1)).values()]


def jacobian(model: nn.Module) -> Found:
    return [jacrev(model)(batch(model, 1, rows=2))]


def ensemble(model: nn.Module) -> Found:
    """Two models as one with stacked weights."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1.25)
    named, _ = torch.func.stack_module_state([model, other])
    x = batch(model, 1)
    results = vmap(lambda named: functional_call(model, named, (x,)))(named)
    return [results, *torch.autograd.grad(results.cos().sum(), [*named.values()])]


def retained(model: nn.Module) -> Found:
    """Two passes over one graph, and one over half of it."""
    x = batch(model, 1).requires_grad_()
    results = model(x)
    loss_of(results).backward(retain_graph=True)
    first = [g.clone() for g in gradients(model) if g is not None]
    results[:3].cos().sum().backward()
    return [x.grad, *first, *gradients(model)]


def hooked(model: nn.Module) -> Found:
    """Hooks on an input, a result, parameters and modules, which see and change gradients."""
    seen: list[Tensor] = []
    x = batch(model, 1).requires_grad_()
    x.register_hook(lambda g: seen.append(g.clone()) or 2 * g)
    model.up.weight.register_hook(lambda g: 3 * g)
    model.scale.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    model.register_full_backward_hook(lambda _, ins, outs: seen.extend((*ins, *outs)))
    model.register_full_backward_pre_hook(lambda _, outs: tuple(g * 1.5 for g in outs))
    model.register_forward_pre_hook(lambda _, given: tuple(0.5 * g for g in given))
    model.register_forward_hook(lambda _, given, result: result * 1.25)
    results = model(x)
    results.retain_grad()
    loss_of(results).backward()
    return [x.grad, results.grad, *seen, *gradients(model)]


def hooked_within(model: nn.Module) -> Found:
    """Hooks on submodules, which only the original's forward calls."""
    seen: list[Tensor] = []
    model.down.register_forward_hook(lambda _, given, result: seen.append(result.detach()))
    model.norm.register_full_backward_hook(lambda _, ins, outs: seen.append(ins[0]))
    backward(model, 1)
    assert len(seen) == 2
    return [*seen, *gradients(model)]


def stepped_in_backward(model: nn.Module) -> Found:
    """An optimizer for each parameter, which steps as soon as there is a gradient."""
    for each in model.parameters():
        own = torch.optim.AdamW([each], lr=0.01)

        def step(p: Tensor, own: torch.optim.Optimizer = own) -> None:
            own.step()
            own.zero_grad()

        each.register_post_accumulate_grad_hook(step)
    for number in range(5):
        backward(model, number)
    assert gradients(model) == [None] * len(list(model.parameters()))
    return parameters(model)


def frozen_in_turns(model: nn.Module) -> Found:
    """Another part is frozen at each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number in range(6):
        for place, each in enumerate(model.parameters()):
            each.requires_grad_((place + number) % 3 > 0)
        optimizer.zero_grad()
        backward(model, number)
        optimizer.step()
    return [*parameters(model), *gradients(model)]


def zeroed(model: nn.Module, to_none: bool) -> Found:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(3):
        backward(model, number)
        held = model.up.weight.grad
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
        assert (model.up.weight.grad is None) is to_none
        assert to_none or model.up.weight.grad is held
    backward(model, 3)
    return [*parameters(model), *gradients(model)]


def loaded_between(model: nn.Module) -> Found:
    """Back to an earlier state of model and optimizer, in place and by other tensors."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def steps(first: int) -> None:
        for number in range(first, first + 3):
            optimizer.zero_grad()
            backward(model, number)
            optimizer.step()

    steps(0)
    kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    steps(3)
    model.load_state_dict(kept[0])
    optimizer.load_state_dict(kept[1])
    steps(6)
    model.load_state_dict(copy.deepcopy(kept[0]), assign=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps(9)
    return parameters(model)


def shared(model: nn.Module) -> Found:
    """Two models with some weights in common, both trained."""
    other = copy.deepcopy(model)
    other.up, other.scale = model.up, model.scale
    both = {id(p): p for each in (model, other) for p in each.parameters()}
    optimizer = torch.optim.SGD(both.values(), lr=0.05)
    for number in range(4):
        optimizer.zero_grad()
        loss_of(other(model(batch(model, number)))).backward()
        optimizer.step()
    return [each.detach() for each in both.values()]


def tied(model: nn.Module) -> Found:
    """A weight that is made of another one."""
    model.down.weight = nn.Parameter(model.up.weight.detach().t().clone())
    model.norm.weight = model.scale
    backward(model, 1)
    return gradients(model)


def averaged(model: nn.Module) -> Found:
    average = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(4):
        optimizer.zero_grad()
        backward(model, number)
        optimizer.step()
        average.update_parameters(model)
    return [*parameters(average), average(batch(model, 1))]


def offloaded(model: nn.Module) -> Found:
    """What is kept for the backward is packed and unpacked."""
    packed: list[Tensor] = []

    def pack(t: Tensor) -> int:
        packed.append(t.detach().clone())
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, packed.__getitem__):
        loss = loss_of(model(batch(model, 1)))
    loss.backward()
    assert packed
    return gradients(model)


def looked_for_anomalies(model: nn.Module) -> Found:
    with torch.autograd.set_detect_anomaly(True):
        backward(model, 1)
    return gradients(model)


def in_a_thread_less_engine(model: nn.Module) -> Found:
    with torch.autograd.set_multithreading_enabled(False):
        backward(model, 1)
    return gradients(model)


def stepped_without_the_engine(model: nn.Module) -> Found:
    """Steps by hand, through `.data` and under `no_grad`."""
    for number in range(6):
        model.zero_grad()
        backward(model, number)
        for place, each in enumerate(model.parameters()):
            if place % 2:
                each.data -= 0.05 * each.grad
            else:
                with torch.no_grad():
                    each.sub_(0.05 * each.grad)
    return parameters(model)


USES: dict[str, Callable[[Any], Found]] = {
    "accumulation": accumulated,
    "clipping": clipped,
    "checkpoints": lambda model: checkpointed(model, False),
    "reentrant checkpoints": lambda model: checkpointed(model, True),
    "double backward": penalised,
    "Hessian": curvature,
    "func.grad": by_grad,
    "func.vjp": by_vjp,
    "vmap of grad": by_row,
    "jacrev": jacobian,
    "stacked weights": ensemble,
    "retain_graph": retained,
    "hooks": hooked,
    "an optimizer in the backward": stepped_in_backward,
    "frozen in turns": frozen_in_turns,
    "zeros": lambda model: zeroed(model, False),
    "set_to_none": lambda model: zeroed(model, True),
    "load_state_dict": loaded_between,
    "shared weights": shared,
    "tied weights": tied,
    "averaged weights": averaged,
    "saved tensors": offloaded,
    "anomalies": looked_for_anomalies,
    "one thread": in_a_thread_less_engine,
    "by hand": stepped_without_the_engine,
}


# torch.func differentiates what is written in PyTorch, which a fused forward has beside it.
BY_TEXT = {"func.grad", "func.vjp", "vmap of grad", "jacrev", "stacked weights"}


@pytest.mark.parametrize("name", USES)
def test_a_use_of_gradients(trained: Pair, name: str) -> None:
    require_same(trained, USES[name], name not in BY_TEXT)


def test_hooks_on_submodules_are_called(trained: Pair) -> None:
    """By the original's forward, which then runs: with no kernel of ours."""
    new, original, exact = sides(trained)
    require_near(hooked_within(new), hooked_within(original), hooked_within(exact))


def test_a_parametrisation(trained: Pair) -> None:
    found = []
    for model in sides(trained):
        parametrizations.weight_norm(model.up)
        parametrizations.spectral_norm(model.down)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for number in range(4):
            optimizer.zero_grad()
            backward(model, number)
            optimizer.step()
        found.append(parameters(model))
    require_near(*found)


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(model: nn.Module) -> Found:
    """Weights that are gathered for a forward, and again for its backward."""
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(4):
        optimizer.zero_grad()
        backward(model, number)
        optimizer.step()
    return [p.full_tensor().detach() for p in model.parameters()]


def test_sharded_weights(trained: Pair, one_rank: None) -> None:
    require_same(trained, sharded)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_autocast_with_a_scaler(trained: Pair, dtype: torch.dtype) -> None:
    """Steps under autocast, whose losses are scaled so that float16 holds them; one that overflows
    is left out. Errors are those of 16 bits: eager's, from float32 without autocast.
    """
    found, scales = [], []
    for model in sides(trained):
        exact = next(model.parameters()).dtype == torch.float64
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        ran = []
        for number in range(10):
            optimizer.zero_grad()

            def step(model: Any = model, number: int = number, exact: bool = exact) -> None:
                with torch.autocast("cpu", dtype, enabled=not exact):
                    results = model(batch(model, number))
                loss = loss_of(results.to(batch(model, 0).dtype))
                scaler.scale(loss * (torch.inf if number == 4 else 1.0)).backward()  # noqa: B023

            ran.append(kernels_in(step))
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        found.append(parameters(model))
        scales.append(scaler.get_scale())
        assert all(ran) is (type(model).__name__ == "ModelNew")
    assert scales[0] == scales[1] == scales[2] == 2.0**11
    for mine, theirs, true in zip(*found, strict=True):
        error, usual = rms(mine - true), rms(theirs - true)
        assert error <= 2 * usual + 1e-4 * rms(true)
