"""The backwards of a file's operators: differentiated here, and planned as forwards are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.differentiate import differentiate
from opweld.driver.budget import Choice, saved_bytes, saved_of, within
from opweld.driver.sizes import sizes_of
from opweld.driver.span_backwards import Down, span_backwards
from opweld.emission.spans import names_alone, spans_of
from opweld.ir.graph import Graph, Node, consumers, reached
from opweld.ir.kernels.reduction import Lowered
from opweld.ir.kernels.shared import fused_groups_of, sharing
from opweld.ir.operator import Operator
from opweld.ir.ops import Kind, Op
from opweld.ir.original import BackwardPart, Part, Vjp
from opweld.ir.plan import Group, Sizes
from opweld.ir.rules.costs import Costs
from opweld.ir.rules.windows import windows_of
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
    costs: Costs,
    budget: float = 1.0,
) -> tuple[BackwardPart, ...]:
    """The backwards of the operators of a file, each once, and of several under one gradient: of
    those whose gradients are kernels of ours, in part at least. Of the bytes that forwards keep
    beside operands and results, `budget` may stay.
    """
    found = _differentiated(trace, parts, language)
    chosen = within(budget, [each.choice(costs) for each in found])
    made = span_backwards(trace, parts, down)
    for each, again in zip(found, chosen, strict=True):
        vjp = each.made_again(trace) if again else each.first
        made += _backward(trace, each, vjp, down)
    own = tuple(each.part for each in made)
    own = trace.run("lower", lifting, own, language, by_skeleton)
    own = sharing((*parts, *own))[len(parts) :]
    return tuple(replace(each, part=part) for each, part in zip(made, own, strict=True))


@dataclass(frozen=True, slots=True)
class _Differentiated:
    """A group with gradients: `first` are those that take the least time."""

    part: Part
    graph: Graph
    group: Group
    operator: Operator
    sizes: Sizes
    staying: frozenset[int]
    first: Vjp

    def made_again(self, trace: Trace) -> Vjp:
        """The gradients for which products are computed again."""
        given = self.graph, self.group, self.operator, self.sizes, True, self.staying
        vjp = trace.run("plan", differentiate, *given)
        assert vjp is not None, "it has gradients"
        return vjp

    def choice(self, costs: Costs) -> Choice:
        """The bytes that it keeps for them, and the time that computing these again takes."""
        costs = replace(costs, sizes=self.sizes)
        estimate = self.group.estimate
        seconds = costs.seconds(estimate.flops, estimate.bytes)
        return Choice(costs.number(saved_bytes(saved_of(self.group, self.first))), seconds)


def _differentiated(trace: Trace, parts: tuple[Part, ...], language: str) -> list[_Differentiated]:
    found: list[_Differentiated] = []
    known: set[str] = set()
    for part in parts:
        users = consumers(part.plan.graph.nodes())
        fused = fused_groups_of((part,))
        alone = names_alone(part.plan, spans_of(part.plan, {each.name: each for *_, each in fused}))
        for graph, group, _, operator in fused:
            # Row blocks are one after the other in training: the tail has the gradient.
            if operator.name not in alone - known or group.tail is not None:
                continue
            known.add(operator.name)
            if language == "cpp" and any(map(_is_overlapping_max_pool, group.nodes)):
                continue
            # Row blocks' tail is no group of the plan.
            sites = [each for each in part.plan.groups if each.name == operator.name] or [group]
            sizes, staying = sizes_of(part, sites[0]), _staying(sites, users)
            given = graph, group, operator, sizes, False, staying
            vjp = trace.run("plan", differentiate, *given)
            if vjp is not None:
                found.append(_Differentiated(part, *given[:4], staying, vjp))
    return found


def _is_overlapping_max_pool(node: Node) -> bool:
    """A CPU gathers its gradient in 107 ms where PyTorch takes 66, which finds the places again
    (8x32x112x112, 3x3, steps of 2; EPYC, 2026-11-29).
    """
    if node.op is not Op.AMAX or not node.attrs.first:
        return False
    seen = windows_of(node)
    return seen is not None and not seen.disjoint


def _staying(sites: Sequence[Group], users: Mapping[int, tuple[Node, ...]]) -> frozenset[int]:
    """The places of results that others, who keep their operands, read at all sites of a kernel."""
    read = ({at for at, node in enumerate(e.outputs) if users[node.serial]} for e in sites)
    return frozenset.intersection(*map(frozenset, read))


def _backward(trace: Trace, each: _Differentiated, vjp: Vjp, down: Down) -> list[BackwardPart]:
    part, group = each.part, each.group
    number = group.name.partition("_")[0]
    variant = replace(part.variant, graph=vjp.graph, backward=f"of_{number}")
    planned = down(variant, each.sizes)
    if not planned.fuses:
        return []
    saved = saved_of(group, vjp)
    if not saved:
        return [BackwardPart(group.name, vjp, planned)]
    more = reached(saved, {n.serial for n in (*group.inputs, *group.nodes)})
    if any(node.kind is Kind.REDUCTION for node in more):
        return []  # its rows are planned for the reductions that it has
    saving = replace(
        group,
        name=f"{group.name}_saving",
        nodes=(*group.nodes, *more),
        outputs=(*group.outputs, *saved),
        reuse=None,
    )
    plan = replace(part.plan, groups=(saving,))
    kernels = trace.run("lower", lower, plan)
    whole = replace(part, plan=plan, kernels=kernels)
    return [BackwardPart(group.name, vjp, planned, whole, saved)]


def backward_text(each: BackwardPart) -> str:
    """The plan of a backward, and what is kept for it beside the operands."""
    operands = len(each.vjp.graph.inputs) - len(each.vjp.kept)
    names = ", ".join(node.attrs.name for node in each.vjp.graph.inputs[operands:])
    told = f"its operands are kept{f', and {names}' if names else ''}"
    if each.saving is not None:
        saving = " and ".join(group.name for group in each.saving.plan.groups)
        num_bytes = saved_bytes(each.saved)
        told += f"; forward runs {saving}, which writes {num_bytes} bytes more"
    return f"backward of {each.operator}: {told}\n{to_text(each.part.plan)}"


def head_lines(backwards: Sequence[BackwardPart]) -> list[str]:
    """What the head of the file says of them."""
    if not backwards:
        return []
    return [f"Kernels compute the gradients of {', '.join(each.operator for each in backwards)}."]
