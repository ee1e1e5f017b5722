"""Whether a file replaced parts of torch, of the clock, of Python or of what judges it.

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

_JUDGE = "opweld.judge"
# torch itself exchanges some of its functions when parts of it are imported late.
_OWN = ("torch", _JUDGE)
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
        timer = {"torch.utils.benchmark.Timer": benchmark.Timer}
        self._places = {**_PLACES, **timer, **_places_of_judge()}
        self._before = {place: dict(vars(holder)) for place, holder in self._places.items()}
        self._codes = {id(f): f.__code__ for f in self._functions()}
        self._hooks = {name: dict(held) for name, held in _HOOKS.items()}
        self._kernels = set(library._impls)

    def broken(self) -> list[str]:
        """Full names of what is another object now, or gone."""
        found = []
        for place, before in self._before.items():
            now = vars(self._places[place])
            is_other = _is_changed if place.startswith(_JUDGE) else _is_replaced
            found += [f"{place}.{n}" for n, v in before.items() if is_other(v, now.get(n))]
            found += [f"{place}.{n}" for n in now.keys() - before.keys() if _hides(now[n])]
        others = (name for name, held in _HOOKS.items() if dict(held) != self._hooks[name])
        found += [f"torch.nn.modules.module.{name}" for name in others]
        found += [f"the kernel of {op}" for op in library._impls - self._kernels if _is_own(op)]
        found += ["sys.settrace"] if sys.gettrace() else []
        rewritten = {f for f in self._functions() if self._codes[id(f)] is not f.__code__}
        found += [f"{f.__module__}.{f.__qualname__}" for f in rewritten]
        return sorted(found)

    def _functions(self) -> list[FunctionType]:
        """Those that stood there, whose code can be exchanged while they stay what they are."""
        held = (value for before in self._before.values() for value in before.values())
        return [value for value in held if isinstance(value, FunctionType)]


def _places_of_judge() -> dict[str, Any]:
    """The modules of the judge in this process, and the classes that they define."""
    modules = {n: m for n, m in list(sys.modules.items()) if m and f"{n}.".startswith(f"{_JUDGE}.")}
    classes = {
        f"{name}.{held.__qualname__}": held
        for name, module in modules.items()
        for held in vars(module).values()
        if isinstance(held, type) and held.__module__ == name
    }
    return {**modules, **classes}


def _is_own(op: str) -> bool:
    """Whether `namespace/op/key` names a kernel of an op of torch's own.

    Those without data (Meta) are registered by parts of torch that are imported late.
    """
    namespace, _, key = op.split("/")
    return namespace == "aten" and key.removeprefix("Autograd") in ("CPU", "CUDA", "")


def _is_changed(old: Any, new: Any) -> bool:
    return old is not new and (callable(old) or isinstance(old, property))


def _is_replaced(old: Any, new: Any) -> bool:
    return _is_changed(old, new) and (new is None or _is_foreign(new))


def _hides(added: Any) -> bool:
    """Whether a new entry is a function from elsewhere: it hides one that a class inherits."""
    return isinstance(added, FunctionType) and _is_foreign(added)


def _is_foreign(value: Any) -> bool:
    """Whether a function or class was made outside of torch."""
    if isinstance(value, ModuleType):
        return False
    module = getattr(value, "__module__", None) or ""
    return module.split(".")[0] not in _OWN and not module.startswith(_OWN)
