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

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def draws(node: fx.Node) -> bool:
    """Whether a call takes numbers from torch's generator: not attention that drops nothing, nor a
    recurrent layer that drops nothing between its layers.
    """
    tagged = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    if not tagged or _argument(node, "dropout_p") == 0:
        return False
    if getattr(node.target, "_opname", None) not in _RECURRENT:
        return True
    several = _argument(node, "num_layers") != 1
    return several and _argument(node, "dropout") != 0 and _argument(node, "train") is not False


def _argument(node: fx.Node, name: str) -> object:
    """An argument of a call by its name; None where its operator has none of that name."""
    arguments = [argument.name for argument in node.target._schema.arguments]
    if name not in arguments:
        return None
    place = arguments.index(name)
    default = node.target._schema.arguments[place].default_value
    given = node.args[place] if place < len(node.args) else default
    return node.kwargs.get(name, given)


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
