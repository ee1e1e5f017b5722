"""Every pointwise operator on PyTorch's own sample inputs, against PyTorch.

The coverage table (operator, dtype, fused or library, why) says what is fused; it must be what
the capture gives, so it can only get worse on purpose. `python -m tests.cpu.test_opinfo` rewrites
it."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.capturing import exported, run, tolerance
from torch import nn
from torch.utils import _pytree as pytree

from opweld.errors import CaptureError
from opweld.ir.graph import Graph, Leaf, topological
from opweld.ir.ops import Op

pytest.importorskip("expecttest", reason="torch's operator database needs it")
methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
opinfo = pytest.importorskip("torch.testing._internal.opinfo.core")

TABLE = Path(__file__).parents[1] / "coverage" / "pointwise.csv"
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool)
SAMPLES = 3
COPY = "aten.clone.default"
# Pointwise operators that the database does not list as unary or binary.
NAMED = frozenset(
    "addcdiv addcmul clamp fill heaviside lerp masked_fill nan_to_num where zero "
    "full_like ones_like zeros_like isclose clone contiguous to bfloat16 half float "
    "double int long bool byte char short float_power rsub".split()
    + [
        f"nn.functional.{name}"
        for name in "celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu "
        "logsigmoid mish prelu relu relu6 selu silu softplus softshrink softsign tanhshrink "
        "threshold logit hinge_loss".split()
    ]
)
# Complex numbers, and kernels written as CUDA text.
OUTSIDE = frozenset(
    "cdouble cfloat chalf complex conj conj_physical imag real polar jiterator_binary "
    "jiterator_binary_return_by_ref jiterator_unary "
    "nn.functional.rrelu".split()
)


def pointwise() -> list[Any]:
    """The pointwise entries, by name and variant."""
    kinds = (opinfo.UnaryUfuncInfo, opinfo.BinaryUfuncInfo)
    found = [op for op in methods.op_db if isinstance(op, kinds) or op.name in NAMED]
    found = [op for op in found if op.name not in OUTSIDE and "complex" not in op.variant_test_name]
    return sorted(found, key=lambda op: (op.name, op.variant_test_name))


@dataclass(frozen=True)
class Sample:
    """One call of the operator; its tensors are taken out of `leaves` and passed as inputs."""

    dtype: torch.dtype
    leaves: tuple[Any, ...]
    spec: Any

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]


def samples_of(op: Any, dtype: torch.dtype, count: int = SAMPLES) -> list[Sample]:
    if dtype not in op.supported_dtypes("cpu"):
        return []
    torch.manual_seed(0)
    given = list(itertools.islice(op.sample_inputs("cpu", dtype), count))
    flat = [pytree.tree_flatten((s.input, tuple(s.args), dict(s.kwargs))) for s in given]
    return [Sample(dtype, tuple(leaves), spec) for leaves, spec in flat]


class Calls(nn.Module):
    """The operator on several samples; the forward takes all their tensors."""

    def __init__(self, op: Any, samples: list[Sample]) -> None:
        super().__init__()
        self.op = op.op
        self.samples = samples

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        remaining = iter(tensors)
        return [self.call(sample, remaining) for sample in self.samples]

    def call(self, sample: Sample, tensors: Iterator[torch.Tensor]) -> Any:
        fresh = [
            next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in sample.leaves
        ]
        x, args, kwargs = pytree.tree_unflatten(fresh, sample.spec)
        return self.op(x, *args, **kwargs)


@dataclass(frozen=True)
class Row:
    op: str
    dtype: str
    status: str
    why: str


def check(op: Any) -> list[Row]:
    """Compares the graph with PyTorch and gives the rows of the table."""
    samples = [sample for dtype in DTYPES for sample in samples_of(op, dtype)]
    samples = [sample for sample in samples if sample.tensors]
    try:
        return rows(op, samples)
    except CaptureError:
        single = [[s for s in samples if s.dtype is dtype][:1] for dtype in DTYPES]
        return [row for some in single if some for row in refused_or_rows(op, some)]


def refused_or_rows(op: Any, samples: list[Sample]) -> list[Row]:
    try:
        return rows(op, samples)
    except CaptureError as error:
        return [row_of(op, samples[0].dtype, "library", error.sentence)]


def rows(op: Any, samples: list[Sample]) -> list[Row]:
    module = Calls(op, samples).eval()
    tensors = [tensor for sample in samples for tensor in sample.tensors]
    variant = exported(module, *tensors)
    graph = variant.graph
    expected = module(*(tensor.detach() for tensor in tensors))
    ours = iter(run(variant, module, *tensors))
    for sample, theirs in zip(samples, expected, strict=True):
        for tensor in pytree.tree_leaves(theirs):
            compare(next(ours), tensor, f"{op.formatted_name} of {sample.dtype}")
    firsts = {s.dtype: position for position, s in reversed(list(enumerate(samples)))}
    ends = graph.structure[1]
    return [
        row_of(op, dtype, *status(graph, ends[firsts[dtype]]))
        for dtype in DTYPES
        if dtype in firsts
    ]


def compare(ours: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(
        ours,
        theirs,
        equal_nan=True,
        msg=lambda text: f"{what}: {text}",
        **tolerance(theirs.dtype),
    )


def status(graph: Graph, structure: Any) -> tuple[str, str]:
    leaves = [structure] if isinstance(structure, Leaf) else pytree.tree_leaves(structure)
    roots = tuple(graph.outputs[leaf.index] for leaf in leaves if isinstance(leaf, Leaf))
    calls = [node for node in topological(roots) if node.op is Op.CALL]
    # The same constant for two samples is copied; that is no matter of the operator.
    calls = [c for c in calls if c.attrs.target != COPY or c.inputs[0].op is Op.INPUT]
    return ("library", calls[0].attrs.reason) if calls else ("fused", "")


def row_of(op: Any, dtype: torch.dtype, state: str, why: str) -> Row:
    return Row(op.formatted_name, str(dtype).removeprefix("torch."), state, why)


def table(path: Path = TABLE) -> dict[tuple[str, str], Row]:
    with path.open(newline="") as file:
        found = [Row(**line) for line in csv.DictReader(file)]
    return {(row.op, row.dtype): row for row in found}


def _parameters() -> list[Any]:
    """A third of them, from all over the list, is quick enough for every run."""
    slow = pytest.mark.slow
    return [
        pytest.param(op, id=op.formatted_name, marks=slow if number % 3 else ())
        for number, op in enumerate(pointwise())
    ]


@pytest.mark.parametrize("op", _parameters())
def test_operator(op: Any) -> None:
    recorded = table()
    for row in check(op):
        known = recorded.get((row.op, row.dtype))
        assert known == row, "the table differs; rewrite it with python -m tests.cpu.test_opinfo"


def test_the_table_has_no_others() -> None:
    names = {op.formatted_name for op in pointwise()}
    assert [row for row in table().values() if row.op not in names] == []


def rewrite(path: Path, found: list[Row]) -> None:
    """Writes the table anew. Rows that get worse are seen in the difference."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("op", "dtype", "status", "why"))
        writer.writerows((row.op, row.dtype, row.status, row.why) for row in found)


if __name__ == "__main__":
    rewrite(TABLE, [row for op in pointwise() for row in check(op)])
