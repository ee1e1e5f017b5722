"""Loops that the capture wrote out, as loops again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opweld.ir.calls import common
from opweld.ir.copying import Copier, Operands, made_alike
from opweld.ir.graph import Arena, Graph, Leaf, Node, Origin, arena_of, consumers
from opweld.ir.loop import Collected, Loop, Parts, make_loop
from opweld.ir.ops import OPS, Op
from opweld.ir.types import TensorType

from .hoisted import hoisted
from .turns import SHOWN, Part, Run, adds_axis, runs


def rolled(graph: Graph, long: bool = False) -> Graph:
    """`graph` with each run of equal turns, whose values are read by the next turn, by what joins
    those of all turns, or behind the last turn, as a node that is a loop. It is known that they
    stand for `long` ones, or they must be worth a loop as they are.
    """
    number = 1
    while True:
        labels = f"loop_{number}" if number > 1 else "loop"
        made = next(
            (new for run in runs(graph, long) if (new := _with_loop(graph, run, labels))), None
        )
        if made is None:
            return graph
        graph, number = made, number + 1


@dataclass(frozen=True, slots=True)
class _Joined:
    """The results of all turns at one place, from operand `at` of a CAT on."""

    cat: Node
    at: int
    place: int
    stacked: bool
    backwards: bool


def _with_loop(graph: Graph, run: Run, label: str) -> Graph | None:
    body = _Body(run, dict(graph.origins))
    read = _read_behind(graph, run, body.carried)
    if read is None:
        return None
    joined, last = read
    arena = arena_of(graph)
    body.make(f"{graph.name} {label}", [*((1, each.place) for each in joined), *last])
    roller = _Roller(arena, body, run, label, joined, last)
    copier = Copier(arena, roller.instead, dict(graph.origins))
    roller.copier = copier
    return copier.copied(graph)


Slot = tuple[int, int]
"""How many turns ago a value was made, seen from the turn after the last, and its place."""


def _read_behind(
    graph: Graph, run: Run, carried: Mapping[Slot, Node]
) -> tuple[list[_Joined], list[Slot]] | None:
    """What is joined of all turns, and the values that are read of the last ones; None where other
    values are read behind the loop, too.
    """
    places = {n.serial: (k, j) for k, turn in enumerate(run.turns) for j, n in enumerate(turn)}
    users = consumers(graph.nodes())
    returned = {node.serial for node in graph.outputs}
    joined: dict[tuple[int, int], _Joined] = {}
    last: dict[Slot, None] = {}
    for turn in run.turns:
        for node in turn:
            k, j = places[node.serial]
            readers = [user for user in users[node.serial] if user.serial not in places]
            of_all = [_joined(run, j, user, users) for user in readers]
            joined |= {(each.cat.serial, each.at): each for each in of_all if each}
            slot = len(run.turns) - k, j
            elsewhere = node.serial in returned or not all(of_all)
            if elsewhere and slot[0] > 1 and slot not in carried:
                return None
            if elsewhere:
                last[slot] = None
    return list(joined.values()), list(last)


def _joined(
    run: Run, place: int, user: Node, users: Mapping[int, tuple[Node, ...]]
) -> _Joined | None:
    """Where `user`, or what reads it with an axis of size 1 more, joins the values of all turns."""
    values = [turn[place] for turn in run.turns]
    if user.op is Op.CAT:
        found = _in_cat(user, values, place)
        whole = _whole(run, place, user.attrs.dim) if found else None
        return replace(found, place=whole, stacked=True) if found and whole is not None else found
    if user.op is not Op.RESHAPE or len(users[user.serial]) != 1:
        return None
    cat = users[user.serial][0]
    if cat.op is not Op.CAT or not adds_axis(user, cat.attrs.dim):
        return None
    of_value = {n.inputs[0].serial: n for n in cat.inputs if adds_axis(n, cat.attrs.dim)}
    if any(value.serial not in of_value for value in values):
        return None
    found = _in_cat(cat, [of_value[value.serial] for value in values], place)
    return replace(found, stacked=True) if found else None


def _whole(run: Run, place: int, axis: int) -> int | None:
    """The place of what the value at `place` is with an axis more."""
    turn = run.turns[0]
    inside = [node.serial for node in turn]
    node = turn[place]
    if not adds_axis(node, axis) or node.inputs[0].serial not in inside:
        return None
    return inside.index(node.inputs[0].serial)


def _in_cat(cat: Node, values: Sequence[Node], place: int) -> _Joined | None:
    operands = [node.serial for node in cat.inputs]
    for backwards in (False, True):
        wanted = [node.serial for node in (reversed(values) if backwards else values)]
        at = operands.index(wanted[0]) if wanted[0] in operands else -1
        if at >= 0 and operands[at : at + len(wanted)] == wanted:
            return _Joined(cat, at, place, False, backwards)
    return None


@dataclass(slots=True)
class _Body:
    """The body, made from the turn that shows what all read. Values are carried by how many turns
    ago, and at which place, they were made.
    """

    run: Run
    origins: Mapping[int, Origin]
    arena: Arena = field(default_factory=Arena)
    carried: dict[Slot, Node] = field(default_factory=dict)
    given: dict[int, Node] = field(default_factory=dict)
    known: dict[int, Node] = field(default_factory=dict)
    outputs: dict[Slot, int] = field(default_factory=dict)
    graph: Graph = field(init=False)

    def __post_init__(self) -> None:
        made = {
            node.serial: (ago, place)
            for ago in range(SHOWN + 1)
            for place, node in enumerate(self.run.turns[SHOWN - ago])
        }
        found: dict[Slot, Node] = {}
        for operand in (operand for node in self.run.turns[SHOWN] for operand in node.inputs):
            ago, place = made.get(operand.serial, (-1, 0))
            if ago < 0:
                self.given[operand.serial] = operand
            for past in range(1, ago + 1):
                found[past, place] = self.run.turns[SHOWN - past][place]
        self.carried = {slot: found[slot] for slot in sorted(found, key=lambda slot: slot[::-1])}

    @property
    def parts(self) -> list[Node]:
        """Operands that are another part of their tensor in each turn."""
        return [n for n in self.given.values() if self.part_at(n, 0) != self.part_at(n, 1)]

    @property
    def fixed(self) -> list[Node]:
        """Operands that are computed before the loop."""
        others = (*self.parts, *self.weights)
        made = (n for n in self.given.values() if n.op not in (Op.CONST, Op.IOTA))
        return [node for node in made if node not in others]

    @property
    def weights(self) -> list[Node]:
        return [node for node in self.given.values() if node.op is Op.WEIGHT]

    @property
    def shared(self) -> int:
        """How many of the user's calls all turns are in."""
        chains = [
            self.origins[node.serial].calls
            for turn in self.run.turns
            for node in turn
            if node.serial in self.origins
        ]
        shared = chains[0] if chains else ()
        for chain in chains[1:]:
            shared = common(shared, chain)
        return len(shared)

    def make(self, name: str, read: Sequence[Slot]) -> None:
        """`read` are the values that are read behind the loop."""
        turn = self.run.turns[SHOWN]
        inputs = [
            self._input(f"carried{number}", node)
            for number, node in enumerate(self.carried.values())
        ]
        inputs += [self._input(f"part{number}", node) for number, node in enumerate(self.parts)]
        inputs += [self._input(f"given{number}", node) for number, node in enumerate(self.fixed)]
        made = (n for n in self.given.values() if n.op in (Op.CONST, Op.IOTA, Op.WEIGHT))
        for node in (*made, *turn):
            operands = tuple(self.known[operand.serial] for operand in node.inputs)
            self.known[node.serial] = made_alike(self.arena, node, operands)
        following = [
            turn[place] if ago == 1 else self.carried[ago - 1, place] for ago, place in self.carried
        ]
        # What a turn made is of one turn ago behind it.
        wanted = {
            slot: turn[slot[1]] if slot[0] == 1 else self.carried[slot[0] - 1, slot[1]]
            for slot in read
        }
        outputs = list(dict.fromkeys((*following, *wanted.values())))
        assert len(outputs) >= len(following), "each carried value is of another place"
        self.outputs = {slot: outputs.index(node) for slot, node in wanted.items()}
        self.graph = Graph(
            name,
            tuple(inputs),
            tuple(self.known[node.serial] for node in self.weights),
            tuple(self.known[node.serial] for node in outputs),
            ("tuple", tuple(map(Leaf, range(len(outputs))))),
            self._places(),
        )

    def _input(self, name: str, node: Node) -> Node:
        made = self.arena.source(Op.INPUT, name, name, node.type)
        self.known[node.serial] = made
        return made

    def _places(self) -> tuple[tuple[int, Origin], ...]:
        """Where the nodes come from, without the calls that all of the loop is in."""
        shared = self.shared
        found = {
            self.known[serial].serial: origin._replace(calls=origin.calls[shared:])
            for serial, origin in self.origins.items()
            if serial in self.known
        }
        return tuple(sorted(found.items()))

    def part_at(self, node: Node, turn: int) -> Part | None:
        """The part of a tensor that stands, in some turn, where the one shown has `node`."""
        return self.run.parts.get(self._at(node, turn).serial)

    def _at(self, node: Node, turn: int) -> Node:
        """What stands in some turn where the one shown has `node`."""
        return next(
            then
            for reader, other in zip(self.run.turns[SHOWN], self.run.turns[turn], strict=True)
            for operand, then in zip(reader.inputs, other.inputs, strict=True)
            if operand is node
        )

    def before(self, ago: int, place: int) -> Node:
        """The value that the first turn has for a carried one, or a later turn, for which that is
        so many turns less ago.
        """
        shown = self.run.turns[SHOWN]
        read = {operand.serial for node in shown for operand in node.inputs}
        past = next(
            past
            for past in range(ago, SHOWN + 1)
            if self.run.turns[SHOWN - past][place].serial in read
        )
        return self._at(self.run.turns[SHOWN - past][place], past - ago)


