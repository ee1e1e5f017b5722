"""Forwards that seed random numbers, which is no operation: a graph would leave it out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from opweld.errors import OriginalKept


@contextlib.contextmanager
def refusing_seeds() -> Iterator[None]:
    """Within it, what seeds the generators of all devices raises OriginalKept in this thread."""
    capturing = threading.get_ident()

    def refusing(seeds: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == capturing:
                raise OriginalKept("the forward seeds the random numbers")
            return seeds(*args, **kwargs)

        return refuse

    with contextlib.ExitStack() as patched:
        for module in (torch, torch.random):
            for name in ("manual_seed", "seed"):
                refuse = refusing(getattr(module, name))
                patched.enter_context(mock.patch.object(module, name, refuse))
        yield
