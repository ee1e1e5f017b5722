"""What is given back to PyTorch after a file was judged, and why: pure functions of the judgement.

Whether ModelNew is slower is for `judge/measure/significance.py` to say; here it is decided which
groups go back then. Without significance the plan stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld.compiled import Compiled, PlanRow
from opweld.judge.measure.significance import MARGIN, describe, verdict
from opweld.judge.values import Comparison, Judgement, KernelTiming


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a file that was judged: the groups that go back to PyTorch, and why.

    None go back where the plan stands. With `undoes` the mathematics goes back to what it was:
    PyTorch's calls alone are left of what was rewritten, and they are slower. `comparison` is what
    the decision rests on; None where ModelNew was not timed beside eager.
    """

    given_back: tuple[str, ...]
    reason: str
    comparison: Comparison | None = None
    undoes: bool = False

    @property
    def is_worth_telling(self) -> bool:
        """Whether something goes back, or would have if the measurement were surer."""
        found = self.comparison
        doubtful = found is not None and found.pairs > 0 and found.ratio > MARGIN
        return bool(self.given_back) or doubtful


def decide(compiled: Compiled, judgement: Judgement, num_before: int) -> Decision:
    """Which groups go back, after `num_before` files of which some did.

    Only where ModelNew is significantly slower than eager. First the one that loses most, then all
    that lose by the measurement of each kernel, at last all of them.
    """
    found = judgement.timing.vs_eager if judgement.timing else None
    if found is None:
        return Decision((), "the plan stands: ModelNew was not timed beside eager")
    if not compiled.fused and compiled.rewritten:
        told = f"rewritten, ModelNew took {describe(found)}"
        return Decision((), f"{told}, {verdict(found)}", found, undoes=found.slower)
    if not compiled.fused:
        return Decision((), "there is nothing to give back: ModelNew is the original")
    told = f"ModelNew took {describe(found)}"
    if not found.slower:
        return Decision((), f"the plan stands: {told}, {verdict(found)}", found)
    back, why = _losing(compiled.fused, judgement.kernels, num_before)
    reason = f"{', '.join(back)}: given back to PyTorch, because {told}, {verdict(found)}; {why}"
    return Decision(back, reason, found)


def _losing(
    rows: tuple[PlanRow, ...], kernels: Sequence[KernelTiming], num_before: int
) -> tuple[tuple[str, ...], str]:
    """The groups that go back next, and what speaks against them."""
    everything = tuple(sorted(row.name for row in rows))
    losses = losses_of(rows, kernels)
    if len(everything) < 2:
        return everything, "it is the only group"
    if num_before == 0 and losses:
        worst = max(losses, key=lambda loss: (loss.lost_ms, loss.name))
        return (worst.name,), f"it loses most, {worst}"
    losing = tuple(sorted(loss.name for loss in losses if loss.lost_ms > 0))
    if num_before == 1 and losing:
        return losing, f"{'each loses' if len(losing) > 1 else 'it loses'} by its own measurement"
    return everything, "giving back single groups did not do"


@dataclass(frozen=True, slots=True)
class Loss:
    """The measured time of a group's kernels in one forward, and an estimate of what they replace.

    The estimate is in times of a copy of the kernel's bytes, whose time here the judge knows.
    """

    name: str
    took_ms: float
    replaced_ms: float

    @property
    def lost_ms(self) -> float:
        """Below 0, what it gains."""
        return self.took_ms - self.replaced_ms

    def __str__(self) -> str:
        return f"{self.took_ms:.4g} ms for an estimated {self.replaced_ms:.4g} ms"


def losses_of(rows: tuple[PlanRow, ...], kernels: Sequence[KernelTiming]) -> tuple[Loss, ...]:
    """A loss for each group of which a kernel was timed; all that it launches count together."""
    took: dict[str, tuple[float, float]] = {}
    for kernel in kernels:
        row = row_of(kernel.name, rows)
        if row is None or kernel.ms is None or kernel.limit_percent is None:
            continue
        copies = row.replaced_copies if row.replaced_copies is not None else 1.0
        ms, replaced = took.get(row.name, (0.0, 0.0))
        spent = kernel.calls * kernel.ms
        took[row.name] = (ms + spent, replaced + spent * copies * kernel.limit_percent / 100)
    return tuple(Loss(name, *times) for name, times in took.items())


def excluded_for(
    losing: Sequence[str], rows: tuple[PlanRow, ...], excluded: frozenset[str]
) -> frozenset[str]:
    """What to exclude so that PyTorch does the work of these groups.

    A reduction goes back as the calls that the user wrote, by their lines: one softmax is faster
    than what it was taken apart into. By its name only where that did not do.
    """
    found: set[str] = set()
    for row in rows:
        if row.name in losing:
            found |= set(row.lines) - excluded or {row.planned_name or row.name}
    return frozenset(found)


def row_of(kernel: str, rows: tuple[PlanRow, ...]) -> PlanRow | None:
    """The plan's row for a registered op: it has the group's name, or writes into an operand."""
    return next((row for row in rows if kernel in (row.name, f"{row.name}_into")), None)
