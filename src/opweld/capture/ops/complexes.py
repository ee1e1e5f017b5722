"""Complex tensors as pairs of real ones: one row per operator that kernels can take apart.

Kernels know no complex numbers. What is left to PyTorch gets a complex tensor: the one that the
parts were taken from, or one that is packed for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from opweld.ir.attrs import CallAttrs, Operand
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

from ..build import Builder
from ..call import Call, Lower, NotFused, ReadArguments
from .creation import CREATION
from .gathers import GATHERS
from .pointwise import POINTWISE
from .reductions import REDUCTIONS
from .views import VIEWS

# The complex types, and the type of their parts.
PARTS = {DType.C64: DType.F32, DType.C128: DType.F64}
_COMPLEX = {part: whole for whole, part in PARTS.items()}


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex tensor by its parts, of one type and shape."""

    real: Node
    imag: Node

    @property
    def type(self) -> TensorType:
        part = self.real.type
        assert part == self.imag.type
        return TensorType(_COMPLEX[part.dtype], part.shape)


Result = Node | Complex | tuple[Node | Complex, ...]
ComplexLower = Callable[[Call], Result]


def is_complex(value: Any) -> bool:
    """Whether a value, or one in a list of them, is a complex number or tensor."""
    if isinstance(value, tuple | list):
        return any(map(is_complex, value))
    if isinstance(value, torch.Tensor):
        return value.dtype.is_complex
    return isinstance(value, Complex | complex)


@dataclass(slots=True)
class Wholes:
    """The complex tensors in PyTorch's own form, by the serials of their parts.

    `views` has those that are a view of such a tensor, made when they are asked for; `packed` those
    that were made of their parts, row by row.
    """

    build: Builder
    known: dict[tuple[int, int], Node] = field(default_factory=dict)
    views: dict[tuple[int, int], Callable[[], Node]] = field(default_factory=dict)
    packed: dict[tuple[int, int], Node] = field(default_factory=dict)

    def parts(self, whole: Node) -> Complex:
        """A complex node by its parts, which are views of it. What a call gives may be conjugated
        when it is read; a source is none, as the guards see.
        """
        straight = whole
        if whole.op in (Op.CALL, Op.ITEM):
            reason = "one that is conjugated when it is read cannot be seen as pairs"
            straight = self._call("aten.resolve_conj.default", whole, whole.type, reason)
        type = TensorType(PARTS[whole.type.dtype], (*whole.type.shape, 2))
        reason = "complex elements, seen as pairs"
        pairs = self._call("aten.view_as_real.default", straight, type, reason)
        parts = _taken(self.build, pairs)
        self.known[_key(parts)] = whole
        return parts

    def whole(self, value: Complex) -> Node:
        """The complex node of two parts: an operand of the library's."""
        key = _key(value)
        if key in self.views and key not in self.known:
            self.known[key] = self.views[key]()
        if key in self.known:
            return self.known[key]
        if key not in self.packed:
            self.packed[key] = self._packed(value)
        return self.packed[key]

    def is_view(self, value: Complex, make: Callable[[], Node]) -> None:
        """What is a view of a whole: `make` gives it."""
        self.views.setdefault(_key(value), make)

    def exists(self, value: Complex) -> bool:
        """Whether the whole costs no pass over memory."""
        return _key(value) in self.known or _key(value) in self.views

    def _packed(self, value: Complex) -> Node:
        reason = "pairs, seen as complex elements"
        pairs = paired(self.build, value)
        rows = self._call("aten.contiguous.default", pairs, pairs.type, reason)
        return self._call("aten.view_as_complex.default", rows, value.type, reason)

    def _call(self, target: str, operand: Node, type: TensorType, reason: str) -> Node:
        attrs = CallAttrs(target, (Operand(0),), (), (type,), reason)
        return self.build.arena.call((operand,), attrs)


def _key(value: Complex) -> tuple[int, int]:
    return value.real.serial, value.imag.serial


def paired(build: Builder, value: Complex) -> Node:
    """The real tensor whose new last axis has the real and the imaginary part."""
    pairs = _root(value.real)
    if pairs.type.shape == (*value.real.type.shape, 2) and value == _taken(build, pairs):
        return pairs
    shape = (*value.real.type.shape, 1)
    parts = [build.reshape(part, shape) for part in (value.real, value.imag)]
    return build.cat(parts, len(shape) - 1)


