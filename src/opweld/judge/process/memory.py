"""How much memory a device has left."""

from __future__ import annotations

import torch


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
