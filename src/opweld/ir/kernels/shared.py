"""Kernels that several groups of a file have in common: later ones take that of the first.

The layers of a network, the steps of a loop and the variants of a forward are often alike: their
kernels differ in the names of what they read, if at all. A file has each once, and is built in a
part of the time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from ..expr import Expr
from ..graph import Graph
from ..operator import Operator, only_tracked, operator_of, operators_of
from ..ops import Kind
from ..original import Part
from ..plan import Group
from .kernel import Kernel, Let, RowBlocks
from .reduction import Lowered

Kept = tuple[Group, Lowered]


def sharing(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts, with the names and the kernels of the first groups that are alike."""
    known: dict[str, Kept] = {}
    return tuple(_shared(part, known) for part in parts)


def kernels_of(parts: Iterable[Part]) -> tuple[Lowered, ...]:
    """The kernels of a file, each once."""
    return tuple({lowered.group: lowered for part in parts for lowered in part.kernels}.values())


def fused_groups_of(parts: Iterable[Part]) -> list[tuple[Graph, Group, Lowered, Operator]]:
    """The operators of a file with their graphs, groups and kernels, each once."""
    found: dict[str, tuple[Graph, Group, Lowered, Operator]] = {}
    for part in parts:
        for fused in operators_of(part.plan.groups, part.kernels):
            found.setdefault(fused[2].name, (part.plan.graph, *fused))
    return list(found.values())


def sites_of(parts: Iterable[Part]) -> Counter[str]:
    """How many groups of one part each operator stands for: in the part that has the most."""
    sites: Counter[str] = Counter()
    for part in parts:
        sites |= Counter(group.name for group in part.plan.groups if group.fused)
    return sites


def _shared(part: Part, known: dict[str, Kept]) -> Part:
    kernels = iter(part.kernels)
    groups: list[Group] = []
    lowereds: list[Lowered] = []
    for group in part.plan.groups:
        if group.fused:
            lowered = next(kernels)
            key = key_of(part.plan.graph, group.as_compiled, lowered)
            first, lowered = known.setdefault(key, (group, lowered))
            group = _named_as(group, first)
            lowereds.append(lowered)
        groups.append(group)
    plan = replace(part.plan, groups=tuple(groups))
    return replace(part, plan=plan, kernels=tuple(lowereds))


def key_of(graph: Graph, group: Group, lowered: Lowered) -> str:
    """All that a group's texts are made from but for names and comments: 0.0 and -0.0 differ in it.

    No gradient comes from results that only running statistics go towards.
    """
    silent = only_tracked(graph, group)
    tracked = [node.serial in silent for node in group.outputs]
    made: list[object] = [group.schedule, lowered, operator_of(group, lowered), tracked]
    names = [group.name]
    if group.tail is not None and isinstance(lowered, RowBlocks):
        made.append(operator_of(group.tail, lowered.tail))
        names.append(group.tail.name)
    renamed = _renaming(names, [buffer.name for buffer in lowered.buffers])
    # What gradients are computed by has its words from the nodes themselves.
    told = [(node.op, node.attrs) for node in group.nodes if node.kind is not Kind.SOURCE]
    return f"{_said(made, renamed)!r} {told!r}"


def _said(value: Any, renamed: Callable[[str], str]) -> Any:
    """A value by which equal ones are told, without the user's lines and why a kernel is one.

    Factors and terms are sorted by names, so they are again behind new ones.
    """
    if isinstance(value, tuple | list):
        return [_said(item, renamed) for item in value]
    if not is_dataclass(value) or isinstance(value, type):
        return renamed(value if isinstance(value, str) else repr(value))
    if isinstance(value, Expr):
        terms = [(sorted(repr(_said(a, renamed)) for a in atoms), n) for atoms, n in value.terms]
        return Expr.__name__, sorted(terms)
    if isinstance(value, Let | Kernel):
        value = replace(value, comment="")
    return type(value).__name__, [_said(getattr(value, f.name), renamed) for f in fields(value)]


def _renaming(groups: list[str], buffers: list[str]) -> Callable[[str], str]:
    """Texts with places in the lists for names, also where a stride or a value is named after a
    buffer, or a function after a group.
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(buffers))}
    either = "|".join(sorted(map(re.escape, places), key=len, reverse=True))
    word = re.compile(rf"(?<![\w<])({either})(?=_stride\d+\b|_\d+\b|\b)")

    @cache
    def renamed(text: str) -> str:
        for position, name in enumerate(groups):
            text = text.replace(name, f"<{position}>")
        return word.sub(lambda found: f"<b{places[found[1]]}>", text)

    return renamed


def _named_as(group: Group, first: Group) -> Group:
    """`group` by the operator of `first`."""
    if group is first:
        return group
    if group.tail is not None and first.tail is not None:
        group = replace(group, tail=replace(group.tail, name=first.tail.name))
    if group.lifting is not None:
        named = replace(group.lifting.group, name=first.name)
        group = replace(group, lifting=replace(group.lifting, group=named))
    return replace(group, name=first.name, planned_name=group.name)
