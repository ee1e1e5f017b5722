"""What rewrites did to the work of a graph, in lines for the plan and for the file."""

from __future__ import annotations

from ..plan import Sizes, number_at
from .algebra import Algebra
from .rewrite import NotRewritten, Rewritten

ASSUMED = "inputs and weights are assumed to be finite (--algebra finite)"


def plan_lines(
    rewritten: tuple[Rewritten, ...],
    algebra: Algebra,
    sizes: Sizes,
    left: tuple[NotRewritten, ...] = (),
) -> list[str]:
    """Each rewrite as mathematics, before and after, with what it saves at the example's sizes;
    then what is left as it was, with the condition that does not hold.
    """
    if not rewritten and not left:
        return []
    assumed = f": {ASSUMED}" if algebra is Algebra.FINITE else ""
    lines = [f"algebra {algebra.value}{assumed}"]
    for each in rewritten:
        lines += [
            f"  {each.rule} [{each.numerics.name.lower()}]"
            f"{f'  # {each.place}' if each.place else ''}",
            f"    before: {each.effect.before}",
            f"    after:  {each.effect.after}",
            f"    saves:  {saved_text(each, sizes)}",
        ]
    return lines + _left_lines(left)


MOST_LEFT = 4
"""Places of a rule that the plan tells of."""


def _left_lines(left: tuple[NotRewritten, ...]) -> list[str]:
    lines = list[str]()
    for rule in dict.fromkeys(miss.rule for miss in left):
        own = [miss for miss in left if miss.rule == rule]
        for miss in own[:MOST_LEFT]:
            lines += [
                f"  {rule} does not apply{f'  # {miss.place}' if miss.place else ''}",
                f"    left:    {miss.missed.before}",
                f"    because: {miss.missed.reason}",
            ]
        if own[MOST_LEFT:]:
            lines.append(f"  {rule} does not apply at {len(own) - MOST_LEFT} more places")
    return lines


def file_lines(rewritten: tuple[Rewritten, ...], algebra: Algebra) -> list[str]:
    """The same as sentences for the head of the file; first what they assume."""
    lines = [f"{each.effect.before}: computed as {each.effect.after}." for each in rewritten]
    assumed = [f"{ASSUMED.capitalize()}."] if algebra is Algebra.FINITE else []
    return [*assumed, *lines] if lines else []


def saved_flops(rewritten: tuple[Rewritten, ...], sizes: Sizes) -> int:
    """The operations that all of them save together."""
    saved = (each.effect.flops_before - each.effect.flops_after for each in rewritten)
    return sum(number_at(flops, sizes) for flops in saved)


def saved_text(each: Rewritten, sizes: Sizes) -> str:
    """The operations and bytes that a rewrite saves."""
    before = number_at(each.effect.flops_before, sizes)
    after = number_at(each.effect.flops_after, sizes)
    moved = number_at(each.effect.bytes_saved, sizes)
    flops = f"{_scaled(before - after)}flop of {_scaled(before)}flop" if before else ""
    return ", ".join(filter(None, (flops, f"{_scaled(moved)}byte" if moved else "")))


def _scaled(number: int) -> str:
    for unit, prefix in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:.3g} {prefix}"
    return f"{number} "
