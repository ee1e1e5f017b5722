"""Captures must leave no trace in the module, and must notice a forward that leaves one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from opweld.errors import CaptureError

from .facts import freeze

_STORES = ("_parameters", "_buffers", "_modules")


@contextlib.contextmanager
def unchanged(module: nn.Module, training: bool) -> Iterator[None]:
    """The module in the given mode; afterwards as it was, with torch's random state.

    Raises CaptureError if the forward assigned to an attribute.
    """
    modules = list(module.modules())
    states = [_state(m) for m in modules]
    before = [_frozen(m) for m in modules]
    with torch.random.fork_rng(devices=_devices(module)):
        try:
            for child in modules:
                child.training = training
            yield
            changed = next(
                (_change(m, b) for m, b in zip(modules, before, strict=True) if _change(m, b)), None
            )
        finally:
            for child, state in zip(modules, states, strict=True):
                _restore(child, state)
    if changed:
        raise CaptureError(f"the forward assigns to self.{changed}")


def _devices(module: nn.Module) -> list[int]:
    devices = {p.device for p in module.parameters()} | {b.device for b in module.buffers()}
    return sorted(d.index or 0 for d in devices if d.type == "cuda")


def _state(module: nn.Module) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    return dict(module.__dict__), {store: dict(module.__dict__[store]) for store in _STORES}


def _restore(module: nn.Module, state: tuple[dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    attributes, stores = state
    module.__dict__.clear()
    module.__dict__.update(attributes)
    for store, items in stores.items():
        module.__dict__[store].clear()
        module.__dict__[store].update(items)


def _frozen(module: nn.Module) -> dict[str, Any]:
    skipped = (*_STORES, "training")
    return {k: (id(v), freeze(v)) for k, v in module.__dict__.items() if k not in skipped}


def _change(module: nn.Module, before: dict[str, Any]) -> str | None:
    after = _frozen(module)
    names = [*before, *(name for name in after if name not in before)]
    return next((n for n in names if _differs(before.get(n), after.get(n))), None)


def _differs(before: Any, after: Any) -> bool:
    if before is None or after is None:
        return True
    return repr(before[1]) != repr(after[1])
