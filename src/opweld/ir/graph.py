"""The tensor graph: interned nodes, and the arena that makes them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .attrs import NO_ATTRS, CallAttrs, ConstAttrs, IotaAttrs, ItemAttrs, SourceAttrs
from .ops import OPS, Kind, Op
from .types import DType, TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operation, made by an Arena only: equal nodes are one object; `serial` orders them."""

    op: Op
    inputs: tuple[Node, ...]
    attrs: Any
    type: TensorType
    serial: int

    @property
    def kind(self) -> Kind:
        return OPS[self.op].kind

    def __repr__(self) -> str:
        return f"%{self.serial}:{self.op.value}"


@dataclass(slots=True)
class Arena:
    """Interns the nodes of one compilation: the same operation on the same operands is one node,
    but for what is to be computed again.
    """

    _nodes: dict[tuple[Any, ...], Node] = field(default_factory=dict)
    _next_serial: int = 0

    @property
    def next_serial(self) -> int:
        """That of the node that is made next."""
        return self._next_serial

    def make(self, op: Op, *inputs: Node, attrs: Any = NO_ATTRS) -> Node:
        """A node whose type its row infers. Raises TypeRule or ShapeMismatch."""
        types = tuple(node.type for node in inputs)
        return self._intern(op, inputs, attrs, OPS[op].infer(types, attrs))

    def again(self, op: Op, *inputs: Node, attrs: Any = NO_ATTRS) -> Node:
        """A node for readers that compute it apart from an equal one."""
        types = tuple(node.type for node in inputs)
        key = (op, "again", self._next_serial)
        return self._new(key, op, inputs, attrs, OPS[op].infer(types, attrs))

    def source(self, op: Op, name: str, access: str, type: TensorType) -> Node:
        """An INPUT or a WEIGHT."""
        return self._intern(op, (), SourceAttrs(name, access), type)

    def const(self, value: Any, dtype: DType) -> Node:
        return self._intern(Op.CONST, (), ConstAttrs(value), TensorType(dtype, ()))

    def iota(self, attrs: IotaAttrs, dtype: DType) -> Node:
        return self._intern(Op.IOTA, (), attrs, TensorType(dtype, (attrs.length,)))

    def call(self, inputs: tuple[Node, ...], attrs: CallAttrs) -> Node:
        """A PyTorch call, never shared (it may draw random numbers), of its first tensor's type."""
        first = next((t for t in attrs.results if t is not None), TensorType(DType.F64, ()))
        return self._new((Op.CALL, self._next_serial), Op.CALL, inputs, attrs, first)

    def item(self, call: Node, index: int, type: TensorType) -> Node:
        """Result `index` of a call."""
        from_call = (Op.ITEM, (call.serial,), index)
        if from_call not in self._nodes:
            return self._new(from_call, Op.ITEM, (call,), ItemAttrs(index), type)
        return self._nodes[from_call]

    def _intern(self, op: Op, inputs: tuple[Node, ...], attrs: Any, type: TensorType) -> Node:
        key = _key(op, inputs, attrs, type)
        known = self._nodes.get(key)
        return known if known is not None else self._new(key, op, inputs, attrs, type)

    def _new(
        self, key: tuple[Any, ...], op: Op, inputs: tuple[Node, ...], attrs: Any, type: TensorType
    ) -> Node:
        node = Node(op, inputs, attrs, type, self._next_serial)
        self._next_serial += 1
        self._nodes[key] = node
        return node


def _key(op: Op, inputs: tuple[Node, ...], attrs: Any, type: TensorType) -> tuple[Any, ...]:
    # The printed attributes tell 0.0 from -0.0 and 1 from True, which compare equal.
    return (op, tuple(node.serial for node in inputs), attrs, repr(attrs), type)


def arena_of(*graphs: Graph) -> Arena:
    """An arena that knows the nodes of graphs, for the stages after the one that made them; of
    equal nodes the last graph's.
    """
    arena = Arena()
    for node in (node for graph in graphs for node in graph.nodes()):
        arena._nodes[_key_of(node)] = node
        arena._next_serial = max(arena._next_serial, node.serial + 1)
    return arena


def _key_of(node: Node) -> tuple[Any, ...]:
    if node.op is Op.CALL:
        return (Op.CALL, node.serial)
    if node.op is Op.ITEM:
        return (Op.ITEM, (node.inputs[0].serial,), node.attrs.index)
    return _key(node.op, node.inputs, node.attrs, node.type)


@dataclass(frozen=True, slots=True)
class Leaf:
    """Output number `index` of the graph, in the structure that the forward returns."""

    index: int


class CallDevice:
    """Stands among what is returned for the device of the call."""

    def __repr__(self) -> str:
        return "the call's device"


CALL_DEVICE = CallDevice()


