"""Kernels under one gradient: a norm in training whose statistics are a kernel of their own.

Each kernel's own backward would go through the statistics element by element, which takes three
times as long as the norm's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..ir.graph import Graph, Node, topological
from ..ir.kernels.lifted import lifted
from ..ir.kernels.shared import fused_groups_of
from ..ir.operator import Operator, operator_over
from ..ir.original import Part
from ..ir.plan import Group, Plan

Computation = tuple[tuple[str, ...], tuple[Hashable, ...], tuple[int, ...]]
"""The names of kernels, operands and steps, and which of these are results."""


@dataclass(frozen=True, slots=True)
class Span:
    """Two fused groups of which the second alone reads what the first computes for it, and both as
    one: a group that is no kernel, and its operator.
    """

    parts: tuple[Group, Group]
    whole: Group
    operator: Operator
    version: int = 1

    @property
    def number(self) -> str:
        """The numbers of its groups, "k1_k2"; of other versions with that of these: "k1_k2_2"."""
        numbers = "_".join(group.name.partition("_")[0] for group in self.parts)
        return numbers if self.version == 1 else f"{numbers}_{self.version}"

    @property
    def computation(self) -> Computation:
        """What it computes, by the places of operands and of what is computed before."""
        whole = self.whole.as_compiled
        places = {node.serial: place for place, node in enumerate(whole.inputs)}
        steps: list[Hashable] = [node.type for node in whole.inputs]
        for node in topological(whole.outputs, frozenset(places)):
            places[node.serial] = len(steps)
            operands = tuple(places[operand.serial] for operand in node.inputs)
            steps.append((node.op, node.attrs, node.type, operands))
        results = tuple(places[node.serial] for node in whole.outputs)
        return tuple(group.name for group in self.parts), tuple(steps), results

    def saving(self, group: Group) -> str:
        """What a group of it is called where it leaves more for their backward."""
        return f"{group.name}_saving_of_{self.number}"

    @property
    def intermediates(self) -> tuple[Node, ...]:
        """What the first leaves for the second alone, as the whole knows it."""
        results = {node.serial for node in self.whole.outputs}
        made = {node.serial for node in self.parts[0].outputs} - results
        inside = topological(self.whole.as_compiled.outputs)
        return tuple(node for node in inside if node.serial in made)


def spans_of_parts(parts: Iterable[Part]) -> Iterator[tuple[Part, dict[str, Operator], list[Span]]]:
    """The spans of what gradients may be asked of, and the operators there by name: of one name are
    those that compute the same.
    """
    known: dict[str, Computation] = {}
    for part in parts:
        if not part.variant.contract.differentiable:
            continue
        operators = {operator.name: operator for *_, operator in fused_groups_of((part,))}
        spans = [_named_for_itself(span, known) for span in spans_of(part.plan, operators)]
        yield part, operators, spans


def _named_for_itself(span: Span, known: dict[str, Computation]) -> Span:
    """With a number in its name where one of that name computes something else."""
    own, computation = span, span.computation
    while known.setdefault(own.operator.name, computation) != computation:
        version = own.version + 1
        name = f"{span.operator.name}_{version}"
        whole = replace(span.whole, name=name)
        operator = replace(span.operator, name=name)
        own = replace(span, whole=whole, operator=operator, version=version)
    return own


def spans_of(plan: Plan, operators: Mapping[str, Operator]) -> list[Span]:
    """The spans of a graph that tracks running statistics; a group is in one of them at most."""
    found: list[Span] = []
    taken: set[int] = set()
    for first in plan.groups if plan.graph.tracked else ():
        second = _only_reader(plan, first)
        if second is None or taken & {_place(first), _place(second)}:
            continue
        if not all(_is_plain(group) for group in (first, second)):
            continue
        taken |= {_place(first), _place(second)}
        found.append(_span(plan.graph, first, second, operators))
    return found


def names_alone(plan: Plan, spans: Iterable[Span]) -> frozenset[str]:
    """The names of the fused groups that are in no span."""
    inside = {_place(group) for span in spans for group in span.parts}
    outside = (group for group in plan.groups if group.fused and _place(group) not in inside)
    return frozenset(name for group in outside for name in _names_of(group))


def _names_of(group: Group) -> tuple[str, ...]:
    return (group.name,) if group.tail is None else (group.name, group.tail.name)


def _place(group: Group) -> int:
    """What tells a group from the others of a plan, of which several may be of one name."""
    return group.outputs[0].serial


def _is_plain(group: Group) -> bool:
    one_each = group.anchor is None and group.tail is None and group.listed is None
    return group.fused and one_each


def _only_reader(plan: Plan, first: Group) -> Group | None:
    """The group that alone reads results of `first`, but for what is only tracked."""
    made = {node.serial for node in first.outputs}
    if made & plan.graph.handed_out:
        return None
    inside = {node.serial for node in first.nodes}
    readers = [
        group
        for group in plan.groups
        if group is not first and made & {each.serial for each in _read_by(group, inside)}
    ]
    return readers[0] if len(readers) == 1 and _is_norm(first) else None


def _read_by(group: Group, inside: set[int]) -> list[Node]:
    """The operands of its nodes, but for those that are `inside` another, and of a list each."""
    own = (node for node in group.nodes if node.serial not in inside)
    return [*group.tensors, *(operand for node in own for operand in node.inputs)]


def _is_norm(group: Group) -> bool:
    return group.rows is not None


def _span(graph: Graph, first: Group, second: Group, operators: Mapping[str, Operator]) -> Span:
    made = {node.serial for node in first.outputs}
    inputs = dict.fromkeys(
        (*first.inputs, *(node for node in second.inputs if node.serial not in made))
    )
    nodes = {node.serial: node for node in (*first.nodes, *second.nodes)}
    tracked = {graph.outputs[place].serial for each in graph.tracked for place in each.towards}
    kept = tuple(node for node in first.outputs if node.serial in tracked)
    name = f"{first.name.split('_')[0]}_{second.name}"
    whole = replace(
        second,
        name=name,
        nodes=tuple(nodes[serial] for serial in sorted(nodes)),
        inputs=tuple(inputs),
        outputs=(*second.outputs, *kept),
        reuse=None,
        rows=first.rows,
        lifting=None,
    )
    whole = _lifted(whole, (first, second), operators)
    names = _names(whole, first, second, operators)
    return Span((first, second), whole, operator_over(whole.as_compiled, names))


def _lifted(whole: Group, parts: tuple[Group, Group], operators: Mapping[str, Operator]) -> Group:
    """Over named sizes where its kernels are, and read from operands all that they need."""
    for_any = any(part.lifting for part in parts)
    given = any(operators[part.name].sizes for part in parts)
    return replace(whole, lifting=lifted(whole)) if for_any and not given else whole


def _names(
    whole: Group, first: Group, second: Group, operators: Mapping[str, Operator]
) -> tuple[str, ...]:
    """A name for each operand, no two alike: the one that a kernel gives it."""
    wishes: dict[int, str] = {}
    for group in (second, first):
        pairs = zip(group.inputs, operators[group.name].arguments, strict=True)
        wishes |= {node.serial: argument.name for node, argument in pairs}
    names: list[str] = []
    for node in whole.inputs:
        name = wishes[node.serial]
        names.append(name if name not in names else f"{name}_{len(names)}")
    return tuple(names)
