"""The gradients of one forward or several, as a run whose leaves are gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.load import Call, seed_all
from opweld.judge.numerics.draws import random_state
from opweld.judge.tree import tensors
from opweld.judge.verify.run import Run, synchronize

FLAGS = "requires_grad of the outputs"
# What the passes left of the output gradients, in order.
AFTERWARDS = " afterwards"
LEFT = "gradient of output {position}" + AFTERWARDS
DENSE, EXPANDED, TRANSPOSED = "dense", "expanded", "transposed"
ONE_ROW = "one row"
# For each pass over each call: a tensor for every output, None for one without a gradient.
GradOutputs = list[list[list[Tensor | None]]]


class NoGradients(Exception):
    """Nothing in the outputs depends differentiably on an input or parameter."""


@dataclass(frozen=True, slots=True)
class Backward:
    """What gradients are asked for: of the inputs or not, of all parameters but the `frozen`, in
    so many backward passes over each graph. `grad_layout` is how output gradients lie in memory:
    dense, with strides of zero as that of a sum, one row with the others expanded from it, or with
    the last two dimensions in each other's place. With `create_graph`, they could be differentiated
    again.
    """

    inputs: bool = True
    frozen: tuple[str, ...] = ()
    num_passes: int = 1
    grad_layout: str = DENSE
    create_graph: bool = False

    @property
    def is_full(self) -> bool:
        """Whether everything that may have a gradient asks for one."""
        return self.inputs and not self.frozen


@dataclass(frozen=True, slots=True)
class Graphs:
    """What the forwards left, one after the other: outputs, and the leaves by name.

    The parameters that were frozen stay so in the backward, which may run a forward again.
    """

    outputs: list[list[Tensor]]
    named: list[dict[str, Tensor]]
    draws_random: bool
    model: nn.Module
    frozen: tuple[str, ...]


def record(
    model: nn.Module,
    calls: Sequence[Call],
    seed: int,
    how: Backward,
    forward: Callable[[Call], Any] | None = None,
) -> Graphs:
    """All forwards, each with the random state that `seed` gives, before any backward.

    Raises:
        NoGradients: no output has one.
    """
    given = [call.map(_with_grad if how.inputs else _without_grad) for call in calls]
    outputs, draws = [], False
    with _frozen(model, how.frozen), torch.enable_grad():
        for call in given:
            seed_all(seed)
            before = random_state()
            made = forward(call) if forward else model(*call.args, **call.kwargs)
            draws |= not torch.equal(before, random_state())
            outputs.append(tensors(made))
        named = [dict(_named_leaves(model, call)) for call in given]
    if not any(t.requires_grad for made in outputs for t in made):
        raise NoGradients
    return Graphs(outputs, named, draws, model, how.frozen)


def draw_grad_outputs(graphs: Graphs, seed: int, how: Backward) -> GradOutputs:
    """The output gradients, others for each pass: the same random numbers for every precision."""
    generator = torch.Generator().manual_seed(seed)

    def draw(t: Tensor) -> Tensor | None:
        if not t.requires_grad:
            return None
        # in float32 on the CPU, rounded to eight bits, so that every dtype holds them exactly
        shape = {EXPANDED: t.shape[:0], ONE_ROW: t.shape[-1:]}.get(how.grad_layout, t.shape)
        drawn = torch.randn(shape, generator=generator).bfloat16()
        drawn = drawn.to(device=t.device, dtype=t.dtype)
        if how.grad_layout == TRANSPOSED and t.dim() > 1:
            return drawn.mT.contiguous().mT
        return drawn.expand(t.shape)

    return [[[draw(t) for t in made] for made in graphs.outputs] for _ in range(how.num_passes)]


def map_grad_outputs(grad_outputs: GradOutputs, change: Callable[[Tensor], Tensor]) -> GradOutputs:
    """The same nesting with other tensors."""
    return [
        [[None if g is None else change(g) for g in made] for made in each_pass]
        for each_pass in grad_outputs
    ]


def fresh_grad_outputs(grad_outputs: GradOutputs) -> GradOutputs:
    """In memory of their own, for a backward may write to what it is given, and laid out alike."""
    return map_grad_outputs(grad_outputs, _fresh)


def _fresh(g: Tensor) -> Tensor:
    """What repeats is copied once."""
    repeated = [n > 1 and stride == 0 for n, stride in zip(g.shape, g.stride(), strict=True)]
    return g[tuple(slice(0, 1) if r else slice(None) for r in repeated)].clone().expand_as(g)


def differentiate(
    graphs: Graphs, grad_outputs: GradOutputs, how: Backward, like: Run | None = None
) -> Run:
    """One leaf for each input and parameter that the outputs depend on, for each call and pass.

    Behind them come the output gradients as the passes left them, and which outputs require one.
    With `like`, the gradients are exactly those of that run.

    Raises:
        NoGradients: no output has one that is asked for.
    """
    found: dict[str, Tensor | None] = {}
    shapes: dict[str, Tensor] = {}
    for number, each_pass in enumerate(grad_outputs):
        for position, given in enumerate(each_pass):
            named, suffix = graphs.named[position], _suffix(number, position)
            last = number + 1 == how.num_passes
            outputs = graphs.outputs[position]
            with _frozen(graphs.model, graphs.frozen):
                gradients = _backward(outputs, given, named, not last, how.create_graph)
            found |= {name + suffix: g for name, g in zip(named, gradients, strict=True)}
            shapes |= {name + suffix: leaf for name, leaf in named.items()}
    synchronize()
    left = [g for each_pass in grad_outputs for made in each_pass for g in made if g is not None]
    run = _as_run(found, shapes, None if like is None else _without_last(like, len(left) + 1))
    names = (LEFT.format(position=i) for i in range(len(left)))
    flags = _flags(graphs.outputs, grad_outputs[0], how)
    return Run(
        names=(*run.names, *names, FLAGS),
        leaves=[*run.leaves, *left, flags],
        nesting=[("", "leaf")],
        draws_random=graphs.draws_random,
    )


def _backward(
    outputs: list[Tensor],
    given: list[Tensor | None],
    named: dict[str, Tensor],
    retain: bool,
    create_graph: bool,
) -> Sequence[Tensor | None]:
    pairs = [
        (t, g) for t, g in zip(outputs, given, strict=True) if g is not None and t.requires_grad
    ]
    if not pairs:
        raise NoGradients
    found = torch.autograd.grad(
        [t for t, _ in pairs],
        list(named.values()),
        [g for _, g in pairs],
        retain_graph=retain or create_graph,
        create_graph=create_graph,
        allow_unused=True,
    )
    return [None if g is None else g.detach() for g in found] if create_graph else found


def _suffix(number: int, position: int) -> str:
    suffix = f" in pass {number + 1}" if number else ""
    return f"{suffix} of call {position + 1}" if position else suffix


def _flags(
    outputs: list[list[Tensor]], grad_outputs: list[list[Tensor | None]], how: Backward
) -> str:
    """Where not everything asks for a gradient, an output may have one in vain: a function of
    several outputs gives all of them one.
    """
    flags = [
        t.requires_grad and (how.is_full or g is not None)
        for made, given in zip(outputs, grad_outputs, strict=True)
        for t, g in zip(made, given, strict=True)
    ]
    return ", ".join(map(str, flags))


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


def _without_last(run: Run, count: int) -> Run:
    """The gradients alone; of the other process's run there is no text among the leaves."""
    num_kept = len(run.names) - count
    return Run(run.names[:num_kept], run.leaves[:num_kept], run.nesting)


def _named_leaves(model: nn.Module, call: Call) -> list[tuple[str, Tensor]]:
    inputs = [(f"gradient of input {i}", t) for i, t in enumerate(call.tensors())]
    parameters = [(f"gradient of {name}", p) for name, p in model.named_parameters()]
    return [(name, t) for name, t in (*inputs, *parameters) if t.requires_grad]


@contextlib.contextmanager
def _frozen(model: nn.Module, names: tuple[str, ...]) -> Iterator[None]:
    """These parameters ask for no gradient; a model that lacks one of them has others to freeze."""
    parameters = dict(model.named_parameters())
    changed = [parameters[name] for name in names if name in parameters]
    changed = [p for p in changed if p.requires_grad]
    for parameter in changed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in changed:
            parameter.requires_grad_(True)


def _with_grad(t: Tensor) -> Tensor:
    differentiable = t.is_floating_point() or t.is_complex()
    return t.detach().clone().requires_grad_(differentiable)


def _without_grad(t: Tensor) -> Tensor:
    return t.detach().clone()