@dataclass(frozen=True, slots=True)
class Record:
    """An object of the type "module:qualname", which is made of its fields by their names; or
    without its constructor, of its attributes.
    """

    type_name: str
    fields: tuple[tuple[str, Structure], ...]
    of_attributes: bool = False

    @property
    def qualname(self) -> str:
        return self.type_name.partition(":")[2]


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a submodule's forward, which `key` tells from other calls of the same one.

    `access` is the expression for the module ("self.blocks[0]"), `type_name` is "module:qualname",
    `num_tensors` counts its own parameters and buffers. `line` is the user's line that calls it,
    None where that is not known; `writes` tells whether the user wrote the forward.
    """

    key: str
    path: str
    access: str
    type_name: str
    num_tensors: int
    line: tuple[str, str] | None
    writes: bool = True


class Origin(NamedTuple):
    """The user's line behind a node, ("gelu.py:14", "return x * 2"), and the calls of submodules
    in which it ran, outermost first.
    """

    place: str
    line: str
    calls: tuple[ModuleCall, ...] = ()


Structure = Leaf | Record | tuple[str, Any]
"""What the forward returns: a Leaf, ("tuple" | "list", items), ("dict", ((key, item), ...)) or
("const", value)."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """What a norm in training leaves in its buffers, once the outputs are there.

    The buffers `mean` and `variance` go `momentum` of the way to the values of the graph's outputs
    `towards`, in this order; `count`, where there is one, goes up by 1 before. A momentum of None
    is 1 / count: the average over all calls. Buffers are named by the access of their WEIGHT.
    """

    mean: str
    variance: str
    count: str | None
    momentum: float | None
    towards: tuple[int, int]

    @property
    def buffers(self) -> tuple[str, ...]:
        return (self.mean, self.variance, *([] if self.count is None else [self.count]))


@dataclass(frozen=True, slots=True)
class Update:
    """A buffer that a call changes, by the access of its WEIGHT: once the outputs are there it
    takes the elements of output number `value`; or is that tensor, where the user has `assigned`
    it.
    """

    buffer: str
    value: int
    assigned: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Tensor operations with the framework left behind.

    `origins` maps a node's serial to where the user wrote it. It stands beside the nodes so that
    it does not disturb interning. `tracked` and `updates` are what a call leaves in the module's
    buffers, in order; outputs that only these read stand behind those of the structure.
    """

    name: str
    inputs: tuple[Node, ...]
    weights: tuple[Node, ...]
    outputs: tuple[Node, ...]
    structure: Structure
    origins: tuple[tuple[int, Origin], ...] = ()
    tracked: tuple[Tracking, ...] = ()
    updates: tuple[Update, ...] = ()

    @property
    def changed(self) -> frozenset[str]:
        """The accesses of the buffers that a call changes, or gives another tensor."""
        return self.changed_in_place | {each.buffer for each in self.updates}

    @property
    def changed_in_place(self) -> frozenset[str]:
        tracked = (buffer for each in self.tracked for buffer in each.buffers)
        return frozenset((*tracked, *(e.buffer for e in self.updates if not e.assigned)))

    @property
    def handed_out(self) -> frozenset[int]:
        """The serials of what the caller gets, or finds in an attribute, with its gradient."""
        assigned = (each.value for each in self.updates if each.assigned)
        places = (*leaves_of(self.structure), *assigned)
        return frozenset(self.outputs[place].serial for place in places)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes that the outputs need, and all inputs, operands first."""
        return topological((*self.inputs, *self.weights, *self.outputs))

    def origin(self, node: Node) -> Origin | None:
        return dict(self.origins).get(node.serial)


def leaves_of(structure: Structure) -> Iterator[int]:
    """The places of the outputs that the structure holds, in order."""
    if isinstance(structure, Leaf):
        yield structure.index
        return
    for part in parts_of(structure):
        yield from leaves_of(part)


def parts_of(structure: Record | tuple[str, Any]) -> Iterator[Structure]:
    """What a structure that is no leaf is made of."""
    if isinstance(structure, Record):
        yield from (part for _, part in structure.fields)
        return
    kind, content = structure
    if kind == "dict":
        yield from (part for _, part in content)
    elif kind != "const":
        yield from content


def records_of(structure: Structure) -> Iterator[Record]:
    """The records in a structure, outer ones first."""
    if isinstance(structure, Leaf):
        return
    if isinstance(structure, Record):
        yield structure
    for part in parts_of(structure):
        yield from records_of(part)


def topological(roots: tuple[Node, ...], known: Container[int] = ()) -> tuple[Node, ...]:
    """The roots and what they need, operands first, up to nodes whose serials are known; without
    recursion (graphs can be deep), and in an order that no serial changes.
    """
    order: dict[int, Node] = {}
    stack: list[tuple[Node, Iterator[Node]]] = [(r, iter(r.inputs)) for r in reversed(roots)]
    while stack:
        node, operands = stack[-1]
        left = (n for n in operands if n.serial not in order and n.serial not in known)
        missing = next(left, None)
        if missing is not None and node.serial not in order:
            stack.append((missing, iter(missing.inputs)))
            continue
        stack.pop()
        order.setdefault(node.serial, node)
    return tuple(order.values())


Operands = Callable[[Node], tuple[Node, ...]]


def own_inputs(node: Node) -> tuple[Node, ...]:
    return node.inputs


def reached(
    roots: tuple[Node, ...], known: Container[int], operands: Operands = own_inputs
) -> tuple[Node, ...]:
    """The roots and what they need, operands first, up to nodes whose serials are known."""
    found: dict[int, Node] = {}
    waiting = [root for root in roots if root.serial not in known]
    while waiting:
        node = waiting.pop()
        if node.serial not in found:
            found[node.serial] = node
            waiting.extend(n for n in operands(node) if n.serial not in known)
    # A node is made after its operands, so serials are a topological order.
    return tuple(found[serial] for serial in sorted(found))


def consumers(nodes: tuple[Node, ...]) -> dict[int, tuple[Node, ...]]:
    """For each serial, the nodes that read it, in order."""
    users: dict[int, list[Node]] = {node.serial: [] for node in nodes}
    for node in nodes:
        for operand in dict.fromkeys(node.inputs):
            users[operand.serial].append(node)
    return {serial: tuple(readers) for serial, readers in users.items()}
