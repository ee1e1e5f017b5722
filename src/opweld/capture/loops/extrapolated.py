"""From captures of a call at two lengths to that at any length.

A number that differs between the two goes on in a straight line. All else must be equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from opweld.ir.copying import made_alike
from opweld.ir.graph import Arena, Graph, Node

_NUMBER = re.compile(r"(\d+)")


class OtherForm(Exception):
    """The two differ in more than numbers, or in numbers that are on no straight line."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of the two captures, and the one that is wanted."""

    one: int
    other: int
    wanted: int

    def number(self, one: int, other: int) -> int:
        """Raises OtherForm where the slope is no whole number."""
        slope, rest = divmod(other - one, self.other - self.one)
        if rest:
            raise OtherForm(f"{one} and {other}")
        return one + slope * (self.wanted - self.one)


def extrapolated(one: Any, other: Any, lengths: Lengths) -> Any:
    """The value at the wanted length. Raises OtherForm."""
    if type(one) is not type(other):
        raise OtherForm(f"{one!r} and {other!r}")
    if isinstance(one, Graph):
        return _graph(one, other, lengths)
    if isinstance(one, bool) or one is other:
        return _equal(one, other)
    if isinstance(one, int):
        return lengths.number(one, other)
    if isinstance(one, float) and one.is_integer() and other.is_integer():
        return float(lengths.number(int(one), int(other)))  # of a mean over the steps
    if isinstance(one, str):
        return _text(one, other, lengths)
    if isinstance(one, tuple | list):
        items = _each(one, other, lengths)
        return type(one)(*items) if hasattr(one, "_fields") else type(one)(items)
    if isinstance(one, dict):
        return dict(_each([*one.items()], [*other.items()], lengths))
    if is_dataclass(one) and not isinstance(one, type):
        names = [field.name for field in fields(one)]
        new = {n: extrapolated(getattr(one, n), getattr(other, n), lengths) for n in names}
        return replace(one, **new)
    return _equal(one, other)


def _equal(one: Any, other: Any) -> Any:
    if repr(one) != repr(other):
        raise OtherForm(f"{one!r} and {other!r}")
    return one


def _each(one: Any, other: Any, lengths: Lengths) -> list[Any]:
    if len(one) != len(other):
        raise OtherForm(f"{len(one)} and {len(other)} items")
    return [extrapolated(a, b, lengths) for a, b in zip(one, other, strict=True)]


def _text(one: str, other: str, lengths: Lengths) -> str:
    """A text in which numbers may differ."""
    if one == other:
        return one
    pairs = zip(_parts(one, other), _NUMBER.split(other), strict=True)
    return "".join(a if a == b else str(lengths.number(*_numbers(a, b))) for a, b in pairs)


def _parts(one: str, other: str) -> list[str]:
    parts = _NUMBER.split(one)
    if len(parts) != len(_NUMBER.split(other)):
        raise OtherForm(f"{one!r} and {other!r}")
    return parts


def _numbers(one: str, other: str) -> tuple[int, int]:
    if not (one.isdigit() and other.isdigit()):
        raise OtherForm(f"{one!r} and {other!r}")
    return int(one), int(other)


def _graph(one: Graph, other: Graph, lengths: Lengths) -> Graph:
    arena = Arena()
    pairs = list(zip(_in_order(one), _in_order(other), strict=False))
    if len(pairs) != len(_in_order(one)) or len(pairs) != len(_in_order(other)):
        raise OtherForm("graphs of other sizes")
    made: dict[int, Node] = {}
    places = {old.serial: number for number, (old, _) in enumerate(pairs)}
    others = {then.serial: number for number, (_, then) in enumerate(pairs)}
    for old, then in pairs:
        operands = [places[n.serial] for n in old.inputs], [others[n.serial] for n in then.inputs]
        if old.op is not then.op or operands[0] != operands[1]:
            raise OtherForm(f"{old!r} and {then!r}")
        made[old.serial] = _node(arena, old, then, made, lengths)
    of_one = dict(one.origins), dict(other.origins)
    origins = [
        (made[old.serial].serial, extrapolated(*found, lengths))
        for old, then in pairs
        if None not in (found := (of_one[0].get(old.serial), of_one[1].get(then.serial)))
    ]
    outputs = [others[node.serial] for node in other.outputs]
    if [places[node.serial] for node in one.outputs] != outputs:
        raise OtherForm("graphs with other outputs")

    def of_all(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(made[node.serial] for node in nodes)

    return Graph(
        extrapolated(one.name, other.name, lengths),
        of_all(one.inputs),
        of_all(one.weights),
        of_all(one.outputs),
        extrapolated(one.structure, other.structure, lengths),
        tuple(sorted(dict(origins).items())),
        extrapolated(one.tracked, other.tracked, lengths),
        extrapolated(one.updates, other.updates, lengths),
    )


def _in_order(graph: Graph) -> list[Node]:
    return sorted(graph.nodes(), key=lambda node: node.serial)


def _node(arena: Arena, old: Node, then: Node, made: dict[int, Node], lengths: Lengths) -> Node:
    inputs = tuple(made[operand.serial] for operand in old.inputs)
    attrs = extrapolated(old.attrs, then.attrs, lengths)
    type = extrapolated(old.type, then.type, lengths)
    node = made_alike(arena, old, inputs, attrs, type)
    if node.type != type:
        raise OtherForm(f"{node.type} and {type}")
    return node
