"""Rows of calls that are a loop over the items of a list of modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.contract import ModuleFact
from ...ir.graph import ModuleCall, Node
from ..steps import Flow, Scope

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
