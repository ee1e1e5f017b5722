"""Random well-typed graphs, values for their inputs, and how exact their evaluation must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from tests.kernel_meaning import apply, stored

from opweld.ir.attrs import (
    CallAttrs,
    CastAttrs,
    CatAttrs,
    EluAttrs,
    FlipAttrs,
    IotaAttrs,
    Operand,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ShapeAttrs,
    SliceAttrs,
    SlopeAttrs,
    SoftplusAttrs,
    WindowAttrs,
)
from opweld.ir.expr import Size, evaluate, product, symbol
from opweld.ir.graph import Arena, Graph, Leaf, Node
from opweld.ir.numpy.interpret import NUMPY_DTYPES, numbered
from opweld.ir.ops import OPS, Kind, Op
from opweld.ir.types import DType, ShapeMismatch, TensorType, broadcast

T = TypeVar("T")
Choose = Callable[[Sequence[T]], T]

BATCH = symbol("s0")
SHAPES: tuple[tuple[Size, ...], ...] = (
    (),
    (4,),
    (12,),
    (BATCH,),
    (BATCH, 1),
    (BATCH, 3),
    (BATCH, 8),
    (1, BATCH),
    (4, BATCH),
    (BATCH, 4, 6),
    (2, BATCH, 8),
    (BATCH, 2, 3, 4),
)
FLOATS = (DType.F32, DType.F32, DType.F64, DType.F16, DType.BF16)
DTYPES = (*FLOATS, DType.I64, DType.I32, DType.U8, DType.BOOL)

# Lipschitz constants, rounded up: how much an error of the operand can grow.
SMOOTH = {
    Op.NEG: 1, Op.ABS: 1, Op.SIN: 1, Op.COS: 1, Op.ATAN: 1, Op.TANH: 1, Op.ASINH: 1, Op.ERF: 1.2,
    Op.SIGMOID: 1, Op.RELU: 1, Op.GELU: 1.2, Op.GELU_TANH: 1.2, Op.SILU: 1.2, Op.MISH: 1.2,
    Op.SOFTSIGN: 1, Op.HARDSIGMOID: 1, Op.HARDSWISH: 2, Op.LOGSIGMOID: 1, Op.TANHSHRINK: 1,
}  # fmt: skip
WITH_ATTRS = {
    Op.LEAKY_RELU: (SlopeAttrs(0.25), 1),
    Op.ELU: (EluAttrs(1.5, 1.0, 1.0), 1.5),
    Op.SOFTPLUS: (SoftplusAttrs(1.0, 20.0), 1),
}
FLOAT_PAIRS = (Op.ADD, Op.SUB, Op.MUL, Op.MAXIMUM, Op.MINIMUM, Op.CLAMP_MIN, Op.CLAMP_MAX)
# These keep an exact operand exact: they choose or negate, and never round.
EXACT_FLOATS = (Op.NEG, Op.ABS, Op.RELU, Op.MAXIMUM, Op.MINIMUM, Op.CLAMP_MIN, Op.CLAMP_MAX)
STEPS = (Op.FLOOR, Op.CEIL, Op.ROUND, Op.TRUNC, Op.SIGN)
COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
INTEGER_PAIRS = (
    Op.ADD, Op.SUB, Op.MUL, Op.MAXIMUM, Op.MINIMUM, Op.BITWISE_AND, Op.BITWISE_OR, Op.BITWISE_XOR,
)  # fmt: skip
# By whether the operand is bool, and whether it is exact: a place and a truth must not hang by an
# error.
REDUCTIONS = {
    (True, True): (Op.ANY, Op.ALL),
    (True, False): (Op.ANY, Op.ALL),
    (False, True): (Op.SUM, Op.SUM, Op.AMAX, Op.AMIN, Op.ARGMAX, Op.ARGMIN),
    (False, False): (Op.SUM, Op.AMAX, Op.AMIN),
}
# Not of 16-bit ones: capture makes them of float32.
OF_FLOATS = (Op.MEAN, Op.SUMEXP, Op.DEVSQ)
OF_NOTHING = (Op.SUM, Op.ANY, Op.ALL)
BOOL_PAIRS = (Op.LOGICAL_AND, Op.LOGICAL_OR, Op.LOGICAL_XOR, Op.EQ, Op.BITWISE_AND, Op.MAXIMUM)


@dataclass(slots=True)
class Builder:
    """A graph in the making; `choose` decides everything, so that hypothesis can shrink it."""

    choose: Choose[Any]
    dtypes: Sequence[DType] = DTYPES
    calls: bool = False
    reductions: bool = False
    arena: Arena = field(default_factory=Arena)
    pool: list[Node] = field(default_factory=list)
    exact: set[int] = field(default_factory=set)

    def inputs(self) -> tuple[Node, ...]:
        """One input of a chosen shape, and others that broadcast to it or have a shape of their
        own.
        """
        base = self.choose(SHAPES)
        dtype = self.choose(self.dtypes)
        for number in range(self.choose((1, 2, 3))):
            shape = base if number == 0 else self._related(base)
            kind = dtype if number < 2 else self.choose(self.dtypes)
            name = f"x{number}"
            self._add(self.arena.source(Op.INPUT, name, name, TensorType(kind, shape)), True)
        return tuple(self.pool)

    def _related(self, base: tuple[Size, ...]) -> tuple[Size, ...]:
        how = self.choose(("same", "ones", "tail", "other"))
        if how == "ones":
            return tuple(self.choose((size, 1)) for size in base)
        if how == "tail":
            return base[self.choose(range(len(base) + 1)) :]
        return self.choose(SHAPES) if how == "other" else base

    def _add(self, node: Node, exact: bool) -> Node:
        if node not in self.pool:
            self.pool.append(node)
        if exact:
            self.exact.add(node.serial)
        return node

    def pick(self) -> Node:
        return self.choose(self.pool)

    def is_exact(self, *nodes: Node) -> bool:
        return all(node.op is Op.CONST or node.serial in self.exact for node in nodes)

    def step(self) -> None:
        """One more node, where the choice fits what is there."""
        steps = [self.unary, self.pair, self.pair, self.cast, self.where, self.view, self.view]
        steps += [self.reduce, self.reduce] if self.reductions else []
        steps += [self.call] if self.calls else []
        self.choose(steps)()

    def unary(self) -> None:
        x = self.pick()
        if x.type.dtype is DType.BOOL:
            self._make(Op.LOGICAL_NOT, x)
        elif not x.type.dtype.is_float:
            self._make(self.choose((Op.NEG, Op.ABS, Op.BITWISE_NOT, Op.RELU)), x)
        else:
            self._float_unary(x)

    def _float_unary(self, x: Node) -> None:
        ops = [*SMOOTH, *WITH_ATTRS, *(STEPS if self.is_exact(x) else ())]
        op = self.choose(ops)
        if op in WITH_ATTRS:
            self._add(self.arena.make(op, x, attrs=WITH_ATTRS[op][0]), False)
        else:
            self._make(op, x)

    def _make(self, op: Op, *inputs: Node) -> None:
        whole = all(not node.type.dtype.is_float for node in inputs)
        keeps = whole or op in (*EXACT_FLOATS, *STEPS, *COMPARISONS, Op.WHERE)
        self._add(self.arena.make(op, *inputs), keeps and self.is_exact(*inputs))

    def partner(self, x: Node) -> Node:
        """Another value of the same dtype that broadcasts with `x`, or a constant."""
        fitting = [y for y in self.pool if y.type.dtype is x.type.dtype and _fit(x, y)]
        return self.choose([*fitting, self.constant(x.type.dtype)])

    def constant(self, dtype: DType) -> Node:
        if dtype is DType.BOOL:
            return self.arena.const(self.choose((False, True)), dtype)
        if dtype.is_float:
            return self.arena.const(self.choose((0.5, -1.0, 0.0, 2.0)), dtype)
        return self.arena.const(self.choose((1, 3, 0, 7)), dtype)

    def pair(self) -> None:
        x = self.pick()
        y = self.partner(x)
        if x.type.dtype is DType.BOOL:
            ops: Sequence[Op] = BOOL_PAIRS
        elif x.type.dtype.is_float:
            ops = (*FLOAT_PAIRS, *(COMPARISONS if self.is_exact(x, y) else ()))
        else:
            ops = (*INTEGER_PAIRS, *COMPARISONS)
        self._make(self.choose(ops), x, y)

    def reduce(self) -> None:
        """Some axes condensed; then, mostly, something that reads the result with the operand."""
        x = self.pick()
        dtype = x.type.dtype
        if not x.type.rank:
            return
        axes = tuple(axis for axis in range(x.type.rank) if self.choose((True, False)))
        ops = REDUCTIONS[dtype is DType.BOOL, self.is_exact(x)]
        if dtype.is_half:
            ops = tuple(op for op in ops if op is not Op.SUM)  # capture adds in float32
        elif dtype.is_float:
            ops = (*ops, *OF_FLOATS)
        attrs = ReduceAttrs(axes or (x.type.rank - 1,))
        op = self.choose(ops)
        node = self.arena.make(op, x, attrs=attrs)
        self._add(node, op not in (Op.SUM, *OF_FLOATS) or not dtype.is_float)
        if node.type.dtype is dtype and dtype.is_float and self.choose((True, True, False)):
            self._make(self.choose((Op.SUB, Op.MAXIMUM)), x, node)

    def cast(self) -> None:
        x, dtype = self.pick(), self.choose(DTYPES)
        if x.type.dtype.is_float and not (dtype.is_float or self.is_exact(x)):
            return
        if x.type.dtype.is_float and dtype is DType.U8:
            return  # below zero the result is the machine's
        keeps = not dtype.is_float or (x.type.dtype is DType.BOOL)
        node = self.arena.make(Op.CAST, x, attrs=CastAttrs(dtype))
        self._add(node, keeps and self.is_exact(x))

    def where(self) -> None:
        conditions = [node for node in self.pool if node.type.dtype is DType.BOOL]
        if not conditions:
            return
        yes = self.pick()
        condition, no = self.choose(conditions), self.partner(yes)
        try:
            broadcast((condition.type.shape, yes.type.shape, no.type.shape))
        except ShapeMismatch:
            return
        self._make(Op.WHERE, condition, yes, no)

    def view(self) -> None:
        x = self.pick()
        makers = [self.reshape, self.expand, self.iota]
        if x.type.rank:
            makers += [self.slice, self.flip, self.cat, self.pad, self.window]
        if x.type.rank > 1:
            makers.append(self.permute)
        node = self.choose(makers)(x)
        if node is not None:
            self._add(node, self.is_exact(*node.inputs))

    def permute(self, x: Node) -> Node:
        dims = list(range(x.type.rank))
        order = [dims.pop(self.choose(range(len(dims)))) for _ in range(x.type.rank)]
        return self.arena.make(Op.PERMUTE, x, attrs=PermuteAttrs(tuple(order)))

    def expand(self, x: Node) -> Node:
        shape = tuple(self.choose((2, BATCH)) if size == 1 else size for size in x.type.shape)
        front = self.choose(((), (2,), (BATCH,)))
        shape = (*front, *shape) if len(shape) < 4 else shape
        return self.arena.make(Op.EXPAND, x, attrs=ShapeAttrs(shape))

    def reshape(self, x: Node) -> Node | None:
        """Neighbouring axes merged, an axis split, or ones put in or left out."""
        shape = list(x.type.shape)
        how = self.choose(("merge", "split", "one", "squeeze", "mix"))
        if how == "squeeze":
            shape = [size for size in shape if size != 1]
        elif how == "one":
            shape.insert(self.choose(range(len(shape) + 1)), 1)
        elif how == "merge" and len(shape) > 1:
            axis = self.choose(range(len(shape) - 1))
            shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        elif how == "split" and shape:
            axis = self.choose(range(len(shape)))
            shape[axis : axis + 1] = self._factors(shape[axis])
        elif how == "mix" and all(isinstance(size, int) for size in shape[1:]) and len(shape) > 2:
            shape[1:] = self._factors(product(shape[1:]))
        if len(shape) > 5:
            return None
        return self.arena.make(Op.RESHAPE, x, attrs=ShapeAttrs(tuple(shape)))

    def _factors(self, size: Size) -> list[Size]:
        whole = size if isinstance(size, int) else size.terms[0][1]
        divisors = [d for d in (2, 3, 4) if isinstance(whole, int) and whole % d == 0]
        if not divisors or (not isinstance(size, int) and len(size.terms) > 1):
            return [size, 1]
        divisor = self.choose(divisors)
        rest = size // divisor if isinstance(size, int) else _divided(size, divisor)
        return self.choose(([rest, divisor], [divisor, rest]))

    def slice(self, x: Node) -> Node:
        dim = self.choose(range(x.type.rank))
        size = x.type.shape[dim]
        if not isinstance(size, int):
            # A symbolic axis: all of it but nothing, or its first element.
            length = self.choose((size, 1))
            return self.arena.make(Op.SLICE, x, attrs=SliceAttrs(dim, 0, 1, length))
        start = self.choose(range(size))
        step = self.choose((1, 1, 2))
        length = self.choose(range(1, (size - start + step - 1) // step + 1))
        return self.arena.make(Op.SLICE, x, attrs=SliceAttrs(dim, start, step, length))

    def window(self, x: Node) -> Node:
        dim = self.choose(range(x.type.rank))
        size = x.type.shape[dim]
        if not isinstance(size, int):
            return self.arena.make(Op.WINDOW, x, attrs=WindowAttrs(dim, size, 1, 1))
        width, dilation = self.choose(range(1, min(size, 3) + 1)), self.choose((1, 1, 2))
        reach = (width - 1) * dilation + 1
        if reach > size:
            reach, dilation = width, 1
        step = self.choose((1, 2, 3))
        count = self.choose(range(1, (size - reach) // step + 2))
        return self.arena.make(Op.WINDOW, x, attrs=WindowAttrs(dim, count, step, width, dilation))

    def flip(self, x: Node) -> Node:
        dims = tuple(dim for dim in range(x.type.rank) if self.choose((True, False)))
        return self.arena.make(Op.FLIP, x, attrs=FlipAttrs(dims or (0,)))

    def cat(self, x: Node) -> Node:
        dim = self.choose(range(x.type.rank))
        fitting = [y for y in self.pool if _joins(x, y, dim)]
        parts = [x, *(self.choose(fitting) for _ in range(self.choose((1, 2))))]
        return self.arena.make(Op.CAT, *parts, attrs=CatAttrs(dim))

    def pad(self, x: Node) -> Node:
        before = tuple(self.choose((0, 1, 2)) for _ in x.type.shape)
        after = tuple(self.choose((0, 1)) for _ in x.type.shape)
        value = self.constant(x.type.dtype).attrs.value
        return self.arena.make(Op.PAD, x, attrs=PadAttrs(before, after, value))

    def iota(self, x: Node) -> Node:
        length = x.type.shape[-1] if x.type.rank else 4
        dtype = self.choose((DType.I64, DType.F32))
        halves = (0.5, -0.25) if dtype.is_float else ()
        start, step = self.choose((0, 3, -2, *halves)), self.choose((1, 2, -3, *halves))
        return self.arena.iota(IotaAttrs(start, step, length), dtype)

    def call(self) -> None:
        """A PyTorch call that doubles its operand; some must keep their order."""
        x = self.pick()
        draws = self.choose((False, True))
        results = (x.type,)
        attrs = CallAttrs("aten.double.default", (Operand(0),), (), results, "a test's call", draws)
        call = self.arena.call((x,), attrs)
        self._add(self.arena.item(call, 0, x.type), self.is_exact(x))

    def outputs(self) -> tuple[Node, ...]:
        """The last values, and some before them."""
        made = [node for node in self.pool if node.kind is not Kind.SOURCE] or self.pool
        count = self.choose((1, 1, 2, 3))
        rest = [self.choose(made) for _ in range(count - 1)]
        return tuple(dict.fromkeys((made[-1], *rest)))


def _fit(x: Node, y: Node) -> bool:
    try:
        broadcast((x.type.shape, y.type.shape))
    except ShapeMismatch:
        return False
    return True


def _joins(x: Node, y: Node, dim: int) -> bool:
    if x.type.dtype is not y.type.dtype or x.type.rank != y.type.rank:
        return False
    pairs = enumerate(zip(x.type.shape, y.type.shape, strict=True))
    return all(a == b for axis, (a, b) in pairs if axis != dim)


def _divided(size: Size, divisor: int) -> Size:
    (monomial, factor), *_ = size.terms  # type: ignore[union-attr]
    return product(symbol(atom.name) for atom in monomial) * (factor // divisor)  # type: ignore[union-attr]


def build(
    choose: Choose[Any],
    *,
    dtypes: Sequence[DType] = DTYPES,
    calls: bool = False,
    steps: Sequence[int] = range(1, 12),
    only_views: bool = False,
    reductions: bool = False,
) -> Graph:
    """A graph of up to a dozen operations whose sizes stay small."""
    builder = Builder(choose, dtypes, calls, reductions)
    inputs = builder.inputs()
    for _ in range(choose(steps)):
        before = list(builder.pool)
        builder.view() if only_views else builder.step()
        if len(builder.pool) > len(before) and _too_large(builder.pool[-1]):
            builder.pool = before
    outputs = builder.outputs()
    if only_views:
        last = outputs[0]
        outputs = (builder.arena.make(Op.ADD, last, builder.arena.const(1, last.type.dtype)),)
    structure = ("tuple", tuple(Leaf(index) for index in range(len(outputs))))
    return Graph("random", inputs, (), outputs, structure)


def _too_large(node: Node) -> bool:
    return node.type.rank > 5 or evaluate(node.type.num_elems, {"s0": 8}) > 4096


@st.composite
def graphs(draw: st.DrawFn, **options: Any) -> Graph:
    return build(lambda choices: draw(st.sampled_from(tuple(choices))), **options)


def batches_of(graph: Graph) -> tuple[int, ...]:
    """Sizes of the batch to try: 0, too, where no slice takes an element of it, and no extreme of
    nothing is asked for.
    """
    slices = [node for node in graph.nodes() if node.op is Op.SLICE]
    whole = all(
        node.type.shape[node.attrs.dim] != 1 or node.inputs[0].type.shape[node.attrs.dim] == 1
        for node in slices
        if not isinstance(node.inputs[0].type.shape[node.attrs.dim], int)
    )
    reduced = [n for n in graph.nodes() if n.kind is Kind.REDUCTION and n.op not in OF_NOTHING]
    return (0, 1, 5, 8) if whole and not reduced else (1, 5, 8)


def feeds_of(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Values for the inputs: small multiples of 1/8 as floats, which every float type holds."""
    rng = np.random.default_rng(seed)
    return {node.attrs.access: _feed(node, sizes, rng) for node in graph.inputs}


