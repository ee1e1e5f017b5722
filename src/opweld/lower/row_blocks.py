"""Row blocks -> the kernels of their tail, and which operands the product before it has."""

from __future__ import annotations

from dataclasses import replace

from ..ir.kernels.kernel import Buffer, RowBlocks
from ..ir.plan import Group, RowBlockSchedule
from .names import Names
from .pointwise import Origins, buffer_of, lower_group


def lower_row_blocks(origins: Origins, group: Group) -> RowBlocks:
    """The tail as it is lowered alone; operands of the product get names beside its names."""
    product, tail = group.rows_product, group.tail
    assert product and tail and tail.reuse is not None, "a tail takes the product's memory"
    assert isinstance(group.schedule, RowBlockSchedule), "blocks have a size"
    fused = lower_group(origins, tail)
    added = None if product.added is None else group.inputs.index(product.added)
    return RowBlocks(
        group=group.name,
        a=group.inputs.index(product.a),
        b=group.inputs.index(product.b),
        turned=product.turned,
        added=added,
        alpha=product.alpha,
        beta=product.beta,
        rows=group.schedule.rows,
        product=_read(fused.buffers)[tail.reuse].name,
        buffers=_buffers(group, tail, fused.buffers),
        tail=fused,
    )


def _read(buffers: tuple[Buffer, ...]) -> dict[int, Buffer]:
    return {buffer.source: buffer for buffer in buffers if not buffer.written}


def _buffers(group: Group, tail: Group, known: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The tail's buffers at their positions in the group, and new ones for the product's."""
    names = Names({buffer.name for buffer in known})
    of_tail = {tail.inputs[source].serial: buffer for source, buffer in _read(known).items()}
    inputs = [
        replace(of_tail[node.serial], source=position)
        if node.serial in of_tail
        else buffer_of(names, node, position)
        for position, node in enumerate(group.inputs)
    ]
    return (*inputs, *(buffer for buffer in known if buffer.written))