def _root(part: Node) -> Node:
    """What a part was taken from, if it was."""
    sliced = part.inputs[0] if part.op is Op.RESHAPE else part
    return sliced.inputs[0] if sliced.op is Op.SLICE else sliced


def _taken(build: Builder, pairs: Node) -> Complex:
    """The parts that lie along the last axis."""
    last = pairs.type.rank - 1
    parts = [build.slice(pairs, last, index, 1) for index in (0, 1)]
    return Complex(*(build.reshape(part, pairs.type.shape[:-1]) for part in parts))


# --- operands ---


def _part_dtype(call: Call) -> DType:
    return PARTS[call.dtype]


def _operand(call: Call, name: str) -> Complex:
    """An argument as eager promotes it: what is real has an imaginary part of 0."""
    dtype = _part_dtype(call)
    value = call.values[name]
    if isinstance(value, Complex):
        return Complex(call.build.cast(value.real, dtype), call.build.cast(value.imag, dtype))
    if isinstance(value, complex):
        return Complex(call.const(value.real, dtype), call.const(value.imag, dtype))
    return Complex(call.operand(name, dtype), call.const(0.0, dtype))


def _result(call: Call, real: Node, imag: Node) -> Complex:
    """Parts of the result's shape: a constant beside a tensor has none of its own."""
    return Complex(call.build.expand(real, call.shape), call.build.expand(imag, call.shape))


# --- arithmetic ---


def _product(call: Call, x: Complex, y: Complex) -> Complex:
    """By the definition, as c10::complex multiplies: infinities may become NaN as they do there."""

    def mul(a: Node, b: Node) -> Node:
        return call.make(Op.MUL, a, b)

    real = call.make(Op.SUB, mul(x.real, y.real), mul(x.imag, y.imag))
    imag = call.make(Op.ADD, mul(x.real, y.imag), mul(x.imag, y.real))
    return Complex(real, imag)


def _mul(call: Call) -> Complex:
    made = _product(call, _operand(call, "self"), _operand(call, "other"))
    return _result(call, made.real, made.imag)


def _sum_of(op: Op, first: str = "self", second: str = "other") -> ComplexLower:
    """first + alpha * second, or the difference."""

    def lower(call: Call) -> Complex:
        x, y = _operand(call, first), _operand(call, second)
        if not call.is_number("alpha") or call.number("alpha") != 1:
            y = _product(call, _operand(call, "alpha"), y)
        return _result(call, call.make(op, x.real, y.real), call.make(op, x.imag, y.imag))

    return lower


def _div(call: Call) -> Complex:
    """By a real number c, as by c + 0i: an infinite part makes the other one NaN."""
    if is_complex(call.values["other"]) or call.values.get("rounding_mode") is not None:
        raise NotFused("a division by complex numbers is left to the library")
    x, divisor = _operand(call, "self"), _operand(call, "other").real
    zero = call.const(0.0, _part_dtype(call))
    real = call.make(Op.ADD, x.real, call.make(Op.MUL, x.imag, zero))
    imag = call.make(Op.SUB, x.imag, call.make(Op.MUL, x.real, zero))
    return _result(call, call.make(Op.DIV, real, divisor), call.make(Op.DIV, imag, divisor))


def _conj(call: Call) -> Complex:
    x = _operand(call, "self")
    return Complex(x.real, call.make(Op.NEG, x.imag))


# --- between real and complex ---


def _as_it_is(call: Call) -> Result:
    value = call.values["self"]
    assert isinstance(value, Node | Complex)
    return value


def _of_parts(call: Call) -> Complex:
    dtype = _part_dtype(call)
    return _result(call, call.operand("real", dtype), call.operand("imag", dtype))


