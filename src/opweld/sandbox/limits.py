"""Limits on what a judged process takes: processes, the size of a file, memory, core dumps."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from pathlib import Path

# More than a build on many cores starts; a process that multiplies without end is stopped here.
_MORE_PROCESSES = 8192
_DISK_SHARE, _LEAST_FILE_BYTES = 0.5, 4 * 2**30
# CUDA maps far more memory than it uses, and the limit would count some of that.
_CUDA_DEVICE = Path("/dev/nvidiactl")


def limit_resources(files: bool) -> None:
    """Lower this process's own limits, which are also those of what it starts.

    With `files`, the size of a file is limited, too: half of the space that is free for temporary
    files, and 4 GiB at least. The number of processes is the system's for the user: those that
    there are, and 8192 more. Root may go beyond it.
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NPROC, _num_tasks() + _MORE_PROCESSES)
    if not _CUDA_DEVICE.exists():
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        _lower(resource.RLIMIT_DATA, pages * page_bytes)
    if files:
        free = shutil.disk_usage(tempfile.gettempdir()).free
        _lower(resource.RLIMIT_FSIZE, max(int(_DISK_SHARE * free), _LEAST_FILE_BYTES))


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    least = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (least, least))


def _num_tasks() -> int:
    """Threads of all processes of this machine, which are no fewer than the user's own."""
    fields = Path("/proc/loadavg").read_text("ascii").split()
    return int(fields[3].partition("/")[2])
