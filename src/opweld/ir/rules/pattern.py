"""Patterns over the tensor graph, written as the mathematics they stand for.

pattern = Var(name) | Const(name) | Number(value) | Apply(op, pattern*, attrs) | AnyOf(kind, name)
        | Computed(text, function)                                     only where nodes are built
attrs   = None | name | Computed                 on the left a name captures, on the right it gives

`x * 1.0`, `tanh(x) - x`, `clamp_max(x, minimum(a, b))` build patterns. A variable that stands twice
must match the same node, and a name of attributes equal ones; a commutative operation is tried both
ways round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..attrs import NO_ATTRS, ConstAttrs
from ..graph import Arena, Node
from ..ops import OPS, Kind, Op
from ..types import DType
from .costs import NO_COSTS, Costs

Bindings = Mapping[str, Any]


class Pattern:
    """Either side of a rule."""

    __slots__ = ()

    def __add__(self, other: Term) -> Apply:
        return apply(Op.ADD, self, other)

    def __radd__(self, other: Term) -> Apply:
        return apply(Op.ADD, other, self)

    def __sub__(self, other: Term) -> Apply:
        return apply(Op.SUB, self, other)

    def __rsub__(self, other: Term) -> Apply:
        return apply(Op.SUB, other, self)

    def __mul__(self, other: Term) -> Apply:
        return apply(Op.MUL, self, other)

    def __rmul__(self, other: Term) -> Apply:
        return apply(Op.MUL, other, self)

    def __truediv__(self, other: Term) -> Apply:
        return apply(Op.DIV, self, other)

    def __rtruediv__(self, other: Term) -> Apply:
        return apply(Op.DIV, other, self)

    def __pow__(self, other: Term) -> Apply:
        return apply(Op.POW, self, other)

    def __neg__(self) -> Apply:
        return apply(Op.NEG, self)


Term = Pattern | float | int


@dataclass(frozen=True, slots=True)
class Var(Pattern):
    """Any node."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Const(Pattern):
    """Any constant whose value is a number (a size expression is none)."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Number(Pattern):
    """The constant of this value; 0.0 is not -0.0, and an integer constant may match too."""

    value: float | int

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class AnyOf(Pattern):
    """Any node of one kind."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}({self.name}...)"


@dataclass(frozen=True, slots=True)
class Computed(Pattern):
    """What a function makes of the match: attributes, a node, or the number of a constant."""

    text: str
    compute: Callable[[Match], Any]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Apply(Pattern):
    """An operation on patterns."""

    op: Op
    args: tuple[Pattern, ...]
    attrs: str | Computed | None = None

    def __str__(self) -> str:
        if self.op in _INFIX:
            left, right = (_operand_text(arg) for arg in self.args)
            return f"{left} {_INFIX[self.op]} {right}"
        if self.op is Op.NEG:
            return f"-{_operand_text(self.args[0])}"
        attrs = f"[{self.attrs}]" if self.attrs is not None else ""
        return f"{self.op.value}{attrs}({', '.join(map(str, self.args))})"


_INFIX = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.POW: "**"}


def _operand_text(pattern: Pattern) -> str:
    infix = isinstance(pattern, Apply) and (pattern.op in _INFIX or pattern.op is Op.NEG)
    return f"({pattern})" if infix else str(pattern)


@dataclass(frozen=True, slots=True)
class Readers:
    """Which nodes of a graph read each, and the serials of those that it returns. A rewrite notes
    in `remade` of which node another one is the same on rewritten operands; None where of several.
    """

    by: Mapping[int, tuple[Node, ...]]
    returned: frozenset[int]
    remade: dict[int, int | None] = field(default_factory=dict)

    def note(self, made: Node, node: Node) -> None:
        """That `made` is `node` on rewritten operands."""
        own = self.original(node)
        is_another = self.remade.get(made.serial, own) != own or made.serial in self.by
        self.remade[made.serial] = None if is_another else own

    def original(self, node: Node) -> int | None:
        """The serial that a node has in the graph; None where it is not known."""
        return self.remade.get(node.serial, node.serial)

    def of(self, node: Node) -> tuple[Node, ...] | None:
        """What reads a node of the graph, as it is there; None where others might."""
        serial = self.original(node)
        if serial is None or serial in self.returned:
            return None
        return self.by.get(serial)


@dataclass(frozen=True, slots=True)
class Match:
    """Where a pattern fits: the node at its root, and what each name stands for. `readers` are
    known in a rewrite that keeps the graph as it was before; `costs` decide where a condition is
    that something takes less time.
    """

    root: Node
    bindings: Bindings
    arena: Arena
    readers: Readers | None = None
    costs: Costs = NO_COSTS

    def is_read_only_by(self, node: Node, others: Collection[Node]) -> bool:
        """Whether nothing else is known to read a node, nor can."""
        known = self.readers.of(node) if self.readers is not None else None
        if self.readers is None or known is None:
            return False
        allowed = {self.readers.original(other) for other in others}
        return all(reader.serial in allowed for reader in known)

    def node(self, name: str) -> Node:
        node: Node = self.bindings[name]
        return node

    def value(self, name: str) -> float:
        """The number of a captured constant."""
        value: float = self.bindings[name].attrs.value
        return value

    def attrs(self, name: str) -> Any:
        return self.bindings[name]


