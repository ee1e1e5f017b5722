"""What opweld generates in a suite, and publishes: whole under its name, and not to be changed.

A unit's folder is built in by its own first phase. The driver keeps a copy that nobody writes to,
and lays it out anew for each attempt to measure: what a candidate does to its folder ends with it.
It is always the same folder, as builds hold absolute paths and would be made again in another.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from opweld.delivery import write_whole

_READ_ONLY = ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)


class Artefacts:
    """Below `root`, which is removed in the end: `work` to build in, `kept` to copy from."""

    def __init__(self, root: Path) -> None:
        self._root = root
        remove(root)  # what a driver that was killed has left

    def folder(self, key: str) -> Path:
        """The folder of a unit, empty at first."""
        return self._root / "work" / key

    def publish(self, key: str) -> None:
        """Keeps what the unit's folder holds; nothing of it can be written to any more."""
        kept = self._kept(key)
        kept.parent.mkdir(parents=True, exist_ok=True)
        self.folder(key).rename(kept)
        for path in (kept, *kept.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & _READ_ONLY)

    def lay_out(self, key: str) -> Path | None:
        """The unit's folder with what was published, to be written to; None where nothing was."""
        kept, folder = self._kept(key), self.folder(key)
        remove(folder)
        if not kept.is_dir():
            return None
        shutil.copytree(kept, folder, symlinks=True)
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | stat.S_IWUSR)
        return folder

    def drop(self, key: str) -> None:
        """Nothing of the unit is wanted any more."""
        remove(self.folder(key))
        remove(self._kept(key))

    def close(self) -> None:
        remove(self._root)

    def _kept(self, key: str) -> Path:
        return self._root / "kept" / key


def remove(folder: Path) -> None:
    """Removes a folder, also one that was made read-only."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def deliver(files: Mapping[str, str], model: Path, key: str, output: Path | None) -> list[Path]:
    """Writes the files that a unit gave: beside its model, or all in one folder, where a part of
    the key keeps those of equal names apart.
    """
    written = []
    for name, text in files.items():
        stem, ending = os.path.splitext(name)
        out = output / f"{stem}_{key[:8]}{ending}" if output else model.with_name(name)
        write_whole(out, text)
        written.append(out)
    return written
