"""What the compiler hands over: the emitted file and the account of how it came about."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One group of the plan: a kernel, or a call left to PyTorch, with the reason in a sentence.

    `flops` are those at the model's own input sizes, and so are `must_bytes` (each operand read
    once, each result written once) and `moved_bytes` (by the kernel's form: rows that are walked
    over again, partial results, copies of operands); registers and spills (bytes) are the
    compiler's, where it was asked. `variant` names the state that the group is for, where it is not
    the example's: the other mode, another dtype, autocast.
    `replaced_copies` is an estimate of how long the PyTorch calls take that a kernel replaces, in
    times of a copy of the bytes that it moves. `lines` are the user's whose calls became the
    reductions of the kernel, `places` all that it computes ("gelu.py:13"), and `module` is the path
    of the submodule whose forward it is part of. `planned_name` names the group alone where `name`
    is that of an earlier one whose kernel it shares. `number` counts the rows of
    an account; `reads` are the numbers of the groups whose values it reads, `inputs` the inputs of
    the forward that it reads, and `is_result` says that the forward returns a value of its own. In
    the body of a loop they are the body's, and `loop` is the loop's label.
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    reason: str
    flops: int | None = None
    must_bytes: int | None = None
    moved_bytes: int | None = None
    registers: int | None = None
    spills: int | None = None
    variant: str = ""
    replaced_copies: float | None = None
    lines: tuple[str, ...] = ()
    planned_name: str = ""
    places: tuple[str, ...] = ()
    module: str = ""
    loop: str = ""
    number: int = 0
    reads: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ()
    is_result: bool = False

    @property
    def is_kernel(self) -> bool:
        return self.kind not in ("library", "view", "loop")

    @property
    def label(self) -> str:
        """Its name; of a submodule that runs as it is, the submodule's."""
        return self.module if self.name == "forward" and self.module else self.name


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of one compilation; plain data, so that it crosses a process border as JSON.

    `stages` maps each stage's name to its canonical text; `library` lists the ops left to PyTorch
    and why; `rules` the rules that fired, with what each promises about numbers; `seconds` the time
    each stage took; `rewritten` says what became of the mathematics, a sentence each, and
    `saved_flops` how many operations less the example's call takes for it. `kernel_texts` has the
    source of each kernel by its name, `line_texts` the user's lines by their places.
    """

    text: str
    target: str
    plan_rows: tuple[PlanRow, ...] = ()
    stages: dict[str, str] = field(default_factory=dict)
    library: tuple[tuple[str, str], ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    rewritten: tuple[str, ...] = ()
    saved_flops: int = 0
    kernel_texts: dict[str, str] = field(default_factory=dict)
    line_texts: dict[str, str] = field(default_factory=dict)

    @property
    def main_rows(self) -> tuple[PlanRow, ...]:
        """The groups of the example call's forward, in the order in which they run."""
        return tuple(row for row in self.plan_rows if not row.variant)

    @property
    def fused(self) -> tuple[PlanRow, ...]:
        """The groups that became kernels of ours."""
        return tuple(row for row in self.plan_rows if row.is_kernel)

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


_LISTS = tuple(field.name for field in fields(PlanRow) if str(field.type).startswith("tuple"))


def _row(data: dict[str, Any]) -> PlanRow:
    lists = {name: tuple(data[name]) for name in _LISTS}
    return PlanRow(**{**data, **lists})


def from_data(data: dict[str, Any]) -> Compiled:
    """The value that `Compiled.to_data` described, after a trip through JSON."""
    rows = tuple(_row(row) for row in data["plan_rows"])
    pairs = {name: tuple((a, b) for a, b in data[name]) for name in ("library", "rules")}
    return Compiled(**{**data, "plan_rows": rows, "rewritten": tuple(data["rewritten"]), **pairs})
