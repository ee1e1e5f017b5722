"""Whether calls of a graph's convolutions take the host longer than their kernels the device."""

from __future__ import annotations

from ...ir.graph import Graph
from ...ir.plan import Conditions
from ...target import Target
from .recognised import NoProduct
from .windows import (
    HOST_KERNEL_US,
    HOST_LIBRARY_US,
    HOST_OURS_US,
    estimate_on_device,
    is_convolution,
    made_and_mode,
)


def is_host_bound(graph: Graph, target: Target, conditions: Conditions) -> bool:
    """Whether calling its convolutions takes the host longer than computing them the device."""
    if target.language != "cuda":
        return False
    device_us = host_us = 0.0
    for call in filter(is_convolution, graph.nodes()):
        try:
            made, mode = made_and_mode(call, target, conditions)
        except NoProduct:
            host_us += HOST_LIBRARY_US + HOST_KERNEL_US
            continue
        times = estimate_on_device(call, made, (call,), target, conditions.sizes, mode)
        device_us += min(times.ours, times.library)
        host_us += HOST_OURS_US if times.is_ours_better else HOST_LIBRARY_US + HOST_KERNEL_US
    return host_us > device_us
