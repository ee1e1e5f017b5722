"""Rules as data, and the driver that applies them to a graph.

A rule promises two things: its values, to the degree that `numerics` says, and the derivative, as
PyTorch's autograd computes it (the backward of a group is derived from the rewritten graph), at
every point where value and derivative are finite, no operand NaN or subnormal. tests/rules holds
each rule to both.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..attrs import ShapeAttrs
from ..expr import Size
from ..graph import Arena, Graph, Node, Origin, consumers
from ..ops import Op
from ..types import DType, ShapeMismatch, broadcast
from .costs import NO_COSTS, Costs
from .pattern import AnyOf, Apply, Match, Pattern, Readers, build, matches

FUEL = 100_000
"""Rules fired before a rewrite gives up: far above what any model needs, reached in seconds."""


class Numerics(enum.IntEnum):
    """What a rule promises: the same bits (NaN aside); equal values (0.0 is -0.0); the same value
    up to the roundings of the operations on both its sides; or less, by what its text says."""

    EXACT = 0
    VALUE = 1
    REORDER = 2
    APPROX = 3


class Domain(enum.Enum):
    """The element types, of the root's first operand, that a rule holds for."""

    ANY = "any"
    NUMBER = "numbers"
    FLOAT = "floats"
    HALF = "16-bit floats"
    INTEGER = "integers"
    BITS = "integers and bool"

    def holds(self, dtype: DType) -> bool:
        if self is Domain.HALF:
            return dtype.is_half
        if self is Domain.FLOAT:
            return dtype.is_float
        if self is Domain.BITS:
            return not dtype.is_float
        if self is Domain.INTEGER:
            return not dtype.is_float and dtype is not DType.BOOL
        return self is Domain.ANY or dtype is not DType.BOOL


@dataclass(frozen=True, slots=True)
class Condition:
    """A question about a match; `text` reads on from "if"."""

    text: str
    holds: Callable[[Match], bool]

    def __and__(self, other: Condition) -> Condition:
        return Condition(
            f"{self.text} and {other.text}", lambda match: self.holds(match) and other.holds(match)
        )


@dataclass(frozen=True, slots=True)
class Effect:
    """A rewrite as mathematics, in the names of the user, with the operations of both sides and
    the bytes that need no longer move.
    """

    before: str
    after: str
    flops_before: Size
    flops_after: Size
    bytes_saved: Size


@dataclass(frozen=True, slots=True)
class Missed:
    """What a rule would rewrite, as mathematics, and the part of its condition that fails."""

    before: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    """`before` may be replaced by `after`; a result of a smaller shape is broadcast to the old.
    What a rule that changes the work does to it is its `effect`. `missed` says of a match that has
    what the rule is about, and does not fulfil its condition, which part of it does not hold.
    """

    name: str
    before: Pattern
    after: Pattern
    numerics: Numerics
    when: Condition | None = None
    domain: Domain = Domain.ANY
    effect: Callable[[Match], Effect] | None = None
    missed: Callable[[Match], Missed | None] | None = None

    def __str__(self) -> str:
        condition = f" if {self.when.text}" if self.when else ""
        domain = "" if self.domain is Domain.ANY else f" for {self.domain.value}"
        promise = self.numerics.name.lower()
        return f"{self.name}: {self.before} -> {self.after}{condition}{domain}  [{promise}]"


Fired = tuple[tuple[str, Numerics, int], ...]
"""Rules that acted, in the order of their first time: name, promise, how often."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Where a rule changed the work of a graph: the rule, the user's line, and what it did."""

    rule: str
    numerics: Numerics
    place: str
    effect: Effect


@dataclass(frozen=True, slots=True)
class NotRewritten:
    """Where a rule nearly fits: the rule, the user's line, and why it did not act."""

    rule: str
    place: str
    missed: Missed


@dataclass(frozen=True, slots=True)
class Simplified:
    """A rewritten graph, the rules that made it, what they did to its work, and what they left."""

    graph: Graph
    fired: Fired
    rewritten: tuple[Rewritten, ...] = ()
    left: tuple[NotRewritten, ...] = ()


class RulesDoNotEnd(RuntimeError):
    """A rule set that undoes its own work or grows the graph for ever; the text names the rules."""


class IllTypedRule(ValueError):
    """A rule whose right side has another type than its left; the text names the rule."""


