"""Clusters -> groups: names, operands, results, schedule, estimate and reason, in running order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.expr import Size
from ..ir.graph import Graph, Node, consumers, topological
from ..ir.ops import Kind, Op
from ..ir.plan import Estimate, Group, GroupKind
from ..target import Target
from .cost import estimate
from .fusion import Cluster, behind_views, computes, is_free_view
from .schedule import choose_schedule


@dataclass(frozen=True, slots=True)
class _Context:
    graph: Graph
    target: Target
    excluded: frozenset[str]
    users: dict[int, tuple[Node, ...]]
    outputs: frozenset[int]
    suffix: str


def make_groups(
    graph: Graph,
    clusters: tuple[Cluster, ...],
    target: Target,
    excluded: frozenset[str],
    suffix: str,
) -> tuple[Group, ...]:
    """All groups of the graph in an order in which each one's operands exist."""
    nodes = graph.nodes()
    outputs = frozenset(node.serial for node in graph.outputs)
    context = _Context(graph, target, excluded, consumers(nodes), outputs, suffix)
    units = [cluster.nodes for cluster in clusters]
    units += [[node] for node in nodes if node.kind is Kind.OPAQUE]
    units += [[node] for node in nodes if is_free_view(node) and _shown(context, node)]
    units += [
        [node] for node in nodes if node.op in (Op.CONST, Op.IOTA) and _read_whole(context, node)
    ]
    return _named(context, _ordered(graph, units))


def _shown(context: _Context, view: Node) -> bool:
    """Whether a free view is needed as a tensor: by the caller, a PyTorch call, or such a view."""
    if view.serial in context.outputs:
        return True
    users = context.users[view.serial]
    return any(u.kind is Kind.OPAQUE or (is_free_view(u) and _shown(context, u)) for u in users)


def _read_whole(context: _Context, source: Node) -> bool:
    return source.serial in context.outputs or _shown_by_users(context, source)


def _shown_by_users(context: _Context, node: Node) -> bool:
    users = context.users[node.serial]
    return any(u.kind is Kind.OPAQUE or (is_free_view(u) and _shown(context, u)) for u in users)


def _ordered(graph: Graph, units: list[list[Node]]) -> list[list[Node]]:
    """Units in topological order; ties by the first node's place in the graph."""
    place = {node.serial: index for index, node in enumerate(graph.nodes())}
    unit_of = {node.serial: index for index, unit in enumerate(units) for node in unit}
    needs = [_units_read(unit, unit_of) - {index} for index, unit in enumerate(units)]
    waiting = sorted(
        range(len(units)), key=lambda index: min(place[n.serial] for n in units[index])
    )
    done: list[int] = []
    while waiting:
        ready = next(index for index in waiting if needs[index] <= set(done))
        waiting.remove(ready)
        done.append(ready)
    return [units[index] for index in done]


def _units_read(unit: list[Node], unit_of: dict[int, int]) -> set[int]:
    read: set[int] = set()
    for node in unit:
        for operand in node.inputs:
            while operand.serial not in unit_of and is_free_view(operand):
                operand = operand.inputs[0]
            if operand.serial in unit_of:
                read.add(unit_of[operand.serial])
    return read


def _named(context: _Context, units: list[list[Node]]) -> tuple[Group, ...]:
    groups: list[Group] = []
    num_kernels = 0
    for unit in units:
        welded = any(node.kind is Kind.POINTWISE for node in unit)
        num_kernels += welded
        groups.append(_group(context, unit, num_kernels if welded else 0))
    return tuple(groups)


def _group(context: _Context, unit: list[Node], number: int) -> Group:
    if not number:
        return _library_or_view(context, unit)
    name = f"k{number}_{_slug(unit)}{context.suffix}"
    if name in context.excluded:
        group = _plain(context, name, GroupKind.LIBRARY, unit)
        return replace(group, reason="measured slower than the PyTorch calls it replaces")
    return _pointwise(context, name, unit)


def _library_or_view(context: _Context, unit: list[Node]) -> Group:
    node = unit[0]
    kind = GroupKind.VIEW if is_free_view(node) else GroupKind.LIBRARY
    name = node.attrs.target.split(".")[1] if node.op is Op.CALL else node.op.value
    return _plain(context, name, kind, unit)


def _plain(context: _Context, name: str, kind: GroupKind, unit: list[Node]) -> Group:
    inside = {node.serial for node in unit}
    operands = dict.fromkeys(o for n in unit for o in n.inputs if o.serial not in inside)
    inputs = tuple(o for o in operands if o.op is not Op.CONST)
    outputs = _results(context, unit)
    reason = unit[0].attrs.reason if unit[0].op is Op.CALL else _PLAIN_REASONS[kind]
    return Group(name, kind, tuple(unit), inputs, outputs, None, Estimate(0, 0, "library"), reason)


_PLAIN_REASONS = {
    GroupKind.VIEW: "a view moves no data",
    GroupKind.LIBRARY: "only moves data, which PyTorch does as well",
}


def _pointwise(context: _Context, name: str, unit: list[Node]) -> Group:
    inputs = _operands(unit)
    nodes = _with_views(unit, inputs)
    outputs = _results(context, unit)
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
    schedule = choose_schedule(group, context.target)
    return replace(group, schedule=schedule, estimate=estimate(group, context.target))


def _operands(unit: list[Node]) -> tuple[Node, ...]:
    """Values that the unit reads from memory, behind all free views, in order of first use."""
    inside = {node.serial for node in unit}
    found: dict[Node, None] = {}
    for node in unit:
        for operand in map(behind_views, node.inputs):
            if operand.serial not in inside and operand.op not in (Op.CONST, Op.IOTA):
                found[operand] = None
    return tuple(found)


def _with_views(unit: list[Node], inputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """The unit's nodes, and the views and constants between, operands first."""
    read = {node.serial for node in inputs}
    keep = {node.serial for node in unit}
    for node in unit:
        for operand in node.inputs:
            while operand.serial not in read and operand.serial not in keep:
                keep.add(operand.serial)
                operand = operand.inputs[0] if operand.inputs else operand
    return tuple(node for node in topological(tuple(unit)) if node.serial in keep)


def _results(context: _Context, unit: list[Node]) -> tuple[Node, ...]:
    """Nodes of the unit whose value is read outside it."""
    inside = {node.serial for node in unit}
    return tuple(node for node in unit if _read_outside(context, node, inside))


def _read_outside(context: _Context, node: Node, inside: set[int]) -> bool:
    if node.serial in context.outputs:
        return True
    for user in context.users[node.serial]:
        if user.serial in inside:
            continue
        if not is_free_view(user) or _read_outside(context, user, inside):
            return True
    return False


def _slug(unit: list[Node]) -> str:
    """A short name from the operations: the last three different ones that compute."""
    names = dict.fromkeys(node.op.value for node in unit if node.kind is Kind.POINTWISE)
    return "_".join(list(names)[-3:])


def _reason(unit: list[Node], outputs: tuple[Node, ...]) -> str:
    num_ops = sum(computes(node) for node in unit)
    if num_ops == 1:
        return "one operation, one read and one write of memory"
    results = "one result" if len(outputs) == 1 else f"{len(outputs)} results"
    return (
        f"{num_ops} operations over one iteration space, {results}: intermediates stay in registers"
    )


def total_bytes(groups: tuple[Group, ...]) -> Size:
    return sum((group.estimate.bytes for group in groups), start=0)
