"""Pointwise kernels before matrix products, computed in the pass that splits the product's operand.

Such a pass reads what the kernel reads and writes the operand's parts: the operand itself, as
float32, is neither written nor read. Several products may share the operand; each computes it.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Node
from ...ir.kernels.product import Form, Product, even_strides
from ...ir.ops import Kind, Op
from ...ir.plan import Conditions, ContractionSchedule, Group, GroupKind, number_at
from ...ir.types import DType
from ...ir.views import behind_views
from ...target import Target
from ..cost import estimate_with, splits_a
from ..uses import Uses


def fuse_prologues(
    uses: Uses,
    groups: tuple[Group, ...],
    target: Target,
    excluded: frozenset[str],
    conditions: Conditions,
) -> tuple[Group, ...]:
    """The groups, with each pointwise kernel whose result products split in these, where that pays;
    the reason of one that stays says why.
    """
    changed = dict[int, Group | None]()  # by the group's first result
    for made in groups:
        takers = _takers(made, groups)
        if not takers:
            continue
        fused = [_fused(made, taker, target) for taker in takers]
        if any(group.name in excluded for group in fused):
            continue
        refused = _refused(uses, made, groups, takers, conditions)
        if refused:
            changed[_key(made)] = replace(made, reason=f"{made.reason}; {refused}")
            continue
        changed[_key(made)] = None
        changed.update((_key(taker), group) for taker, group in zip(takers, fused, strict=True))
    kept = (changed.get(_key(group), group) for group in groups)
    return tuple(group for group in kept if group is not None)


def _key(group: Group) -> int:
    return group.outputs[0].serial if group.outputs else -1


def _takers(made: Group, groups: tuple[Group, ...]) -> list[Group]:
    """The products of ours whose operand a the group makes."""
    if made.kind is not GroupKind.POINTWISE or len(made.outputs) != 1:
        return []
    return [g for g in groups if g.product is not None and g.product.a is made.outputs[0]]


def _refused(
    uses: Uses,
    made: Group,
    groups: tuple[Group, ...],
    takers: list[Group],
    conditions: Conditions,
) -> str:
    """Why the kernel stays one of its own; nothing where it does not."""
    value = made.outputs[0]
    readers = [group for group in groups if value in group.inputs]
    if value.serial in uses.returned or len(readers) > len(takers):
        return "its result is needed in memory"
    anchors = {taker.anchor for taker in takers}
    alone = all(_is_read_as_a_alone(taker, value) for taker in takers)
    if not alone or any(reader not in anchors for reader in uses.readers[value.serial]):
        return "its result is needed beside the product's operand"
    if not all(_splits(taker, conditions) for taker in takers):
        return "the product after it reads its operand more than once, and without splitting it"
    if not all(_is_even(taker.product) for taker in takers if taker.product is not None):
        return "the product after it takes its result in another order"
    if value.type.dtype is not DType.F32 or any(n.op is Op.GATHER for n in made.nodes):
        return "the pass that splits the product's operand does not read by indices"
    size = number_at(value.type.size_bytes, conditions.sizes)
    read = number_at(made.estimate.bytes, conditions.sizes) - size
    if len(takers) * read >= read + size * (1 + len(takers)):
        return f"each of the {len(takers)} products after it would read all that it reads"
    return ""


def _is_read_as_a_alone(taker: Group, value: Node) -> bool:
    product = taker.product
    assert product is not None, "it is a product"
    added = behind_views(product.added) if product.added is not None else None
    return value is not product.b and value is not added


def _splits(taker: Group, conditions: Conditions) -> bool:
    assert taker.product and isinstance(taker.schedule, ContractionSchedule), "it has its mode"
    split = splits_a(taker.product, taker.schedule.mode, conditions.sizes)
    return split and any(row.form is Form.TILES for row in taker.schedule.forms)


def _is_even(product: Product) -> bool:
    return even_strides(product.a_axes, product.a.type.shape) is not None


def _fused(made: Group, taker: Group, target: Target) -> Group:
    """The product with the kernel as its prologue."""
    value = made.outputs[0]
    inputs = (*made.inputs, *(node for node in taker.inputs if node is not value))
    return replace(
        taker,
        name=_name(made, taker),
        nodes=tuple(dict.fromkeys((*made.nodes, *taker.nodes))),
        inputs=tuple(dict.fromkeys(inputs)),
        estimate=estimate_with(made, taker, target),
        reason=_reason(made, taker),
        prologue=made,
    )


def _name(made: Group, taker: Group) -> str:
    number, _, operations = taker.name.partition("_")
    return f"{number}_{made.name.partition('_')[2]}_{operations}"


def _reason(made: Group, taker: Group) -> str:
    num_ops = sum(node.kind is Kind.POINTWISE for node in made.nodes)
    before = "the operation" if num_ops == 1 else f"the {num_ops} operations"
    size = made.outputs[0].type.size_bytes
    saved = f": {number_at(size) * 2 / 1e6:.1f} MB less to move" if isinstance(size, int) else ""
    return f"{taker.reason}; {before} before it, as its operand is split{saved}"
