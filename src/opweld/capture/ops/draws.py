"""Random numbers: every draw of the original must be made, or later ones would differ."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from opweld.errors import OriginalKept
from opweld.ir.graph import Node
from opweld.ir.ops import Kind

from ..modules.origins import where_in
from .views import REORDERING, SHARING


def draws(node: fx.Node) -> bool:
    """Whether a call takes numbers from torch's generator: not attention that drops nothing."""
    tagged = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return tagged and _chance(node) != 0


def _chance(node: fx.Node) -> object:
    """The argument `dropout_p` of a call; None where its operator has none."""
    arguments = [argument.name for argument in node.target._schema.arguments]
    if "dropout_p" not in arguments:
        return None
    place = arguments.index("dropout_p")
    default = node.target._schema.arguments[place].default_value
    given = node.args[place] if place < len(node.args) else default
    return node.kwargs.get("dropout_p", given)


def draws_by_memory(target: str) -> bool:
    """Whether a call that draws does so for the elements of an operand, in the order in which these
    lie in memory. Attention draws for scores, which are nobody's operand.
    """
    return "scaled_dot_product" not in target


def lies_alike(ours: Node, fake: torch.Tensor) -> bool:
    """Whether a tensor lies in memory as eager's, of which `fake` shows the strides, where inputs
    and weights are row-major: what kernels compute is so, too, and views are eager's.
    """
    reordered = False
    while ours.op in SHARING:
        reordered |= ours.op in REORDERING
        ours = ours.inputs[0]
    if fake.is_contiguous():
        return not reordered
    return ours.kind in (Kind.SOURCE, Kind.OPAQUE)


def refuse_unread_draws(program: ExportedProgram) -> None:
    """Later passes drop what no result needs. Raises CaptureError with the user's line."""
    waiting = [node for node in program.graph.nodes if node.op == "output"]
    needed: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    unread = [n for n in program.graph.nodes if n not in needed and draws(n)]
    if unread:
        raise OriginalKept(
            "the forward draws random numbers that its result does not need",
            where=where_in(unread[:1]),
        )
