"""A convolution -> its epilogue: what the kernel of the device library calls for each element."""

from __future__ import annotations

from dataclasses import replace

from ..ir.kernels.convolution import Convolving
from ..ir.plan import ConvolutionSchedule, Group
from .contraction import touched
from .pointwise import Origins, buffers_of, row_major_kernel


def lower_convolution(origins: Origins, group: Group) -> Convolving:
    """The convolution by its operands, and its epilogue over row-major operands."""
    made, schedule, anchor = group.convolution, group.schedule, group.anchor
    assert made and anchor and isinstance(schedule, ConvolutionSchedule), "it has an anchor"
    buffers = buffers_of(group)
    kernel = row_major_kernel(origins, group, buffers)
    return Convolving(
        group=group.name,
        mode=schedule.mode,
        columns=schedule.columns,
        x=group.inputs.index(made.x),
        weight=group.inputs.index(made.weight),
        convolution=made,
        buffers=buffers,
        epilogue=replace(kernel, variant="epilogue", buffers=touched(kernel, buffers)),
        shape=anchor.type.shape,
    )
