"""Identifiers for kernels: from the model's own names, valid in C++ and CUDA, each used once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..ir.graph import Node
from ..ir.ops import Op

# Keywords that models like to use as names, and the names that the kernels themselves use.
RESERVED = frozenset(
    "auto bool break case char class const continue default delete do double else enum export "
    "extern float for friend goto half if inline int long namespace new operator private "
    "protected public register return short signed sizeof static struct switch template this "
    "throw try typedef union unsigned using virtual void volatile while and or not xor op lane "
    "first last begin end stream packet num_elems max_offset aligned Index kLanes bfloat16 main "
    "in out row rest at k i NAN INFINITY i0 i1 i2 i3 i4 i5 i6 i7 s0 s1 s2 s3 s4 s5 s6 s7 value0 "
    "value1 value2 value3".split()
)


@dataclass(slots=True)
class Names:
    """Hands out names; a name that is taken gets a number."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wish: str, always_number: bool = False) -> str:
        stem = re.sub(r"\W+", "_", wish).strip("_") or "x"
        stem = f"_{stem}" if stem[0].isdigit() else stem
        if not always_number and stem not in self.taken and stem not in RESERVED:
            self.taken.add(stem)
            return stem
        number = next(n for n in range(1, 10**6) if f"{stem}_{n}" not in self.taken)
        self.taken.add(f"{stem}_{number}")
        return f"{stem}_{number}"


def stride_name(buffer: str, axis: int) -> str:
    """The kernel argument that holds a buffer's stride along an axis, in elements."""
    return f"{buffer}_stride{axis}"


def wish_for(node: Node) -> str:
    """What a value should be called: its own name, or the operation that made it."""
    if node.op in (Op.INPUT, Op.WEIGHT):
        return str(node.attrs.name)
    if node.op is Op.ITEM:
        return wish_for(node.inputs[0])
    if node.op is Op.CALL:
        return str(node.attrs.target).split(".")[1]
    return f"{node.op.value}_out"