def _feed(node: Node, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = [evaluate(size, sizes) for size in node.type.shape]
    dtype = node.type.dtype
    if dtype is DType.BOOL:
        return rng.random(shape) > 0.5
    low = 0 if dtype is DType.U8 else -20
    whole = rng.integers(low, 21, shape)
    scaled = whole / 8 if dtype.is_float else whole
    return np.asarray(scaled, NUMPY_DTYPES[dtype])


def double(attrs: CallAttrs, operands: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """What the calls of these graphs compute."""
    (x,) = operands
    return (x if x.dtype == np.bool_ else np.asarray(x * x.dtype.type(2)),)


# --- how far an evaluation may be from the meaning ---

# Half a unit in the last place of each type, and how many of them a function may be off.
ROUNDING = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8, DType.F32: 2.0**-24, DType.F64: 2.0**-53}
FUNCTION_ROUNDINGS = 12
SMALLEST = {DType.F16: 2.0**-24, DType.BF16: 2.0**-126, DType.F32: 2.0**-126, DType.F64: 2.0**-900}


def exact_and_errors(
    graph: Graph, feeds: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each output its value, and how far off a right evaluation in the graph's types can be.

    A running error analysis: each operation passes the errors of its operands on, times how fast it
    changes, and adds its own rounding.
    """
    values: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for node in graph.nodes():
        values[node.serial] = _value_and_error(node, values, feeds, sizes)
    return [_rounded(values[node.serial], node.type.dtype, roundings=1) for node in graph.outputs]


def _value_and_error(
    node: Node,
    values: Mapping[int, tuple[np.ndarray, np.ndarray]],
    feeds: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
) -> tuple[np.ndarray, np.ndarray]:
    if node.op is Op.ITEM:
        return values[node.inputs[0].serial]
    attrs = numbered(node.attrs, sizes) if node.op is not Op.CALL else node.attrs
    operands = [values[operand.serial] for operand in node.inputs]
    if node.kind is Kind.SOURCE:
        return _source(node, attrs, feeds)
    if node.op is Op.CALL:
        ((value, error),) = operands
        return double(attrs, (value,))[0], error * 2
    if node.kind is Kind.VIEW:
        return _view(node, attrs, operands)
    if node.kind is Kind.REDUCTION:
        return _reduced(node, attrs, operands[0])
    value = apply(node.op, [v for v, _ in operands], attrs, node.type.dtype)
    error = np.broadcast_to(_passed_on(node, operands), value.shape)
    return _rounded((value, error), node.type.dtype, FUNCTION_ROUNDINGS, node)


def _reduced(
    node: Node, attrs: Any, operand: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """A sum adds the errors of what it adds, and rounds once for each of them at most."""
    value, error = operand
    result = apply(node.op, [value], attrs, node.type.dtype)
    if node.op in OF_FLOATS:
        return result, _error_of_moment(node.op, attrs.axes, value, error)
    if node.op is not Op.SUM or not node.type.dtype.is_float:
        largest = np.max(error, axis=attrs.axes, keepdims=True, initial=0.0)
        return result, np.broadcast_to(largest, result.shape)
    size = np.sum(np.abs(value), axis=attrs.axes, keepdims=True)
    length = value.size // max(result.size, 1)
    eps = np.finfo(result.dtype).eps
    return result, np.sum(error, axis=attrs.axes, keepdims=True) + eps * length * size


def _error_of_moment(
    op: Op, axes: tuple[int, ...], value: np.ndarray, error: np.ndarray
) -> np.ndarray:
    """What the differences to the largest or to the mean are off by, times how fast each term
    changes; and a rounding of each term and of the sum with it.
    """
    eps, length = np.finfo(value.dtype).eps, np.prod([value.shape[axis] for axis in axes])
    if op is Op.MEAN:
        off = error + eps * np.abs(value)
        return np.asarray(np.mean(off, axis=axes, keepdims=True))
    if op is Op.SUMEXP:
        difference = value - np.max(value, axis=axes, keepdims=True)
        off = error + np.max(error, axis=axes, keepdims=True) + 2 * eps * np.abs(difference)
        terms = np.exp(difference)
        change = terms * np.expm1(np.minimum(off, 80)) + FUNCTION_ROUNDINGS * eps * terms
    else:
        difference = value - np.mean(value, axis=axes, keepdims=True)
        off = error + np.mean(error, axis=axes, keepdims=True) + 2 * eps * np.abs(value)
        terms = difference * difference
        change = (2 * np.abs(difference) + off) * off
    added = eps * length * np.sum(terms, axis=axes, keepdims=True)
    return np.sum(change, axis=axes, keepdims=True) + added


def _source(
    node: Node, attrs: Any, feeds: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    dtype = node.type.dtype
    if node.op is Op.CONST:
        value = np.asarray(attrs.value)
    elif node.op is Op.IOTA:
        value = np.asarray(attrs.start + attrs.step * np.arange(attrs.length))
    else:
        value = feeds[attrs.access]
    value = stored(value, dtype).astype(NUMPY_DTYPES[dtype.compute])
    return value, np.zeros(value.shape)


def _view(
    node: Node, attrs: Any, operands: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    evaluate_view = OPS[node.op].evaluate
    assert evaluate_view is not None
    values = evaluate_view(*(value for value, _ in operands), attrs)
    if node.op is Op.PAD:
        attrs = PadAttrs(attrs.before, attrs.after, 0)
    return values, evaluate_view(*(error for _, error in operands), attrs)


def _passed_on(node: Node, operands: Sequence[tuple[np.ndarray, np.ndarray]]) -> Any:
    """The error of the result that comes from the errors of the operands."""
    errors = [error for _, error in operands]
    if not node.type.dtype.is_float:
        return np.zeros(())
    if node.op is Op.MUL:
        (a, _), (b, _) = operands
        return np.abs(a) * errors[1] + np.abs(b) * errors[0] + errors[0] * errors[1]
    if node.op is Op.WHERE:
        return np.where(operands[0][0], errors[1], errors[2])
    factor = SMOOTH.get(node.op, WITH_ATTRS.get(node.op, (None, 1))[1])
    return factor * sum(errors, start=np.zeros(()))


def _rounded(
    pair: tuple[np.ndarray, np.ndarray], dtype: DType, roundings: int, node: Node | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The pair with the error of rounding to `dtype` some times; exact operations round never."""
    value, error = pair
    if not dtype.is_float:
        return pair
    if node is not None and node.op in EXACT_FLOATS + STEPS + (Op.WHERE,) and not error.any():
        return pair
    size = np.abs(value).astype(np.float64) + error
    return value, error + roundings * (ROUNDING[dtype] * size + SMALLEST[dtype])


def assert_close_to(
    results: Sequence[np.ndarray], wanted: Sequence[tuple[np.ndarray, np.ndarray]], label: str
) -> None:
    """Each result within the error of its value; NaN and infinities where the value has them."""
    for index, (result, (value, error)) in enumerate(zip(results, wanted, strict=True)):
        assert result.shape == value.shape, f"{label}: output {index} has shape {result.shape}"
        with np.errstate(all="ignore"):
            off = np.abs(result.astype(np.float64) - value.astype(np.float64))
            same = (result == value) | (np.isnan(result) & np.isnan(value))
            wrong = ~(same | (off <= error) | ~np.isfinite(error))
        assert not wrong.any(), (
            f"{label}: output {index} is {result[wrong][0]}, not {value[wrong][0]} "
            f"within {error[wrong][0]:.3g}, at {np.argwhere(wrong)[0]} ({wrong.sum()} wrong)"
        )
