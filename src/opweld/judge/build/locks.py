"""Locks of extension builds that died: torch would wait for them for ever."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# torch's variable for the folder in which extensions are built
BUILDS = "TORCH_EXTENSIONS_DIR"


def remove_stale_locks(started: float, environ: Mapping[str, str] | None = None) -> None:
    """Free the extension folders that were locked since `started` (seconds of the epoch).

    A build holds its lock open for as long as it lives, so that those of builds which run beside
    this one stay.
    """
    given = (os.environ if environ is None else environ).get(BUILDS)
    root = Path(given) if given else Path.home() / ".cache" / "torch_extensions"
    fresh = [
        lock.resolve()
        for lock in (*root.glob("*/lock"), *root.glob("*/*/lock"))
        if _modified(lock) >= started
    ]
    if not fresh:
        return
    held = open_files()
    for lock in fresh:
        if str(lock) not in held:
            lock.unlink(missing_ok=True)


def open_files() -> set[str]:
    """Paths that some process of this machine has open, as far as we may look."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            descriptors = list(folder.iterdir())
        except OSError:
            continue  # it ended, or belongs to somebody else
        for descriptor in descriptors:
            try:
                found.add(os.readlink(descriptor))
            except OSError:
                continue
    return found


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
