"""What a forward leaves in the module's buffers: running statistics of norms, and new values."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.graph import Graph, Node, Tracking, Update
from ..ir.ops import Op
from .body import Body
from .steps import below
from .support import wrapped

Towards = list[tuple[Tracking, tuple[Node, Node]]]


def towards_of(graph: Graph, tracked: Iterable[Tracking]) -> Towards:
    """What is tracked, with the mean and the variance that it goes towards."""
    outputs = graph.outputs
    return [(each, (outputs[each.towards[0]], outputs[each.towards[1]])) for each in tracked]


def tracked_together(graph: Graph) -> list[list[Tracking]]:
    """What one call can track, in order: statistics of one momentum in buffers of their own."""
    found: list[list[Tracking]] = []
    for each in graph.tracked:
        last = found[-1] if found else []
        taken = {buffer for other in last for buffer in other.buffers}
        alike = bool(last) and each.momentum is not None and last[0].momentum == each.momentum
        if alike and not taken & set(each.buffers):
            last.append(each)
        else:
            found.append([each])
    return found


def tracked_at_once(graph: Graph, body: Body, together: list[Tracking]) -> list[str]:
    """The call that moves running statistics towards those of the batch."""
    counts = [each.count for each in together if each.count is not None]
    running = [buffer for each in together for buffer in (each.mean, each.variance)]
    towards = [body.text(graph.outputs[place]) for each in together for place in each.towards]
    lists = [f"    [{', '.join(texts)}]," for texts in (counts, running, towards)]
    return ["_kernels.track(", f"    {together[0].momentum},", *lists, ")"]


def noted(graph: Graph, body: Body, tracked: list[Tracking], access: str) -> list[str]:
    """Statements that put the buffers of a module, and what they go towards, in `_tracked`."""
    counts = [each.count for each in tracked if each.count is not None]
    running = [buffer for each in tracked for buffer in (each.mean, each.variance)]
    towards = [body.text(node) for _, nodes in towards_of(graph, tracked) for node in nodes]
    buffers = [[below(buffer, access) or buffer for buffer in each] for each in (counts, running)]
    return [
        f"_tracked[{place}] += [{', '.join(texts)}]"
        for place, texts in enumerate((*buffers, towards))
        if texts
    ]


def source_text(graph: Graph, source: Node, access: str) -> str:
    """What reads an input or a weight: of a buffer that changes at the end of the call, its
    value before.
    """
    changes = source.attrs.access in graph.changed_in_place
    return f"_kernels.before({access})" if changes and source.op is Op.WEIGHT else access


def updated(graph: Graph, body: Body, result: str) -> tuple[str, list[str]]:
    """The name of the result, and the last statement, which assigns buffers; the result and all new
    values are made before buffers take these.
    """
    name = body.fresh("result")
    body.lines.append(f"{name} = {result}")
    assigned = [each for each in graph.updates if each.assigned]
    copied = [each for each in graph.updates if not each.assigned]
    values = _values(graph, body, assigned)
    if assigned and copied:
        names = [body.fresh("new") for _ in values]
        body.lines.append(f"{', '.join(names)} = {', '.join(values)}")
        values = names
    if copied:
        lists = [_listed(each.buffer for each in copied), _listed(_values(graph, body, copied))]
        body.lines.append(wrapped("_kernels.update(", lists, ")", 0))
    targets = ", ".join(each.buffer for each in assigned)
    return name, [f"{targets} = {', '.join(values)}"] if assigned else []


def _values(graph: Graph, body: Body, updates: Iterable[Update]) -> list[str]:
    return [body.tensor(graph.outputs[each.value]) for each in updates]


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"
