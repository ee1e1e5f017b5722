"""Clusters -> groups: names, operands, results, schedule, estimate and reason, in running order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from ..ir.graph import Node
from ..ir.kernels.attention import Attention
from ..ir.kernels.convolution import Convolution
from ..ir.kernels.product import Product
from ..ir.loop import loop_of
from ..ir.measured import Table
from ..ir.ops import Kind, Op
from ..ir.plan import Conditions, Estimate, Group, GroupKind, Rows, Schedule
from ..ir.views import behind_views, is_copy, is_free_view
from ..target import Target
from .cost import estimate
from .fusion import MAX_CLUSTER_NODES, Cluster
from .measured import scheduled
from .products.choice import Choice
from .products.windows import schedule_of
from .rows import parallelism, rows_of, scanned_rows_of
from .schedule import (
    choose_attention_schedule,
    choose_contraction_schedule,
    choose_reduction_schedule,
    choose_scan_schedule,
)
from .two_kernels import folds_and_maps, kept_by_all
from .uses import CALCULATING, Uses, computes, reads_of


@dataclass(frozen=True, slots=True)
class _Context:
    uses: Uses
    target: Target
    choice: Choice
    excluded: frozenset[str]
    suffix: str
    conditions: Conditions
    table: Table


def make_groups(
    uses: Uses,
    clusters: tuple[Cluster, ...],
    target: Target,
    choice: Choice,
    excluded: frozenset[str],
    suffix: str,
    conditions: Conditions,
    table: Table,
) -> tuple[Group, ...]:
    """All groups of the graph in an order in which each one's operands exist."""
    units = [cluster.nodes for cluster in clusters]
    units += [[node] for node in uses.nodes if _stands_alone(uses, node)]
    context = _Context(uses, target, choice, excluded, suffix, conditions, table)
    return _named(context, _ordered(uses, units))


def _stands_alone(uses: Uses, node: Node) -> bool:
    """Whether a node that no cluster computes is needed as a tensor."""
    if node.kind is Kind.OPAQUE:
        return node.serial not in uses.products
    return (is_free_view(node) or node.op in (Op.CONST, Op.IOTA)) and node.serial in uses.shown


def _ordered(uses: Uses, units: list[list[Node]]) -> list[list[Node]]:
    """Units in topological order; of those that could be next, the one whose first node is."""
    unit_of = {node.serial: index for index, unit in enumerate(units) for node in unit}
    needs = [_units_read(uses, unit, unit_of) - {index} for index, unit in enumerate(units)]
    needed_by: list[list[int]] = [[] for _ in units]
    for index, read in enumerate(needs):
        for other in sorted(read):
            needed_by[other].append(index)
    missing = [len(read) for read in needs]
    ready = [(uses.place[units[i][0].serial], i) for i, count in enumerate(missing) if not count]
    heapify(ready)
    done: list[list[Node]] = []
    while ready:
        _, index = heappop(ready)
        done.append(units[index])
        for other in needed_by[index]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, (uses.place[units[other][0].serial], other))
    assert len(done) == len(units), "clusters need each other"
    return done


def _units_read(uses: Uses, unit: list[Node], unit_of: dict[int, int]) -> set[int]:
    """The units that run before: a kernel reads behind views, all else reads the views."""
    found: set[int] = set()
    for node in unit:
        for read in _reads(uses, node):
            if read.serial in unit_of:
                found.add(unit_of[read.serial])
    return found | {unit_of[uses.drawn_before[n.serial].serial] for n in unit if _draws(uses, n)}


def _reads(uses: Uses, node: Node) -> tuple[Node, ...]:
    if node.serial in uses.products:
        return reads_of(uses.products[node.serial])
    return tuple(map(behind_views, node.inputs)) if computes(node) else node.inputs


def _draws(uses: Uses, node: Node) -> bool:
    return node.serial in uses.drawn_before


def _named(context: _Context, units: list[list[Node]]) -> tuple[Group, ...]:
    groups: list[Group] = []
    num_kernels = 0
    for unit in units:
        fused = any(_calculates(n) or n.serial in context.uses.products for n in unit)
        num_kernels += fused
        groups.append(_group(context, unit, num_kernels if fused else 0))
    return tuple(groups)


def _calculates(node: Node) -> bool:
    return node.kind in CALCULATING


def _group(context: _Context, unit: list[Node], number: int) -> Group:
    anchor = next((node for node in unit if node.serial in context.uses.products), None)
    if anchor is None and not computes(unit[0]):
        return _one_node(context, unit[0])
    if not number:
        return _unfused(
            context, _slug(context.uses, unit), unit, "only moves data, which PyTorch does as well"
        )
    name = f"k{number}_{_slug(context.uses, unit)}{context.suffix}"
    if name in context.excluded:
        reason = "measured slower than the PyTorch calls it replaces"
        return _unfused(context, name, unit, reason)
    if not _operands(context.uses, unit):
        return _unfused(context, name, unit, "depends on no input, so no device is given for it")
    if anchor:
        made = context.uses.products[anchor.serial]
        if isinstance(made, Attention):
            return _attention(context, name, unit, anchor, made)
        if isinstance(made, Convolution):
            return _convolution(context, name, unit, anchor, made)
        return _contraction(context, name, unit, anchor, made)
    reduced = next((node for node in unit if node.kind is Kind.REDUCTION), None)
    if reduced is not None:
        return _reduction(context, name, unit, reduced)
    scanned = next((node for node in unit if node.kind is Kind.SCAN), None)
    if scanned is not None:
        return _scan(context, name, unit, scanned)
    return _pointwise(context, name, unit)


