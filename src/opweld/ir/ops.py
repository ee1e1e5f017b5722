"""What every operation means: one row per operation, and nothing about spelling or speed.

A row gives the kind, the number of operands, the class of its attributes, the type rule and the
meaning in NumPy. Pointwise operands broadcast by NumPy's rules and share one dtype; conversions are
explicit CAST nodes, so a row never promotes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import meaning
from .expr import Size, product
from .types import DType, ShapeMismatch, TensorType, broadcast


class Kind(enum.Enum):
    SOURCE = "source"
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    SCAN = "scan"
    VIEW = "view"
    OPAQUE = "opaque"


class Op(enum.Enum):
    """Every operation of the tensor graph; the value is its printed name."""

    # sources
    INPUT = "input"
    WEIGHT = "weight"
    CONST = "const"
    IOTA = "iota"
    # unary
    NEG = "neg"
    ABS = "abs"
    SIGN = "sign"
    RECIPROCAL = "reciprocal"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    EXP = "exp"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG2 = "log2"
    LOG10 = "log10"
    LOG1P = "log1p"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    ERFC = "erfc"
    SIGMOID = "sigmoid"
    RELU = "relu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SILU = "silu"
    MISH = "mish"
    SOFTSIGN = "softsign"
    HARDSIGMOID = "hardsigmoid"
    HARDSWISH = "hardswish"
    LOGSIGMOID = "logsigmoid"
    TANHSHRINK = "tanhshrink"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    TRUNC = "trunc"
    FRAC = "frac"
    ISNAN = "isnan"
    ISINF = "isinf"
    ISFINITE = "isfinite"
    SIGNBIT = "signbit"
    LOGICAL_NOT = "logical_not"
    BITWISE_NOT = "bitwise_not"
    NAN_TO_NUM = "nan_to_num"
    LEAKY_RELU = "leaky_relu"
    ELU = "elu"
    SOFTPLUS = "softplus"
    THRESHOLD = "threshold"
    HARDTANH = "hardtanh"
    SOFTSHRINK = "softshrink"
    HARDSHRINK = "hardshrink"
    CAST = "cast"
    # binary
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    DIV_FLOOR = "div_floor"
    DIV_TRUNC = "div_trunc"
    FMOD = "fmod"
    REMAINDER = "remainder"
    POW = "pow"
    ATAN2 = "atan2"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    FMAX = "fmax"
    FMIN = "fmin"
    CLAMP_MIN = "clamp_min"
    CLAMP_MAX = "clamp_max"
    HYPOT = "hypot"
    COPYSIGN = "copysign"
    LOGADDEXP = "logaddexp"
    XLOGY = "xlogy"
    HEAVISIDE = "heaviside"
    PRELU = "prelu"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    LOGICAL_AND = "logical_and"
    LOGICAL_OR = "logical_or"
    LOGICAL_XOR = "logical_xor"
    BITWISE_AND = "bitwise_and"
    BITWISE_OR = "bitwise_or"
    BITWISE_XOR = "bitwise_xor"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"
    # ternary
    WHERE = "where"
    LERP = "lerp"
    ADDCMUL = "addcmul"
    # reductions
    SUM = "sum"
    PROD = "prod"
    AMAX = "amax"
    AMIN = "amin"
    ANY = "any"
    ALL = "all"
    ARGMAX = "argmax"
    ARGMIN = "argmin"
    MEAN = "mean"
    SUMEXP = "sumexp"
    DEVSQ = "devsq"
    # scans
    CUMSUM = "cumsum"
    CUMPROD = "cumprod"
    CUMMAX = "cummax"
    CUMMIN = "cummin"
    CUMMAX_PLACE = "cummax_place"
    CUMMIN_PLACE = "cummin_place"
    LOGCUMSUMEXP = "logcumsumexp"
    # views and data movement
    PERMUTE = "permute"
    EXPAND = "expand"
    RESHAPE = "reshape"
    SLICE = "slice"
    FLIP = "flip"
    CAT = "cat"
    PAD = "pad"
    WINDOW = "window"
    PICK = "pick"
    # a PyTorch call that stays one, and one of its results
    CALL = "call"
    ITEM = "item"


# Attributes: small frozen values, named by the op's row.


@dataclass(frozen=True, slots=True)
class NoAttrs:
    def __str__(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class SourceAttrs:
    """`name` is an identifier for texts; `access` the Python expression in the forward that gives
    it.
    """

    name: str
    access: str

    def __str__(self) -> str:
        return self.access


@dataclass(frozen=True, slots=True)
class ConstAttrs:
    """A scalar. `value` may be a size expression (a dimension used as a number)."""

    value: float | int | bool | Size

    def __str__(self) -> str:
        return repr(self.value) if not hasattr(self.value, "terms") else str(self.value)


@dataclass(frozen=True, slots=True)
class IotaAttrs:
    """start + step * position, along the only axis."""

    start: int | float
    step: int | float
    length: Size

    def __str__(self) -> str:
        return f"start={self.start} step={self.step}"


@dataclass(frozen=True, slots=True)
class CastAttrs:
    dtype: DType

    def __str__(self) -> str:
        return self.dtype.value


@dataclass(frozen=True, slots=True)
class NanToNumAttrs:
    nan: float
    posinf: float
    neginf: float

    def __str__(self) -> str:
        return f"nan={self.nan} posinf={self.posinf} neginf={self.neginf}"


@dataclass(frozen=True, slots=True)
class SlopeAttrs:
    slope: float

    def __str__(self) -> str:
        return f"slope={self.slope}"


@dataclass(frozen=True, slots=True)
class EluAttrs:
    alpha: float
    scale: float
    input_scale: float

    def __str__(self) -> str:
        return f"alpha={self.alpha} scale={self.scale} input_scale={self.input_scale}"


@dataclass(frozen=True, slots=True)
class SoftplusAttrs:
    beta: float
    threshold: float

    def __str__(self) -> str:
        return f"beta={self.beta} threshold={self.threshold}"


@dataclass(frozen=True, slots=True)
class ThresholdAttrs:
    threshold: float
    value: float

    def __str__(self) -> str:
        return f"threshold={self.threshold} value={self.value}"


@dataclass(frozen=True, slots=True)
class BoundsAttrs:
    low: float
    high: float

    def __str__(self) -> str:
        return f"low={self.low} high={self.high}"


@dataclass(frozen=True, slots=True)
class LambdaAttrs:
    lambd: float

    def __str__(self) -> str:
        return f"lambd={self.lambd}"


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """The axes that are condensed, ascending; the result keeps them with size 1.

    `first` is for the gradient of AMAX and AMIN only: the first of equal extremes has it, where
    else they share it.
    """

    axes: tuple[int, ...]
    first: bool = False

    def __str__(self) -> str:
        return f"axes={list(self.axes)}{' first' if self.first else ''}"


@dataclass(frozen=True, slots=True)
class ScanAttrs:
    """Element k along `axis` is what elements 0 to k give, or, in reverse, those from k on. An
    exclusive one is without element k itself.
    """

    axis: int
    reverse: bool = False
    exclusive: bool = False

    def __str__(self) -> str:
        ways = f"{' reverse' if self.reverse else ''}{' exclusive' if self.exclusive else ''}"
        return f"axis={self.axis}{ways}"


@dataclass(frozen=True, slots=True)
class PermuteAttrs:
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"dims={list(self.dims)}"


@dataclass(frozen=True, slots=True)
class ShapeAttrs:
    shape: tuple[Size, ...]

    def __str__(self) -> str:
        return f"shape=[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class SliceAttrs:
    """`length` elements of axis `dim`, from `start`, `step` apart."""

    dim: int
    start: Size
    step: int
    length: Size

    def __str__(self) -> str:
        return f"dim={self.dim} start={self.start} step={self.step} length={self.length}"


@dataclass(frozen=True, slots=True)
class FlipAttrs:
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"dims={list(self.dims)}"


@dataclass(frozen=True, slots=True)
class CatAttrs:
    dim: int

    def __str__(self) -> str:
        return f"dim={self.dim}"


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """Constant padding: per axis the number of elements before and after (not negative)."""

    before: tuple[Size, ...]
    after: tuple[Size, ...]
    value: float | int | bool

    def __str__(self) -> str:
        return f"before={list(self.before)} after={list(self.after)} value={self.value}"


@dataclass(frozen=True, slots=True)
class WindowAttrs:
    """Axis `dim` as two axes, (count, width): element (i, k) is that at i * step + k * dilation."""

    dim: int
    count: Size
    step: int
    width: int
    dilation: int = 1

    def __str__(self) -> str:
        dilated = f" dilation={self.dilation}" if self.dilation != 1 else ""
        return f"dim={self.dim} count={self.count} step={self.step} width={self.width}{dilated}"


@dataclass(frozen=True, slots=True)
class PickAttrs:
    """Along axis `dim` the element whose number the index holds.

    A number below 0 counts from the end where it `wraps`, else it is out of range as one beyond the
    end is. Where the index holds `ignored`, the first element is as good as any. The gradient of
    row `padding` of what is read is zero.
    """

    dim: int
    wraps: bool = False
    ignored: int | None = None
    padding: int | None = None

    def __str__(self) -> str:
        told = [f"{name}={getattr(self, name)}" for name in ("ignored", "padding")]
        named = [text for text in told if not text.endswith("None")]
        return " ".join([f"dim={self.dim}", *(["wraps"] if self.wraps else []), *named])


@dataclass(frozen=True, slots=True)
class Operand:
    """The place of node input `index` in the arguments of a PyTorch call."""

    index: int

    def __str__(self) -> str:
        return f"%{self.index}"


@dataclass(frozen=True, slots=True)
class CallAttrs:
    """A PyTorch call left as it is.

    `target` is the operator's full name ("aten.linear.default"). `arguments` and `keywords` hold
    Operand, numbers, strings, None, size expressions, `TorchLiteral` and nested tuples of them.
    `results` has the type of each result, None for one that is not a tensor; `reason` says in a
    sentence why the operation is not welded. With `draws` it takes random numbers, in the
    program's order. Gradients of a product `summed_in_parts` are as exact as those of PyTorch's
    attention.
    """

    target: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    results: tuple[TensorType | None, ...]
    reason: str
    draws: bool = False
    summed_in_parts: bool = False

    def __str__(self) -> str:
        return self.target


@dataclass(frozen=True, slots=True)
class TorchLiteral:
    """A torch value that prints as Python text: `torch.float32`, `torch.contiguous_format`."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ItemAttrs:
    index: int

    def __str__(self) -> str:
        return f"index={self.index}"


