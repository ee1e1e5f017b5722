"""Every reduction, scan, norm, loss and indexed read on PyTorch's own samples, against PyTorch,
with gradients.

`python -m tests.cpu.test_opinfo_reductions` rewrites the coverage table, which must be what the
capture gives. A row counts samples: fused, library, or how many of them are fused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.capturing import exported, run
from tests.cpu.test_opinfo import (
    DTYPES,
    Calls,
    Row,
    Sample,
    compare,
    methods,
    rewrite,
    row_of,
    samples_of,
    status,
    table,
)
from tests.spelled import gradients, run_spelled
from torch.utils import _pytree as pytree

from opweld.errors import CaptureError
from opweld.ir.graph import Graph

TABLE = Path(__file__).parents[1] / "coverage" / "reductions.csv"
GIVEN, SAMPLES = 100, 5
NAMES = frozenset(
    "sum mean prod amax amin max min argmax argmin aminmax any all count_nonzero nansum nanmean "
    "var std var_mean std_mean norm dist logsumexp softmax log_softmax linalg.norm "
    "gather index_select take_along_dim "
    "linalg.matrix_norm linalg.vector_norm cumsum cumprod cummax cummin logcumsumexp".split()
    + [
        f"nn.functional.{name}"
        for name in "softmin normalize cosine_similarity pairwise_distance group_norm layer_norm "
        "instance_norm rms_norm batch_norm adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d mse_loss l1_loss smooth_l1_loss huber_loss kl_div soft_margin_loss "
        "binary_cross_entropy binary_cross_entropy_with_logits hinge_embedding_loss "
        "margin_ranking_loss cosine_embedding_loss triplet_margin_loss "
        "triplet_margin_with_distance_loss poisson_nll_loss multilabel_soft_margin_loss "
        "cross_entropy nll_loss max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d "
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d embedding one_hot".split()
    ]
)
# Elementwise forms, and matrix norms by singular values.
OUTSIDE = ("max_binary", "min_binary", "norm_nuc", "nn_functional_batch_norm_without_cudnn")


def reductions() -> list[Any]:
    found = [op for op in methods.op_db if op.name in NAMES and op.formatted_name not in OUTSIDE]
    return sorted(found, key=lambda op: op.formatted_name)


class Plain(Calls):
    """Tuples with names are returned as plain ones."""

    def call(self, sample: Sample, tensors: Any) -> Any:
        result = super().call(sample, tensors)
        return tuple(result) if isinstance(result, tuple) else result


def tensors_of(samples: list[Sample]) -> list[torch.Tensor]:
    return [tensor.detach() for sample in samples for tensor in sample.tensors]


def chosen(op: Any, dtype: torch.dtype) -> list[Sample]:
    """Samples whose first tensor has axes."""
    found = samples_of(op, dtype, GIVEN)
    return [s for s in found if s.tensors and s.tensors[0].dim()][:SAMPLES]


def taken(op: Any, samples: list[Sample]) -> list[Sample]:
    """Samples that capture takes; those whose forward it refuses are left out."""
    if is_taken(op, samples):
        return samples
    return [sample for sample in samples if is_taken(op, [sample])]


def is_taken(op: Any, samples: list[Sample]) -> bool:
    try:
        exported(Plain(op, samples), *tensors_of(samples))
    except CaptureError:
        return False
    return True


def check(op: Any) -> list[Row]:
    """Compares the graph with PyTorch and gives the rows of the table."""
    samples = taken(op, [sample for dtype in DTYPES for sample in chosen(op, dtype)])
    module, tensors = Plain(op, samples).eval(), tensors_of(samples)
    variant = exported(module, *tensors)
    compare_all(op, samples, run(variant, module, *tensors), op.formatted_name)
    check_text(variant.graph, op, samples)
    ends = zip(samples, variant.graph.structure[1], strict=True)
    found = [(sample.dtype, status(variant.graph, end)) for sample, end in ends]
    states = {dtype: [state for other, state in found if other is dtype] for dtype in DTYPES}
    return [row_of(op, dtype, *summary(each)) for dtype, each in states.items() if each]


def compare_all(op: Any, samples: list[Sample], ours: list[torch.Tensor], what: str) -> None:
    """With eager's results; of 16-bit types with those or with what float32 gives."""
    expected = pytree.tree_leaves(Plain(op, samples)(*tensors_of(samples)))
    for one, theirs, wide in zip(ours, expected, exact(op, samples), strict=True):
        if one.dtype.itemsize == 2 and one.is_floating_point() and not is_near(one, theirs):
            theirs = wide.to(one.dtype)
        compare(one, theirs, what)


