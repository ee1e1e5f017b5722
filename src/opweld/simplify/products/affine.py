"""What is computed of the elements of one value by adding, subtracting and scaling alone.

f(y) = a y + c, with numbers a and c, has f(mean of y) as the mean of f(y): computed by the same
operations, so that an infinity or NaN becomes what it becomes there. No step of it is larger than
the largest of those that it replaces, so nothing overflows that did not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.graph import Arena, Node
from ...ir.ops import Op
from ...ir.rules.pattern import is_number
from ...ir.types import DType

_SIGNS = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/"}


@dataclass(frozen=True, slots=True)
class Affine:
    """`root` as f(core); `nodes` are those of f, operands first."""

    root: Node
    core: Node
    nodes: tuple[Node, ...]

    def of(self, value: Node, arena: Arena) -> Node:
        """f of another value."""
        made: dict[int, Node] = {self.core.serial: value}
        for node in self.nodes:
            operands = (made.get(operand.serial, operand) for operand in node.inputs)
            made[node.serial] = _cast_or_made(node, tuple(operands), arena)
        return made[self.root.serial]

    def text(self, core: str) -> str:
        """f of what has this text."""
        texts: dict[int, str] = {self.core.serial: core}
        for node in self.nodes:
            texts[node.serial] = _text(node, texts)
        return texts[self.root.serial]


def affine_of(root: Node) -> Affine:
    """The longest f; of a root that is none of its operations, f is the identity."""
    nodes: dict[int, Node] = {}
    core = _core(root, nodes)
    if core is None or core is root:
        return Affine(root, root, ())
    return Affine(root, core, tuple(nodes[serial] for serial in sorted(nodes)))


def _core(root: Node, nodes: dict[int, Node]) -> Node | None:
    """The one value that the root is made of beside constants; None where there are several."""
    cores: dict[int, Node] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.serial in nodes or node.op is Op.CONST:
            continue
        if _is_step(node):
            nodes[node.serial] = node
            waiting += node.inputs
        else:
            cores[node.serial] = node
    return cores.popitem()[1] if len(cores) == 1 and _is_linear(nodes) else None


def _is_step(node: Node) -> bool:
    """Whether a node adds, or scales by numbers that are finite and not zero where they divide."""
    if not node.type.dtype.is_float:
        return False
    if node.op is Op.NEG:
        return True
    if node.op is Op.CAST:
        operand = node.inputs[0].type.dtype
        widens = operand.is_half and node.type.dtype is operand.compute
        return widens or (operand is DType.F32 and node.type.dtype is DType.F64)
    if node.op not in _SIGNS or node.type.dtype.is_half:
        return False
    constants = [each for each in node.inputs if each.op is Op.CONST]
    if not all(is_number(each) and math.isfinite(each.attrs.value) for each in constants):
        return False
    if node.op is Op.DIV:
        return node.inputs[1].op is Op.CONST and node.inputs[1].attrs.value != 0
    return len(constants) == 1 or node.op in (Op.ADD, Op.SUB)


def _is_linear(nodes: Mapping[int, Node]) -> bool:
    """Whether all have the shape of what they are made of: nothing is broadcast but numbers."""
    return all(
        operand.op is Op.CONST or operand.type.shape == node.type.shape
        for node in nodes.values()
        for operand in node.inputs
    )


def _cast_or_made(node: Node, operands: tuple[Node, ...], arena: Arena) -> Node:
    """A value that is wide already needs no cast."""
    if node.op is Op.CAST and operands[0].type.dtype is node.type.dtype:
        return operands[0]
    return arena.make(node.op, *operands, attrs=node.attrs)


def _text(node: Node, texts: Mapping[int, str]) -> str:
    operands = [_operand_text(each, texts) for each in node.inputs]
    if node.op is Op.CAST:
        return operands[0]
    if node.op is Op.NEG:
        return f"(-{operands[0]})"
    return f"({operands[0]} {_SIGNS[node.op]} {operands[1]})"


def _operand_text(node: Node, texts: Mapping[int, str]) -> str:
    return texts[node.serial] if node.serial in texts else f"{node.attrs.value:.6g}"
