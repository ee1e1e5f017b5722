"""Backwards of several kernels under one gradient: of what they compute together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from opweld.differentiate import differentiate
from opweld.driver.budget import saved_of
from opweld.driver.sizes import sizes_of
from opweld.emission.spans import Span, spans_of_parts
from opweld.ir.contract import Variant
from opweld.ir.graph import Node, consumers
from opweld.ir.original import BackwardPart, Part, Vjp
from opweld.ir.plan import Group, Sizes
from opweld.lower import lower
from opweld.trace import Trace

Down = Callable[[Variant, Sizes], Part]
"""A graph on its way to kernels, with examples of sizes that only it has."""


def span_backwards(trace: Trace, parts: Iterable[Part], down: Down) -> list[BackwardPart]:
    """Those of the spans of a file that kernels are made for, each once."""
    made: list[BackwardPart] = []
    known: set[str] = set()
    for part, _, spans in spans_of_parts(parts):
        for span in spans:
            if span.operator.name not in known:
                known.add(span.operator.name)
                made += _backward(trace, part, span, down)
    return made


def _backward(trace: Trace, part: Part, span: Span, down: Down) -> list[BackwardPart]:
    whole, sizes = span.whole.as_compiled, sizes_of(part, span.whole)
    vjp = _vjp(trace, part, span, sizes)
    if vjp is None:
        return []
    variant = replace(part.variant, graph=vjp.graph, backward=f"of_{span.number}")
    planned = down(variant, sizes)
    if not planned.fuses:
        return []
    saved = saved_of(whole, vjp)
    more = [each for group in span.parts if (each := _with_saved(span, group, saved))]
    saving = None
    if more:
        plan = replace(part.plan, groups=tuple(more))
        saving = replace(part, plan=plan, kernels=trace.run("lower", lower, plan))
    return [BackwardPart(span.operator.name, vjp, planned, saving, saved)]


def _vjp(trace: Trace, part: Part, span: Span, sizes: Sizes) -> Vjp | None:
    """Of what it keeps each value is one that a kernel of the span computes."""
    whole, users = span.whole.as_compiled, consumers(part.plan.graph.nodes())
    staying = {at for at, node in enumerate(span.whole.outputs) if users[node.serial]}
    own = {node.serial for group in span.parts for node in group.as_compiled.nodes}
    for again in (False, True):
        given = part.plan.graph, whole, span.operator, sizes, again, staying
        vjp = trace.run("plan", differentiate, *given)
        if vjp is None or own >= {node.serial for node in saved_of(whole, vjp)}:
            return vjp
    return None


def _with_saved(span: Span, group: Group, saved: Iterable[Node]) -> Group | None:
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
    return replace(compiled, name=span.saving(group), outputs=outputs, reuse=None)