@dataclass(slots=True)
class _Roller:
    """Gives the graph around a loop its results."""

    arena: Arena
    body: _Body
    run: Run
    label: str
    joined: list[_Joined]
    last: list[Slot]
    copier: Copier = field(init=False)
    made: Node | None = None

    def instead(self, node: Node, operands: Operands) -> Node | None:
        found = [(i, each) for i, each in enumerate(self.joined) if each.cat is node]
        if found:
            return self._cat(node, operands, found)
        for number, (ago, place) in enumerate(self.last):
            if node is self.run.turns[-ago][place]:
                return self._item(len(self.joined) + number, node.type, node)
        return None

    def _cat(self, node: Node, operands: Operands, found: list[tuple[int, _Joined]]) -> Node:
        """A CAT of results of loops, and what else it joins."""
        turns = len(self.run.turns)
        parts: list[Node] = []
        at = 0
        for number, each in sorted(found, key=lambda pair: pair[1].at):
            parts += [*operands[at : each.at], self._item(number, self._type(each), node)]
            at = each.at + turns
        parts += operands[at:]
        return parts[0] if len(parts) == 1 else self.arena.make(Op.CAT, *parts, attrs=node.attrs)

    def _type(self, joined: _Joined) -> TensorType:
        """Of the values of all turns."""
        types = [node.type for node in joined.cat.inputs[joined.at :][: len(self.run.turns)]]
        return OPS[Op.CAT].infer(tuple(types), joined.cat.attrs)

    def _item(self, index: int, type: TensorType, old: Node) -> Node:
        if self.made is None:
            self.made = self._loop()
            self.copier.calls_moved = True  # the calls behind it are to have later serials
        item, origins = self.arena.item(self.made, index, type), self.copier.origins
        if old.serial in origins and self.made.serial in origins:
            calls = common(origins[self.made.serial].calls, origins[old.serial].calls)
            origins[item.serial] = origins[old.serial]._replace(calls=calls)
        return item

    def _loop(self) -> Node:
        body, run = self.body, self.run
        carried = [self._new(body.before(*slot)) for slot in body.carried]
        given = [*carried, *(self._new(run.parts[n.serial].source) for n in body.parts)]
        given += [self._new(node) for node in (*body.fixed, *body.weights)]
        loop = Loop(
            self.label,
            body.graph,
            len(run.turns),
            len(carried),
            tuple(self._moving(node) for node in body.parts),
            tuple(self._collected(each) for each in self.joined),
            tuple(body.outputs[slot] for slot in self.last),
        )
        types = [*map(self._type, self.joined)]
        types += [run.turns[-1][place].type for _, place in self.last]
        moved = hoisted(self.arena, loop, tuple(given))
        made = make_loop(self.arena, moved.operands, moved.loop, tuple(types))
        origins = self.copier.origins
        first = next((n for n in run.turns[0] if n.serial in origins), None)
        if first is not None:
            calls = origins[first.serial].calls[: body.shared]
            origins[made.serial] = origins[first.serial]._replace(calls=calls)
            for serial, origin in moved.origins.items():
                origins[serial] = origin._replace(calls=calls)
        return made

    def _new(self, node: Node) -> Node:
        return self.copier.made[node.serial]

    def _moving(self, node: Node) -> Parts:
        first, second = self.body.part_at(node, 0), self.body.part_at(node, 1)
        assert first is not None and second is not None, "a part is another one in each turn"
        return Parts(first.axis, first.first, second.first - first.first, first.length)

    def _collected(self, each: _Joined) -> Collected:
        output = self.body.outputs[1, each.place]
        return Collected(output, each.cat.attrs.dim, each.stacked, each.backwards)
