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
    shape = seen.operand.type.shape[-seen.rank :]
    rows = zip(shape, seen.along, seen.before, seen.lengths, strict=True)
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
    if seen is None or seen.operand.type.rank - seen.rank not in (1, 2):
        return None
    if any(2 * before > w.width for before, w in zip(seen.before, seen.along, strict=True)):
        return None  # more padding than torch takes
    ceil = next((ceil for ceil in (False, True) if _fits(seen, ceil)), None)
    if ceil is None or (node.op is Op.SUM and any(w.dilation != 1 for w in seen.along)):
        return None
    text = _largest(seen, ceil) if node.op is Op.AMAX else _total(seen, ceil)
    name = f"{'max' if node.op is Op.AMAX else 'avg'}_pool{seen.rank}d"
    return name, f"{text}.reshape({sizes(node.type.shape)})", seen.operand


def scattered_by_pool(node: Node) -> tuple[str, str] | None:
    """Of a largest in windows over two axes: a statement that finds the places, and the gradient of
    the operand by these.
    """
    seen = windows_of(node) if node.op is Op.AMAX else None
    ceil = next((ceil for ceil in (False, True) if seen and _fits(seen, ceil)), None)
    if seen is None or ceil is None or seen.rank != 2:
        return None
    names = ("width", "step", "dilation")
    widths, steps, dilations = (tuple(getattr(w, name) for w in seen.along) for name in names)
    given = f"{widths}, {steps}, {seen.before}, {dilations}, {ceil}"
    pooled = (*seen.operand.type.shape[: -seen.rank], *(w.count for w in seen.along))
    grad = f"{{g}}.reshape({sizes(pooled)}), {{a}}, {given}, {{s}}_places"
    called = "torch.ops.aten.max_pool2d_with_indices"
    first = f"_, {{s}}_places = {called}.default({{a}}, {given})"
    return first, f"{called}_backward.default({grad})"


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
    plane = Windows(seen.operand, (one, *seen.along), (0, *seen.before))
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
