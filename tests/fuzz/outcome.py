"""What became of one random model: plain data that crosses from the child to the parent."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

BY_CHANCE, BESIDE_NAN = "by chance", "gradients beside NaN"


@dataclass(frozen=True)
class Outcome:
    """`kind` is "passed", "refused" (a clear sentence of the compiler), "by chance",
    "gradients beside NaN", or a fault.

    By chance is what passes with another seed of the judge; gradients are promised where all values
    are finite only. Faults of one kind fail the same way;
    `detail` says how. `ops` are the operations in kernels, `left` those of the library; `weak` says
    that zeros, a mean or a copy would pass as some output.
    """

    name: str
    kind: str
    detail: str = ""
    kernels: int = 0
    ops: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    grade: str = ""
    weak: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_fault(self) -> bool:
        return self.kind not in ("passed", "refused", BY_CHANCE, BESIDE_NAN)

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def from_data(data: dict[str, Any]) -> Outcome:
    pairs = {name: tuple(data[name]) for name in ("ops", "left")}
    return Outcome(**{**data, **pairs})
