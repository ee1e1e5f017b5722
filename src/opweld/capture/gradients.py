"""Gradients of the user's own making, which a captured graph would lose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from opweld.errors import OriginalKept


@contextlib.contextmanager
def refusing_functions() -> Iterator[None]:
    """Raises CaptureError where a torch.autograd.Function outside torch is applied.

    Export traces through its forward and drops its backward.
    """
    function = torch.autograd.Function
    original = function.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if not cls.__module__.startswith("torch."):
            raise OriginalKept(
                f"the forward applies {cls.__qualname__}, which has its own gradient"
            )
        return original.__get__(None, cls)(*args, **kwargs)

    function.apply = classmethod(apply)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        function.apply = original  # type: ignore[method-assign]
