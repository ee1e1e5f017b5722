"""Rows of calls that are a loop over the items of a list of modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.contract import ModuleFact
from ...ir.graph import ModuleCall, Node
from ..body import Body, assigned_name
from ..steps import Flow, Scope, below

_LISTS = ("torch.nn.modules.container:ModuleList", "torch.nn.modules.container:Sequential")


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a method: `extra` are names of the caller's that it is given beside values."""

    call: ModuleCall
    scope: Scope
    method: str
    arguments: tuple[Node, ...]
    results: tuple[Node, ...]
    extra: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Calls of one method on the items of a list from number `first` on; `num_items` has it.

    For each argument `carried` has the place of the result that the call before gave for it, None
    where all are given the same.
    """

    calls: tuple[Called, ...]
    container: str
    first: int
    num_items: int
    carried: tuple[int | None, ...]

    @property
    def items(self) -> str:
        """What the loop is over, where `container` is the text of the list."""
        end = self.first + len(self.calls)
        if len(self.calls) == self.num_items:
            return "{container}"
        return f"[*{{container}}][{self.first or ''}:{end if end < self.num_items else ''}]"


def in_loops(
    items: Sequence[int | Called], flow: Flow, facts: Mapping[str, ModuleFact]
) -> list[int | Called | Loop]:
    """The items, rows of at least two calls as loops."""
    found: list[int | Called | Loop] = []
    for item in items:
        before = found[-1] if found else None
        joined = _joined(before, item, flow, facts) if isinstance(item, Called) else None
        if joined is not None:
            found[-1] = joined
        else:
            found.append(item)
    return found


def _joined(
    before: int | Called | Loop | None, item: Called, flow: Flow, facts: Mapping[str, ModuleFact]
) -> Loop | None:
    if before is None or isinstance(before, int):
        return None
    calls = before.calls if isinstance(before, Loop) else (before,)
    last = calls[-1]
    carried = _carried(last, item, flow)
    if carried is None or (isinstance(before, Loop) and before.carried != carried):
        return None
    path, _, number = last.call.path.rpartition(".")
    following, _, next_number = item.call.path.rpartition(".")
    if path != following or not number.isdigit() or int(next_number) != int(number) + 1:
        return None
    num_items = _num_items(facts.get(path))
    access = last.call.access.removesuffix(f"[{number}]")
    if num_items is None or access == last.call.access:
        return None
    first = int(number) - len(calls) + 1
    return Loop((*calls, item), access, first, num_items, carried)


def _num_items(fact: ModuleFact | None) -> int | None:
    """Of a list as PyTorch makes it, whose items are called by their numbers."""
    if fact is None or fact.type_name not in _LISTS:
        return None
    names: Sequence[str] = dict(fact.attributes).get("_modules", ())
    return len(names) if tuple(names) == tuple(map(str, range(len(names)))) else None


def _carried(last: Called, item: Called, flow: Flow) -> tuple[int | None, ...] | None:
    """Where the arguments of the next call come from; None where it is not the next of a loop."""
    if (last.method, last.extra) != (item.method, item.extra):
        return None
    if any(flow.last_read[node.serial] > item.scope.last for node in last.results):
        return None
    places = {node.serial: place for place, node in enumerate(last.results)}
    found: list[int | None] = []
    for given, then in zip(item.arguments, last.arguments, strict=True):
        if given is not then and given.serial not in places:
            return None
        found.append(None if given is then else places[given.serial])
    return tuple(found)


def write_loop(body: Body, loop: Loop, ended: tuple[Node, ...], access: str) -> None:
    """A loop whose results have, from one turn to the next, the names of the arguments."""
    first, last = loop.calls[0], loop.calls[-1]
    container = below(loop.container, access)
    assert container is not None, "items of a list are below it"
    show_call(body, first.call)
    names: dict[int, str] = {}
    given: list[str] = []
    for node, place in zip(first.arguments, loop.carried, strict=True):
        text = body.text(node)
        if place is None:
            given.append(text)
            continue
        if node not in ended or not text.isidentifier():
            start, text = text, body.fresh(result_name(first.call))
            body.lines.append(f"{text} = {start}")
            body.assigned.add(text)
        else:
            del body.texts[node.serial]
        given.append(text)
        names[place] = text
    item = body.fresh(_variable(first.call))
    results = ", ".join(names[place] for place in range(len(last.results)))
    given = [item, *given, *first.extra, "_kernels"]
    body.lines += [
        f"for {item} in {loop.items.format(container=container)}:",
        f"    {results} = {first.method}({', '.join(given)})",
    ]
    body.texts.update((node.serial, names[place]) for place, node in enumerate(last.results))


def show_call(body: Body, call: ModuleCall) -> None:
    if call.line:
        body.show(call.line)


def result_name(call: ModuleCall) -> str:
    """What the user's line assigns the call's result to."""
    return (call.line and assigned_name(call.line[1])) or "x"


def _variable(call: ModuleCall) -> str:
    """`basic_block` for an instance of BasicBlock."""
    name = call.type_name.rpartition(":")[2].rpartition(".")[2].strip("_")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
