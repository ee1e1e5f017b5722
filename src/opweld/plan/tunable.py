"""What of a plan could be otherwise: its classes, each with the schedules that may be tried."""

from __future__ import annotations

from itertools import product as combinations

from ..ir.graph import Graph
from ..ir.measured import Maker, PointwiseClass, ProductClass, Schedule, Table, Tunable
from ..ir.plan import Conditions, Group, GroupKind, Plan, PointwiseSchedule
from ..target import Target
from .measured import pointwise_class
from .products.choice import choose_products
from .schedule import widest_type

# More than this a thread and operand spills registers, or leaves too few threads.
MAX_BYTES_IN_FLIGHT = 64


def tunables(
    graph: Graph, plan: Plan, target: Target, conditions: Conditions, table: Table
) -> tuple[Tunable, ...]:
    """The classes of a plan's groups, in the plan's order; first the pointwise ones.

    Products have a class where a kernel of ours could make them and whose choice is by figures.
    """
    return (
        *_pointwise(plan, target, conditions),
        *_products(graph, plan, target, conditions, table),
    )


def _pointwise(plan: Plan, target: Target, conditions: Conditions) -> tuple[Tunable, ...]:
    classes: dict[PointwiseClass, list[Group]] = {}
    for group in plan.groups:
        if group.kind is GroupKind.POINTWISE:
            classes.setdefault(pointwise_class(group, conditions.sizes), []).append(group)
    return tuple(
        _tunable(shape, groups, _schedule_of(groups[0]), pointwise_schedules(groups[0], target))
        for shape, groups in classes.items()
    )


def _products(
    graph: Graph, plan: Plan, target: Target, conditions: Conditions, table: Table
) -> tuple[Tunable, ...]:
    choice = choose_products(graph, target, conditions, table)
    classes: dict[ProductClass, list[int]] = {}
    for serial, shape in choice.classes.items():
        classes.setdefault(shape, []).append(serial)
    return tuple(
        _tunable(
            shape,
            [group for group in plan.groups if _computes(group, serials)],
            Maker.OURS if serials[0] in choice.products else Maker.LIBRARY,
            (Maker.OURS, Maker.LIBRARY),
        )
        for shape, serials in classes.items()
    )


def _computes(group: Group, serials: list[int]) -> bool:
    return any(node.serial in serials for node in group.nodes)


def _tunable(
    shape: PointwiseClass | ProductClass,
    groups: list[Group],
    current: Schedule,
    schedules: tuple[Schedule, ...],
) -> Tunable:
    names = tuple(group.name for group in groups)
    return Tunable(shape, names, current, tuple(dict.fromkeys((current, *schedules))))


def _schedule_of(group: Group) -> PointwiseSchedule:
    assert isinstance(group.schedule, PointwiseSchedule), "a pointwise group"
    return group.schedule


def pointwise_schedules(group: Group, target: Target) -> tuple[PointwiseSchedule, ...]:
    """What may be tried for a group on a target."""
    item_bytes, tried = widest_type(group).itemsize_bytes, target.tried
    return tuple(
        PointwiseSchedule(max(1, access_bytes // item_bytes), vectors, threads)
        for access_bytes, vectors, threads in combinations(
            tried.access_bytes, tried.vectors, tried.threads
        )
        if access_bytes * vectors <= MAX_BYTES_IN_FLIGHT
    )
