"""A contraction -> its prologue and epilogue: what the kernels of the device library call for each
element.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.kernels.kernel import Buffer, Contraction, Factor, Kernel, Load, Prologue
from ..ir.kernels.product import Form, even_strides
from ..ir.plan import ContractionSchedule, Group, PointwiseSchedule
from .names import Names
from .pointwise import Origins, buffer_of, buffers_of, row_major_kernel


def lower_contraction(origins: Origins, group: Group) -> Contraction:
    """The product by its operands' axes, prologue and epilogue over row-major operands."""
    product, schedule, anchor = group.product, group.schedule, group.anchor
    assert product and anchor and isinstance(schedule, ContractionSchedule), "it has an anchor"
    buffers = buffers_of(group)
    kernel = row_major_kernel(origins, group, buffers)
    computed = group.prologue is not None
    return Contraction(
        group=group.name,
        mode=schedule.mode,
        family=schedule.family,
        forms=schedule.forms,
        a=Factor(None if computed else group.inputs.index(product.a), product.a_axes),
        b=Factor(group.inputs.index(product.b), product.b_axes),
        held=product.held and any(row.form is Form.TILES for row in schedule.forms),
        buffers=buffers,
        epilogue=replace(kernel, variant="epilogue", buffers=touched(kernel, buffers)),
        shape=anchor.type.shape,
        prologue=_prologue(origins, group, buffers) if computed else None,
    )


def touched(kernel: Kernel, buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The results and the operands that a kernel reads."""
    read = {load.buffer for load in kernel.definitions if isinstance(load, Load)}
    return tuple(b for b in buffers if b.written or b.name in read)


# Four values along k are split together.
_SPLIT_LANES = 4


def _prologue(origins: Origins, group: Group, buffers: tuple[Buffer, ...]) -> Prologue:
    """The kernel of the prologue, whose value stays where it is computed."""
    made, product = group.prologue, group.product
    assert made is not None and product is not None, "it has a prologue"
    strides = even_strides(product.a_axes, product.a.type.shape)
    assert strides is not None, "what is fused has even strides"
    value = buffer_of(Names({buffer.name for buffer in buffers}), made.outputs[0], 0, "value")
    own = (*(buffers[group.inputs.index(node)] for node in made.inputs), value)
    schedule = PointwiseSchedule(_SPLIT_LANES, 1, 1)
    named = replace(made, name=f"{group.name}_operand", schedule=schedule)
    kernel = replace(row_major_kernel(origins, named, own), variant="prologue", stores=())
    read = tuple(b for b in touched(kernel, own) if not b.written)
    return Prologue(replace(kernel, buffers=read), strides)
