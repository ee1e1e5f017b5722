"""What torch.compile makes of a model, to be timed beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

# CUDA graphs copy every input to memory of their own, which would be part of their figures.
MODES = {"compile": None, "autotune": "max-autotune-no-cudagraphs"}


def compiled_ways(
    eager: torch.nn.Module, inputs: list[Any], baselines: str
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """`baselines`, names of MODES between commas, called once; and why one is not there."""
    ways, failed = dict[str, Callable[[], Any]](), dict[str, str]()
    torch._dynamo.reset()
    for name in filter(None, baselines.split(",")):
        compiled = torch.compile(eager, mode=MODES[name])
        try:
            compiled(*inputs)
            ways[f"{name}_ms"] = partial(compiled, *inputs)
        except Exception as problem:
            failed[f"{name}_problem"] = f"{type(problem).__name__}: {problem}"[:500]
    return ways, failed
