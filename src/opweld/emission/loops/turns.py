"""Loops over the turns of a node that is a loop: over time, mostly.

state = torch.zeros_like(decay[:, 0])
out_steps = []
for decay_t, drive_t in zip(decay.unbind(1), drive.unbind(1)):
    state = _kernels.mul_add(decay_t, state, drive_t)
    out_steps.append(state)
out = torch.stack(out_steps, 1)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.graph import Node, Origin
from ...ir.loop import Loop, Parts
from ...ir.operator import Operator
from ...ir.ops import Op
from ...ir.plan import Plan
from ..body import RESERVED, Body, assigned_name
from ..spans import Span


@dataclass(frozen=True, slots=True)
class Turn:
    """The plan of a loop's body, with its operators and what has one gradient there."""

    plan: Plan
    operators: Mapping[str, Operator]
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Opened:
    """A loop whose first line is there. `carried` are the names of the values that go from turn to
    turn, `collected` those of the lists of results, `texts` what the body's inputs and weights are
    by; of them `held` are read by each turn, so that nothing else may take their names.
    """

    carried: tuple[str, ...]
    collected: tuple[str, ...]
    texts: dict[int, str]
    held: frozenset[int]
    first: str


def opened(body: Body, call: Node, loop: Loop, ended: tuple[Node, ...]) -> Opened:
    """Names what is before a loop; values that are `ended` with it are read by nothing else."""
    inputs, weights = loop.body.inputs, loop.body.weights
    origins = dict(loop.body.origins)
    shown = origins.get(next((n.serial for n in loop.body.outputs), -1))
    if shown is not None:
        body.show((shown.place, shown.line))
    given = [_named(body, node) for node in call.inputs]
    count, num_parts = loop.carried, len(loop.parts)
    carried = []
    for source, node, text in zip(inputs, call.inputs, given[:count], strict=False):
        origin = origins.get(source.serial)
        wish = (origin and assigned_name(origin.line)) or "state"
        is_taken = node in ended and call.inputs.count(node) == 1
        carried.append(_carried(body, node, text, wish, is_taken))
    parts = [
        body.fresh(_wish(origins.get(source.serial), text))
        for source, text in zip(inputs[count:][:num_parts], given[count:], strict=False)
    ]
    places = dict.fromkeys(each.output for each in loop.collected)
    lists = {place: body.fresh(_list_name(loop, place)) for place in places}
    body.lines += [f"{name} = []" for name in lists.values()]
    sequences = [
        _sequence(node, text, part, loop.turns)
        for node, text, part in zip(call.inputs[count:], given[count:], loop.parts, strict=False)
    ]
    texts = [*carried, *parts, *given[count + num_parts :]]
    same = (*inputs[count + num_parts :], *weights)
    return Opened(
        tuple(carried),
        tuple(lists[each.output] for each in loop.collected),
        {node.serial: text for node, text in zip((*inputs, *weights), texts, strict=True)},
        frozenset(node.serial for node in same),
        _first_line(parts, sequences, loop.turns),
    )


def closed(body: Body, inner: Body, call: Node, loop: Loop, opened: Opened) -> None:
    """Adds the lines of the body, and gives the results of the loop their names."""
    known = {at: _name_of(inner, node) for at, node in enumerate(inner.graph.outputs)}
    lists = {n: each.output for n, each in zip(opened.collected, loop.collected, strict=True)}
    inner.lines += [f"{name}.append({known[place]})" for name, place in lists.items()]
    moved = [
        (name, known[place]) for place, name in enumerate(opened.carried) if known[place] != name
    ]
    if moved:
        names, values = zip(*moved, strict=True)
        inner.lines.append(f"{', '.join(names)} = {', '.join(values)}")
    body.lines += [opened.first, *(f"    {line}" for line in inner.lines)]
    body.place = inner.place
    results = []
    items = {
        n.attrs.index: n for n in body.graph.nodes() if n.op is Op.ITEM and n.inputs[0] is call
    }
    for index, (name, each) in enumerate(zip(opened.collected, loop.collected, strict=True)):
        in_order = f"{name}[::-1]" if each.backwards else name
        text = f"torch.{'stack' if each.stacked else 'cat'}({in_order}, {each.axis})"
        if index in items:
            body.wishes.setdefault(items[index].serial, _wish_of_joined(body, items[index], name))
            text = body.define((items[index],), text)
        results.append(text)
    for number, output in enumerate(loop.last):
        text = opened.carried[output] if output < loop.carried else known[output]
        index = len(loop.collected) + number
        if index in items:
            body.texts[items[index].serial] = text
        results.append(text)
    body.texts[call.serial] = f"({', '.join(results)},)"


def _wish_of_joined(body: Body, item: Node, steps: str) -> str:
    """The name of the results of all turns: the user's, or one made from that of a turn's."""
    origin = body.origins.get(item.serial)
    return (origin and assigned_name(origin.line)) or steps.removesuffix("_steps") + "_all"


def _name_of(inner: Body, node: Node) -> str:
    """The name of a result of a turn."""
    text = inner.tensor(node)
    if not text.isidentifier():
        name = inner.fresh("part")
        inner.lines.append(f"{name} = {text}")
        inner.texts[node.serial] = text = name
    return text


def _named(body: Body, node: Node) -> str:
    text = body.tensor(node)
    return text if re.fullmatch(r"[\w.\[\]]+", text) else f"({text})"


def _carried(body: Body, node: Node, text: str, wish: str, is_taken: bool) -> str:
    """The name of a carried value, which has its first one: that one's where nothing else reads it,
    another state or what is the same in all turns.
    """
    if is_taken and text in body.assigned:
        del body.texts[node.serial]
        return text
    name = body.fresh(wish)
    body.lines.append(f"{name} = {text}")
    body.assigned.add(name)
    return name


def _wish(origin: Origin | None, text: str) -> str:
    """`step` where the user's line is `for step in ...`, else `x_t` for a part of `x`."""
    found = re.match(r"\s*for\s+([A-Za-z_]\w*)\s+in\b", origin.line if origin else "")
    if found and found[1] not in RESERVED and found[1] != "_":
        return found[1]
    name = re.findall(r"[A-Za-z_]\w*", text)
    return f"{name[-1]}_t" if name else "part"


def _list_name(loop: Loop, place: int) -> str:
    origin = dict(loop.body.origins).get(loop.body.outputs[place].serial)
    name = assigned_name(origin.line) if origin else None
    return f"{name}_steps" if name else "steps"


def _sequence(node: Node, text: str, part: Parts, turns: int) -> str:
    """What a loop takes the parts of a tensor from."""
    stop = part.first + part.step * turns
    if part.length:
        numbers = f"range({part.first}, {stop}, {part.step})"
        return f"[{text}.narrow({part.axis}, i, {part.length}) for i in {numbers}]"
    whole = part.first == 0 and part.step == 1 and node.type.shape[part.axis] == turns
    step = f":{part.step}" if part.step != 1 else ""
    cut = f"[{part.first or ''}:{stop if stop >= 0 else ''}{step}]"
    return f"{text}.unbind({part.axis}){'' if whole else cut}"


def _first_line(parts: Sequence[str], sequences: Sequence[str], turns: int) -> str:
    if not parts:
        return f"for _ in range({turns}):"
    if len(parts) == 1:
        return f"for {parts[0]} in {sequences[0]}:"
    return f"for {', '.join(parts)} in zip({', '.join(sequences)}):"
