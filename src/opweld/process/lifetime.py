"""How processes of ours that hold torch begin and end, of which each takes seconds otherwise."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """While libraries are imported nothing is looked through for garbage: what they make stays.

    PyTorch with what exports models takes 5.0 s for 5.9 (EPYC, 2026-11-29).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def end(status: int = 0) -> NoReturn:
    """Ends this process after what is registered for its end, but takes no object apart: of PyTorch
    and what exports models that takes 1.5 s (EPYC, 2026-11-29). Threads are not waited for.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
