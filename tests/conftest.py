"""Shared by all tests: which of them this machine can run."""

from __future__ import annotations

import fnmatch
import functools
import gc
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import hypothesis
import pytest

# Test processes side by side share the cores: threads beyond them take ten times as long, waiting.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // int(workers))))

# Inductor compiles a few kernels here, and precompiled headers pay from many on.
os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")

# PyTorch's headers are most of what an emitted file takes to compile.
if shutil.which("g++") and shutil.which("flock"):
    os.environ.setdefault("CXX", str(Path(__file__).parent / "precompiled" / "g++"))

# A shell starts what runs behind it deaf to interrupts, and so would be the tools under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples at every run; OPWELD_FUZZ=long draws new ones, and many more.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.register_profile("long", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("OPWELD_FUZZ", "fixed"))


@functools.cache
def has_gpu() -> bool:
    """Whether the driver sees a device; asked of nvidia-smi, so that collecting needs no torch."""
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60).returncode == 0


def slow_patterns() -> list[str]:
    """Of node ids, from slow.txt."""
    lines = Path(__file__).with_name("slow.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="needs a CUDA device")
    slow = re.compile("|".join(map(fnmatch.translate, slow_patterns())))
    for item in items:
        if slow.match(item.nodeid):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Tests and modules stay to the end: the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()
