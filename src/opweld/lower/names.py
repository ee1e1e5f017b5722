"""Identifiers for kernels: from the model's own names, valid in C++ and CUDA, each used once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..ir.graph import Node
from ..ir.ops import Op
from ..ir.syntax import is_reserved
from ..ir.views import is_copy, is_free_view


@dataclass(slots=True)
class Names:
    """Hands out names; a name that is taken or reserved gets a number."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wish: str, always_number: bool = False) -> str:
        stem = re.sub(r"[\W_]+", "_", wish, flags=re.ASCII).strip("_") or "x"
        stem = f"x_{stem}" if stem[0].isdigit() else stem
        if not always_number and stem not in self.taken and not is_reserved(stem):
            self.taken.add(stem)
            return stem
        number = next(n for n in range(1, 10**6) if f"{stem}_{n}" not in self.taken)
        self.taken.add(f"{stem}_{number}")
        return f"{stem}_{number}"


def stride_name(buffer: str, axis: int) -> str:
    """The kernel argument that holds a buffer's stride along an axis, in elements."""
    return f"{buffer}_stride{axis}"


def wish_for(node: Node) -> str:
    """What a value should be called: its own name, or the operation that made it, behind views."""
    if node.op in (Op.INPUT, Op.WEIGHT):
        return str(node.attrs.name)
    if node.op is Op.ITEM or is_free_view(node):
        return wish_for(node.inputs[0])
    if node.op is Op.CALL:
        return str(node.attrs.target).split(".")[1]
    return f"{'copy' if is_copy(node) else node.op.value}_out"
