"""Runs the kernels of a graph on the CPU: the CUDA text by emulation, the C++ text as it is."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from tests.emulation.emulate import emulate

from opweld.device import CPP_FLAGS
from opweld.ir.expr import evaluate
from opweld.ir.graph import Graph, Node
from opweld.ir.kernel import Kernel
from opweld.ir.plan import GroupKind, Plan
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.target import CPU, SM_90A

NUMPY: dict[DType, type] = {
    DType.BOOL: np.bool_,
    DType.U8: np.uint8,
    DType.I8: np.int8,
    DType.I16: np.int16,
    DType.I32: np.int32,
    DType.I64: np.int64,
    DType.F16: np.float16,
    DType.BF16: np.uint16,
    DType.F32: np.float32,
    DType.F64: np.float64,
}


def poisoned(shape: Sequence[int], dtype: DType) -> np.ndarray:
    """An array in which an element that nobody writes shows."""
    array = np.empty(shape, NUMPY[dtype])
    array.reshape(-1).view(np.uint8)[...] = 1 if dtype is DType.BOOL else 0xA5
    return array


def run_groups(
    graph: Graph,
    feeds: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    *,
    language: str,
    variant: str = "contiguous",
    aligned: bool = True,
) -> list[np.ndarray]:
    """All outputs of a graph that plans to pointwise groups only.

    `feeds` has each source's array by its access text; with variant "strided" any strides will do.
    """
    plan = make_plan(graph, SM_90A if language == "cuda" else CPU)
    welded = lower(plan)
    source = render(graph.name, welded, language)
    values = {n.serial: feeds[n.attrs.access] for n in (*graph.inputs, *graph.weights)}
    for group, kernels in zip(_pointwise(plan), welded, strict=True):
        kernel = kernels.strided if variant == "strided" else kernels.contiguous
        operands = [values[node.serial] for node in group.inputs]
        results = [_output(node, sizes) for node in group.outputs]
        run = run_cuda if language == "cuda" else run_cpp
        run(source.text, kernel, operands, results, sizes, aligned)
        values |= {node.serial: array for node, array in zip(group.outputs, results, strict=True)}
    return [values[node.serial] for node in graph.outputs]


def _pointwise(plan: Plan):
    assert all(group.kind is GroupKind.POINTWISE for group in plan.groups)
    return plan.groups


def _output(node: Node, sizes: Mapping[str, int]) -> np.ndarray:
    return poisoned([evaluate(size, sizes) for size in node.type.shape], node.type.dtype)


def _extents(kernel: Kernel, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[int]:
    by_name = {b.name: array for b, array in zip(kernel.buffers, arrays, strict=True)}
    return [
        sizes[e.name]
        if e.axis is None or e.buffer is None
        else by_name[e.buffer].strides[e.axis] // by_name[e.buffer].itemsize
        for e in kernel.extents
    ]


def run_cuda(
    text: str,
    kernel: Kernel,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    aligned: bool,
) -> None:
    """One launch under emulation; every array lies against an unmapped page."""
    arrays = [*operands, *results]
    numbers = _extents(kernel, arrays, sizes)
    count = results[0].size
    if count:
        name = f"{kernel.name}_{kernel.variant}"
        emulate(text, name, [*arrays, *numbers, count, count, int(aligned)])


@cache
def _library(text: str) -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="opweld-test-"))
    source = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
    source.write_text(text)
    library = source.with_suffix(".so")
    subprocess.run(
        [
            "g++",
            "-std=c++17",
            "-shared",
            "-fPIC",
            *CPP_FLAGS,
            str(source),
            "-o",
            str(library),
            "-lmvec",
        ],
        check=True,
        timeout=120,
    )
    return ctypes.CDLL(str(library))


def run_cpp(
    text: str,
    kernel: Kernel,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    aligned: bool,
) -> None:
    """The whole range in two calls that split a row, as threads would."""
    arrays = [*operands, *results]
    function = getattr(_library(text), f"{kernel.name}_{kernel.variant}")
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    numbers = [ctypes.c_int64(number) for number in _extents(kernel, arrays, sizes)]
    count = results[0].size
    middle = count // 3
    for begin, end in ((0, middle), (middle, count)):
        function(*pointers, *numbers, ctypes.c_int64(begin), ctypes.c_int64(end))
