"""The ways in which a model gets other weights beside loading them; each is done to both sides."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.numerics.outputs import is_float
from opweld.judge.verify.run import state_tensors
from opweld.judge.verify.weights import (
    State,
    change_in_place,
    copy_state,
    load_state,
    shake_state,
)

COPY, DATA, ASSIGN, FUNCTIONAL = "copy_", "data", "assign", "functional_call"
DEEP_COPY, OPTIMIZER, MOVE, TIE = "deep copy", "optimizer", "to", "tie"
# Steps of training are small: what follows large changes only is then out of date.
_STEP = 1e-3


class NotForThis(Exception):
    """The model has nothing that could be changed so."""


def change_weights(model: nn.Module, seed: int, way: str) -> nn.Module:
    """The model that is to be called from now on: another one only where the way makes one.

    The values are its own, shaken as `seed` says; so both sides get the same ones.

    Raises:
        NotForThis: nothing in the model could be changed so.
    """
    if way not in _WITH_STATE:
        return _WITHOUT_STATE[way](model)
    return _WITH_STATE[way](model, shake_state(copy_state(model), seed))


def _in_place(through: str) -> Callable[[nn.Module, State], nn.Module]:
    def change(model: nn.Module, state: State) -> nn.Module:
        change_in_place(model, state, through)
        return model

    return change


def _assign(model: nn.Module, state: State) -> nn.Module:
    first = _first_names(model)
    own = {name: state[first[name]] for name in state}
    model.load_state_dict({**model.state_dict(), **own}, assign=True)
    return model


def _first_names(model: nn.Module) -> dict[str, str]:
    """For each entry of the state the name of the first that is the same tensor: tied ones have one
    value.
    """
    seen: dict[tuple[object, ...], str] = {}
    return {
        name: seen.setdefault((t.data_ptr(), t.shape, t.stride()) if t.numel() else (name,), name)
        for name, t in state_tensors(model)
    }


def _deep_copy(model: nn.Module, state: State) -> nn.Module:
    """The copy; what it was copied from changes behind it, which is no business of the copy."""
    copied = copy.deepcopy(model)
    load_state(copied, state)
    load_state(model, shake_state(state, 0))
    return copied


def _step(model: nn.Module) -> nn.Module:
    """Steps of two optimizers: one writes whole lists of parameters at once, the other in a kernel
    of its own.
    """
    given = [p for p in model.parameters() if p.requires_grad and is_float(p)]
    if not given:
        raise NotForThis("no parameter is trained")
    kinds: Iterable[Any] = (
        torch.optim.SGD(given, lr=_STEP, momentum=0.9, foreach=True),
        torch.optim.Adam(given, lr=_STEP, fused=True),
    )
    for optimizer in kinds:
        for parameter in given:
            parameter.grad = parameter.detach() + 1  # of zeros, too, something is changed
        optimizer.step()
        optimizer.zero_grad()
    return model


def _move(model: nn.Module, state: State) -> nn.Module:
    """To another dtype and back, which gives parameters other memory; then written to."""
    dtypes = {t.dtype for t in state.values() if t.is_floating_point()}
    if len(dtypes) != 1:
        raise NotForThis("its parameters are of several dtypes")
    (own,) = dtypes
    model.to(torch.float64 if own is not torch.float64 else torch.float32).to(own)
    change_in_place(model, state)
    return model


def _tie(model: nn.Module) -> nn.Module:
    """One parameter in the place of another of its shape."""
    kept: dict[tuple[torch.Size, torch.dtype], nn.Parameter] = {}
    for name, parameter in list(model.named_parameters()):
        first = kept.setdefault((parameter.shape, parameter.dtype), parameter)
        if first is not parameter:
            path, _, last = name.rpartition(".")
            setattr(model.get_submodule(path), last, first)
            return model
    raise NotForThis("no two parameters are of one shape")


class Functional(nn.Module):
    """A model that is called by `functional_call` with other weights than it has."""

    def __init__(self, model: nn.Module, state: State) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(name for name, first in _first_names(model).items() if name == first)
        given = (nn.Parameter(state[name], requires_grad=False) for name in self.names)
        self.given = nn.ParameterList(given)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs; the weights are plain tensors."""
        detached: list[Tensor] = [t.detach() for t in self.given]
        given = dict(zip(self.names, detached, strict=True))
        return torch.func.functional_call(self.model, given, args, kwargs)


_WITH_STATE: dict[str, Callable[[nn.Module, State], nn.Module]] = {
    COPY: _in_place(COPY),
    DATA: _in_place(DATA),
    ASSIGN: _assign,
    FUNCTIONAL: Functional,
    DEEP_COPY: _deep_copy,
    MOVE: _move,
}
_WITHOUT_STATE: dict[str, Callable[[nn.Module], nn.Module]] = {OPTIMIZER: _step, TIE: _tie}
