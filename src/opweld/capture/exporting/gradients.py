"""Gradients of the user's own making, which a captured graph loses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from opweld.errors import OriginalKept


@contextlib.contextmanager
def noting_gradients() -> Iterator[list[str]]:
    """Yields why a graph's gradients are not the forward's, as the forward is run in between.

    Export traces through the forward of a torch.autograd.Function and drops its backward, and
    leaves no trace of inference mode, nor of `no_grad` in a part under an autocast of its own.
    """
    function, mode, off = torch.autograd.Function, torch.inference_mode, torch.set_grad_enabled
    applied, entered, switched = function.__dict__["apply"], mode.__enter__, off.__init__
    outside, found = _autocast_state(), list[str]()

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        run = applied.__get__(None, cls)
        if cls.__module__.startswith("torch."):
            return run(*args, **kwargs)
        found.append(f"the forward applies {cls.__qualname__}, which has its own gradient")
        try:
            return run(*args, **kwargs)
        except Exception as error:  # it is made for tensors with memory, say
            raise OriginalKept(found[-1]) from error

    def enter(self: torch.inference_mode) -> None:
        if self.mode:
            found.append("the forward switches to inference mode")
        entered(self)

    def switch(self: torch.set_grad_enabled, mode: bool) -> None:  # `no_grad` asks for it, too
        if not mode and _autocast_state() != outside:
            found.append("the forward switches gradients off under an autocast of its own")
        switched(self, mode)

    with (
        mock.patch.object(function, "apply", classmethod(apply)),
        mock.patch.object(mode, "__enter__", enter),
        mock.patch.object(off, "__init__", switch),
    ):
        yield found


def _autocast_state() -> tuple[tuple[bool, torch.dtype], ...]:
    kinds = ("cpu", "cuda")
    return tuple((torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds)


def said_of(found: list[str]) -> str:
    """All reasons, each once."""
    return "; ".join(dict.fromkeys(found))
