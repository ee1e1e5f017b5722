"""Products that stay the library's, run in turns with the kernel after them, some rows at a time.

The result of a block of rows is still in the cache when its tail reads it, so that it goes to
memory once.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Node
from ...ir.ops import Kind, Op
from ...ir.plan import Conditions, Estimate, Group, GroupKind, RowBlockSchedule
from ...target import Target
from ..cost import block_rows, estimate, saved_and_packed_bytes
from .recognised import is_product, rows_product_of


def fuse_row_blocks(
    groups: tuple[Group, ...], target: Target, excluded: frozenset[str], conditions: Conditions
) -> tuple[Group, ...]:
    """The groups, with each product and the kernel that takes its memory as one where that pays."""
    if target.row_blocks is None or conditions.autocast:
        return groups  # autocast casts the operands inside the library's call
    made = {g.nodes[0].serial: g for g in groups if _is_product(g)}
    fused = dict[int, Group]()
    result = list[Group]()
    for group in groups:
        call = group.inputs[group.reuse] if group.reuse is not None else None
        if call is not None and call.serial in made:
            group = _fused(call, group, target, excluded, conditions)
            if group.kind is GroupKind.ROW_BLOCKS:
                fused[call.serial] = group
        result.append(group)
    return tuple(g for g in result if not (_is_product(g) and g.nodes[0].serial in fused))


def _is_product(group: Group) -> bool:
    return group.kind is GroupKind.LIBRARY and is_product(group.nodes[0])


def _fused(
    call: Node, tail: Group, target: Target, excluded: frozenset[str], conditions: Conditions
) -> Group:
    """The two as one group; the tail as it is where that gains nothing."""
    product, name = rows_product_of(call), _name(call, tail)
    picks = any(node.op is Op.GATHER for node in tail.nodes)
    if product is None or picks or name in excluded:
        return tail
    rows = block_rows(call, target, conditions.sizes)
    saved, packed = saved_and_packed_bytes(call, product, rows, target, conditions.sizes)
    if saved <= packed:
        return tail
    inputs = [*product.operands, *(node for node in tail.inputs if node is not call)]
    group = Group(
        name,
        GroupKind.ROW_BLOCKS,
        (call, *tail.nodes),
        tuple(dict.fromkeys(inputs)),
        tail.outputs,
        RowBlockSchedule(rows),
        Estimate(0, 0, ""),
        _reason(tail, saved, packed),
        anchor=call,
        rows_product=product,
        tail=tail,
    )
    return replace(group, estimate=estimate(group, target))


def _name(call: Node, tail: Group) -> str:
    number, _, operations = tail.name.partition("_")
    return f"{number}_{call.attrs.target.split('.')[1]}_{operations}"


def _reason(tail: Group, saved: int, packed: int) -> str:
    num_ops = sum(node.kind is Kind.POINTWISE for node in tail.nodes)
    after = "the operation" if num_ops == 1 else f"the {num_ops} operations"
    return (
        f"the library's product and {after} after it in turns, block of rows by block of rows: "
        f"{saved / 1e6:.1f} MB less to and from memory, {packed / 1e6:.1f} MB more of the weight"
    )
