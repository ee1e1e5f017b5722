"""Shared by all tests: which of them this machine can run."""

from __future__ import annotations

import functools
import shutil
import subprocess

import pytest


@functools.cache
def has_gpu() -> bool:
    """Whether the driver sees a device; asked of nvidia-smi, so that collecting needs no torch."""
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60).returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(skip)