def rewrite(
    graph: Graph,
    rules: tuple[Rule, ...],
    arena: Arena,
    fuel: int = FUEL,
    readers: Readers | None = None,
    costs: Costs = NO_COSTS,
) -> Simplified:
    """`graph` with the rules applied, operands first, until none fits any node.

    The first rule that fits wins; what it makes is rewritten again. Nodes that no output needs are
    gone. New nodes take the origin of the node that they replace. PyTorch calls keep their order,
    by serial. Rules that ask who reads a node need the `readers` of the graph, those that save time
    decide by `costs`.

    Raises RulesDoNotEnd after `fuel` steps or where rules undo one another, and IllTypedRule.
    """
    rewriter = _Rewriter(_by_op(rules), arena, dict(graph.origins), fuel, readers, costs)
    # Calls first, in their order: it is that of the random numbers they draw.
    calls = sorted((n for n in graph.nodes() if n.op is Op.CALL), key=lambda n: n.serial)
    for call in calls:
        rewriter.rewritten(call)
    outputs = tuple(rewriter.rewritten(node) for node in graph.outputs)
    result = replace(graph, outputs=outputs, origins=())
    origins = tuple(
        (node.serial, rewriter.origins[node.serial])
        for node in sorted(result.nodes(), key=lambda node: node.serial)
        if node.serial in rewriter.origins
    )
    fired = tuple((name, numerics, n) for name, (numerics, n) in rewriter.fired.items())
    return Simplified(replace(result, origins=origins), fired, tuple(rewriter.rewrites))


def not_rewritten(
    graph: Graph, rules: tuple[Rule, ...], arena: Arena, costs: Costs
) -> tuple[NotRewritten, ...]:
    """Where rules nearly fit a graph that they have been tried on, in the order of its nodes."""
    readers, places = readers_of(graph), dict(graph.origins)
    found = []
    for node in sorted(graph.nodes(), key=lambda node: node.serial):
        for rule in rules:
            missed = _missed(rule, node, arena, readers, costs)
            if missed is not None:
                origin = places.get(node.serial)
                found.append(NotRewritten(rule.name, origin.place if origin else "", missed))
    return tuple(found)


def _missed(rule: Rule, node: Node, arena: Arena, readers: Readers, costs: Costs) -> Missed | None:
    if rule.missed is None or not node.inputs or not rule.domain.holds(node.inputs[0].type.dtype):
        return None
    for bindings in matches(rule.before, node, {}):
        missed = rule.missed(Match(node, bindings, arena, readers, costs))
        if missed is not None:
            return missed
    return None


def readers_of(graph: Graph) -> Readers:
    """Who reads each node of a graph."""
    returned = frozenset(node.serial for node in graph.outputs)
    return Readers(consumers(graph.nodes()), returned)


def _by_op(rules: tuple[Rule, ...]) -> dict[Op, tuple[Rule, ...]]:
    """For each operation the rules that could fit a node of it, in their order."""
    return {op: tuple(rule for rule in rules if _may_fit(rule.before, op)) for op in Op}


def _may_fit(pattern: Pattern, op: Op) -> bool:
    if isinstance(pattern, AnyOf):
        return True
    return isinstance(pattern, Apply) and pattern.op is op


