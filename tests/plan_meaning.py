"""The meaning of plans, group by group: what a right rendering of their kernels computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tests.kernel_meaning import Array, apply, run_kernel, stored
from tests.reduction_meaning import run_reduction

from opweld.ir.attrs import CallAttrs
from opweld.ir.check import check
from opweld.ir.expr import Size, evaluate, substitute, symbol
from opweld.ir.graph import Node
from opweld.ir.kernels.kernel import Kernel, Load, Pointwise
from opweld.ir.kernels.reduction import Lowered, Reduction, Scan
from opweld.ir.numpy.interpret import Calls, bind_sizes, numbered
from opweld.ir.ops import OPS, Kind, Op
from opweld.ir.plan import Group, GroupKind, Plan

Execute = Callable[[Kernel, Sequence[Array], Mapping[str, int]], tuple[Array, ...]]
ExecuteRows = Callable[
    [Reduction | Scan, str, Sequence[Array], Sequence[tuple[int, ...]], Mapping[str, int]],
    tuple[Array, ...],
]
"""Runs a variant of a reduction on operands, to results of these shapes."""


def run_plan(
    plan: Plan,
    kernels: Sequence[Lowered],
    feeds: Mapping[str, Array],
    sizes: Mapping[str, int],
    *,
    variant: str = "contiguous",
    calls: Calls | None = None,
    execute: Execute | None = None,
    execute_rows: ExecuteRows | None = None,
) -> tuple[Array, ...]:
    """The outputs of a plan, group by group. A buffer that a group takes over is gone then.

    `execute` runs a kernel and `execute_rows` a reduction; without them, `run_kernel` and
    `run_reduction` evaluate their meaning.
    """
    check(plan)
    sizes = bind_sizes(plan.graph, feeds, sizes)
    fused = {each.group: each for each in kernels}
    sources = (*plan.graph.inputs, *plan.graph.weights)
    values = {n.serial: stored(feeds[n.attrs.access], n.type.dtype) for n in sources}
    _require_order(plan)
    for group in plan.groups:
        if group.kind is GroupKind.POINTWISE:
            check(fused[group.name])
            _run_fused(group, fused[group.name], values, sizes, variant, execute or run_kernel)
        elif group.kind in (GroupKind.REDUCTION, GroupKind.SCAN):
            check(fused[group.name])
            fold = execute_rows or run_reduction
            _run_reduction(group, fused[group.name], values, sizes, variant, fold)
        else:
            for node in group.nodes:
                values[node.serial] = _node_value(node, values, sizes, calls)
    return tuple(_value(node, values) for node in plan.graph.outputs)


def _require_order(plan: Plan) -> None:
    """Calls that draw random numbers run in the program's order."""
    calls = [n for group in plan.groups for n in group.nodes if n.op is Op.CALL and n.attrs.draws]
    serials = [node.serial for node in calls]
    assert serials == sorted(serials)


def _run_fused(
    group: Group,
    fused: Pointwise,
    values: dict[int, Array],
    sizes: Mapping[str, int],
    variant: str,
    execute: Execute,
) -> None:
    kernel = fused.strided if variant == "strided" else fused.contiguous
    operands = [_value(node, values) for node in group.inputs]
    if variant == "contiguous":
        operands = [np.asarray(operand, order="C") for operand in operands]
    if group.reuse is not None:
        _require_in_place(fused, group.reuse)
        del values[group.inputs[group.reuse].serial]
    results = execute(kernel, operands, sizes)
    for node, result in zip(group.outputs, results, strict=True):
        values[node.serial] = result.reshape([evaluate(size, sizes) for size in node.type.shape])


def _run_reduction(
    group: Group,
    reduction: Reduction | Scan,
    values: dict[int, Array],
    sizes: Mapping[str, int],
    variant: str,
    fold: ExecuteRows,
) -> None:
    operands = [_value(node, values) for node in group.inputs]
    if variant == "contiguous":
        operands = [np.asarray(operand, order="C") for operand in operands]
    shapes = [tuple(evaluate(size, sizes) for size in node.type.shape) for node in group.outputs]
    results = fold(reduction, variant, operands, shapes, sizes)
    for node, result in zip(group.outputs, results, strict=True):
        values[node.serial] = result


def _require_in_place(fused: Pointwise, position: int) -> None:
    """An element that is overwritten is read where it is written, and nowhere else."""
    taken = next(b for b in fused.strided.buffers if not b.written and b.source == position)
    for kernel in (fused.contiguous, fused.strided):
        place = kernel.stores[0]
        strides: dict[str, Size] = {
            f"{place.buffer}_stride{axis}": symbol(f"{taken.name}_stride{axis}")
            for axis in range(taken.rank)
        }
        for load in kernel.definitions:
            if isinstance(load, Load) and load.buffer == taken.name:
                moved = substitute(place.address, strides)
                assert load.address == moved, f"{fused.group} overwrites what it still reads"


def _value(node: Node, values: Mapping[int, Array]) -> Array:
    value = values[node.serial]
    return value[0] if isinstance(value, tuple) else value


def _node_value(
    node: Node, values: Mapping[int, Array], sizes: Mapping[str, int], calls: Calls | None
) -> object:
    attrs = numbered(node.attrs, sizes) if node.op is not Op.CALL else node.attrs
    if node.op is Op.CONST:
        return stored(attrs.value, node.type.dtype)
    if node.op is Op.IOTA:
        return stored(attrs.start + attrs.step * np.arange(attrs.length), node.type.dtype)
    if node.op is Op.ITEM:
        return values[node.inputs[0].serial][attrs.index]
    operands = [_constant_or(values, operand) for operand in node.inputs]
    if isinstance(attrs, CallAttrs):
        assert calls is not None
        return tuple(calls(attrs, tuple(operands)))
    if node.kind is Kind.VIEW:
        return np.array(OPS[node.op].evaluate(*operands, attrs))  # type: ignore[misc]
    return stored(apply(node.op, operands, attrs, node.type.dtype), node.type.dtype)


def _constant_or(values: Mapping[int, Array], node: Node) -> Array:
    if node.op is Op.CONST:
        return stored(node.attrs.value, node.type.dtype)
    return _value(node, values)
