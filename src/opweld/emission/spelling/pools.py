"""Reductions of windows as torch's pooling, whose gradients are eager's.

Sums are averages divided by 1. An average over one axis cannot be, so it is taken over two.
"""

from __future__ import annotations

from ...ir.attrs import WindowAttrs
from ...ir.graph import Node
from ...ir.ops import Op
from ...ir.rules.windows import OUTSIDE, Windows, windows_of
from .ops import sizes

_FUNCTIONAL = "torch.nn.functional"


def _fits(seen: Windows, ceil: bool) -> bool:
    """Whether torch makes as many windows of these arguments (native/Pool.h)."""
    rows = zip(seen.sizes, seen.along, seen.before, seen.lengths, strict=True)
    return all(
        isinstance(size, int) and w.count == _count(size, w.step, before, length, ceil)
        for size, w, before, length in rows
    )


def _count(size: int, step: int, before: int, length: int, ceil: bool) -> int:
    count = (size + 2 * before - length + (step - 1 if ceil else 0)) // step + 1
    return count - 1 if ceil and (count - 1) * step >= size + before else count


def pool_of(node: Node) -> tuple[str, str, Node] | None:
    """Name, text and operand of the pooling that `node` is: {x} stands for the operand."""
    if node.op not in OUTSIDE or (node.op is Op.AMAX and not node.attrs.first):
        return None
    seen = windows_of(node)
    if seen is None or not _is_image(seen):
        return None
    if any(2 * before > w.width for before, w in zip(seen.before, seen.along, strict=True)):
        return None  # more padding than torch takes
    ceil = next((ceil for ceil in (False, True) if _fits(seen, ceil)), None)
    if ceil is None or (node.op is Op.SUM and any(w.dilation != 1 for w in seen.along)):
        return None
    text = _largest(seen, ceil) if node.op is Op.AMAX else _total(seen, ceil)
    name = f"{'max' if node.op is Op.AMAX else 'avg'}_pool{seen.rank}d"
    text = text.replace("{x}", f"{{x}}{_first(seen)}") + _last(seen)
    return name, f"{text}.reshape({sizes(node.type.shape)})", seen.operand


def _is_image(seen: Windows) -> bool:
    """Whether it is one, or several, with the channels first or last."""
    return len(seen.rest) < 2 and seen.operand.type.rank - seen.rank in (1, 2)


def _first(seen: Windows) -> str:
    """What puts channels that are last before the axes of the windows."""
    return f".movedim(-1, {seen.first})" if seen.rest else ""


def _last(seen: Windows) -> str:
    return f".movedim({seen.first}, -1)" if seen.rest else ""


def scattered_by_pool(node: Node) -> tuple[str, str] | None:
    """Of a largest in windows over two axes: a statement that finds the places, and the gradient of
    the operand by these.
    """
    seen = windows_of(node) if node.op is Op.AMAX else None
    ceil = next((ceil for ceil in (False, True) if seen and _fits(seen, ceil)), None)
    if seen is None or ceil is None or seen.rank != 2 or not _is_image(seen):
        return None
    names = ("width", "step", "dilation")
    widths, steps, dilations = (tuple(getattr(w, name) for w in seen.along) for name in names)
    given = f"{widths}, {steps}, {seen.before}, {dilations}, {ceil}"
    pooled = (*seen.lead, *seen.counts, *seen.rest)
    to = _first(seen)
    grad = f"{{g}}.reshape({sizes(pooled)}){to}, {{a}}{to}, {given}, {{s}}_places"
    called = "torch.ops.aten.max_pool2d_with_indices"
    first = f"_, {{s}}_places = {called}.default({{a}}{to}, {given})"
    return first, f"{called}_backward.default({grad}){_last(seen)}"


def is_windowed(node: Node) -> bool:
    """Whether elements of `node` stand in windows."""
    while node.op in (Op.PERMUTE, Op.RESHAPE):
        node = node.inputs[0]
    return node.op is Op.WINDOW


def _largest(seen: Windows, ceil: bool) -> str:
    arguments = _arguments(seen, ceil)
    dilations = tuple(w.dilation for w in seen.along)
    arguments += [f"dilation={_each(dilations)}"] if set(dilations) != {1} else []
    return f"{_FUNCTIONAL}.max_pool{seen.rank}d({{x}}, {', '.join(arguments)})"


def _total(seen: Windows, ceil: bool) -> str:
    if seen.rank > 1:
        arguments = ", ".join(_arguments(seen, ceil))
        return f"{_FUNCTIONAL}.avg_pool{seen.rank}d({{x}}, {arguments}, divisor_override=1)"
    one = WindowAttrs(0, 1, 1, 1)
    plane = Windows(seen.operand, seen.first, (one, *seen.along), (0, *seen.before))
    arguments = ", ".join(_arguments(plane, ceil))
    line = f"{_FUNCTIONAL}.avg_pool2d({{x}}.unsqueeze(-2), {arguments}, divisor_override=1)"
    return f"{line}.squeeze(-2)"


def _arguments(seen: Windows, ceil: bool) -> list[str]:
    widths, steps = (tuple(getattr(w, name) for w in seen.along) for name in ("width", "step"))
    arguments = [_each(widths)]
    arguments += [f"stride={_each(steps)}"] if steps != widths else []
    arguments += [f"padding={_each(seen.before)}"] if any(seen.before) else []
    return [*arguments, "ceil_mode=True"] if ceil else arguments


def _each(numbers: tuple[int, ...]) -> str:
    """One number where all axes have the same."""
    return str(numbers[0]) if len(set(numbers)) == 1 else str(numbers)
