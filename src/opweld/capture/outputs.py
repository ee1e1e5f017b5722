"""What the forward returns, and which of it shares memory.

Eager's aliasing is kept: an output that is a fresh tensor in eager, but would here be an input, a
weight, a view of one, or a tensor that another output shares, becomes a copy. So does one that is
fresh, and so row-major, in eager, and here a view in another order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from opweld.errors import OriginalKept
from opweld.ir.attrs import CallAttrs, Operand, TorchLiteral
from opweld.ir.graph import CALL_DEVICE, Leaf, Node, Record, Structure, records_of
from opweld.ir.ops import Op

from .build import Builder
from .call import RunTimeScalar
from .ops.complexes import Complex
from .ops.views import ALIASING, REORDERING, SHARING
from .records import CONSTANTS, attributes_of, fields_of
from .records import field as field_of

_SOURCES = (Op.INPUT, Op.WEIGHT)


@dataclass(slots=True)
class Outputs:
    """Collects the tensors that the forward returns; one returned twice is one output."""

    build: Builder
    values: dict[str, Any]
    as_call: Callable[[fx.Node], Node]
    whole: Callable[[Complex], Node]
    nodes: list[Node] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)

    def leaves(self, returned: Any) -> list[Structure]:
        return [self._leaf(value) for value in returned]

    def _leaf(self, value: Any) -> Structure:
        if not isinstance(value, fx.Node):
            return ("const", value)
        ours = self.values[value.name]
        if isinstance(ours, RunTimeScalar):
            raise OriginalKept("the forward returns a Python number read from a tensor")
        if isinstance(ours, Complex):
            ours = self.whole(ours)
        if not isinstance(ours, Node):
            return ("const", ours)
        if value.name not in self.seen:
            self.seen[value.name] = len(self.nodes)
            self.nodes.append(self._own(value, ours))
        return Leaf(self.seen[value.name])

    def _own(self, value: fx.Node, ours: Node) -> Node:
        eager_root = _eager_root(value)
        our_root = root_of(ours)
        if our_root.op in _SOURCES and eager_root.op != "placeholder":
            return self._again(value, ours) if value is eager_root else self._copy(value, ours)
        if value is eager_root and ours.op in REORDERING and our_root.op is not Op.CONST:
            return self._again(value, ours)
        if self.owners.setdefault(our_root.serial, eager_root.name) != eager_root.name:
            return self._copy(value, ours)
        return ours

    def _again(self, value: fx.Node, ours: Node) -> Node:
        """What makes a tensor of its own in eager: of a write in place export makes a function that
        has no gradient, and a copy does the same.
        """
        written = value.target is torch.ops.aten.copy.default
        return self._copy(value, ours) if written else self.as_call(value)

    def _copy(self, value: fx.Node, ours: Node) -> Node:
        layout = value.kwargs.get("memory_format") or torch.contiguous_format
        attrs = CallAttrs(
            target="aten.clone.default",
            arguments=(Operand(0),),
            keywords=(("memory_format", TorchLiteral(str(layout))),),
            results=(ours.type,),
            reason="the result is a copy of its own",
        )
        return self.build.arena.call((ours,), attrs)


def _eager_root(node: fx.Node) -> fx.Node:
    """The exported node whose memory this one is a view of, in eager."""
    while (viewed := _viewed(node)) is not None:
        node = viewed
    return node


def _viewed(node: fx.Node) -> fx.Node | None:
    """The exported node that this one is a view of; None for memory of its own."""
    if node.target is operator.getitem:
        return _result_viewed(*node.args)
    name = getattr(node.target, "_opname", None)
    if name == "type_as":
        given, result = node.args[0], node.meta["val"]
        return given if given.meta["val"].dtype is result.dtype else None
    return node.args[0] if name in ALIASING else None


def _result_viewed(parent: fx.Node, index: int) -> fx.Node | None:
    if getattr(parent.target, "_opname", None) not in ALIASING:
        return None
    given = parent.args[0]
    return given[index] if isinstance(given, list | tuple) else given


def root_of(node: Node) -> Node:
    """The node whose memory `node` shows."""
    while node.op in SHARING:
        node = node.inputs[0]
    return node


def structure_of(
    leaves: list[Structure], out_spec: Any, device: torch.device | None = None
) -> Structure:
    """The returned structure with leaves in it; `device` is the call's.

    Raises OriginalKept for a type that cannot be made of its fields, or found by its name.
    """
    placed = [_Placed(leaf) for leaf in leaves]
    structure = _structure(pytree.tree_unflatten(placed, out_spec), device)
    types: dict[str, str] = {}
    for record in records_of(structure):
        if types.setdefault(record.qualname, record.type_name) != record.type_name:
            said = f"objects of two types that are called {record.qualname}"
            raise OriginalKept(f"the forward returns {said}")
    return structure


@dataclass(frozen=True, slots=True)
class _Placed:
    leaf: Structure


def _structure(value: Any, device: torch.device | None) -> Structure:
    def within(part: Any) -> Structure:
        return _structure(part, device)

    if isinstance(value, _Placed):
        return value.leaf
    if value is None:  # a field that a flattened object does without
        return ("const", None)
    if type(value) in (tuple, list):
        return (type(value).__name__, tuple(map(within, value)))
    if type(value) is dict and all(isinstance(key, str | int) for key in value):
        return ("dict", tuple((key, within(v)) for key, v in value.items()))
    name = f"{type(value).__module__}:{type(value).__qualname__}"
    if (fields := fields_of(value)) is not None:
        return Record(name, tuple((key, within(field_of(value, key))) for key in fields))
    if isinstance(value, CONSTANTS):  # an attribute of an object
        return ("const", CALL_DEVICE if value == device else value)
    if (names := attributes_of(value)) is not None:
        return Record(name, tuple((key, within(getattr(value, key))) for key in names), True)
    raise OriginalKept(
        f"the forward returns a {type(value).__name__}",
        next_step="return tensors, tuples, lists, dicts, named tuples or dataclasses",
    )
