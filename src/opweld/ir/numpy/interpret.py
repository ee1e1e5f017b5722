"""The meaning of a graph, evaluated with NumPy: slow, and the same on every machine.

Kernels calculate as this does: 16-bit floats in float32, rounded where a CAST, a PyTorch call or an
output stores them. bfloat16 is no NumPy type: its values are float32 arrays rounded to bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

import numpy as np

from ..attrs import CallAttrs, CastAttrs, IotaAttrs, ItemAttrs
from ..expr import Expr, Size, Symbol, evaluate, terms_of
from ..graph import Graph, Leaf, Node, Record, Structure
from ..ops import OPS, Kind, Op
from ..types import DType
from .loops import loop_results
from .meaning import Array, cast_array, round_to_bfloat16

Calls = Callable[[CallAttrs, tuple[Array, ...]], tuple[Array, ...]]
Precision = Literal["typed", "float64"]

NUMPY_DTYPES: dict[DType, Any] = {
    DType.BOOL: np.bool_,
    DType.U8: np.uint8,
    DType.I8: np.int8,
    DType.I16: np.int16,
    DType.I32: np.int32,
    DType.I64: np.int64,
    DType.F16: np.float16,
    DType.BF16: np.float32,
    DType.F32: np.float32,
    DType.F64: np.float64,
    DType.C64: np.complex64,
    DType.C128: np.complex128,
}
"""The NumPy type that holds a tensor of each element type outside the interpreter."""


class Uninterpretable(ValueError):
    """A graph that cannot be evaluated on these feeds; the text says what is missing."""


def interpret(
    graph: Graph,
    feeds: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    calls: Calls | None = None,
    precision: Precision = "typed",
) -> Any:
    """The outputs of `graph` in its structure, as arrays of the output's element type.

    Args:
        feeds: an array for each input and weight, by its access ("x", "fc.bias").
        sizes: symbolic sizes that no feed's shape tells.
        calls: evaluates a PyTorch call: its attributes and operands give its results, in order.
        precision: "float64" calculates every float in float64 and rounds nowhere.

    Raises Uninterpretable where a feed, a size or `calls` is missing, or a shape does not fit.
    """
    return in_structure(graph.structure, interpret_outputs(graph, feeds, sizes, calls, precision))


def interpret_outputs(
    graph: Graph,
    feeds: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    calls: Calls | None = None,
    precision: Precision = "typed",
) -> tuple[Array, ...]:
    """The outputs of `graph` in order; arguments as in `interpret`."""
    bound = bind_sizes(graph, feeds, sizes or {})
    values: dict[int, Any] = {}
    # PyTorch computes NaN and infinities without a word, so NumPy's warnings would be noise.
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            values[node.serial] = _value(node, values, feeds, bound, calls, precision)
        return tuple(
            _stored(_tensor(values[node.serial]), node.type.dtype, precision)
            for node in graph.outputs
        )


def interpret_tracked(
    graph: Graph, feeds: Mapping[str, Array], outputs: tuple[Array, ...]
) -> dict[str, Array]:
    """What a call that gives `outputs` leaves in the buffers that it changes, by access."""
    held = {buffer: np.asarray(feeds[buffer]) for each in graph.tracked for buffer in each.buffers}
    for each in graph.tracked:
        if each.count is not None:
            held[each.count] = np.asarray(held[each.count] + 1)
        momentum = each.momentum if each.momentum is not None else 1.0 / held[each.count or ""]
        for buffer, place in zip((each.mean, each.variance), each.towards, strict=True):
            before = held[buffer]
            value = np.reshape(outputs[place], before.shape).astype(np.float64)
            held[buffer] = ((1.0 - momentum) * before + momentum * value).astype(before.dtype)
    return held | {each.buffer: np.asarray(outputs[each.value]) for each in graph.updates}


def in_structure(structure: Structure, outputs: tuple[Any, ...]) -> Any:
    """`outputs` arranged as the forward returns them; a record is the dict of its fields."""
    if isinstance(structure, Leaf):
        return outputs[structure.index]
    if isinstance(structure, Record):
        return {key: in_structure(item, outputs) for key, item in structure.fields}
    kind, content = structure
    if kind == "const":
        return content
    if kind == "dict":
        return {key: in_structure(item, outputs) for key, item in content}
    items = (in_structure(item, outputs) for item in content)
    return list(items) if kind == "list" else tuple(items)


def bind_sizes(
    graph: Graph, feeds: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, int]:
    """A number for every symbol that is an axis of a feed, beside those given."""
    bound = dict(sizes)
    for node in (*graph.inputs, *graph.weights):
        shape = np.shape(_feed(node, feeds))
        if len(shape) != node.type.rank:
            raise Uninterpretable(f"{node.attrs} has shape {shape}, the graph says {node.type}")
        for size, number in zip(node.type.shape, shape, strict=True):
            name = _symbol_name(size)
            if name is not None and bound.setdefault(name, number) != number:
                raise Uninterpretable(f"{name} is both {bound[name]} and {number}")
    return bound


def _symbol_name(size: Size) -> str | None:
    """The name of a size that is a bare symbol."""
    for monomial, factor in terms_of(size):
        if len(monomial) == 1 and factor == 1 and isinstance(monomial[0], Symbol):
            return monomial[0].name if len(terms_of(size)) == 1 else None
    return None


def _feed(node: Node, feeds: Mapping[str, Array]) -> Array:
    if node.attrs.access not in feeds:
        raise Uninterpretable(f"no feed for {node.op.value} {node.attrs.access}")
    return feeds[node.attrs.access]


def _value(
    node: Node,
    values: Mapping[int, Any],
    feeds: Mapping[str, Array],
    sizes: Mapping[str, int],
    calls: Calls | None,
    precision: Precision,
) -> Any:
    if isinstance(node.attrs, ItemAttrs):
        return values[node.inputs[0].serial][node.attrs.index]
    operands = tuple(_tensor(values[operand.serial]) for operand in node.inputs)
    attrs = numbered(node.attrs, sizes) if node.op is not Op.CALL else node.attrs
    if node.kind is Kind.SOURCE:
        return _source(node, attrs, feeds, sizes, precision)
    if isinstance(attrs, CallAttrs) and attrs.loop is not None:
        return _loop(attrs, operands, sizes, calls, precision)
    if isinstance(attrs, CallAttrs):
        return _call(node, attrs, operands, calls, precision)
    if isinstance(attrs, CastAttrs):
        return _stored(operands[0], attrs.dtype, precision, compute=True)
    row = OPS[node.op].evaluate
    assert row is not None, f"{node.op.value} has no meaning in its row"
    results = row(*operands, attrs) if fields(attrs) else row(*operands)
    return np.asarray(results, dtype=_compute_dtype(node.type.dtype, precision))


def _source(
    node: Node,
    attrs: Any,
    feeds: Mapping[str, Array],
    sizes: Mapping[str, int],
    precision: Precision,
) -> Array:
    dtype = _compute_dtype(node.type.dtype, precision)
    if node.op is Op.CONST:
        return np.asarray(attrs.value).astype(dtype)
    if isinstance(attrs, IotaAttrs):
        return np.asarray(attrs.start + attrs.step * np.arange(attrs.length), dtype=dtype)
    expected = tuple(evaluate(size, sizes) for size in node.type.shape)
    feed = np.asarray(_feed(node, feeds))
    if feed.shape != expected:
        raise Uninterpretable(f"{node.attrs} has shape {feed.shape}, the graph says {expected}")
    return _stored(feed, node.type.dtype, precision, compute=True)


def _call(
    node: Node,
    attrs: CallAttrs,
    operands: tuple[Array, ...],
    calls: Calls | None,
    precision: Precision,
) -> tuple[Any, ...]:
    if calls is None:
        raise Uninterpretable(f"{node!r} calls {attrs.target}, and nothing evaluates calls")
    given = tuple(
        _stored(value, operand.type.dtype, precision)
        for value, operand in zip(operands, node.inputs, strict=True)
    )
    return tuple(
        value if type is None else _stored(np.asarray(value), type.dtype, precision, compute=True)
        for value, type in zip(calls(attrs, given), attrs.results, strict=True)
    )


def _loop(
    attrs: CallAttrs,
    operands: tuple[Array, ...],
    sizes: Mapping[str, int],
    calls: Calls | None,
    precision: Precision,
) -> tuple[Array, ...]:
    def body(feeds: Mapping[str, Array]) -> tuple[Array, ...]:
        return interpret_outputs(attrs.loop.body, feeds, sizes, calls, precision)

    found = loop_results(attrs.loop, operands, body)
    pairs = zip(found, attrs.results, strict=True)
    return tuple(
        _stored(value, type.dtype, precision, compute=True) for value, type in pairs if type
    )


def _tensor(value: Any) -> Array:
    """The value of a node; a call that is read without an item stands for its first tensor."""
    if isinstance(value, tuple):
        return next(result for result in value if isinstance(result, np.ndarray))
    return value


def numbered(attrs: Any, sizes: Mapping[str, int]) -> Any:
    """`attrs` with every size expression replaced by its number. Raises Uninterpretable."""
    if not is_dataclass(attrs) or isinstance(attrs, type):
        return attrs
    changes = {
        field.name: _numbered(getattr(attrs, field.name), sizes)
        for field in fields(attrs)
        if _has_size(getattr(attrs, field.name))
    }
    return replace(attrs, **changes) if changes else attrs


def _numbered(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_numbered(item, sizes) for item in value)
    if not isinstance(value, Expr):
        return value
    try:
        return evaluate(value, sizes)
    except KeyError as error:
        raise Uninterpretable(f"no number for the size {error.args[0]}") from None


def _has_size(value: Any) -> bool:
    return any(isinstance(item, Expr) for item in _flat(value))


def _flat(value: Any) -> Iterator[Any]:
    if not isinstance(value, tuple):
        yield value
        return
    for item in value:
        yield from _flat(item)


def _compute_dtype(dtype: DType, precision: Precision) -> Any:
    if precision == "float64" and dtype.is_float:
        return np.float64
    return NUMPY_DTYPES[dtype.compute]


def _stored(value: Array, dtype: DType, precision: Precision, compute: bool = False) -> Array:
    """`value` converted to `dtype`, rounded there; `compute` keeps the type that kernels use."""
    if precision == "float64" and dtype.is_float:
        return np.asarray(value, dtype=np.float64)
    stored = cast_array(np.asarray(value), NUMPY_DTYPES[dtype])
    if dtype is DType.BF16:
        stored = round_to_bfloat16(stored)
    return stored.astype(NUMPY_DTYPES[dtype.compute]) if compute else stored
