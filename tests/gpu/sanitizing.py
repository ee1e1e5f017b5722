"""Emitted files under compute-sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

needs_sanitizer = pytest.mark.skipif(
    shutil.which("compute-sanitizer") is None, reason="needs compute-sanitizer"
)


# How a script begins that is given the path of an emitted file.
LOADED = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("emitted", sys.argv[1])
emitted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(emitted)
assert emitted.ModelNew._opweld.devices, "the kernels were not built"
"""
# The same, and a call that the kernels were not made for fails: nothing of ours would be watched.
KERNELS_ALONE = f"""{LOADED}
def original(*args):
    raise AssertionError("the original ran")

emitted._Original.forward = original
"""


def require_nothing_found(tool: str, calls: str, new: Path) -> None:
    command = [sys.executable, "-c", calls, str(new)]
    # The caching allocator would hide an access past the end of a tensor.
    environ = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    subprocess.run(command, env=environ, check=True, timeout=300)  # builds before it is watched
    # PyTorch's own reductions are not free of races, for the tool at least.
    watched = ["--error-exitcode", "9", "--kernel-name-exclude", "kernel_substring=at6native"]
    done = subprocess.run(
        ["compute-sanitizer", "--tool", tool, *watched, *command],
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    summary = "RACECHECK SUMMARY: 0 hazards" if tool == "racecheck" else "ERROR SUMMARY: 0 errors"
    assert summary in done.stdout
