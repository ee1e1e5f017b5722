"""Whether a file replaced parts of torch, of the clock or of Python.

In a process of its own it cannot change what the original computes, but code that does so serves
nobody who imports it.
"""

from __future__ import annotations

import builtins
import time
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# torch itself exchanges some of its functions when parts of it are imported late.
_OWN = ("torch", "opweld.judge")
_PLACES: dict[str, Any] = {
    "builtins": builtins,
    "time": time,
    "torch": torch,
    "torch.Tensor": Tensor,
    "torch.nn.Module": nn.Module,
    "torch.nn.functional": functional,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.Stream": torch.cuda.Stream,
    "torch.testing": torch.testing,
}


class Integrity:
    """What stood in each place when this was made."""

    def __init__(self) -> None:
        self._before = {place: dict(vars(holder)) for place, holder in _PLACES.items()}

    def broken(self) -> list[str]:
        """Full names of what is another object now, or gone."""
        found = []
        for place, before in self._before.items():
            now = vars(_PLACES[place])
            found += [f"{place}.{n}" for n, v in before.items() if _is_replaced(v, now.get(n))]
        return sorted(found)


def _is_replaced(old: Any, new: Any) -> bool:
    if old is new or not (callable(old) or isinstance(old, property)):
        return False
    if isinstance(new, ModuleType):
        return False
    module = getattr(new, "__module__", None) or ""
    return module.split(".")[0] not in _OWN and not module.startswith(_OWN)
