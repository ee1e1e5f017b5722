"""Results that share memory with an operand though their operator's schema does not say so.

Export takes such a result for memory of its own. That is wrong only where somebody writes in place
to one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from opweld.errors import OriginalKept

from .modules.origins import where_in

# Their operand is a number in the source, which nobody else reads.
_OF_LITERALS = frozenset(("aten::lift_fresh", "aten::lift_fresh_copy"))
# Views of a contiguous operand, copies of many others.
_BY_LAYOUT = frozenset(
    f"aten::{name}" for name in ("reshape", "reshape_as", "flatten", "ravel", "contiguous")
)


def refuse_hidden_aliases(nodes: fx.graph.node_list) -> None:
    """Raises OriginalKept where a tensor is written to whose memory another may or may not share.

    That is so for a view that its operator does not declare, and for one that is a copy where the
    operand lies otherwise in memory.
    """
    places = _places(nodes)
    written = {places.get(given) for node in nodes for given in written_by(node)}
    for node in nodes:
        if places.get(node) not in written:
            continue
        if _hides(node) or (_goes_by_layout(node) and _shows_a_write(node, places)):
            raise OriginalKept(
                f"the forward writes to memory that {node.target} may share", where=where_in([node])
            )


def _goes_by_layout(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name in _BY_LAYOUT


def _places(nodes: fx.graph.node_list) -> dict[fx.Node, int]:
    """Where in memory each tensor is, were every view that goes by the layout a view."""
    places = {node: place for node in nodes if (place := place_of(node)) is not None}
    for view in places:
        if _goes_by_layout(view):
            given, own = places[view.args[0]], places[view]  # type: ignore[index]
            places |= {node: given for node, place in places.items() if place == own}
    return places


def _shows_a_write(view: fx.Node, places: dict[fx.Node, int]) -> bool:
    """Whether a write on one side of the view is seen on the other.

    It is seen in what is read afterwards, and by the caller in his own tensors. What was written
    before the view was made is in a copy, too.
    """
    nodes = list(view.graph.nodes)
    shared = [node for node in nodes if places.get(node) == places[view]]
    inside = {view}
    for node in shared:
        if inside & set(node.all_input_nodes):
            inside.add(node)
    order = {node: position for position, node in enumerate(nodes)}
    return any(
        other.op == "placeholder" or any(order[user] > order[writer] for user in other.users)
        for writer in shared
        if order[writer] > order[view]
        for given in written_by(writer)
        for other in shared
        if (other in inside) != (given in inside)
    )


def written_by(node: fx.Node) -> Iterator[fx.Node]:
    """The tensors that an operator writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    names = [argument.name for argument in schema.arguments]
    named = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    for argument in schema.arguments:
        value = named.get(argument.name)
        if place_of(value) is not None and argument.alias_info and argument.alias_info.is_write:
            yield value


def _hides(node: fx.Node) -> bool:
    """Whether the result has an operand's memory and the schema does not declare it."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name in _OF_LITERALS:
        return False
    if any(result.alias_info is not None for result in schema.returns):
        return False
    place = place_of(node)
    return place is not None and any(place_of(given) == place for given in node.all_input_nodes)


def place_of(node: Any) -> int | None:
    """Where the memory of a node's tensor is; None for what is none, and for a sparse one."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    while torch._C._functorch.is_functorch_wrapped_tensor(value):  # within torch.vmap, torch.func
        value = torch._C._functorch.get_unwrapped(value)
    return value.untyped_storage()._cdata