NO_ATTRS = NoAttrs()

INDEX_DTYPES = (DType.U8, DType.I32, DType.I64)

Infer = Callable[[tuple[TensorType, ...], Any], TensorType]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row. `arity` is -1 for any number; `evaluate(arrays, attrs)` is the meaning in NumPy."""

    kind: Kind
    arity: int
    attrs: type
    infer: Infer
    evaluate: Callable[..., np.ndarray] | None
    commutative: bool = False


class TypeRule(ValueError):
    """Operands that an operation does not take."""


def _same(types: tuple[TensorType, ...], _: Any) -> TensorType:
    return TensorType(_one_dtype(types), broadcast(tuple(t.shape for t in types)))


def _predicate(types: tuple[TensorType, ...], _: Any) -> TensorType:
    _one_dtype(types)
    return TensorType(DType.BOOL, broadcast(tuple(t.shape for t in types)))


def _where(types: tuple[TensorType, ...], _: Any) -> TensorType:
    if types[0].dtype is not DType.BOOL:
        raise TypeRule(f"the condition is {types[0].dtype.value}, not bool")
    return TensorType(_one_dtype(types[1:]), broadcast(tuple(t.shape for t in types)))


def _one_dtype(types: tuple[TensorType, ...]) -> DType:
    dtypes = {t.dtype for t in types}
    if len(dtypes) != 1:
        raise TypeRule(f"operands differ in dtype: {', '.join(t.dtype.value for t in types)}")
    return types[0].dtype


def _cast(types: tuple[TensorType, ...], attrs: CastAttrs) -> TensorType:
    return TensorType(attrs.dtype, types[0].shape)


def _reduce(types: tuple[TensorType, ...], attrs: ReduceAttrs) -> TensorType:
    (operand,) = types
    if not attrs.axes or list(attrs.axes) != sorted(set(attrs.axes) & set(range(operand.rank))):
        raise TypeRule(f"axes {attrs.axes} are no axes of rank {operand.rank}, in order")
    shape = tuple(1 if axis in attrs.axes else size for axis, size in enumerate(operand.shape))
    return TensorType(operand.dtype, shape)


def _moment(types: tuple[TensorType, ...], attrs: ReduceAttrs) -> TensorType:
    if not types[0].dtype.is_float:
        raise TypeRule(f"the operand is {types[0].dtype.value}, not a float")
    return _reduce(types, attrs)


def _place(types: tuple[TensorType, ...], attrs: ReduceAttrs) -> TensorType:
    return TensorType(DType.I64, _reduce(types, attrs).shape)


def _truth(types: tuple[TensorType, ...], attrs: ReduceAttrs) -> TensorType:
    if types[0].dtype is not DType.BOOL:
        raise TypeRule(f"the operand is {types[0].dtype.value}, not bool")
    return _reduce(types, attrs)


def _scan(types: tuple[TensorType, ...], attrs: ScanAttrs) -> TensorType:
    if not 0 <= attrs.axis < types[0].rank:
        raise TypeRule(f"axis {attrs.axis} is no axis of rank {types[0].rank}")
    return types[0]


def _scan_of_some(types: tuple[TensorType, ...], attrs: ScanAttrs) -> TensorType:
    if attrs.exclusive:
        raise TypeRule("the scan of no elements has no value")
    return _scan(types, attrs)


def _scan_of_floats(types: tuple[TensorType, ...], attrs: ScanAttrs) -> TensorType:
    if not types[0].dtype.is_float:
        raise TypeRule(f"the operand is {types[0].dtype.value}, not a float")
    return _scan_of_some(types, attrs)


def _scanned_place(types: tuple[TensorType, ...], attrs: ScanAttrs) -> TensorType:
    if attrs.reverse:
        raise TypeRule("places are counted as they are scanned")
    return TensorType(DType.I64, _scan_of_some(types, attrs).shape)


def _permute(types: tuple[TensorType, ...], attrs: PermuteAttrs) -> TensorType:
    if sorted(attrs.dims) != list(range(types[0].rank)):
        raise TypeRule(f"dims {attrs.dims} do not permute rank {types[0].rank}")
    return TensorType(types[0].dtype, tuple(types[0].shape[d] for d in attrs.dims))


def _expand(types: tuple[TensorType, ...], attrs: ShapeAttrs) -> TensorType:
    if broadcast((types[0].shape, attrs.shape)) != attrs.shape:
        raise ShapeMismatch(f"{types[0]} does not expand to {attrs}")
    return TensorType(types[0].dtype, attrs.shape)


def _reshape(types: tuple[TensorType, ...], attrs: ShapeAttrs) -> TensorType:
    if product(attrs.shape) != types[0].num_elems:
        raise ShapeMismatch(f"{types[0]} does not reshape to {attrs}")
    return TensorType(types[0].dtype, attrs.shape)


def _slice(types: tuple[TensorType, ...], attrs: SliceAttrs) -> TensorType:
    shape = list(types[0].shape)
    shape[attrs.dim] = attrs.length
    return TensorType(types[0].dtype, tuple(shape))


def _cat(types: tuple[TensorType, ...], attrs: CatAttrs) -> TensorType:
    shape = list(types[0].shape)
    shape[attrs.dim] = sum((t.shape[attrs.dim] for t in types[1:]), start=shape[attrs.dim])
    return TensorType(_one_dtype(types), tuple(shape))


def _pad(types: tuple[TensorType, ...], attrs: PadAttrs) -> TensorType:
    sizes = zip(types[0].shape, attrs.before, attrs.after, strict=True)
    return TensorType(types[0].dtype, tuple(size + a + b for size, a, b in sizes))


def _window(types: tuple[TensorType, ...], attrs: WindowAttrs) -> TensorType:
    shape = types[0].shape
    parted = (*shape[: attrs.dim], attrs.count, attrs.width, *shape[attrs.dim + 1 :])
    return TensorType(types[0].dtype, parted)


def _pick(types: tuple[TensorType, ...], attrs: PickAttrs) -> TensorType:
    source, index = types
    if index.dtype not in INDEX_DTYPES:
        raise TypeRule(f"the index is {index.dtype.value}")
    if source.rank != index.rank or not 0 <= attrs.dim < source.rank:
        raise TypeRule(f"axis {attrs.dim} of ranks {source.rank} and {index.rank}")
    along = list(source.shape)
    along[attrs.dim] = index.shape[attrs.dim]
    return TensorType(source.dtype, broadcast((tuple(along), index.shape)))


def _item(types: tuple[TensorType, ...], attrs: ItemAttrs) -> TensorType:
    return types[0]


def _source(types: tuple[TensorType, ...], attrs: Any) -> TensorType:
    raise TypeRule("the type of a source is given, not inferred")


def _unary(evaluate: Callable[..., np.ndarray], attrs: type = NoAttrs) -> OpSpec:
    return OpSpec(Kind.POINTWISE, 1, attrs, _same, evaluate)


def _binary(evaluate: Callable[..., np.ndarray], commutative: bool = False) -> OpSpec:
    return OpSpec(Kind.POINTWISE, 2, NoAttrs, _same, evaluate, commutative)


def _test(arity: int, evaluate: Callable[..., np.ndarray], commutative: bool = False) -> OpSpec:
    return OpSpec(Kind.POINTWISE, arity, NoAttrs, _predicate, evaluate, commutative)


def _reduction(evaluate: Callable[..., np.ndarray], infer: Infer = _reduce) -> OpSpec:
    return OpSpec(Kind.REDUCTION, 1, ReduceAttrs, infer, evaluate)


def _scanning(evaluate: Callable[..., np.ndarray], infer: Infer = _scan) -> OpSpec:
    return OpSpec(Kind.SCAN, 1, ScanAttrs, infer, evaluate)


def _view(attrs: type, infer: Infer, evaluate: Callable[..., np.ndarray], arity: int = 1) -> OpSpec:
    return OpSpec(Kind.VIEW, arity, attrs, infer, evaluate)


OPS: dict[Op, OpSpec] = {
    Op.INPUT: OpSpec(Kind.SOURCE, 0, SourceAttrs, _source, None),
    Op.WEIGHT: OpSpec(Kind.SOURCE, 0, SourceAttrs, _source, None),
    Op.CONST: OpSpec(Kind.SOURCE, 0, ConstAttrs, _source, None),
    Op.IOTA: OpSpec(Kind.SOURCE, 0, IotaAttrs, _source, None),
    Op.NEG: _unary(np.negative),
    Op.ABS: _unary(np.abs),
    Op.SIGN: _unary(meaning.sign),
    Op.RECIPROCAL: _unary(meaning.reciprocal),
    Op.SQRT: _unary(np.sqrt),
    Op.RSQRT: _unary(meaning.rsqrt),
    Op.EXP: _unary(np.exp),
    Op.EXP2: _unary(np.exp2),
    Op.EXPM1: _unary(np.expm1),
    Op.LOG: _unary(np.log),
    Op.LOG2: _unary(np.log2),
    Op.LOG10: _unary(np.log10),
    Op.LOG1P: _unary(np.log1p),
    Op.SIN: _unary(np.sin),
    Op.COS: _unary(np.cos),
    Op.TAN: _unary(np.tan),
    Op.ASIN: _unary(np.arcsin),
    Op.ACOS: _unary(np.arccos),
    Op.ATAN: _unary(np.arctan),
    Op.SINH: _unary(np.sinh),
    Op.COSH: _unary(np.cosh),
    Op.TANH: _unary(np.tanh),
    Op.ASINH: _unary(np.arcsinh),
    Op.ACOSH: _unary(np.arccosh),
    Op.ATANH: _unary(np.arctanh),
    Op.ERF: _unary(meaning.erf),
    Op.ERFC: _unary(meaning.erfc),
    Op.SIGMOID: _unary(meaning.sigmoid),
    Op.RELU: _unary(meaning.relu),
    Op.GELU: _unary(meaning.gelu),
    Op.GELU_TANH: _unary(meaning.gelu_tanh),
    Op.SILU: _unary(meaning.silu),
    Op.MISH: _unary(meaning.mish),
    Op.SOFTSIGN: _unary(meaning.softsign),
    Op.HARDSIGMOID: _unary(meaning.hardsigmoid),
    Op.HARDSWISH: _unary(meaning.hardswish),
    Op.LOGSIGMOID: _unary(meaning.logsigmoid),
    Op.TANHSHRINK: _unary(meaning.tanhshrink),
    Op.FLOOR: _unary(np.floor),
    Op.CEIL: _unary(np.ceil),
    Op.ROUND: _unary(meaning.round_half_even),
    Op.TRUNC: _unary(np.trunc),
    Op.FRAC: _unary(meaning.frac),
    Op.ISNAN: _test(1, np.isnan),
    Op.ISINF: _test(1, np.isinf),
    Op.ISFINITE: _test(1, np.isfinite),
    Op.SIGNBIT: _test(1, np.signbit),
    Op.LOGICAL_NOT: _test(1, np.logical_not),
    Op.BITWISE_NOT: _unary(np.invert),
    Op.NAN_TO_NUM: _unary(meaning.nan_to_num, NanToNumAttrs),
    Op.LEAKY_RELU: _unary(meaning.leaky_relu, SlopeAttrs),
    Op.ELU: _unary(meaning.elu, EluAttrs),
    Op.SOFTPLUS: _unary(meaning.softplus, SoftplusAttrs),
    Op.THRESHOLD: _unary(meaning.threshold, ThresholdAttrs),
    # Unlike two clamps it has gradient 0 at its bounds.
    Op.HARDTANH: _unary(meaning.hardtanh, BoundsAttrs),
    Op.SOFTSHRINK: _unary(meaning.softshrink, LambdaAttrs),
    Op.HARDSHRINK: _unary(meaning.hardshrink, LambdaAttrs),
    Op.CAST: OpSpec(Kind.POINTWISE, 1, CastAttrs, _cast, meaning.cast),
    Op.ADD: _binary(np.add, commutative=True),
    Op.SUB: _binary(np.subtract),
    Op.MUL: _binary(np.multiply, commutative=True),
    Op.DIV: _binary(np.true_divide),
    Op.DIV_FLOOR: _binary(meaning.div_floor),
    Op.DIV_TRUNC: _binary(meaning.div_trunc),
    Op.FMOD: _binary(np.fmod),
    Op.REMAINDER: _binary(np.remainder),
    Op.POW: _binary(meaning.power),
    Op.ATAN2: _binary(np.arctan2),
    Op.MAXIMUM: _binary(meaning.clamp_min, commutative=True),
    Op.MINIMUM: _binary(meaning.clamp_max, commutative=True),
    Op.FMAX: _binary(np.fmax, commutative=True),
    Op.FMIN: _binary(np.fmin, commutative=True),
    Op.CLAMP_MIN: _binary(meaning.clamp_min),
    Op.CLAMP_MAX: _binary(meaning.clamp_max),
    Op.HYPOT: _binary(np.hypot, commutative=True),
    Op.COPYSIGN: _binary(np.copysign),
    Op.LOGADDEXP: _binary(np.logaddexp, commutative=True),
    Op.XLOGY: _binary(meaning.xlogy),
    Op.HEAVISIDE: _binary(meaning.heaviside),
    Op.PRELU: _binary(meaning.prelu),
    Op.EQ: _test(2, np.equal, commutative=True),
    Op.NE: _test(2, np.not_equal, commutative=True),
    Op.LT: _test(2, np.less),
    Op.LE: _test(2, np.less_equal),
    Op.GT: _test(2, np.greater),
    Op.GE: _test(2, np.greater_equal),
    Op.LOGICAL_AND: _test(2, np.logical_and, commutative=True),
    Op.LOGICAL_OR: _test(2, np.logical_or, commutative=True),
    Op.LOGICAL_XOR: _test(2, np.logical_xor, commutative=True),
    Op.BITWISE_AND: _binary(np.bitwise_and, commutative=True),
    Op.BITWISE_OR: _binary(np.bitwise_or, commutative=True),
    Op.BITWISE_XOR: _binary(np.bitwise_xor, commutative=True),
    Op.SHIFT_LEFT: _binary(meaning.shift_left),
    Op.SHIFT_RIGHT: _binary(meaning.shift_right),
    Op.WHERE: OpSpec(Kind.POINTWISE, 3, NoAttrs, _where, np.where),
    Op.LERP: OpSpec(Kind.POINTWISE, 3, NoAttrs, _same, meaning.lerp),
    Op.ADDCMUL: OpSpec(Kind.POINTWISE, 3, NoAttrs, _same, meaning.addcmul),
    Op.SUM: _reduction(meaning.sum_of),
    Op.PROD: _reduction(meaning.product_of),
    # A NaN is the largest and the smallest, and the first place of several counts.
    Op.AMAX: _reduction(meaning.largest),
    Op.AMIN: _reduction(meaning.smallest),
    Op.ANY: _reduction(meaning.any_of, _truth),
    Op.ALL: _reduction(meaning.all_of, _truth),
    # The row-major position among the elements of the axes.
    Op.ARGMAX: _reduction(meaning.place_of_largest, _place),
    Op.ARGMIN: _reduction(meaning.place_of_smallest, _place),
    # The mean, rounded once; the sum of exp(x - largest), that of squared differences to the mean.
    Op.MEAN: _reduction(meaning.mean_of, _moment),
    Op.SUMEXP: _reduction(meaning.sum_of_powers, _moment),
    Op.DEVSQ: _reduction(meaning.sum_of_squared_deviations, _moment),
    Op.CUMSUM: _scanning(meaning.cumulative_sum),
    Op.CUMPROD: _scanning(meaning.cumulative_product),
    # Once met, NaN stays; of equal extremes the last one, and the last NaN, has the place.
    Op.CUMMAX: _scanning(meaning.largest_so_far, _scan_of_some),
    Op.CUMMIN: _scanning(meaning.smallest_so_far, _scan_of_some),
    Op.CUMMAX_PLACE: _scanning(meaning.place_of_largest_so_far, _scanned_place),
    Op.CUMMIN_PLACE: _scanning(meaning.place_of_smallest_so_far, _scanned_place),
    Op.LOGCUMSUMEXP: _scanning(meaning.log_of_cumulative_powers, _scan_of_floats),
    Op.PERMUTE: _view(PermuteAttrs, _permute, meaning.permute),
    Op.EXPAND: _view(ShapeAttrs, _expand, meaning.expand),
    Op.RESHAPE: _view(ShapeAttrs, _reshape, meaning.reshape),
    Op.SLICE: _view(SliceAttrs, _slice, meaning.slice_axis),
    Op.FLIP: _view(FlipAttrs, lambda types, _: types[0], meaning.flip),
    Op.CAT: _view(CatAttrs, _cat, meaning.cat, arity=-1),
    Op.PAD: _view(PadAttrs, _pad, meaning.pad),
    Op.WINDOW: _view(WindowAttrs, _window, meaning.window),
    # (source, index): they broadcast, but along the axis.
    Op.PICK: _view(PickAttrs, _pick, meaning.pick, arity=2),
    Op.CALL: OpSpec(Kind.OPAQUE, -1, CallAttrs, _source, None),
    Op.ITEM: OpSpec(Kind.OPAQUE, 1, ItemAttrs, _item, None),
}
