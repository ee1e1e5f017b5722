"""Locks of devices, so that two suites on one machine take turns: what is timed is timed alone."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

CPU = "cpu"
_LOOK_S = 0.05


def folder() -> Path:
    """Where the locks of this user's suites are; it is the same for all of them."""
    return Path(tempfile.gettempdir(), f"opweld-locks-{os.getuid()}")


@contextlib.contextmanager
def held(device: str, stop: Callable[[], bool], where: Path | None = None) -> Iterator[bool]:
    """Waits until nobody else has the device, and keeps it; False where `stop` said so first.

    The system frees it when this process ends, however it does.
    """
    place = where or folder()
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(place / f"{re.sub(r'[^A-Za-z0-9-]', '_', device)}.lock")
    while not stop():
        try:
            lock.acquire(timeout=0)
        except Timeout:
            time.sleep(_LOOK_S)
            continue
        try:
            yield True
        finally:
            lock.release()
        return
    yield False
