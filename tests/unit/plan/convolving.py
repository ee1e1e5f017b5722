"""Graphs with convolutions, and what their plans say of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CallAttrs, Operand
from opweld.ir.check import check
from opweld.ir.expr import Size
from opweld.ir.graph import Graph, Node
from opweld.ir.ops import Kind
from opweld.ir.plan import Conditions, Group, GroupKind, Plan
from opweld.ir.types import TensorType
from opweld.plan import make_plan
from opweld.plan.layouts.moved import Moved
from opweld.target import SM_90A, Target

TF32 = Conditions(tf32_convolutions=True)
LIBRARY = "a convolution of the library's: "


@contextmanager
def no_halos() -> Iterator[None]:
    """While no convolution is made by halos."""
    with mock.patch("opweld.plan.products.windows.by_halos", return_value=None):
        yield


@contextmanager
def nothing_given_back() -> Iterator[None]:
    """While what convolutions give goes on in their order."""

    def one(graph: Graph, chosen: Any, ours: Any, patches: Any, _: Any) -> Iterator[Moved]:
        yield Moved.of(graph, chosen, ours, patches)

    with mock.patch("opweld.plan.layouts.choice._moved_in_all_ways", one):
        yield


def _outs(
    space: tuple[Size, ...], kernel: tuple[int, ...], given: dict[str, Any]
) -> tuple[Size, ...]:
    def each(name: str, default: int) -> tuple[int, ...]:
        value = given.get(name, default)
        values = (value,) if isinstance(value, int) else tuple(value)
        return values * len(kernel) if len(values) == 1 else values

    stride, dilation = each("stride", 1), each("dilation", 1)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    padding = given.get("padding", 0)
    if padding == "same":
        return space
    around = (0,) * len(kernel) if padding == "valid" else each("padding", 0)
    return tuple(
        (n + 2 * p - r - 1) // s + 1
        for n, p, r, s in zip(space, around, reach, stride, strict=True)
    )


def conv(
    m: Make,
    x: Node,
    filters: int,
    kernel: tuple[int, ...],
    *,
    last: bool = False,
    bias: bool = False,
    groups: int = 1,
    by_place: bool = False,
    **given: Any,
) -> Node:
    """A call with `given` as keywords or arguments by place, its channels `last` or second."""
    space, channels = _lengths(x, last)
    weight = m.w(f"weight{x.serial}", filters, channels // groups, *kernel)
    keywords: dict[str, Any] = given | ({"groups": groups} if groups != 1 else {})
    arguments: tuple[Any, ...] = ()
    if by_place:
        order = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
        arguments = tuple(keywords.get(name, default) for name, default in order.items())
        keywords = {}
    form = "padding" if isinstance(given.get("padding"), str) else "default"
    target = f"aten.conv{len(kernel)}d.{form}"
    result = (filters, _outs(space, kernel, given))
    return _called(m, target, (x, weight), result, bias, last, arguments, keywords)


NUMBERS = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}


def transposed(
    m: Make,
    x: Node,
    filters: int,
    kernel: tuple[int, ...],
    *,
    last: bool = False,
    bias: bool = False,
    groups: int = 1,
    by_keyword: bool = False,
    **given: int | tuple[int, ...],
) -> Node:
    """A call with `given` as arguments by place, or as keywords; its channels `last` or second."""
    rank = len(kernel)
    space, channels = _lengths(x, last)

    def each(name: str) -> tuple[int, ...]:
        value = given.get(name, NUMBERS[name])
        return (value,) * rank if isinstance(value, int) else value

    stride, padding, more, dilation = (
        each(name) for name in ("stride", "padding", "output_padding", "dilation")
    )
    out = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, s, p, o, d, k in zip(space, stride, padding, more, dilation, kernel, strict=True)
    )
    weight = m.w(f"weight{x.serial}", channels, filters // groups, *kernel)
    keywords: dict[str, Any] = {"groups": groups} if groups != 1 else {}
    keywords |= {name: list(each(name)) for name in given}
    arguments: tuple[Any, ...] = ()
    if not by_keyword:
        arguments = (list(stride), list(padding), list(more), groups, list(dilation))
        keywords = {}
    target = f"aten.conv_transpose{rank}d.{'default' if rank == 1 else 'input'}"
    return _called(m, target, (x, weight), (filters, out), bias, last, arguments, keywords)


def _lengths(x: Node, last: bool) -> tuple[tuple[Size, ...], int]:
    """The axes of space, and how many channels."""
    _, *rest = x.type.shape
    space, channels = (rest[:-1], rest[-1]) if last else (rest[1:], rest[0])
    return tuple(space), int(str(channels))


def _called(
    m: Make,
    target: str,
    operands: tuple[Node, Node],
    result: tuple[int, tuple[Size, ...]],
    bias: bool,
    last: bool,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Node:
    """A call whose `arguments` come behind its bias, or behind None."""
    x, weight = operands
    filters, out = result
    every = (x, weight, *((m.w("bias", filters),) if bias else ()))
    missing = (None,) if arguments and not bias else ()
    batch = x.type.shape[0]
    shape = (batch, *out, filters) if last else (batch, filters, *out)
    attrs = CallAttrs(
        target,
        (*map(Operand, range(len(every))), *missing, *arguments),
        tuple(keywords.items()),
        (TensorType(x.type.dtype, shape),),
        "a convolution",
        channels_last=last,
    )
    return m.arena.call(every, attrs)


IMAGE = (BATCH, 64, 56, 56)


def tail_of(m: Make, y: Node) -> Node:
    """Not a result of the graph, which keeps its order."""
    return m.reduced("mean", m.relu(y), *range(1, y.type.rank))


def planned(*outputs: Node, target: Target = SM_90A, conditions: Conditions = TF32) -> Plan:
    plan = make_plan(graph(*outputs), target, conditions=conditions)
    check(plan)
    return plan


def convolutions(plan: Plan) -> list[Group]:
    return [group for group in plan.groups if group.kind is GroupKind.CONVOLUTION]


def one(*outputs: Node, **options: Any) -> Group:
    (found,) = convolutions(planned(*outputs, **options))
    return found


def refusal(*outputs: Node, **options: Any) -> str:
    """Why there is no kernel of ours."""
    plan = planned(*outputs, **options)
    assert not convolutions(plan)
    (reason,) = (g.reason for g in plan.groups if g.kind is GroupKind.LIBRARY)
    return reason


def operations(group: Group) -> list[str]:
    return [node.op.value for node in group.nodes if node.kind is not Kind.VIEW]
