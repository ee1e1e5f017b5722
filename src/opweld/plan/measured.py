"""The class of a group, the schedule that was measured for it, and what the plan says of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.expr import Size
from ..ir.expr import product as product_of
from ..ir.graph import Node
from ..ir.kernels.product import Mode, Product
from ..ir.measured import Maker, Measured, PointwiseClass, ProductClass, Table, nearest_power
from ..ir.plan import Group, PointwiseSchedule, Sizes, number_at
from ..target import Target
from .cost import estimate
from .schedule import choose_schedule, held_operands, widest_type


def scheduled(group: Group, target: Target, sizes: Sizes, table: Table) -> Group:
    """A pointwise group with its schedule, the one that was measured where there is a row, what its
    threads hold, and its estimate.
    """
    held = held_operands(group, target, sizes)
    group = replace(group, held=held, estimate=estimate(group, target))
    shape = pointwise_class(group, sizes)
    tried, row = table.trial(shape), table.row(target.measured_as, shape)
    if tried is not None:
        assert isinstance(tried, PointwiseSchedule), "of the class's kind"
        return replace(group, schedule=tried)
    if row is not None:
        assert isinstance(row.schedule, PointwiseSchedule), "of the class's kind"
        said = f"{group.reason}; {row.schedule}: {measured(row)} of {row.against}"
        return replace(group, schedule=row.schedule, reason=said)
    return replace(group, schedule=choose_schedule(group, target))


def pointwise_class(group: Group, sizes: Sizes) -> PointwiseClass:
    """The class of a group that has its estimate."""
    return PointwiseClass(
        dtype=widest_type(group),
        elems=_power(product_of(group.outputs[0].type.shape), sizes),
        reads=len(group.inputs),
        writes=len(group.outputs),
        limit=group.estimate.limit,
    )


def product_class(product: Product, mode: Mode, tail: Sequence[Node], sizes: Sizes) -> ProductClass:
    m, n, k, batches = (
        _power(size, sizes) for size in (product.m, product.n, product.k, product.batches)
    )
    return ProductClass(mode, m, n, k, batches, product.held, bool(tail))


def maker_of(shape: ProductClass, target: Target, table: Table) -> Maker | None:
    """Who is to make the products of a class; None where nothing is known but the estimate."""
    tried, row = table.trial(shape), table.row(target.measured_as, shape)
    chosen = tried if tried is not None else row and row.schedule
    return chosen if isinstance(chosen, Maker) else None


def measured(row: Measured) -> str:
    """The figures of a row, as the plan's reason gives them."""
    return f"measured {row.date} on {row.device}: {_us(row.us)} us against {_us(row.against_us)} us"


def _power(size: Size, sizes: Sizes) -> int:
    return nearest_power(number_at(size, sizes))


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
