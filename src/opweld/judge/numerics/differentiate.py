"""The gradients of one forward, as a run whose leaves are gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.load import Call, seed_all
from opweld.judge.tree import tensors
from opweld.judge.verify.run import Run, synchronize


class NoGradients(Exception):
    """Nothing in the outputs depends differentiably on an input or parameter."""


def gradients(
    model: nn.Module,
    call: Call,
    seed: int,
    like: Run | None = None,
    forward: Callable[[Call], Any] | None = None,
) -> Run:
    """One leaf for each input and parameter that the outputs depend on.

    With `like`, exactly those of that run; one that is missing here raises.
    """
    given = call.map(_with_grad)
    seed_all(seed)
    with torch.enable_grad():
        outputs = forward(given) if forward else model(*given.args, **given.kwargs)
        ends = [t for t in tensors(outputs) if t.requires_grad]
        if not ends:
            raise NoGradients
        named = dict(_named_leaves(model, given))
        found = torch.autograd.grad(
            ends, list(named.values()), _end_gradients(ends, seed), allow_unused=True
        )
    synchronize()
    return _as_run(dict(zip(named, found, strict=True)), named, like)


def _as_run(found: dict[str, Tensor | None], named: dict[str, Tensor], like: Run | None) -> Run:
    """Leaves by name; where the other side has a gradient, and this one none, it is of zeros.

    That is so for a leaf that is not used, and for a parameter that is none here (a buffer, say).
    """
    present = {name: gradient for name, gradient in found.items() if gradient is not None}
    if like is None:
        return Run(names=(*present,), leaves=[*present.values()], nesting=[("", "leaf")])
    device = next(iter(named.values())).device
    leaves = [
        present[name] if name in present else torch.zeros_like(leaf, device=device)
        for name, leaf in zip(like.names, like.leaves, strict=True)
    ]
    return Run(names=like.names, leaves=leaves, nesting=[("", "leaf")])


def _named_leaves(model: nn.Module, call: Call) -> list[tuple[str, Tensor]]:
    inputs = [(f"gradient of input {i}", t) for i, t in enumerate(call.tensors())]
    parameters = [(f"gradient of {name}", p) for name, p in model.named_parameters()]
    return [(name, t) for name, t in (*inputs, *parameters) if t.requires_grad]


def _with_grad(t: Tensor) -> Tensor:
    differentiable = t.is_floating_point() or t.is_complex()
    return t.detach().clone().requires_grad_(differentiable)


def _end_gradients(ends: list[Tensor], seed: int) -> list[Tensor]:
    """The same random numbers for every precision: drawn in float32, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(t.shape, generator=generator) for t in ends]
    # rounded to eight bits, so that every dtype holds them exactly
    return [
        g.bfloat16().to(device=t.device, dtype=t.dtype) for g, t in zip(drawn, ends, strict=True)
    ]
