"""Random numbers: every draw of the original must be made, or later ones would differ."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from opweld.errors import OriginalKept

from .origins import where_in


def draws(target: object) -> bool:
    """Whether an operator takes numbers from torch's generator."""
    tags = getattr(target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def refuse_unread_draws(program: ExportedProgram) -> None:
    """Later passes drop what no result needs. Raises CaptureError with the user's line."""
    waiting = [node for node in program.graph.nodes if node.op == "output"]
    needed: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    unread = [n for n in program.graph.nodes if draws(n.target) and n not in needed]
    if unread:
        raise OriginalKept(
            "the forward draws random numbers that its result does not need",
            where=where_in(unread[:1]),
        )
