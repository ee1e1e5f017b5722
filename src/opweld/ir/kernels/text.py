"""Canonical text of a kernel: its loops, what one iteration defines, the element, the stores."""

from __future__ import annotations

from typing import Any

from ..ops import Op
from .kernel import (
    Arg,
    Buffer,
    Condition,
    Const,
    Definition,
    Extent,
    Gather,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Multiplied,
    RowScalar,
    Store,
)
from .reduction import Folding


def kernel_text(kernel: Kernel) -> str:
    """The whole kernel, indented by loop depth, with a final newline."""
    head = f"kernel {kernel.name} {kernel.variant}"
    sizes = f"vector width {kernel.lanes}, {kernel.vectors} in flight, {kernel.threads} threads"
    turned = f" turned {kernel.turned}" if kernel.turned else ""
    lines = [f"{head}  {sizes}{turned}{_comment(kernel.comment)}"]
    lines += [f"  {_buffer_text(buffer)}" for buffer in kernel.buffers]
    lines += [f"  {_extent_text(extent)}" for extent in kernel.extents]
    lines += _loop_lines(kernel.loops, 1)
    indent = "  " * (len(kernel.loops) + 1)
    lines += [indent + line for line in _body_lines(kernel)]
    return "\n".join([*lines, ""])


def folding_text(folding: Folding) -> str:
    """All steps of a folding: walks over the reduced loops, and what comes once for the row."""
    way = "across rows" if folding.across else "along rows"
    given = "of the element" if folding.scanned else "of the row"
    head = f"folding {folding.name} {folding.variant}  vector width {folding.lanes}, {way}"
    lines = [f"{head}, {folding.threads} threads{_comment(folding.kernels[0].comment)}"]
    lines += [f"  {_buffer_text(buffer)}" for buffer in folding.buffers]
    lines += [f"  {_extent_text(extent)}" for extent in folding.extents]
    lines += _loop_lines(folding.kept, 1)
    depth = len(folding.kept) + 1
    indent = "  " * depth
    for number, step in enumerate(folding.steps):
        if not folding.scanned or number == 0:
            lines += _loop_lines(folding.reduced, depth)
        inside = indent + "  " * len(folding.reduced)
        lines += [inside + line for line in _body_lines(step.walk.kernel, given)]
        lines += [
            f"{inside}{fold.name} {fold.dtype.value} = {fold.op.value} of result {fold.result}"
            for fold in step.walk.folds
        ]
        if step.once:
            lines += [f"{indent}once:"]
            lines += [f"{indent}  {line}" for line in _body_lines(step.once.kernel)]
            lines += [
                f"{indent}  {value.name} {value.dtype.value} = result {value.result}"
                for value in step.once.values
            ]
    return "\n".join([*lines, ""])


def _loop_lines(loops: tuple[Loop, ...], depth: int) -> list[str]:
    return [
        f"{'  ' * (depth + place)}for {loop.var} in 0..{loop.extent}:"
        for place, loop in enumerate(loops)
    ]


def _body_lines(kernel: Kernel, given: str = "of the row") -> list[str]:
    element = kernel.element
    params = ", ".join(f"{name} {dtype.value}" for name, dtype in element.params)
    return [
        *(_definition_text(definition, given) for definition in kernel.definitions),
        f"element {element.name}({params}):",
        *(f"  {_let_text(let)}" for let in element.body),
        *(
            f"  result {index} {dtype.value} = {_arg_text(value)}"
            for index, (dtype, value) in enumerate(element.results)
        ),
        *(_store_text(store) for store in kernel.stores),
    ]


def _buffer_text(buffer: Buffer) -> str:
    role, place = ("output", "outputs") if buffer.written else ("input", "inputs")
    text = (
        f"{role} {buffer.name} {buffer.dtype.value} rank {buffer.rank} = {place}[{buffer.source}]"
    )
    return text + _comment(buffer.comment)


def _extent_text(extent: Extent) -> str:
    if extent.axis is None:
        return f"size {extent.name}"
    return f"stride {extent.name} of {extent.buffer} axis {extent.axis}"


def _definition_text(definition: Definition, given: str) -> str:
    if isinstance(definition, Load):
        return _load_text(definition)
    if isinstance(definition, Gather):
        return _gather_text(definition)
    if isinstance(definition, Multiplied):
        return f"{definition.name} {definition.dtype.value} = product"
    if isinstance(definition, RowScalar):
        return f"{definition.name} {definition.dtype.value} = {given}"
    if isinstance(definition, Index):
        return f"{definition.name} i64 = index {definition.expr}  {definition.access.value}"
    condition = _condition_text(definition.condition)
    return f"{definition.name} bool = test {condition}  {definition.access.value}"


def _load_text(load: Load) -> str:
    guard = f" if {_condition_text(load.guard)} else 0" if load.guard else ""
    place = f"{load.buffer}[{load.address}]"
    return f"{load.name} {load.dtype.value} = load {place}{guard}  {load.access.value}"


def _gather_text(pick: Gather) -> str:
    ways = " wraps" if pick.wraps else ""
    ways += "" if pick.ignored is None else f" ignored {pick.ignored}"
    guard = f" if {_condition_text(pick.guard)} else 0" if pick.guard else ""
    place = f"{pick.name} i64 = pick {pick.index} of {pick.extent}"
    return f"{place}{ways}{guard}  {pick.access.value}"


def _let_text(let: Let) -> str:
    args = " ".join(_arg_text(arg) for arg in let.args)
    words = ("rounded" if let.rounded else "", let.op.value, args, str(let.attrs))
    source = f" from {let.operands.value}" if let.op is Op.CAST else ""
    call = " ".join(word for word in words if word)
    return f"{let.name} {let.dtype.value} = {call}{source}{_comment(let.comment)}"


def _store_text(store: Store) -> str:
    place = f"{store.buffer}[{store.address}]"
    return f"store {place} {store.dtype.value} = result {store.result}"


def _condition_text(condition: Condition) -> str:
    return " and ".join(f"{b.low} <= {b.expr} < {b.high}" for b in condition) or "always"


def _arg_text(arg: Arg) -> str:
    return _const_text(arg.value) if isinstance(arg, Const) else arg.text


def _const_text(value: Any) -> str:
    return str(value) if hasattr(value, "terms") else repr(value)


def _comment(text: str) -> str:
    return f"  # {text}" if text else ""
