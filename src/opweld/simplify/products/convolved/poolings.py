"""Poolings of poolings: one, of larger windows.

    sum over r of f(sum over t of x(s (q n + r) + t))  =  n f(mean of ...)     windows side by side
    max over r of max over t of x(s (q n + r) + t)  =  max over t of x(s q n + t)

Sums of a large window are of float64: the original adds up short sums, which has smaller errors.

Left out: largest elements over several axes of space. Which of equal elements has the gradient is
the first one of the first window there, which need not be the first of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....ir.attrs import CastAttrs, ShapeAttrs, WindowAttrs
from ....ir.expr import product
from ....ir.graph import Arena, Node
from ....ir.ops import Op
from ....ir.rules.pattern import Computed, Match, Pattern
from ....ir.rules.rewrite import Condition, Domain, Effect, Numerics, Rule
from ....ir.types import DType
from ...names import name_of
from ...terms import amax, total, x
from ..affine import Affine, affine_of
from ..conditions import IN_CALLS, Checked
from .windows import Windows, condensed, windows_of


@dataclass(frozen=True, slots=True)
class Poolings:
    """Windows of what windows gave, by way of f; `inside` is what is between the two."""

    outer: Windows
    inner: Windows
    step: Affine
    inside: tuple[Node, ...]

    @property
    def axes(self) -> tuple[WindowAttrs, ...]:
        """The windows of both."""
        pairs = zip(self.outer.axes, self.inner.axes, strict=True)
        return tuple(
            replace(one, step=one.step * own.step, width=own.width + (one.width - 1) * own.step)
            for one, own in pairs
        )


def poolings_of(root: Node) -> Poolings | None:
    """The two poolings that end at a reduction, whoever else reads the first."""
    outer = windows_of(root)
    if outer is None or outer.of.op is not Op.RESHAPE or root.type.dtype not in IN_CALLS:
        return None
    view, step = outer.of, affine_of(outer.of.inputs[0])
    own = step.core
    if own.op is not root.op or (inner := windows_of(own)) is None:
        return None
    if len(inner.axes) != len(outer.axes) or view.type.shape != own.type.shape[len(inner.axes) :]:
        return None
    inside = (*outer.inside, view, *step.nodes, own, *inner.inside)
    return Poolings(outer, inner, step, inside)


def _why_not(match: Match, found: Poolings) -> str | None:
    """The part of the condition that does not hold."""
    steps = [*found.inside, match.root]
    if any(not match.is_read_only_by(node, steps) for node in found.inside):
        return "others read the first pooling, too"
    own = found.inner.axes
    if match.root.op is Op.SUM and any(axis.step != axis.width for axis in own):
        return "windows of the first pooling do not lie side by side"
    if match.root.op is Op.AMAX:
        if found.step.nodes or match.root.attrs.first is not found.inner.root.attrs.first:
            return "something is computed between"
        if len(own) > 1:
            return "of equal elements another one would have the gradient"
        if any(axis.step > axis.width for axis in own):
            return "windows of the first pooling leave elements out"
    return None


def _made(match: Match) -> Node:
    found = poolings_of(match.root)
    assert found is not None, "the condition holds"
    arena, value = match.arena, found.inner.of
    if match.root.op is Op.AMAX:
        return condensed(Op.AMAX, value, found.axes, arena, match.root.attrs.first)
    wide = arena.make(Op.CAST, value, attrs=CastAttrs(DType.F64)) if _is_short(value) else value
    made = condensed(Op.SUM, wide, found.axes, arena)
    return _stepped(found, made, arena)


def _stepped(found: Poolings, made: Node, arena: Arena) -> Node:
    """n f(mean), in the type of the root."""
    count = found.outer.num_elems
    if found.step.nodes:
        made = arena.make(Op.MUL, made, arena.const(1.0 / count, made.type.dtype))
    if made.type != found.outer.root.type:
        made = arena.make(Op.CAST, made, attrs=CastAttrs(found.outer.root.type.dtype))
    if not found.step.nodes:
        return made
    made = arena.make(Op.RESHAPE, made, attrs=ShapeAttrs(found.outer.root.type.shape))
    made = found.step.of(made, arena)
    return arena.make(Op.MUL, made, arena.const(float(count), made.type.dtype))


def _is_short(value: Node) -> bool:
    return value.type.dtype is not DType.F64


def _before(found: Poolings) -> str:
    one, other = ("x".join(map(str, each.widths)) for each in (found.outer, found.inner))
    kind = "largest" if found.outer.root.op is Op.AMAX else "sums"
    of = f"{kind} of windows of {other} of {name_of(found.inner.of)}"
    return f"{kind} of windows of {one} of {of}"


def _effect(match: Match) -> Effect:
    found = poolings_of(match.root)
    assert found is not None, "the condition holds"
    widths = "x".join(str(axis.width) for axis in found.axes)
    kind = "largest" if match.root.op is Op.AMAX else "sums"
    after = f"{kind} of windows of {widths} of {name_of(found.inner.of)}"
    own = found.inner.root.type
    one = product((*own.shape, found.inner.num_elems))
    other = product((*match.root.type.shape, found.outer.num_elems))
    both = product((*match.root.type.shape, *(axis.width for axis in found.axes)))
    return Effect(_before(found), after, one + other, both, own.size_bytes * 2)


_CHECKED = Checked(lambda match: poolings_of(match.root), _why_not, _before)


def _rule(name: str, before: Pattern, condition: str, numerics: Numerics, text: str) -> Rule:
    return Rule(
        name,
        before,
        Computed(text, _made),
        numerics,
        Condition(
            f"x is windows of a pooling that nothing else reads, {condition}", _CHECKED.holds
        ),
        Domain.FLOAT,
        _effect,
        _CHECKED.missed,
    )


POOLINGS: tuple[Rule, ...] = (
    _rule(
        "sum-of-pooling",
        total(x, attrs="p"),
        "f(sum of windows side by side)",
        Numerics.REORDER,
        "n f(mean of the windows of both), in float64",
    ),
    _rule(
        "amax-of-pooling",
        amax(x, attrs="p"),
        "of one axis",
        Numerics.EXACT,
        "amax of the windows of both",
    ),
)
