"""Results in the shape in which they are read: what is reduced keeps axes of size 1, and most that
read it go without them.

Such a view is the kernel's own then, which costs it nothing, and the host makes no view.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node
from ..ir.ops import Op
from ..ir.plan import Group, GroupKind
from .uses import Uses

# What these read is told by the axes of products.
_MATRICES = (GroupKind.CONTRACTION, GroupKind.ATTENTION, GroupKind.ROW_BLOCKS)


def with_squeezed_results(graph: Graph, uses: Uses, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups with those views of results in place of the results that all readers have."""
    kept = {node.serial for node in graph.outputs}
    matrices = (group for group in groups if group.kind in _MATRICES)
    kept |= {node.serial for group in matrices for node in group.inputs}
    convolutions = (group.convolution for group in groups if group.convolution is not None)
    kept |= {node.serial for made in convolutions for node in made.reads}
    views = {
        node.serial: view
        for group in groups
        if group.kind is GroupKind.REDUCTION
        for node in group.outputs
        if node.serial not in kept and (view := _squeezed(uses, group, node)) is not None
    }
    made = {view.serial for view in views.values()}
    return tuple(
        _with_views(group, views)
        for group in groups
        if group.kind is not GroupKind.VIEW or group.nodes[0].serial not in made
    )


def _squeezed(uses: Uses, group: Group, node: Node) -> Node | None:
    """The only reader of a result elsewhere, if all that it does is to leave out axes of size 1; a
    concatenation may become a list of tensors, which are those behind views.
    """
    readers = [user for user in uses.users[node.serial] if user not in group.nodes]
    if len(readers) != 1 or readers[0].op is not Op.RESHAPE:
        return None
    if any(user.op is Op.CAT for user in uses.users[readers[0].serial]):
        return None
    shapes = [[size for size in each.type.shape if size != 1] for each in (node, readers[0])]
    return readers[0] if shapes[0] == shapes[1] else None


def _with_views(group: Group, views: dict[int, Node]) -> Group:
    """A group that makes views, or reads them, in place of what they show."""
    own = tuple(views[node.serial] for node in group.outputs if node.serial in views)
    read = {views[node.serial].serial for node in group.inputs if node.serial in views}
    return replace(
        group,
        nodes=(*(node for node in group.nodes if node.serial not in read), *own),
        inputs=tuple(views.get(node.serial, node) for node in group.inputs),
        outputs=tuple(views.get(node.serial, node) for node in group.outputs),
    )
