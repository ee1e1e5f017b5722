"""Whether CUDA starts in a confined process: drivers differ in what they open and run for that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

# Seconds: on a machine with eight GPUs the driver takes several.
_TIME_LIMIT_S = 120.0
# The driver alone, without torch, in less than a second: a context, and memory.
_START = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
steps = (
    lambda: cuda.cuInit(0),
    lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    lambda: cuda.cuCtxSetCurrent(context),
    lambda: cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)),
)
raise SystemExit(int(any(step() for step in steps)))
"""


def starts(environ: Mapping[str, str], launched: Callable[[Sequence[str]], list[str]]) -> bool:
    """Whether it does in a process with this environment, whose command line `launched` makes."""
    command = launched([sys.executable, "-c", _START])
    try:
        done = subprocess.run(
            command, env=dict(environ), capture_output=True, timeout=_TIME_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
