"""A convolution -> its epilogue: what the kernel of the device library calls for each element."""

from __future__ import annotations

from dataclasses import replace

from ..ir.kernels.convolution import Convolving
from ..ir.ops import Op
from ..ir.plan import ConvolutionSchedule, Group
from ..ir.views import is_copy
from .axes import axes_of_epilogue
from .contraction import touched
from .pointwise import Origins, buffers_of, strided_kernel


def lower_convolution(origins: Origins, group: Group) -> Convolving:
    """The convolution by its operands, and its epilogue over operands of any strides."""
    made, schedule, anchor = group.convolution, group.schedule, group.anchor
    assert made and anchor and isinstance(schedule, ConvolutionSchedule), "it has an anchor"
    computed, order = _without_copy(group)
    buffers = buffers_of(computed)
    kernel = strided_kernel(origins, computed, buffers)
    epilogue = replace(kernel, variant="epilogue", buffers=touched(kernel, buffers))
    axes = axes_of_epilogue(computed, epilogue)
    assert axes is not None, "what joins a convolution reads its operands along its axes"
    return Convolving(
        group=group.name,
        mode=schedule.mode,
        columns=schedule.columns,
        lanes=schedule.lanes,
        x=group.inputs.index(made.x),
        weight=group.inputs.index(made.weight),
        windows=made.windows,
        buffers=buffers_of(group),
        epilogue=epilogue,
        axes=axes,
        shape=anchor.type.shape,
        order=order,
        rows=schedule.rows,
        phase_columns=schedule.phase_columns,
        width=schedule.width,
        unpacked=schedule.unpacked,
        halo=schedule.halo,
        groups=(made.groups, schedule.joined_groups),
        in_planes=made.in_planes,
    )


def _without_copy(group: Group) -> tuple[Group, tuple[int, ...]]:
    """The group that gives its first result in the order in which it is computed, as all others
    are, and which axis of the one that it writes each axis of that is.
    """
    assert group.anchor is not None, "it has an anchor"
    order = tuple(range(group.anchor.type.rank))
    (result, *others) = group.outputs
    if not is_copy(result):
        return group, order
    views, node = [result], result.inputs[0]
    while node.op is Op.PERMUTE:
        views.append(node)
        order = tuple(node.attrs.dims.index(axis) for axis in order)
        node = node.inputs[0]
    nodes = tuple(each for each in group.nodes if each not in views)
    return replace(group, nodes=nodes, outputs=(node, *others)), order
