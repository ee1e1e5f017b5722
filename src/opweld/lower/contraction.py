"""A contraction -> its epilogue: what the kernels of the device library call for each element."""

from __future__ import annotations

from dataclasses import replace

from ..ir.kernel import Contraction, Factor, Load
from ..ir.plan import ContractionSchedule, Group
from .pointwise import Origins, buffers_of, row_major_kernel


def lower_contraction(origins: Origins, group: Group) -> Contraction:
    """The product by its operands' axes, and the epilogue over row-major operands."""
    product, schedule, anchor = group.product, group.schedule, group.anchor
    assert product and anchor and isinstance(schedule, ContractionSchedule), "it has an anchor"
    buffers = buffers_of(group)
    kernel = row_major_kernel(origins, group, buffers)
    read = {load.buffer for load in kernel.definitions if isinstance(load, Load)}
    touched = tuple(b for b in buffers if b.written or b.name in read)
    return Contraction(
        group=group.name,
        mode=schedule.mode,
        family=schedule.family,
        a=Factor(group.inputs.index(product.a), product.a_axes),
        b=Factor(group.inputs.index(product.b), product.b_axes),
        held=product.held,
        buffers=buffers,
        epilogue=replace(kernel, variant="epilogue", buffers=touched),
        shape=anchor.type.shape,
    )
