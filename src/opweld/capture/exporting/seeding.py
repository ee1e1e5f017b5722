"""Forwards that seed random numbers, which is no operation: a graph would leave it out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from opweld.errors import OriginalKept


@contextlib.contextmanager
def refusing_seeds() -> Iterator[None]:
    """Within it, what seeds the generators of all devices raises OriginalKept."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OriginalKept("the forward seeds the random numbers")

    with contextlib.ExitStack() as patched:
        for module in (torch, torch.random):
            for name in ("manual_seed", "seed"):
                patched.enter_context(mock.patch.object(module, name, refuse))
        yield