def is_near(one: torch.Tensor, theirs: torch.Tensor) -> bool:
    try:
        compare(one, theirs, "")
    except AssertionError:
        return False
    return True


def exact(op: Any, samples: list[Sample]) -> list[torch.Tensor]:
    """What eager gives for 16-bit samples in float32: it would round at each step."""
    wide = [
        Sample(s.dtype, tuple(map(widened, s.leaves)), s.spec) if s.dtype.itemsize == 2 else s
        for s in samples
    ]
    return pytree.tree_leaves(Plain(op, wide)(*tensors_of(wide)))


def widened(leaf: Any) -> Any:
    half = isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float16, torch.bfloat16)
    return leaf.float() if half else leaf


def check_text(graph: Graph, op: Any, samples: list[Sample]) -> None:
    """The text that references are made of: values, and gradients in float64."""
    module, tensors = Plain(op, samples), tensors_of(samples)
    inputs = differentiable(op, samples, tensors)
    ours, expected = run_spelled(graph, module, *tensors), pytree.tree_leaves(module(*tensors))
    compare_all(op, samples, ours, f"the text of {op.formatted_name}")
    pairs = gradients(ours, inputs), gradients(expected, inputs)
    for one, theirs in zip(*pairs, strict=True):
        assert (one is None) == (theirs is None), op.formatted_name
        if theirs is not None:
            compare(one, theirs, f"a gradient of {op.formatted_name}")


def differentiable(
    op: Any, samples: list[Sample], tensors: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The float64 tensors, of each sample as many as eager has gradients for."""
    remaining, found = iter(tensors), []
    for sample in samples:
        own = [next(remaining) for _ in sample.tensors]
        if sample.dtype is torch.float64:
            doubles = [tensor for tensor in own if tensor.dtype is torch.float64]
            found += with_gradients(op, sample, own, doubles)
    return found


def with_gradients(
    op: Any, sample: Sample, own: list[torch.Tensor], doubles: list[torch.Tensor]
) -> list[torch.Tensor]:
    for tensor in doubles:
        tensor.requires_grad_()
    try:
        Plain(op, [sample])(*own)
    except RuntimeError:  # a loss that is no function of its target, for instance
        for tensor in doubles[1:]:
            tensor.requires_grad_(False)
        return doubles[:1]
    return doubles


def summary(states: list[tuple[str, str]]) -> tuple[str, str]:
    """How many samples are fused, and why the first that is not is not."""
    reasons = [why for state, why in states if state != "fused"]
    if not reasons:
        return "fused", ""
    fused = len(states) - len(reasons)
    return f"{fused} of {len(states)}" if fused else "library", reasons[0]


# One of each kind; the others take minutes, and are slow.
QUICK = frozenset(
    "sum mean prod amax max_reduction_with_dim argmax any var std_mean logsumexp softmax "
    "log_softmax linalg_vector_norm nn_functional_layer_norm nn_functional_group_norm "
    "nn_functional_mse_loss nn_functional_cosine_similarity".split()
)


def _parameters() -> list[Any]:
    slow = pytest.mark.slow
    return [
        pytest.param(op, id=op.formatted_name, marks=() if op.formatted_name in QUICK else slow)
        for op in reductions()
    ]


@pytest.mark.parametrize("op", _parameters())
def test_reduction(op: Any) -> None:
    recorded = table(TABLE)
    for row in check(op):
        known = recorded.get((row.op, row.dtype))
        assert known == row, (
            "the table differs; rewrite it with python -m tests.cpu.test_opinfo_reductions"
        )


def test_the_table_has_no_others() -> None:
    names = {op.formatted_name for op in reductions()}
    assert [row for row in table(TABLE).values() if row.op not in names] == []


if __name__ == "__main__":
    rewrite(TABLE, [row for op in reductions() for row in check(op)])
