"""Locks of devices, so that two suites on one machine take turns: what is timed is timed alone.

The worker's process holds the lock, not who started it: where that is killed, the device is free
when the worker, and all that it runs, has ended, and no sooner.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from filelock import FileLock

CPU = "cpu"


def folder() -> Path:
    """Where the locks of this user's suites are; it is the same for all of them."""
    return Path(tempfile.gettempdir(), f"opweld-locks-{os.getuid()}")


def lock_of(device: str, where: Path) -> FileLock:
    """The lock of a device (the UUID of a GPU, or "cpu"), which is not taken yet.

    The system frees it when the process that holds it ends, however it does.
    """
    where.mkdir(parents=True, exist_ok=True, mode=0o700)
    return FileLock(where / f"{re.sub(r'[^A-Za-z0-9-]', '_', device)}.lock")
