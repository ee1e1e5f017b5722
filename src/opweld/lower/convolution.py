"""A convolution -> its epilogue: what the kernel of the device library calls for each element."""

from __future__ import annotations

from dataclasses import replace

from ..ir.kernels.convolution import Convolving
from ..ir.plan import ConvolutionSchedule, Group
from .axes import axes_of_epilogue
from .contraction import touched
from .pointwise import Origins, buffers_of, strided_kernel


def lower_convolution(origins: Origins, group: Group) -> Convolving:
    """The convolution by its operands, and its epilogue over operands of any strides."""
    made, schedule, anchor = group.convolution, group.schedule, group.anchor
    assert made and anchor and isinstance(schedule, ConvolutionSchedule), "it has an anchor"
    buffers = buffers_of(group)
    kernel = strided_kernel(origins, group, buffers)
    epilogue = replace(kernel, variant="epilogue", buffers=touched(kernel, buffers))
    axes = axes_of_epilogue(group, epilogue)
    assert axes is not None, "what joins a convolution reads its operands along its axes"
    return Convolving(
        group=group.name,
        mode=schedule.mode,
        columns=schedule.columns,
        lanes=schedule.lanes,
        x=group.inputs.index(made.x),
        weight=group.inputs.index(made.weight),
        windows=made.windows,
        buffers=buffers,
        epilogue=epilogue,
        axes=axes,
        shape=anchor.type.shape,
    )