NO_ESTIMATE = Estimate(0, 0, "library")


def _one_node(context: _Context, node: Node) -> Group:
    """A PyTorch call, a constant or a view, as a tensor."""
    inputs = tuple(o for o in dict.fromkeys(node.inputs) if o.op is not Op.CONST)
    kind = GroupKind.VIEW if is_free_view(node) else GroupKind.LIBRARY
    kind = GroupKind.LOOP if loop_of(node) else kind
    name, reason = node.op.value, "a value that depends on no input"
    if node.op is Op.CALL:
        name = node.attrs.target.split(".")[1]
        reason = context.choice.refused.get(node.serial, node.attrs.reason)
    elif node.inputs:
        reason = "a result of a call" if node.op is Op.ITEM else "a view moves no data"
    return Group(name, kind, (node,), inputs, (node,), None, NO_ESTIMATE, reason)


def _unfused(context: _Context, name: str, unit: list[Node], reason: str) -> Group:
    """What a cluster computes, done by PyTorch's own operations."""
    inputs = _operands(context.uses, unit)
    nodes, outputs = _with_views(context.uses, unit, inputs), context.uses.results(unit)
    return Group(name, GroupKind.LIBRARY, nodes, inputs, outputs, None, NO_ESTIMATE, reason)


def _pointwise(context: _Context, name: str, unit: list[Node]) -> Group:
    inputs = _operands(context.uses, unit)
    nodes = _with_views(context.uses, unit, inputs)
    outputs = context.uses.results(unit)
    group = Group(
        name,
        GroupKind.POINTWISE,
        nodes,
        inputs,
        outputs,
        None,
        Estimate(0, 0, ""),
        _reason(unit, outputs),
    )
    return scheduled(group, context.target, context.conditions.sizes, context.table)


def _attention(
    context: _Context, name: str, unit: list[Node], anchor: Node, attention: Attention
) -> Group:
    schedule = choose_attention_schedule(attention, context.target)
    group = _anchored(context, name, unit, anchor, GroupKind.ATTENTION, schedule)
    return _estimated(context, replace(group, attention=attention))


def _convolution(
    context: _Context, name: str, unit: list[Node], anchor: Node, convolution: Convolution
) -> Group:
    mode, sizes = context.choice.modes[anchor.serial], context.conditions.sizes
    schedule = schedule_of(convolution, mode, sizes=sizes)
    group = _anchored(context, name, unit, anchor, GroupKind.CONVOLUTION, schedule)
    return _estimated(context, replace(group, convolution=convolution))


def _contraction(
    context: _Context, name: str, unit: list[Node], anchor: Node, product: Product
) -> Group:
    mode, sizes = context.choice.modes[anchor.serial], context.conditions.sizes
    schedule = choose_contraction_schedule(product, mode, context.target, sizes)
    group = _anchored(context, name, unit, anchor, GroupKind.CONTRACTION, schedule)
    return _estimated(context, replace(group, product=product))


_MADE = {
    GroupKind.ATTENTION: "attention as one kernel",
    GroupKind.CONVOLUTION: "a convolution",
    GroupKind.CONTRACTION: "a matrix product",
}


def _anchored(
    context: _Context,
    name: str,
    unit: list[Node],
    anchor: Node,
    kind: GroupKind,
    schedule: Schedule,
) -> Group:
    """The group of `anchor` and its epilogue, without what the anchor computes and an estimate."""
    inputs = _operands(context.uses, unit)
    return Group(
        name,
        kind,
        _with_views(context.uses, unit, inputs),
        inputs,
        context.uses.results(unit),
        schedule,
        NO_ESTIMATE,
        _made_reason(_MADE[kind], unit, context.choice.accepted[anchor.serial]),
        anchor=anchor,
    )


def _estimated(context: _Context, group: Group) -> Group:
    return replace(group, estimate=estimate(group, context.target))


def _reduction(context: _Context, name: str, unit: list[Node], reduced: Node) -> Group:
    inputs, outputs = _operands(context.uses, unit), context.uses.results(unit)
    space, axes = reduced.inputs[0].type.shape, reduced.attrs.axes
    side_by_side = parallelism(context.target, context.conditions)
    pieces = side_by_side.needs_pieces(space, axes)
    rows = rows_of(unit, outputs, space, axes, pieces, MAX_CLUSTER_NODES)
    assert rows is not None, "what was fused can be computed together"
    users = context.uses.users[reduced.inputs[0].serial]
    by_all = folds_and_maps(rows) and kept_by_all(reduced, users, side_by_side)
    group = Group(
        name,
        GroupKind.REDUCTION,
        _with_views(context.uses, unit, inputs),
        inputs,
        outputs,
        None,
        Estimate(0, 0, ""),
        _reduction_reason(unit, rows, pieces, by_all),
        rows=rows,
    )
    schedule = choose_reduction_schedule(group, rows, pieces, by_all, context.target)
    return replace(group, schedule=schedule, estimate=estimate(group, context.target))


