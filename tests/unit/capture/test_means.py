"""Which means need more than a sum: those whose equal elements would not have exact sums."""

from __future__ import annotations

import pytest
import torch
from tests.capturing import graph_of, module_of
from torch.nn import functional

from opweld.ir.ops import Op

HALF, BFLOAT, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
FORWARDS = {
    "layer norm": lambda x: functional.layer_norm(x, x.shape[1:]),
    "group norm": lambda x: functional.group_norm(x[..., None], 2),
    "of what is computed": lambda x: functional.layer_norm(x * 3 + 1, x.shape[1:]),
    "variance": lambda x: x.var(1),
}


@pytest.mark.parametrize(
    ("name", "length", "dtype", "rounded_once"),
    [
        ("layer norm", 8, SINGLE, True),
        ("layer norm", 8, DOUBLE, True),
        ("layer norm", 8192, HALF, False),
        ("layer norm", 8193, HALF, True),
        ("layer norm", 65536, BFLOAT, False),
        ("layer norm", 65537, BFLOAT, True),
        ("group norm", 64, HALF, False),
        ("group norm", 64, SINGLE, True),
        ("of what is computed", 8, HALF, True),
        ("variance", 100003, SINGLE, False),
        ("variance", 8, DOUBLE, True),
    ],
)
def test_sums_of_few_digits_are_exact(
    name: str, length: int, dtype: torch.dtype, rounded_once: bool
) -> None:
    forward = FORWARDS[name]
    graph = graph_of(module_of(lambda self, x: forward(x)), torch.zeros(4, length, dtype=dtype))
    means = [node for node in graph.nodes() if node.op is Op.MEAN]
    assert bool(means) is rounded_once
