"""Backwards of several kernels under one gradient: of what they compute together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from opweld.differentiate import differentiate
from opweld.emission.body import span_text
from opweld.emission.spans import Span
from opweld.ir.contract import Variant
from opweld.ir.expr import evaluate
from opweld.ir.graph import Node
from opweld.ir.operator import Operator
from opweld.ir.original import BackwardPart, Part
from opweld.ir.plan import Group, Sizes
from opweld.lower import lower
from opweld.trace import Trace

Down = Callable[[Variant, Sizes], Part]
"""A graph on its way to kernels, with examples of sizes that only it has."""


def span_backward(
    trace: Trace, part: Part, span: Span, operators: Mapping[str, Operator], down: Down
) -> list[BackwardPart]:
    """The backward of a span by kernels, where it has one."""
    whole, graph = span.whole.as_compiled, part.plan.graph
    vjp = trace.run("plan", differentiate, graph, whole, span.operator)
    if vjp is None:
        return []
    number = f"{span.parts[0].name.partition('_')[0]}_{span.parts[1].name.partition('_')[0]}"
    variant = replace(part.variant, graph=vjp.graph, backward=f"of_{number}")
    planned = down(variant, _examples(part, span.whole))
    if not planned.fuses:
        return []
    results = {node.serial for node in whole.outputs}
    saved = tuple(node for node in vjp.kept if node.serial not in results)
    more = [each for group in span.parts if (each := _with_saved(group, saved))]
    saving = None
    if more:
        plan = replace(part.plan, groups=tuple(more))
        saving = replace(part, plan=plan, kernels=trace.run("lower", lower, plan))
    text = span_text(graph, span, operators)
    return [BackwardPart(span.operator.name, vjp, planned, saving, saved, text)]


def _with_saved(group: Group, saved: Iterable[Node]) -> Group | None:
    """The group with what is to be saved of its own behind its results; None where that is there
    already.
    """
    compiled = group.as_compiled
    own = {node.serial: node for node in compiled.nodes}
    there = {node.serial for node in compiled.outputs}
    more = [own[node.serial] for node in saved if node.serial in own.keys() - there]
    if not more:
        return None
    outputs = (*compiled.outputs, *more)
    return replace(compiled, name=f"{group.name}_saving", outputs=outputs, reuse=None)


def _examples(part: Part, whole: Group) -> Sizes:
    known = {fact.name: fact.example for fact in part.variant.contract.symbols}
    values = whole.lifting.values if whole.lifting else ()
    return tuple((name, evaluate(size, known)) for name, size in values)