def apply(op: Op, *args: Term, attrs: str | Computed | None = None) -> Apply:
    """The pattern of `op` on patterns and plain numbers."""
    return Apply(op, tuple(_pattern(arg) for arg in args), attrs)


def _pattern(term: Term) -> Pattern:
    return term if isinstance(term, Pattern) else Number(term)


def call(op: Op) -> Callable[..., Apply]:
    """A function that builds patterns of `op`: `tanh = call(Op.TANH)`."""

    def build(*args: Term, attrs: str | Computed | None = None) -> Apply:
        return apply(op, *args, attrs=attrs)

    return build


def is_number(node: Node) -> bool:
    """Whether the node is a constant whose value is known now."""
    return isinstance(node.attrs, ConstAttrs) and isinstance(node.attrs.value, (bool, int, float))


def matches(pattern: Pattern, node: Node, bindings: Bindings) -> Iterator[Bindings]:
    """All ways in which `pattern` fits `node`, each as the bindings with what it adds."""
    if isinstance(pattern, Apply):
        yield from _match_apply(pattern, node, bindings)
    elif isinstance(pattern, Number):
        if is_number(node) and _same_number(node.attrs.value, pattern.value):
            yield bindings
    elif isinstance(pattern, Var):
        yield from _bind(pattern.name, node, bindings)
    elif isinstance(pattern, Const):
        if is_number(node):
            yield from _bind(pattern.name, node, bindings)
    elif isinstance(pattern, AnyOf):
        if node.kind is pattern.kind:
            yield from _bind(pattern.name, node, bindings)
    else:
        raise TypeError(f"{pattern} can be built, not matched")


def _match_apply(pattern: Apply, node: Node, bindings: Bindings) -> Iterator[Bindings]:
    if node.op is not pattern.op or len(node.inputs) != len(pattern.args):
        return
    if isinstance(pattern.attrs, str):
        if bindings.get(pattern.attrs, node.attrs) != node.attrs:
            return
        bindings = {**bindings, pattern.attrs: node.attrs}
    orders = [node.inputs]
    if OPS[node.op].commutative and node.inputs[0] is not node.inputs[1]:
        orders.append(node.inputs[::-1])
    for inputs in orders:
        yield from _match_all(pattern.args, inputs, bindings)


def _match_all(
    patterns: tuple[Pattern, ...], nodes: tuple[Node, ...], bindings: Bindings
) -> Iterator[Bindings]:
    if not patterns:
        yield bindings
        return
    for bound in matches(patterns[0], nodes[0], bindings):
        yield from _match_all(patterns[1:], nodes[1:], bound)


def _bind(name: str, node: Node, bindings: Bindings) -> Iterator[Bindings]:
    if bindings.get(name, node) is node:
        yield {**bindings, name: node}


def _same_number(value: float, expected: float) -> bool:
    if isinstance(value, bool):
        return False
    return value == expected and math.copysign(1, value) == math.copysign(1, expected)


def build(pattern: Pattern, match: Match) -> Node:
    """The node that `pattern` stands for, constants in the dtype of the operand beside them."""
    if isinstance(pattern, (Var, Const)):
        return match.node(pattern.name)
    if isinstance(pattern, Apply):
        return _build_apply(pattern, match)
    return _as_node(_built_value(pattern, match), match.root, match.arena)


def _build_apply(pattern: Apply, match: Match) -> Node:
    built = [
        build(arg, match) if isinstance(arg, (Var, Const, Apply)) else _built_value(arg, match)
        for arg in pattern.args
    ]
    nodes = [arg for arg in built if isinstance(arg, Node)] or [_first_operand(match.root)]
    # Beside a condition of `where` it is the other operand that tells.
    told = next((node for node in nodes if node.type.dtype is not DType.BOOL), nodes[0])
    operands = (_as_node(arg, told, match.arena) for arg in built)
    return match.arena.make(pattern.op, *operands, attrs=_built_attrs(pattern.attrs, match))


def _first_operand(node: Node) -> Node:
    return node.inputs[0] if node.inputs else node


def _built_value(pattern: Pattern, match: Match) -> Any:
    if isinstance(pattern, Computed):
        return pattern.compute(match)
    assert isinstance(pattern, Number), f"{pattern} can be matched, not built"
    return pattern.value


def _as_node(value: Any, told: Node, arena: Arena) -> Node:
    if isinstance(value, Node):
        return value
    dtype = told.type.dtype
    return arena.const(float(value) if dtype.is_float else value, dtype)


def _built_attrs(attrs: str | Computed | None, match: Match) -> Any:
    if attrs is None:
        return NO_ATTRS
    return match.attrs(attrs) if isinstance(attrs, str) else attrs.compute(match)