@dataclass(slots=True)
class _Rewriter:
    """`forward` leads from a node to the next form of it; `done` to its last."""

    rules: dict[Op, tuple[Rule, ...]]
    arena: Arena
    origins: dict[int, Origin]
    fuel: int
    readers: Readers | None = None
    costs: Costs = NO_COSTS
    forward: dict[int, Node] = field(default_factory=dict)
    done: dict[int, Node] = field(default_factory=dict)
    fired: dict[str, tuple[Numerics, int]] = field(default_factory=dict)
    new_calls: set[int] = field(default_factory=set)
    rewrites: list[Rewritten] = field(default_factory=list)

    def rewritten(self, root: Node) -> Node:
        """The last form of `root`, without recursion: graphs can be deep."""
        stack = [root]
        entered: set[int] = set()
        while stack:
            node = stack[-1]
            if node.serial in self.done:
                stack.pop()
                continue
            entered.add(node.serial)
            needed = self._needed(node)
            if not needed:
                self.done[node.serial] = self._last(node)
                continue
            for other in needed:
                if other.serial in entered:
                    raise RulesDoNotEnd(f"rules undo one another: {self._names()}")
            stack.extend(reversed(needed))
        return self.done[root.serial]

    def _needed(self, node: Node) -> list[Node]:
        """What must be done before `node` is: its operands, then its next form."""
        waiting = [n for n in dict.fromkeys(node.inputs) if n.serial not in self.done]
        if waiting:
            return waiting
        if node.serial not in self.forward:
            self.forward[node.serial] = self._step(node)
        following = self.forward[node.serial]
        return [] if following is node or following.serial in self.done else [following]

    def _last(self, node: Node) -> Node:
        following = self.forward[node.serial]
        return node if following is node else self.done[following.serial]

    def _step(self, node: Node) -> Node:
        """`node` on its rewritten operands, or, if they are its own, what the first rule makes."""
        operands = tuple(self.done[operand.serial] for operand in node.inputs)
        following = self._on(node, operands)
        if following is node:
            following = self._apply_first(node)
        elif self.readers is not None:
            self.readers.note(following, node)
        origin = self.origins.get(node.serial)
        if origin is not None:
            self._give_origin(following, origin)
        return following

    def _on(self, node: Node, operands: tuple[Node, ...]) -> Node:
        """The same operation on its rewritten operands."""
        if node.op is Op.CALL:
            return self._call_on(node, operands)
        if operands == node.inputs:
            return node
        if node.op is Op.ITEM:
            return self.arena.item(operands[0], node.attrs.index, node.type)
        return self.arena.make(node.op, *operands, attrs=node.attrs)

    def _call_on(self, node: Node, operands: tuple[Node, ...]) -> Node:
        """Once one call is made anew, all later ones are, so that serials keep their order."""
        is_new = node.serial in self.new_calls
        if is_new or (operands == node.inputs and not self.new_calls):
            return node
        call = self.arena.call(operands, node.attrs)
        self.new_calls.add(call.serial)
        return call

    def _apply_first(self, node: Node) -> Node:
        for rule in self.rules[node.op]:
            match = match_of(rule, node, self.arena, self.readers, self.costs)
            if match is not None:
                self._count(rule)
                self._tell(rule, match[0])
                return match[1]
        return node

    def _tell(self, rule: Rule, match: Match) -> None:
        if rule.effect is not None:
            origin = self.origins.get(match.root.serial)
            place = origin.place if origin else ""
            self.rewrites.append(Rewritten(rule.name, rule.numerics, place, rule.effect(match)))

    def _count(self, rule: Rule) -> None:
        _, count = self.fired.get(rule.name, (rule.numerics, 0))
        self.fired[rule.name] = (rule.numerics, count + 1)
        self.fuel -= 1
        if self.fuel < 0:
            raise RulesDoNotEnd(f"out of fuel: {self._names()}")

    def _give_origin(self, node: Node, origin: Origin) -> None:
        """To the node and the new nodes below it, which have none yet."""
        stack = [node]
        while stack:
            new = stack.pop()
            if new.serial in self.origins or new.serial in self.done or not new.inputs:
                continue
            self.origins[new.serial] = origin
            stack.extend(new.inputs)

    def _names(self) -> str:
        often = sorted(self.fired.items(), key=lambda item: (-item[1][1], item[0]))
        return ", ".join(f"{name} ({count} times)" for name, (_, count) in often[:4])


def apply_rule(rule: Rule, node: Node, arena: Arena, readers: Readers | None = None) -> Node | None:
    """What `rule` makes of `node`, or None where it does not fit. Raises IllTypedRule."""
    found = match_of(rule, node, arena, readers)
    return None if found is None else found[1]


def match_of(
    rule: Rule, node: Node, arena: Arena, readers: Readers | None, costs: Costs = NO_COSTS
) -> tuple[Match, Node] | None:
    """How `rule` fits `node`, and what it makes of it. Raises IllTypedRule."""
    told = node.inputs[0] if node.inputs else node
    if not rule.domain.holds(told.type.dtype):
        return None
    for bindings in matches(rule.before, node, {}):
        match = Match(node, bindings, arena, readers, costs)
        if rule.when is None or rule.when.holds(match):
            made = _shaped_like(build(rule.after, match), node, rule, arena)
            if made is not node:
                return match, made
    return None


def _shaped_like(made: Node, node: Node, rule: Rule, arena: Arena) -> Node:
    """`made`, broadcast to the type of the node that it replaces."""
    if made.type == node.type:
        return made
    try:
        fits = broadcast((made.type.shape, node.type.shape)) == node.type.shape
    except ShapeMismatch:
        fits = False
    if made.type.dtype is not node.type.dtype or not fits:
        raise IllTypedRule(f"{rule.name} makes {made.type} of {node.type}")
    return arena.make(Op.EXPAND, made, attrs=ShapeAttrs(node.type.shape))
