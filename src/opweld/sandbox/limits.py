"""Limits on what a judged process takes: processes, the size of a file, memory, core dumps."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from pathlib import Path

# More than a build on many cores starts; a process that multiplies without end is stopped here.
_MORE_PROCESSES = 8192
# Of the free disk or, as shared memory counts as a file, of all memory.
_FILE_SHARE = 0.5
_GPU_DRIVER = Path("/dev/nvidiactl")


def has_gpu_driver() -> bool:
    """Whether programs of this machine can use an NVIDIA GPU."""
    return _GPU_DRIVER.exists()


def limit_resources(files: bool) -> None:
    """Lower this process's own limits, which are also those of what it starts.

    With `files`, the size of a file is limited, too: half of the space that is free for temporary
    files, or half of the memory if that is more. The number of processes is the system's for the
    user: those that there are, and 8192 more. Root may go beyond it.
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NPROC, _num_tasks() + _MORE_PROCESSES)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # CUDA maps far more memory than it uses, and the limit would count some of that.
    if not has_gpu_driver():
        _lower(resource.RLIMIT_DATA, memory)
    if files:
        free = shutil.disk_usage(tempfile.gettempdir()).free
        _lower(resource.RLIMIT_FSIZE, int(_FILE_SHARE * max(free, memory)))


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    least = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (least, least))


def _num_tasks() -> int:
    """Threads of all processes of this machine, which are no fewer than the user's own."""
    fields = Path("/proc/loadavg").read_text("ascii").split()
    return int(fields[3].partition("/")[2])
