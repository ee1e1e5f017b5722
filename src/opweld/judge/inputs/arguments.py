"""Other arguments than the model's own: scalars, masks and indices changed, optional ones given and
left out.

What a ModelNew does not take it may refuse with an exception; what it takes has to be right.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Container, Iterator
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.inputs.kinds import Kind, Own
from opweld.judge.load import Call
from opweld.judge.numerics.outputs import is_float
from opweld.judge.tree import tensors
from opweld.judge.verify.seeds import stream

Accepts = Callable[[Call], bool]
BOOLEANS, INTEGERS, IGNORED = "other booleans", "other integers", "integers to ignore"
# What losses of torch leave out by default, and the share of the integers that become that.
_IGNORED, _IGNORED_SHARE = -100, 1 / 3
# Values that are tried for an argument whose default says nothing of its type, and are taken.
_MAX_TAKEN = 2
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def argument_kinds(own: Own, model: nn.Module, seed: int, accepts: Accepts) -> Iterator[Kind]:
    """Each as far as the original takes it."""
    call, random = own(0), Random(stream(seed, "arguments"))
    yield from _tensor_kinds(own, seed)
    yield from _ignored_kinds(own, seed, accepts)
    given = _by_name(model, call)
    for name, value in given.items():
        for other in _others(value, random):
            change = _setting(name, other)
            if accepts(change(call, model)):
                yield _kind(f"argument {name} = {_text(other)}", own, model, change)
    for name, parameter in _parameters(model).items():
        if parameter.default is inspect.Parameter.empty:
            continue
        if name in given:
            change = _leaving_out(name)
            if accepts(change(call, model)):
                yield _kind(f"argument {name} left out", own, model, change)
            continue
        num_taken = 0
        for other in _for_default(parameter.default, call, random):
            change = _setting(name, other)
            if num_taken < _MAX_TAKEN and accepts(change(call, model)):
                num_taken += 1
                yield _kind(f"argument {name} = {_text(other)}", own, model, change)


Change = Callable[[Call, nn.Module], Call]


def _kind(name: str, own: Own, model: nn.Module, change: Change) -> Kind:
    def make(draw: int) -> Call:
        return change(own(draw).map(torch.clone), model)

    return Kind(name, make, may_refuse=True)


def _tensor_kinds(own: Own, seed: int) -> Iterator[Kind]:
    """Masks with half of their elements, and integers in each other's place."""
    dtypes = {t.dtype for t in own(0).tensors()}

    def generator(draw: int) -> torch.Generator:
        return torch.Generator().manual_seed(stream(seed, "arguments", draw))

    def booleans(draw: int) -> Call:
        random = generator(draw)

        def half(t: Tensor) -> Tensor:
            if t.dtype is not torch.bool:
                return t.clone()
            return (torch.rand(t.shape, generator=random) < 0.5).to(t.device)

        return own(draw).map(half)

    def integers(draw: int) -> Call:
        random = generator(draw)

        def mixed(t: Tensor) -> Tensor:
            if is_float(t) or t.dtype is torch.bool or not t.numel():
                return t.clone()
            order = torch.randint(t.numel(), (t.numel(),), generator=random).to(t.device)
            return t.reshape(-1)[order].view(t.shape)

        return own(draw).map(mixed)

    if torch.bool in dtypes:
        yield Kind(BOOLEANS, booleans)
    if any(not dtype.is_floating_point and dtype is not torch.bool for dtype in dtypes):
        yield Kind(INTEGERS, integers)


def _ignored_kinds(own: Own, seed: int, accepts: Accepts) -> Iterator[Kind]:
    """Integers that a loss leaves out, in those tensors in which the original takes them."""

    def make(draw: int, places: Container[int]) -> Call:
        random = torch.Generator().manual_seed(stream(seed, IGNORED, draw))
        number = itertools.count()

        def ignored(t: Tensor) -> Tensor:
            if next(number) not in places:
                return t.clone()
            some = torch.rand(t.shape, generator=random) < _IGNORED_SHARE
            return t.masked_fill(some.to(t.device), _IGNORED)

        return own(draw).map(ignored)

    signed = [n for n, t in enumerate(own(0).tensors()) if _is_signed_integer(t)]
    taken = frozenset(n for n in signed if accepts(make(0, (n,))))
    if taken:
        yield Kind(IGNORED, lambda draw: make(draw, taken))


def _is_signed_integer(t: Tensor) -> bool:
    return not is_float(t) and not t.is_complex() and t.dtype.is_signed and t.numel() > 0


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return {}


def _by_name(model: nn.Module, call: Call) -> dict[str, Any]:
    """The arguments that have a name."""
    names = [name for name, p in _parameters(model).items() if p.kind in _BY_POSITION]
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}


def _setting(name: str, value: Any) -> Change:
    def change(call: Call, model: nn.Module) -> Call:
        names = [n for n, p in _parameters(model).items() if p.kind in _BY_POSITION]
        position = names.index(name) if name in names else len(call.args)
        if position < len(call.args):
            args = (*call.args[:position], value, *call.args[position + 1 :])
            return Call(args, call.kwargs)
        return Call(call.args, {**call.kwargs, name: value})

    return change


def _leaving_out(name: str) -> Change:
    """What follows it is given by name, then."""

    def change(call: Call, model: nn.Module) -> Call:
        kept = {n: v for n, v in call.kwargs.items() if n != name}
        names = [n for n, p in _parameters(model).items() if p.kind in _BY_POSITION]
        position = names.index(name) if name in names else len(call.args)
        if position >= len(call.args):
            return Call(call.args, kept)
        behind = zip(names[position + 1 :], call.args[position + 1 :], strict=False)
        return Call(call.args[:position], {**dict(behind), **kept})

    return change


def _others(value: Any, random: Random) -> tuple[Any, ...]:
    """Other values of the same type and sign; none for what is no number.

    What a sign that nobody means does, such as that of a probability, is undefined, although most
    code takes it.
    """
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        above = value + random.randint(1, 3) if value >= 0 else value - 1
        return (above, value - 1) if value > 1 else (above,)
    if isinstance(value, float):
        small = random.uniform(0.1, 0.4)
        return (value * (1 + small), value * small) if value else (small,)
    return ()


def _for_default(default: Any, call: Call, random: Random) -> Iterator[Any]:
    """What an argument could be that is left out: by its default, or of any type for None."""
    if default is not None:
        yield from _others(default, random)
        return
    first = next(iter(t for t in tensors([call.args, call.kwargs]) if is_float(t)), None)
    generator = torch.Generator().manual_seed(random.getrandbits(40))
    if first is not None:
        square = (first.shape[-2],) * 2 if first.dim() > 1 else ()
        shapes = (first.shape, square, first.shape[:-1], first.shape[-1:])
        for shape in dict.fromkeys(map(tuple, shapes)):
            drawn = torch.randn(shape, generator=generator)
            yield (drawn > 0).to(first.device)
            yield drawn.to(first)
    yield random.uniform(0.3, 0.7)
    yield random.randint(1, 3)
    yield True


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
