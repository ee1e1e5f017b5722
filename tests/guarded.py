"""Arrays that end at an unmapped page, and calls in a child process that such a page may stop."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from collections.abc import Callable, Sequence

import numpy as np

PAGE_BYTES = mmap.PAGESIZE
_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


class OutOfBounds(Exception):
    """A call touched memory outside its arrays, or ended its process in another way."""


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy with the same strides in memory shared with children; behind it is no memory."""
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True) if n > 1)
    num_bytes = reach + array.itemsize if array.size else 0
    span = -(-max(num_bytes, 1) // PAGE_BYTES) * PAGE_BYTES
    memory = mmap.mmap(-1, span + PAGE_BYTES)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _libc.mprotect(ctypes.c_void_p(begin + span), PAGE_BYTES, _PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy: np.ndarray = np.ndarray(
        array.shape, array.dtype, memory, span - num_bytes, array.strides if array.size else None
    )
    copy[...] = array
    return copy


def call_in_child(function: Callable[[], object], arrays: Sequence[np.ndarray]) -> None:
    """Calls `function`, which works on guarded arrays, in a process of its own.

    Raises OutOfBounds where the process does not end well.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            signal.signal(signal.SIGBUS, signal.SIG_DFL)
            function()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
        raise OutOfBounds(f"the call ended with {code} on {shapes}")
