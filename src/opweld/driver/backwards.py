"""The backwards of a file's operators: differentiated here, and planned as forwards are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from opweld.differentiate import differentiate
from opweld.driver.span_backwards import Down, span_backward
from opweld.emission.spans import names_alone, spans_of
from opweld.ir.expr import evaluate
from opweld.ir.kernels.reduction import Lowered
from opweld.ir.kernels.shared import fused_groups_of, sharing
from opweld.ir.original import BackwardPart, Part, Vjp
from opweld.ir.plan import Group, Sizes
from opweld.ir.text import to_text
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.trace import Trace


def backwards_of(
    trace: Trace,
    parts: tuple[Part, ...],
    down: Down,
    language: str,
    by_skeleton: Callable[[Lowered], bool],
) -> tuple[BackwardPart, ...]:
    """The backwards of the operators of a file, each once, and of several under one gradient: of
    those whose gradients are kernels of ours, in part at least.
    """
    made: list[BackwardPart] = []
    known: set[str] = set()
    for part in parts:
        fused = fused_groups_of((part,))
        operators = {each.name: each for *_, each in fused}
        spans = spans_of(part.plan, operators)
        for span in spans:
            if span.operator.name not in known:
                known.add(span.operator.name)
                made += span_backward(trace, part, span, operators, down)
        alone = names_alone(part.plan, spans)
        for graph, group, _, operator in fused:
            # Row blocks are one after the other in training: the tail has the gradient.
            if operator.name not in alone - known or group.tail is not None:
                continue
            known.add(operator.name)
            vjp = trace.run("plan", differentiate, graph, group, operator)
            if vjp is not None:
                made += _backward(trace, part, group, vjp, down)
    own = tuple(each.part for each in made)
    own = trace.run("lower", lifting, own, language, by_skeleton)
    own = sharing((*parts, *own))[len(parts) :]
    return tuple(replace(each, part=part) for each, part in zip(made, own, strict=True))


def _backward(trace: Trace, part: Part, group: Group, vjp: Vjp, down: Down) -> list[BackwardPart]:
    number = group.name.partition("_")[0]
    variant = replace(part.variant, graph=vjp.graph, backward=f"of_{number}")
    planned = down(variant, _examples(part, group))
    if not planned.fuses:
        return []
    saved = tuple(node for node in vjp.kept if node not in group.outputs)
    if not saved:
        return [BackwardPart(group.name, vjp, planned)]
    outputs = (*group.outputs, *saved)
    saving = replace(group, name=f"{group.name}_saving", outputs=outputs, reuse=None)
    plan = replace(part.plan, groups=(saving,))
    kernels = trace.run("lower", lower, plan)
    whole = replace(part, plan=plan, kernels=kernels)
    return [BackwardPart(group.name, vjp, planned, whole, saved)]


def _examples(part: Part, group: Group) -> Sizes:
    """What the names of sizes stand for where a group is the first that has them."""
    known = {fact.name: fact.example for fact in part.variant.contract.symbols}
    groups = (each for each in part.plan.groups if each.as_compiled is group and each.lifting)
    values = [pair for each in groups if each.lifting for pair in each.lifting.values]
    return tuple((name, evaluate(size, known)) for name, size in values)


def backward_text(each: BackwardPart) -> str:
    """The plan of a backward, and what is kept for it beside the operands."""
    operands = len(each.vjp.graph.inputs) - len(each.vjp.kept)
    names = ", ".join(node.attrs.name for node in each.vjp.graph.inputs[operands:])
    told = f"its operands are kept{f', and {names}' if names else ''}"
    if each.saving is not None:
        saving = " and ".join(group.name for group in each.saving.plan.groups)
        num_bytes = sum((node.type.size_bytes for node in each.saved), start=0)
        told += f"; forward runs {saving}, which writes {num_bytes} bytes more"
    return f"backward of {each.operator}: {told}\n{to_text(each.part.plan)}"


def head_lines(backwards: Sequence[BackwardPart]) -> list[str]:
    """What the head of the file says of them."""
    if not backwards:
        return []
    return [f"Kernels compute the gradients of {', '.join(each.operator for each in backwards)}."]
