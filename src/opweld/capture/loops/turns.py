"""Where a graph repeats itself: the turns of a loop that was written out by the capture.

A run is a row of nodes, in the order in which they ran, that falls into turns of equal operations.
Each reads what its own turn made, what the turns shortly before made in the same place (a carried
value), values from before the loop, or parts of these that go on by a constant step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from opweld.ir.graph import Graph, Node
from opweld.ir.ops import Kind, Op

# Below these a graph that is written out gives fewer kernels, and is as short.
FEWEST_TURNS = 8
FEWEST_NODES = 128
# What is elementwise alone is one kernel, however many turns it has, until that is too long.
FEWEST_POINTWISE_NODES = 512
# The turn that shows what all read: it is preceded by as many as values are carried at most.
SHOWN = 3
# A body that repeats one operation more often within itself is not looked for.
_MOST_REPEATS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a tensor: the element `first` along an axis, which the part has not; or, where
    `length` is not 0, so many elements from there.
    """

    source: Node
    axis: int
    first: int
    length: int

    @property
    def form(self) -> tuple[int, int, int]:
        return self.source.serial, self.axis, self.length


Reads = Sequence[tuple[int, int] | Node]
"""For each operand of a turn, how many turns ago it was made and its place there; or the value
from elsewhere."""


@dataclass(frozen=True, slots=True)
class Run:
    """The nodes of each turn, in one order; `parts` are those of tensors that turns read."""

    turns: tuple[tuple[Node, ...], ...]
    parts: dict[int, Part]


def runs(graph: Graph, long: bool = False) -> Iterator[Run]:
    """The runs of a graph that are worth a loop, as far as their operands tell: any, where a loop
    is `long`.
    """
    nodes = sorted(graph.nodes(), key=lambda node: node.serial)
    parts = _parts(nodes)
    row = [n for n in nodes if n.kind is not Kind.SOURCE and n.serial not in parts]
    search = _Search(row, _signatures(row), parts, long)
    start = 0
    while start < len(row):
        found = search.at(start)
        if found is None:
            start += 1
            continue
        yield Run(found, parts)
        start += len(found) * len(found[0])


def _parts(nodes: Sequence[Node]) -> dict[int, Part]:
    """Slices of tensors that are cut along one axis into many."""
    cut: dict[tuple[int, int, int], list[Node]] = {}
    for node in nodes:
        a = node.attrs
        if node.op is Op.SLICE and a.step == 1 and isinstance(a.start, int):
            if isinstance(a.length, int):
                cut.setdefault((node.inputs[0].serial, a.dim, a.length), []).append(node)
    found: dict[int, Part] = {}
    for (_, axis, length), slices in cut.items():
        for node in slices if len(slices) >= FEWEST_TURNS else ():
            found[node.serial] = Part(node.inputs[0], axis, node.attrs.start, length)
    for node in nodes:
        part = found.get(node.inputs[0].serial) if node.op is Op.RESHAPE else None
        if part is not None and part.length == 1 and _drops(node, part.axis):
            found[node.serial] = replace(part, length=0)
    return found


def _drops(node: Node, axis: int) -> bool:
    shape = node.inputs[0].type.shape
    return node.type.shape == (*shape[:axis], *shape[axis + 1 :])


def adds_axis(node: Node, axis: int) -> bool:
    """Whether a node is its operand with an axis of size 1 more."""
    if node.op is not Op.RESHAPE or axis >= node.type.rank:
        return False
    shape = node.type.shape
    return shape[axis] == 1 and node.inputs[0].type.shape == (*shape[:axis], *shape[axis + 1 :])


def _signatures(row: Sequence[Node]) -> list[int]:
    """Equal numbers for nodes of one operation and type."""
    numbers: dict[object, int] = {}
    found = []
    for node in row:
        key: object = (node.op, repr(node.attrs), str(node.type), len(node.inputs))
        if node.op is Op.CALL and node.attrs.loop is not None:
            key = node.serial
        found.append(numbers.setdefault(key, len(numbers)))
    return found


