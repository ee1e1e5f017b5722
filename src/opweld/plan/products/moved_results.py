"""Results of convolutions that are needed in another order of their axes alone: the kernel that
computes them writes them so, where a copy would read and write all of them again.

An epilogue hands over sixteen output pixels of a channel at once where these lie side by side. What
it reads of elements in that order needs no copy either.
(A copy of the results of 32 images of 96 channels, 112x112, takes 0.105 ms; H100, 2026-11-26.)
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Node
from ...ir.ops import Op
from ...ir.plan import Conditions, ConvolutionSchedule, Group, GroupKind, number_at
from ...ir.views import is_copy
from ..uses import Uses
from .windows import schedule_of


def with_moved_results(
    uses: Uses, groups: tuple[Group, ...], conditions: Conditions
) -> tuple[Group, ...]:
    """The groups, without the copies that convolutions of ours make in passing."""
    copies = dict[int, Group]()  # by the result that is copied
    for group in groups:
        made = _copied(group)
        if made is not None:
            copies[made.serial] = group
    changed = dict[str, Group | None]()
    for group in groups:
        copy = copies.get(group.outputs[0].serial) if len(group.outputs) == 1 else None
        if copy is not None and _may_move(uses, groups, group):
            moved = _moved(group, copy, conditions)
            changed[copy.name] = None
            for operand in _read_in_order(uses, groups, moved):
                moved = _with_operand(moved, operand)
                changed[operand.name] = None
            changed[group.name] = moved
    kept = (changed.get(group.name, group) for group in groups)
    return tuple(group for group in kept if group is not None)


def _copied(group: Group) -> Node | None:
    """What a group copies into another order of axes, if that is all that it does."""
    if group.kind is not GroupKind.POINTWISE or len(group.outputs) != 1:
        return None
    (node,) = group.outputs
    if not is_copy(node) or not group.only_moves:
        return None
    node = node.inputs[0]
    while node.op is Op.PERMUTE:
        node = node.inputs[0]
    return node if group.inputs == (node,) else None


def _may_move(uses: Uses, groups: tuple[Group, ...], group: Group) -> bool:
    """Whether a convolution's result is read by the copy alone. Each channel by itself is not made
    in tiles of pixels and channels, of which either may be neighbours.
    """
    if group.convolution is None or group.convolution.depthwise:
        return False
    (made,) = group.outputs
    readers = [other for other in groups if made in other.tensors]
    return made.serial not in uses.returned and made.serial not in uses.shown and len(readers) == 1


def _moved(group: Group, copy: Group, conditions: Conditions) -> Group:
    """The convolution with the copy behind it."""
    (result,) = copy.outputs
    assert group.convolution and isinstance(group.schedule, ConvolutionSchedule), "it convolves"
    schedule = schedule_of(group.convolution, group.schedule.mode, True, conditions.sizes)
    saved = 2 * number_at(result.type.size_bytes, conditions.sizes) / 1e6
    return replace(
        group,
        nodes=(*group.nodes, *copy.nodes),
        outputs=copy.outputs,
        schedule=schedule,
        reason=f"{group.reason}; written in the order of the result: {saved:.1f} MB less to move",
    )


def _read_in_order(uses: Uses, groups: tuple[Group, ...], group: Group) -> list[Group]:
    """The copies that only `group` reads, of what lies in the order in which it writes."""
    order = _order_of(group.outputs[0])
    found = []
    for other in groups:
        source = _copied(other)
        if source is None or other.outputs[0] not in group.inputs:
            continue
        (copy,) = other.outputs
        readers = [each for each in groups if copy in each.tensors]
        inverse = tuple(_order_of(copy).index(axis) for axis in range(source.type.rank))
        kept = copy.serial in uses.returned or copy.serial in uses.shown
        if len(readers) == 1 and not kept and inverse == order:
            found.append(other)
    return found


def _order_of(copy: Node) -> tuple[int, ...]:
    """The axes of what is copied, in the order of the copy's."""
    order = tuple(range(copy.type.rank))
    node = copy.inputs[0]
    while node.op is Op.PERMUTE:
        order = tuple(node.attrs.dims[axis] for axis in order)
        node = node.inputs[0]
    return order


def _with_operand(group: Group, copy: Group) -> Group:
    """The convolution with a copy of an operand, which it reads as it lies."""
    (source,), (made,) = copy.inputs, copy.outputs
    nodes = dict.fromkeys((*copy.nodes, *group.nodes))
    inputs = (source if node is made else node for node in group.inputs)
    return replace(group, nodes=tuple(nodes), inputs=tuple(dict.fromkeys(inputs)))
