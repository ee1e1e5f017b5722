"""How much memory a device has left, and the memory of another process."""

from __future__ import annotations

import os

import torch
from torch import Tensor

# A layout with gaps is read with them, up to so many times its own bytes.
_MOST_GAPS, _SMALL_BYTES = 8, 2**20


def available_bytes(device: torch.device) -> int:
    """Memory that a new tensor could take now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + cached
    with open("/proc/meminfo", encoding="ascii") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


def make_room(device: torch.device) -> bool:
    """Give back what this process only caches, where another one may soon want it.

    The result says whether that was done.
    """
    if device.type != "cuda":
        return False
    free, total = torch.cuda.mem_get_info(device)
    if free >= total // 2:
        return False
    torch.cuda.empty_cache()
    return True


class ProcessMemory:
    """Reads what lies in another process, which is not asked and does not see it.

    It is opened when the process has not run any code of a candidate yet: later it might forbid it.
    """

    def __init__(self, pid: int) -> None:
        """Raises OSError where the system does not allow it."""
        self._file = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def read(self, address: int, num_bytes: int) -> Tensor:
        """The bytes there, as a tensor on the CPU.

        Raises:
            OSError: there is no such memory.
        """
        buffer = torch.empty(num_bytes, dtype=torch.uint8)
        view, done = memoryview(buffer.numpy()), 0
        while done < num_bytes:
            count = os.preadv(self._file, [view[done:]], address + done)
            if count <= 0:
                raise OSError("the memory ends")
            done += count
        return buffer

    def read_bytes(self, address: int, num_bytes: int) -> bytes:
        """The same as bytes, for a few of them."""
        found = os.pread(self._file, num_bytes, address)
        if len(found) != num_bytes:
            raise OSError("the memory ends")
        return found

    def close(self) -> None:
        os.close(self._file)


def extent_bytes(shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> int | None:
    """From the first byte of the elements to the last; None where that is mostly gaps."""
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    extent = (last + 1) * width
    return extent if extent <= max(_MOST_GAPS * count * width, _SMALL_BYTES) else None
