"""Whether a file replaced parts of torch, of the clock or of Python.

In a process of its own it cannot change what the original computes, but code that does so serves
nobody who imports it.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import time
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, library, nn
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
# Hooks that every module of the process runs.
_HOOKS = {name: held for name, held in vars(nn.modules.module).items() if "_hooks" in name}


class Integrity:
    """What stood in each place when this was made."""

    def __init__(self) -> None:
        # its import asks for a device, which must not happen where processes are yet to be forked
        benchmark = importlib.import_module("torch.utils.benchmark")
        self._places = {**_PLACES, "torch.utils.benchmark.Timer": benchmark.Timer}
        self._before = {place: dict(vars(holder)) for place, holder in self._places.items()}
        self._kernels = set(library._impls)

    def broken(self) -> list[str]:
        """Full names of what is another object now, or gone."""
        found = []
        for place, before in self._before.items():
            now = vars(self._places[place])
            found += [f"{place}.{n}" for n, v in before.items() if _is_replaced(v, now.get(n))]
            found += [f"{place}.{n}" for n in now.keys() - before.keys() if _hides(now[n])]
        found += [f"torch.nn.modules.module.{name}" for name, held in _HOOKS.items() if held]
        found += [f"the kernel of {op}" for op in library._impls - self._kernels if _is_own(op)]
        found += ["sys.settrace"] if sys.gettrace() else []
        return sorted(found)


def _is_own(op: str) -> bool:
    """Whether `namespace/op/key` names a kernel of an op of torch's own.

    Those without data (Meta) are registered by parts of torch that are imported late.
    """
    namespace, _, key = op.split("/")
    return namespace == "aten" and key.removeprefix("Autograd") in ("CPU", "CUDA", "")


def _is_replaced(old: Any, new: Any) -> bool:
    if old is new or not (callable(old) or isinstance(old, property)):
        return False
    return new is None or _is_foreign(new)


def _hides(added: Any) -> bool:
    """Whether a new entry is a function from elsewhere: it hides one that a class inherits."""
    return isinstance(added, FunctionType) and _is_foreign(added)


def _is_foreign(value: Any) -> bool:
    """Whether a function or class was made outside of torch."""
    if isinstance(value, ModuleType):
        return False
    module = getattr(value, "__module__", None) or ""
    return module.split(".")[0] not in _OWN and not module.startswith(_OWN)