def _polar(call: Call) -> Complex:
    """Of a known length that is not negative: PyTorch's gradient of a negative one has its sign
    turned.
    """
    known = call.node("abs")
    while known.op is Op.EXPAND:
        known = known.inputs[0]
    if known.op is not Op.CONST or not known.attrs.value >= 0:
        raise NotFused("the gradient of a length is the library's")
    dtype = _part_dtype(call)
    length, angle = call.operand("abs", dtype), call.operand("angle", dtype)
    real = call.make(Op.MUL, length, call.make(Op.COS, angle))
    return _result(call, real, call.make(Op.MUL, length, call.make(Op.SIN, angle)))


def _from_pairs(call: Call) -> Complex:
    return _taken(call.build, call.node("self"))


def _given(call: Call) -> Complex:
    value = call.values["self"]
    if not isinstance(value, Complex):
        raise NotFused(f"the argument self of {call.name} is not complex")
    return value


def _to_pairs(call: Call) -> Node:
    return paired(call.build, _given(call))


# --- part by part ---


def _by_parts(row: Lower, kept: tuple[str, ...] = ()) -> ComplexLower:
    """The row for real tensors, on the real parts and on the imaginary ones; the arguments `kept`
    are the same for both.
    """

    def lower(call: Call) -> Result:
        parts = [_part(call, which, kept) for which in ("real", "imag")]
        real, imag = map(row, parts)
        for name in parts[0].values.names:  # type: ignore[attr-defined]
            call.values.get(name)
        if isinstance(real, tuple) and isinstance(imag, tuple):
            return tuple(map(Complex, real, imag))
        assert isinstance(real, Node) and isinstance(imag, Node)
        return Complex(real, imag)

    return lower


def _part(call: Call, which: str, kept: tuple[str, ...]) -> Call:
    def part(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [part(each) for each in value]
        if isinstance(value, Complex):
            return getattr(value, which)
        if isinstance(value, Node) and which == "imag":
            return call.build.expand(call.const(0, value.type.dtype), value.type.shape)
        return value

    values = {n: v if n in kept else part(v) for n, v in call.values.items()}
    fakes = {n: v if n in kept else _real(v) for n, v in call.fakes.items()}
    return replace(call, values=ReadArguments(values), fakes=fakes, fake=_real(call.fake))


def _real(fake: Any) -> Any:
    if isinstance(fake, tuple | list):
        return [_real(each) for each in fake]
    return fake.real if isinstance(fake, torch.Tensor) and fake.dtype.is_complex else fake


def _padded(row: Lower) -> ComplexLower:
    def lower(call: Call) -> Result:
        if call.values.get("value") not in (None, 0):
            raise NotFused("padding by a number other than 0 is left to the library")
        return _by_parts(row)(call)

    return lower


_COPIES = ("alias", "lift_fresh", "lift_fresh_copy", "clone", "contiguous", "_to_copy")
_ZEROS = ("zeros", "zeros_like", "new_zeros")

COMPLEX: dict[str, ComplexLower] = {
    **{name: _by_parts(row) for name, row in VIEWS.items()},
    **{name: _padded(VIEWS[name]) for name in ("constant_pad_nd", "pad")},
    **{name: _by_parts(POINTWISE[name]) for name in ("neg", "negative", *_COPIES)},
    **{name: _by_parts(CREATION[name]) for name in _ZEROS},
    **{name: _by_parts(REDUCTIONS[name]) for name in ("sum", "mean")},
    "where": _by_parts(POINTWISE["where"], kept=("condition",)),
    "index_select": _by_parts(GATHERS["index_select"], kept=("index",)),
    "gather": _by_parts(GATHERS["gather"], kept=("index",)),
    "add": _sum_of(Op.ADD),
    "sub": _sum_of(Op.SUB),
    "subtract": _sum_of(Op.SUB),
    "rsub": _sum_of(Op.SUB, "other", "self"),
    "mul": _mul,
    "multiply": _mul,
    "div": _div,
    "divide": _div,
    "true_divide": _div,
    "conj": _conj,
    "_conj": _conj,
    "conj_physical": _conj,
    "_conj_physical": _conj,
    "resolve_conj": _as_it_is,
    "resolve_neg": _as_it_is,
    "complex": _of_parts,
    "polar": _polar,
    "view_as_complex": _from_pairs,
    "view_as_real": _to_pairs,
    "real": lambda call: _given(call).real,
    "imag": lambda call: _given(call).imag,
}