@dataclass(slots=True)
class _Search:
    row: Sequence[Node]
    signatures: Sequence[int]
    parts: dict[int, Part]
    long: bool
    places: dict[int, int] = field(init=False)
    following: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {node.serial: place for place, node in enumerate(self.row)}
        last: dict[int, int] = {}
        self.following = [len(self.row)] * len(self.row)
        for place in reversed(range(len(self.row))):
            self.following[place] = last.get(self.signatures[place], len(self.row))
            last[self.signatures[place]] = place

    def at(self, start: int) -> tuple[tuple[Node, ...], ...] | None:
        """The turns of the shortest body that begins there."""
        again = self.following[start]
        for _ in range(_MOST_REPEATS):
            if again >= len(self.row):
                return None
            length = again - start
            alike = self._alike(start, length)
            if alike >= FEWEST_TURNS:
                turns = self._turns(start, length, alike)
                if len(turns) >= FEWEST_TURNS and (self.long or _is_worth_it(turns)):
                    return turns
            again = self.following[again]
        return None

    def _alike(self, start: int, length: int) -> int:
        """How many turns of this length are of equal operations."""
        end = start + length
        while end < len(self.row) and self.signatures[end] == self.signatures[end - length]:
            end += 1
        return (end - start) // length

    def _turns(self, start: int, length: int, most: int) -> tuple[tuple[Node, ...], ...]:
        """As many of the turns as read alike."""
        turns = [tuple(self.row[start + k * length :][:length]) for k in range(most)]
        shown = self._reads(turns, SHOWN)
        steps = self._steps(shown, self._reads(turns, SHOWN + 1))
        if steps is None:
            return ()
        before: dict[tuple[int, int], Node] = {}
        fits = 0
        while fits < most and self._reads_alike(
            self._reads(turns, fits), shown, steps, fits, before
        ):
            fits += 1
        return tuple(turns[:fits])

    def _reads(self, turns: Sequence[tuple[Node, ...]], k: int) -> Reads:
        length = len(turns[0])
        start = self.places[turns[0][0].serial]
        found: list[tuple[int, int] | Node] = []
        for operand in (operand for node in turns[k] for operand in node.inputs):
            place = self.places.get(operand.serial, -1) - start
            inside = 0 <= place < len(turns) * length
            found.append((k - place // length, place % length) if inside else operand)
        return found

    def _steps(self, shown: Reads, then: Reads) -> list[int] | None:
        """By how much the part that each operand is goes on; None where turns do not read alike."""
        steps: list[int] = []
        of_node: dict[int, int] = {}
        for one, other in zip(shown, then, strict=True):
            if isinstance(one, tuple) or isinstance(other, tuple):
                if one != other or (isinstance(one, tuple) and one[0] > SHOWN):
                    return None
                steps.append(0)
                continue
            step = self._step(one, other)
            # One part may be a turn's own, and that which all turns read.
            if step is None or of_node.setdefault(one.serial, step) != step:
                return None
            steps.append(step)
        return steps

    def _step(self, one: Node, other: Node) -> int | None:
        if one is other:
            return 0
        part, then = self.parts.get(one.serial), self.parts.get(other.serial)
        if part is None or then is None or part.form != then.form:
            return None
        return then.first - part.first

    def _reads_alike(
        self,
        reads: Reads,
        shown: Reads,
        steps: Sequence[int],
        turn: int,
        before: dict[tuple[int, int], Node],
    ) -> bool:
        """Whether a turn reads as the one shown, but for values that turns before the first would
        have made; `before` has these by how many turns before that, and the place.
        """
        for one, then, step in zip(shown, reads, steps, strict=True):
            if isinstance(one, tuple) and one[0] > turn:
                known = (one[0] - turn, one[1])
                if isinstance(then, tuple) or before.setdefault(known, then) is not then:
                    return False
            elif isinstance(one, tuple) or isinstance(then, tuple):
                if one != then:
                    return False
            elif self._step(one, then) != (turn - SHOWN) * step:
                return False
        return True


def _is_worth_it(turns: Sequence[Sequence[Node]]) -> bool:
    num_nodes = len(turns) * len(turns[0])
    elementwise = all(node.kind in (Kind.POINTWISE, Kind.VIEW) for node in turns[0])
    return num_nodes >= (FEWEST_POINTWISE_NODES if elementwise else FEWEST_NODES)
