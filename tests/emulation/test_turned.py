"""Threads that go through rows, with what is the same in all of them at hand: by emulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.kernels import run_groups
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.graph import Graph
from opweld.ir.kernels.kernel import Pointwise
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render.cuda.texts import cuda_text
from opweld.target import SM_90A

# All that repeats is out of such a cache when it does.
NO_CACHE = replace(SM_90A, cache_bytes=16)


def affine(m: Make, dtype: DType = DType.F32):
    """With scalars of each row, and with a bias that repeats more often."""
    x, mean = m.x("x", BATCH, 3, 48, dtype=dtype), m.x("mean", BATCH, 1, 1, dtype=dtype)
    w, b = m.x("w", 3, 48, dtype=dtype), m.x("b", 48, dtype=dtype)
    return m.add(m.mul(m.sub(x, mean), w), b)


def two_outer_loops(m: Make, dtype: DType = DType.F32):
    """They stay two: an operand knows the second alone."""
    x, column = m.x("x", BATCH, 5, 32, dtype=dtype), m.x("column", 5, 1, dtype=dtype)
    w = m.x("w", 32, dtype=dtype)
    y = m.mul(m.add(x, column), w)
    return m.gt(y, w), y


def single_lanes(m: Make, dtype: DType = DType.F32):
    """An operand whose lanes have addresses of their own, and one under conditions."""
    x, w = m.x("x", BATCH, 4, 16, dtype=dtype), m.x("w", 16, 4, dtype=dtype)
    padded = m.pad(m.x("part", BATCH, 4, 12, dtype=dtype), (0, 0, 1), (0, 0, 3))
    return m.add(m.mul(x, m.permute(w, 1, 0)), m.add(padded, m.x("row", 16, dtype=dtype)))


MODELS = (affine, two_outer_loops, single_lanes)


def made(model: Callable, dtype: DType = DType.F32) -> Graph:
    outputs = model(Make(), dtype)
    return graph(*(outputs if isinstance(outputs, tuple) else (outputs,)))


def kernel_of(g: Graph) -> Pointwise:
    (fused,) = lower(make_plan(g, NO_CACHE))
    return fused


def feeds(g: Graph, rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    shapes = {
        node.attrs.access: [size if isinstance(size, int) else rows for size in node.type.shape]
        for node in g.inputs
    }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def test_threads_go_through_the_loops_that_held_operands_do_not_know():
    assert kernel_of(made(affine)).contiguous.turned == 1
    assert kernel_of(made(two_outer_loops)).contiguous.turned == 2
    assert kernel_of(made(single_lanes)).contiguous.turned == 2
    m = Make()
    odd = graph(m.mul(m.x("x", BATCH, 23), m.x("w", 23)))  # packets would reach over the end
    assert kernel_of(odd).contiguous.turned == 0


@pytest.mark.parametrize("rows", (1, 3, 4, 9))
@pytest.mark.parametrize("model", MODELS)
def test_rows_in_turn(model, rows):
    g = made(model)
    given = feeds(g, rows)
    expected = interpret_outputs(g, given, {"s0": rows})
    for how in ({}, {"aligned": False}, {"wide_indices": True}, {"variant": "strided"}):
        found = run_groups(g, given, {"s0": rows}, language="cuda", target=NO_CACHE, **how)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@needs_nvcc
@pytest.mark.parametrize("dtype", (DType.F32, DType.BF16, DType.F64))
def test_nothing_is_spilled(dtype):
    kernels = tuple(
        lowered
        for number, model in enumerate(MODELS)
        for lowered in lower(make_plan(made(model, dtype), NO_CACHE, suffix=f"_{number}"))
    )
    require_no_spills(compile_cuda(cuda_text(kernels)))
