"""Calls in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def recorded(call: Callable[[], Any], *others: Callable[[], Any]) -> tuple[Any, Any]:
    """A CUDA graph of `call`, and the results that its replays write to; before that all are
    called three times.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            for each in (call, *others):
                each()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        results = call()
    return graph, results
