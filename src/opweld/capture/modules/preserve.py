"""Captures must leave no trace in the module, and must notice a forward that leaves one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opweld.errors import OriginalKept

# The modes that a file can be for: as the module is, as eval() or train() make it, or these two.
OWN, EVAL, TRAINING, BOTH = "own", "eval", "training", "both"
_STORES = ("_parameters", "_buffers", "_modules")
_CONTAINERS = (list, dict, set)


@dataclass(frozen=True, slots=True)
class _State:
    """A module's attributes, and copies of the containers among them."""

    attributes: dict[str, Any]
    contents: dict[str, Any]


@contextlib.contextmanager
def unchanged(module: nn.Module, mode: str) -> Iterator[None]:
    """The module in `mode`; afterwards as it was, with torch's random state.

    OWN is the mode that it is in, as a whole or in parts; TRAINING is what its own `train()` makes
    of it, which may leave some of it in eval.
    Tensors that are plain attributes are buffers meanwhile: export would bake in their elements.
    Raises CaptureError if the forward changed a list, dict or set that the module holds.
    """
    modules = list(module.modules())
    states = [_state(m) for m in modules]
    frozen = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    with torch.random.fork_rng(devices=_devices(module)):
        try:
            _set_mode(module, mode)
            for child in modules:
                _tensors_to_buffers(child)
            yield
        finally:
            for parameter, wanted in frozen:
                parameter.requires_grad_(wanted)
            changes = [_restore(m, state) for m, state in zip(modules, states, strict=True)]
    changed = next((name for name in changes if name), None)
    if changed:
        raise OriginalKept(f"the forward changes what self.{changed} holds")


def _set_mode(module: nn.Module, mode: str) -> None:
    """Raises OriginalKept where the module's own `train()` does more than to set modes."""
    if mode == EVAL:
        for child in module.modules():
            child.training = False
    if mode != TRAINING:
        return
    before = [_without_mode(child) for child in module.modules()]
    module.train()
    after = [_without_mode(child) for child in module.modules()]
    if not all(_same(left, right) for left, right in zip(before, after, strict=True)):
        raise OriginalKept("train() of the module changes more than the mode")


def _without_mode(module: nn.Module) -> dict[str, Any]:
    return {name: held for name, held in vars(module).items() if name != "training"}


def flags_in(module: nn.Module, mode: str) -> dict[str, bool]:
    """The training flag of each submodule, by its path, in `mode`."""
    with unchanged(module, mode):
        return {path: m.training for path, m in module.named_modules(remove_duplicate=False)}


def _devices(module: nn.Module) -> list[int]:
    devices = {p.device for p in module.parameters()} | {b.device for b in module.buffers()}
    return sorted(d.index or 0 for d in devices if d.type == "cuda")


def _state(module: nn.Module) -> _State:
    held = dict(module.__dict__)
    return _State(held, {k: v.copy() for k, v in held.items() if type(v) in _CONTAINERS})


def _tensors_to_buffers(module: nn.Module) -> None:
    plain = {k: v for k, v in module.__dict__.items() if isinstance(v, torch.Tensor)}
    transient = module._non_persistent_buffers_set
    module.__dict__["_non_persistent_buffers_set"] = transient | set(plain)
    for name, tensor in plain.items():
        del module.__dict__[name]
        module._buffers[name] = tensor


def _restore(module: nn.Module, state: _State) -> str | None:
    """Puts everything back; the name of a container that was changed, None if none was."""
    module.__dict__.clear()
    module.__dict__.update(state.attributes)
    changed = None
    for name, before in state.contents.items():
        held = state.attributes[name]
        if not _same(held, before):
            changed = None if name in _STORES else changed or name
            held.clear()
            held.extend(before) if isinstance(held, list) else held.update(before)
    return changed


def _same(held: Any, before: Any) -> bool:
    if isinstance(held, set):
        return bool(held == before)
    if len(held) != len(before):
        return False
    if isinstance(held, dict):
        return all(held[key] is before.get(key) for key in held)
    return all(a is b for a, b in zip(held, before, strict=True))
