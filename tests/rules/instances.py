"""Concrete graphs for a rule: its left side on real operands, and what the rule makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations, product

import numpy as np
from tests.rules.hard_values import hard_operands, hard_values
from tests.unit.ir.graphs import BATCH, graph

from opweld.ir.attrs import (
    NO_ATTRS,
    CastAttrs,
    CatAttrs,
    FlipAttrs,
    NanToNumAttrs,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ShapeAttrs,
    SliceAttrs,
    WindowAttrs,
)
from opweld.ir.check import InvalidGraph, check
from opweld.ir.graph import Arena, Graph, Node
from opweld.ir.infer import TypeRule
from opweld.ir.numpy.interpret import NUMPY_DTYPES, interpret
from opweld.ir.ops import OPS, Kind, Op
from opweld.ir.rules.pattern import AnyOf, Apply, Const, Match, Pattern, Var, build
from opweld.ir.rules.rewrite import Rule, apply_rule
from opweld.ir.types import DType, ShapeMismatch, TensorType

_SHAPED = (Kind.VIEW, Kind.REDUCTION)
DTYPES = (DType.F32, DType.F64, DType.F16, DType.BF16, DType.I32, DType.I64, DType.U8, DType.BOOL)
CONSTANTS = (2.0, 0.5, -0.25, 3.0, 0.1, 1.0, -1.0, 0.0, -0.0, 6.0, 1e-3, 2.0**100, float("inf"))
FORMS = (None, Op.TANH, Op.RELU, Op.EXP, Op.ABS, Op.SIGMOID, Op.SQRT, Op.SIGN)
SHAPE = (2, 3, 1, 4)
PER_CASE = 24
"""Instances of a rule for one dtype: the combinations of a rule of many names are cut there."""


@dataclass(frozen=True, slots=True)
class Instance:
    """The same value before and after one application of a rule."""

    before: Graph
    after: Graph
    feeds: dict[str, np.ndarray]


def instances(rule: Rule, dtype: DType) -> Iterator[Instance]:
    """Up to PER_CASE cases in which `rule` fires on operands of `dtype`."""
    yield from islice(_instances(rule, dtype), PER_CASE)


def _instances(rule: Rule, dtype: DType) -> Iterator[Instance]:
    if isinstance(rule.before, AnyOf):
        samples = _slices_of_cat if rule.before.kind is Kind.VIEW else _on_constants
        roots = samples(dtype)
    else:
        roots = _roots(rule.before, dtype)
    for arena, root in roots:
        made = apply_rule(rule, root, arena) if _means_something(root, dtype) else None
        if made is not None:
            feeds = _feeds(graph(root, made), dtype)
            yield Instance(_with_inputs(root, made), _with_inputs(made, root), feeds)


def _means_something(root: Node, dtype: DType) -> bool:
    """Whether the row takes these operands: it may be one for floats, or the view out of range."""
    try:
        check(graph(root))
        interpret(graph(root), _feeds(graph(root), dtype))
    except (InvalidGraph, TypeError):
        return False
    return True


def _with_inputs(output: Node, other: Node) -> Graph:
    """The graph of `output`, with the inputs of `other` too."""
    both = graph(output, other)
    return Graph("rule", both.inputs, both.weights, (output,), graph(output).structure)


def _roots(before: Pattern, dtype: DType) -> Iterator[tuple[Arena, Node]]:
    names = tuple(dict.fromkeys(_names(before)))
    is_view = any(isinstance(op, Op) and OPS[op].kind in _SHAPED for _, op in names)
    for choice in product(*(_candidates(kind, dtype, is_view) for _, kind in names)):
        arena = Arena()
        bindings = {
            name: candidate(arena, name) if callable(candidate) else candidate
            for (name, _), candidate in zip(names, choice, strict=True)
        }
        first = next(value for value in bindings.values() if isinstance(value, Node))
        try:
            yield arena, build(before, Match(first, bindings, arena))
        except (TypeRule, ShapeMismatch, IndexError, OverflowError, ValueError):
            continue


def _names(pattern: Pattern) -> Iterator[tuple[str, object]]:
    """Each name with what it stands for: Var, Const, or the operation whose attributes it is."""
    if isinstance(pattern, (Var, Const)):
        yield pattern.name, type(pattern)
    if isinstance(pattern, Apply):
        for arg in pattern.args:
            yield from _names(arg)
        if isinstance(pattern.attrs, str):
            yield pattern.attrs, pattern.op


def _candidates(kind: object, dtype: DType, is_view: bool) -> tuple:
    if kind is Const:
        return tuple(_constant(value, dtype) for value in CONSTANTS if _fits(value, dtype))
    if kind is Var:
        shape = SHAPE if is_view else None
        forms = FORMS if dtype.is_float and not is_view else (None,)
        own = tuple(_variable(dtype, form, shape) for form in forms)
        return (*own, _variable(DType.BOOL, None, shape)) if dtype is not DType.BOOL else own
    return _ATTRS[kind]


def _fits(value: float, dtype: DType) -> bool:
    return dtype.is_float or (value == int(min(abs(value), 200)) and dtype is not DType.BOOL)


def _constant(value: float, dtype: DType):
    return lambda arena, name: arena.const(value if dtype.is_float else int(value), dtype)


def _variable(dtype: DType, form: Op | None, shape):
    def make(arena: Arena, name: str) -> Node:
        type = TensorType(dtype, shape or (BATCH,))
        source = arena.source(Op.INPUT, name, name, type)
        return source if form is None else arena.make(form, source)

    return make


_ATTRS: dict[object, tuple] = {
    Op.CAST: tuple(CastAttrs(dtype) for dtype in DTYPES),
    Op.NAN_TO_NUM: (NanToNumAttrs(0.0, 3e38, -3e38), NanToNumAttrs(1.0, 2.0, -3.0)),
    Op.PERMUTE: tuple(PermuteAttrs(dims) for dims in permutations(range(4))),
    Op.RESHAPE: tuple(ShapeAttrs(s) for s in (SHAPE, (6, 4), (24,), (4, 3, 2), (1, 24, 1))),
    Op.EXPAND: tuple(
        ShapeAttrs(s) for s in (SHAPE, (1, *SHAPE), (1, 1, *SHAPE), (5, 2, 3, 7, 4), (2, 3, 7, 4))
    ),
    Op.SLICE: (
        *(SliceAttrs(dim, 0, 1, size) for dim, size in enumerate(SHAPE)),
        SliceAttrs(3, 1, 1, 3),
        SliceAttrs(3, 1, 2, 2),
        SliceAttrs(3, 0, 2, 2),
        SliceAttrs(3, 1, 1, 1),
        SliceAttrs(1, 1, 1, 2),
    ),
    Op.FLIP: tuple(FlipAttrs(dims) for dims in ((), (2,), (0,), (3,), (0, 3), (1, 3))),
    Op.PAD: (
        PadAttrs((0,) * 4, (0,) * 4, 0.0),
        PadAttrs((0, 1, 0, 0), (0, 0, 0, 2), 7.0),
    ),
    Op.CAT: tuple(CatAttrs(dim) for dim in range(4)),
    Op.WINDOW: (
        WindowAttrs(3, 4, 1, 1),
        WindowAttrs(3, 2, 2, 1),
        WindowAttrs(1, 2, 1, 1, 5),
        WindowAttrs(2, 1, 1, 1),
        WindowAttrs(3, 2, 1, 2),
    ),
    **dict.fromkeys(
        (op for op, row in OPS.items() if row.kind is Kind.REDUCTION),
        (ReduceAttrs((2,)), ReduceAttrs((2,), first=True), ReduceAttrs((3,)), ReduceAttrs((2, 3))),
    ),
}


def _slices_of_cat(dtype: DType) -> Iterator[tuple[Arena, Node]]:
    for dim, size in enumerate(SHAPE):
        for start, step, length in product(range(3 * size), (1, 2), range(3 * size)):
            arena = Arena()
            parts = [_variable(dtype, None, SHAPE)(arena, name) for name in ("a", "b")]
            joined = arena.make(Op.CAT, *parts, parts[0], attrs=CatAttrs(dim))
            yield arena, arena.make(Op.SLICE, joined, attrs=SliceAttrs(dim, start, step, length))


def _on_constants(dtype: DType) -> Iterator[tuple[Arena, Node]]:
    """Every pointwise operation that takes plain attributes."""
    for op, row in OPS.items():
        if row.kind is not Kind.POINTWISE or row.attrs not in (type(NO_ATTRS), CastAttrs):
            continue
        for values in product(CONSTANTS[:6], repeat=min(row.arity, 2)):
            arena = Arena()
            constants = [_constant(v, dtype) for v in values if _fits(v, dtype)]
            nodes = [make(arena, "") for make in constants] + [arena.const(True, DType.BOOL)]
            for attrs in _ATTRS[Op.CAST] if op is Op.CAST else (NO_ATTRS,):
                try:
                    operands = [nodes[-1], *nodes][: row.arity] if op is Op.WHERE else nodes
                    yield arena, arena.make(op, *operands[: row.arity], attrs=attrs)
                except (TypeRule, IndexError):
                    continue


def _feeds(both: Graph, dtype: DType) -> dict[str, np.ndarray]:
    """Hard values: every combination along one axis, or one array of a view's shape."""
    own = [node for node in both.inputs if node.type.dtype is dtype]
    combined = hard_operands(max(1, min(len(own), 3)), dtype)
    feeds: dict[str, np.ndarray] = {}
    for node in both.inputs:
        shape = node.type.shape
        if shape == SHAPE:
            values = np.resize(np.roll(hard_values(node.type.dtype), len(feeds) * 24), SHAPE)
        elif node in own:
            values = combined[own.index(node)]
        else:
            values = np.resize(hard_values(node.type.dtype), combined[0].shape)
        feeds[node.attrs.access] = values.astype(NUMPY_DTYPES[node.type.dtype])
    return feeds
