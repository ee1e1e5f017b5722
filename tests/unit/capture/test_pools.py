"""Pooling against PyTorch, on ties, infinities and NaN: graph, text and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.capturing import assert_row, captured, exported, module_of, ops_of, run, tolerance
from tests.spelled import gradients, run_spelled

from opweld.ir.graph import Graph
from opweld.ir.ops import Op

INF = math.inf
LINE, PLANE, CUBE = (2, 3, 11), (2, 3, 7, 9), (2, 2, 5, 6, 7)


def finite(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Many equal elements, so that the first of them has to be found."""
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randint(-6, 7, shape, generator=generator).to(dtype) / 4


def hard(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A channel that is -inf throughout, one with infinities, and one with many NaN."""
    x = finite(shape, dtype)
    x[0, 0] = -INF
    x[0, 1].view(-1)[::3] = math.nan
    x[1, 0].view(-1)[::5] = INF
    x[1, 1].view(-1)[1::4] = -INF
    return x


def pools(function: Any, *options: dict[str, Any]) -> Callable[[torch.Tensor], Any]:
    """The function with each of the options, as one."""

    def every(x: torch.Tensor) -> Any:
        found = (function(x, **each) for each in options)
        return tuple(t for one in found for t in (one if isinstance(one, tuple) else (one,)))

    return every


def of(kernel_size: Any, *others: Any, **more: Any) -> dict[str, Any]:
    names = ("stride", "padding", "dilation")
    return {"kernel_size": kernel_size, **dict(zip(names, others, strict=False)), **more}


LINES = (of(2), of(3, 2, 1), of(3, 1, 1, 2), of(4, 3, 2, ceil_mode=True), of(1, 2), of(11))
PLANES = (
    of(2),
    of((3, 2), (1, 2), (1, 0)),
    of(3, 2, 1, ceil_mode=True),
    of(2, 3, 1, (3, 1)),
    of((3, 4), 2, (1, 2), (2, 3), ceil_mode=True),
    of((7, 1), 1),
    of((2, 9)),
)
CUBES = (of(2), of(3, (1, 2, 2), 1), of(2, 2, 1, (1, 2, 1), ceil_mode=True))
AVG_LINES = (of(2), of(3, 2, 1), of(4, 3, 2, ceil_mode=True), of(3, 2, 1, count_include_pad=False))
AVG_PLANES = (
    of(2),
    of((3, 2), (1, 2), (1, 0)),
    of(3, 2, 1, ceil_mode=True),
    of(3, 2, 1, ceil_mode=True, count_include_pad=False),
    of(3, (2, 1), (0, 1), count_include_pad=False),
    of(3, 2, 1, divisor_override=5),
)
AVG_CUBES = (of(2), of(3, 2, 1, count_include_pad=False), of(3, 2, 1, ceil_mode=True))


def with_places(options: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return [{**each, "return_indices": True} for each in options]


LARGEST = {
    "max_pool1d": (LINE, pools(F.max_pool1d, *LINES)),
    "max_pool2d": (PLANE, pools(F.max_pool2d, *PLANES)),
    "max_pool3d": (CUBE, pools(F.max_pool3d, *CUBES)),
    "max_pool1d places": (LINE, pools(F.max_pool1d, *with_places(LINES))),
    "max_pool2d places": (PLANE, pools(F.max_pool2d, *with_places(PLANES))),
    "max_pool3d places": (CUBE, pools(F.max_pool3d, *with_places(CUBES))),
    "adaptive_max_pool1d": ((2, 3, 12), lambda x: F.adaptive_max_pool1d(x, 4, True)),
    "adaptive_max_pool2d": ((2, 3, 6, 8), lambda x: F.adaptive_max_pool2d(x, (3, 1), True)),
    "adaptive_max_pool3d": (
        (2, 2, 4, 6, 4),
        lambda x: (
            *F.adaptive_max_pool3d(x, (2, 3, 1), True),
            F.adaptive_max_pool3d(x, (None, 1, 2)),
        ),
    ),
    "global max": (PLANE, lambda x: F.adaptive_max_pool2d(x, 1, True)),
    "without a batch": (PLANE, lambda x: (F.max_pool2d(x[0], 2), F.max_pool1d(x[0, 0], 3, 2))),
    "channels last": (
        PLANE,
        lambda x: F.max_pool2d(x.mT.flatten(2).mT.contiguous().mT.unflatten(2, (9, 7)), 3, 2, 1),
    ),
    "of a slice": (PLANE, lambda x: F.max_pool2d(x[:, :, 1::2, ::2].transpose(2, 3), 2)),
    "with pointwise work": (PLANE, lambda x: F.max_pool2d(torch.relu(x + 1), 3, 1, 1) * 2),
}
MEANS = {
    "avg_pool1d": (LINE, pools(F.avg_pool1d, *AVG_LINES)),
    "avg_pool2d": (PLANE, pools(F.avg_pool2d, *AVG_PLANES)),
    "avg_pool3d": (CUBE, pools(F.avg_pool3d, *AVG_CUBES)),
    "adaptive_avg_pool1d": ((2, 3, 12), lambda x: F.adaptive_avg_pool1d(x, 4)),
    "adaptive_avg_pool2d": (
        (2, 3, 6, 8),
        lambda x: (F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_avg_pool2d(x, (2, 1))),
    ),
    "adaptive_avg_pool3d": ((2, 2, 4, 6, 4), lambda x: F.adaptive_avg_pool3d(x, (2, 3, None))),
    "global mean": (PLANE, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "lp_pool": (PLANE, lambda x: (F.lp_pool2d(x.exp(), 2.0, 3, 2), F.lp_pool1d(x[0].exp(), 3, 2))),
    "lp_pool3d": (CUBE, lambda x: F.lp_pool3d(x.exp(), 2.0, 2)),
}
VIEWS = {
    "unfold": (PLANE, lambda x: (x.unfold(2, 3, 2), x.unfold(-1, 2, 1).unfold(1, 2, 1) * 2)),
    "windows of windows": (LINE, lambda x: x.unfold(2, 5, 3).unfold(3, 2, 2).sum((2, 4))),
}
EVERY = {**LARGEST, **MEANS, **VIEWS}
# Eager has no kernel for these on the CPU.
NOT_OF_HALF = ("avg_pool3d", "lp_pool3d")
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def module_for(function: Any) -> Any:
    def forward(self: Any, *inputs: torch.Tensor) -> Any:
        results = [function(x) for x in inputs]
        return [each for r in results for each in (r if isinstance(r, tuple) else (r,))]

    return module_of(forward)


def is_fused(graph: Graph) -> bool:
    """But for copies: the places in windows of one element are the same for all inputs."""
    calls = {node.attrs.target for node in graph.nodes() if node.op is Op.CALL}
    return calls <= {"aten.clone.default"}


@pytest.mark.parametrize("name", EVERY)
def test_graph_and_text(name: str) -> None:
    """What the graph means, and its text with the gradient of that."""
    shape, function = EVERY[name]
    given = [finite, hard] if name in LARGEST else [finite]
    types = TYPES if name not in NOT_OF_HALF else TYPES[:2]
    inputs = [make(shape, dtype) for make in given for dtype in types]
    module = module_for(function)
    variant = exported(module, *inputs)
    assert is_fused(variant.graph)
    expected = module(*inputs)
    for ours, theirs in zip(run(variant, module, *inputs), expected, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerance(theirs.dtype))
    x = inputs[1].requires_grad_()
    text, eager = run_spelled(variant.graph, module, *inputs), module(*inputs)
    for ours, theirs in zip(text, eager, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerance(theirs.dtype))
    (found,), (wanted,) = gradients(text, [x]), gradients(eager, [x])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    x = (torch.arange(2 * 6 * 7).reshape(2, 1, 6, 7) * 37 % 11).to(dtype)
    x[0] = torch.iinfo(dtype).min
    graph = assert_row(module_for(pools(F.max_pool2d, *with_places(PLANES[:5]))), x)
    assert is_fused(graph)


def test_a_window_is_padded_seen_and_condensed() -> None:
    graph = assert_row(module_for(lambda x: F.max_pool2d(x, 3, 2, 1)), finite(PLANE))
    assert ops_of(graph) == ["pad", "window", "window", "permute", "amax", "reshape"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), "several widths"),
        (lambda x: F.adaptive_max_pool2d(x, (4, 9)), "several widths"),
        (lambda x: F.max_pool2d(x.repeat(1, 1, 11, 9), 70), "more than 4096"),
        (lambda x: F.avg_pool2d(x.long(), 2), "integers"),
        (lambda x: F.unfold(x, 3), "sliding window"),
    ],
)
def test_what_stays_with_the_library_says_why(function: Any, reason: str) -> None:
    graph = assert_row(module_for(function), finite(PLANE))
    reasons = [node.attrs.reason for node in graph.nodes() if node.op is Op.CALL]
    assert reasons and reason in reasons[0]


def test_a_dynamic_batch_is_pooled() -> None:
    function = lambda x: (*F.max_pool2d(x, 3, 2, 1, return_indices=True), F.avg_pool2d(x, 2))  # noqa: E731
    graph = captured(module_for(function), finite(PLANE)).variants[0].graph
    assert is_fused(graph)
    assert "s0" in str(graph.inputs[0].type)