def _scan(context: _Context, name: str, unit: list[Node], scanned: Node) -> Group:
    inputs, outputs = _operands(context.uses, unit), context.uses.results(unit)
    space, axes = scanned.type.shape, (scanned.attrs.axis,)
    pieces = parallelism(context.target, context.conditions).needs_pieces(space, axes)
    rows = scanned_rows_of(unit, outputs, space, axes, MAX_CLUSTER_NODES)
    assert rows is not None, "what was fused can be computed together"
    group = Group(
        name,
        GroupKind.SCAN,
        _with_views(context.uses, unit, inputs),
        inputs,
        outputs,
        None,
        Estimate(0, 0, ""),
        _scan_reason(unit, rows, pieces),
        rows=rows,
    )
    schedule = choose_scan_schedule(group, rows, pieces, context.target)
    return replace(group, schedule=schedule, estimate=estimate(group, context.target))


def _operands(uses: Uses, unit: list[Node]) -> tuple[Node, ...]:
    """Values that the unit reads from memory, behind all free views, in order of first use."""
    inside = {node.serial for node in unit}
    found: dict[Node, None] = {}
    for node in unit:
        for operand in _reads(uses, node):
            if operand.serial not in inside and operand.op not in (Op.CONST, Op.IOTA):
                found[operand] = None
    return tuple(found)


def _with_views(uses: Uses, unit: list[Node], inputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """The unit's nodes, and the views and constants between them and the operands, in order."""
    if any(isinstance(uses.products.get(node.serial), Attention) for node in unit):
        return _all_between(unit, inputs)
    read = {node.serial for node in inputs}
    keep = {node.serial: node for node in unit}
    for node in unit:
        for operand in node.inputs:
            while operand.serial not in read and operand.serial not in keep:
                keep[operand.serial] = operand
                operand = operand.inputs[0] if operand.inputs else operand
    return tuple(sorted(keep.values(), key=lambda node: uses.place[node.serial]))


def _all_between(unit: list[Node], inputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """All that is computed from the operands up to the unit's nodes. A node is made after its
    operands, so serials are an order.
    """
    read = {node.serial for node in inputs}
    keep: dict[int, Node] = {}
    waiting = list(unit)
    while waiting:
        node = waiting.pop()
        if node.serial not in keep and node.serial not in read:
            keep[node.serial] = node
            waiting += node.inputs
    return tuple(keep[serial] for serial in sorted(keep))


def _slug(uses: Uses, unit: list[Node]) -> str:
    """A short name from the operations: the call and the last three different ones that compute;
    a copy in the order of its operand computes nothing.
    """
    called = [
        "attention"
        if isinstance(uses.products.get(node.serial), Attention)
        else node.attrs.target.split(".")[1]
        for node in unit
        if node.op is Op.CALL
    ]
    computing = [node for node in unit if _calculates(node)]
    computing = computing or [node for node in unit if node.op is not Op.CALL]
    computing = [n for n in computing if not is_copy(n) or is_free_view(n.inputs[0])] or computing
    names = dict.fromkeys("copy" if is_copy(n) else n.op.value for n in computing)
    return "_".join([*called, *list(names)[-3:]])


def _reason(unit: list[Node], outputs: tuple[Node, ...]) -> str:
    num_ops = sum(computes(node) for node in unit)
    if num_ops == 1:
        return "one operation, one read and one write of memory"
    results = "one result" if len(outputs) == 1 else f"{len(outputs)} results"
    return (
        f"{num_ops} operations over one iteration space, {results}: intermediates stay in registers"
    )


def _reduction_reason(unit: list[Node], rows: Rows, pieces: bool, by_all: bool) -> str:
    num_ops = sum(computes(node) for node in unit)
    done = "one operation" if num_ops == 1 else f"{num_ops} operations"
    passes = "one pass" if rows.num_walks == 1 else f"{rows.num_walks} passes"
    cut = ", each split over several blocks" if pieces else ""
    kept = ", between which all multiprocessors may keep a row together" if by_all else ""
    return f"{done} on rows of {rows.length} elements in {passes}{cut}{kept}"


def _scan_reason(unit: list[Node], rows: Rows, pieces: bool) -> str:
    num_ops = sum(computes(node) for node in unit)
    done = "one operation" if num_ops == 1 else f"{num_ops} operations"
    cut = ", each split over several blocks" if pieces else ""
    return f"{done} on rows of {rows.length} elements that are scanned in one pass{cut}"


def _made_reason(made: str, unit: list[Node], figures: str) -> str:
    num_ops = sum(computes(node) for node in unit)
    tail = f" with the {num_ops} operations after it" if num_ops > 1 else ""
    tail = " with the operation after it" if num_ops == 1 else tail
    return f"{made}{tail}: {figures}"
