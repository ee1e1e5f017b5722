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

from . import infer
from .attrs import (
    BoundsAttrs,
    CallAttrs,
    CastAttrs,
    CatAttrs,
    ConstAttrs,
    EluAttrs,
    FlipAttrs,
    GatherAttrs,
    IotaAttrs,
    ItemAttrs,
    LambdaAttrs,
    NanToNumAttrs,
    NoAttrs,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ScanAttrs,
    ShapeAttrs,
    SliceAttrs,
    SlopeAttrs,
    SoftplusAttrs,
    SourceAttrs,
    ThresholdAttrs,
    WindowAttrs,
)
from .numpy import meaning
from .types import TensorType


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
    GATHER = "pick"
    # a PyTorch call that stays one, and one of its results
    CALL = "call"
    ITEM = "item"


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


def _unary(evaluate: Callable[..., np.ndarray], attrs: type = NoAttrs) -> OpSpec:
    return OpSpec(Kind.POINTWISE, 1, attrs, infer.same, evaluate)


def _binary(evaluate: Callable[..., np.ndarray], commutative: bool = False) -> OpSpec:
    return OpSpec(Kind.POINTWISE, 2, NoAttrs, infer.same, evaluate, commutative)


def _test(arity: int, evaluate: Callable[..., np.ndarray], commutative: bool = False) -> OpSpec:
    return OpSpec(Kind.POINTWISE, arity, NoAttrs, infer.predicate, evaluate, commutative)


def _reduction(evaluate: Callable[..., np.ndarray], rule: Infer = infer.reduce) -> OpSpec:
    return OpSpec(Kind.REDUCTION, 1, ReduceAttrs, rule, evaluate)


def _scanning(evaluate: Callable[..., np.ndarray], rule: Infer = infer.scan) -> OpSpec:
    return OpSpec(Kind.SCAN, 1, ScanAttrs, rule, evaluate)


def _view(attrs: type, rule: Infer, evaluate: Callable[..., np.ndarray], arity: int = 1) -> OpSpec:
    return OpSpec(Kind.VIEW, arity, attrs, rule, evaluate)


OPS: dict[Op, OpSpec] = {
    Op.INPUT: OpSpec(Kind.SOURCE, 0, SourceAttrs, infer.source, None),
    Op.WEIGHT: OpSpec(Kind.SOURCE, 0, SourceAttrs, infer.source, None),
    Op.CONST: OpSpec(Kind.SOURCE, 0, ConstAttrs, infer.source, None),
    Op.IOTA: OpSpec(Kind.SOURCE, 0, IotaAttrs, infer.source, None),
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
    Op.CAST: OpSpec(Kind.POINTWISE, 1, CastAttrs, infer.cast, meaning.cast),
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
    Op.WHERE: OpSpec(Kind.POINTWISE, 3, NoAttrs, infer.where, np.where),
    Op.LERP: OpSpec(Kind.POINTWISE, 3, NoAttrs, infer.same, meaning.lerp),
    Op.ADDCMUL: OpSpec(Kind.POINTWISE, 3, NoAttrs, infer.same, meaning.addcmul),
    Op.SUM: _reduction(meaning.sum_of),
    Op.PROD: _reduction(meaning.product_of),
    # A NaN is the largest and the smallest, and the first place of several counts.
    Op.AMAX: _reduction(meaning.largest),
    Op.AMIN: _reduction(meaning.smallest),
    Op.ANY: _reduction(meaning.any_of, infer.truth),
    Op.ALL: _reduction(meaning.all_of, infer.truth),
    # The row-major position among the elements of the axes.
    Op.ARGMAX: _reduction(meaning.place_of_largest, infer.place),
    Op.ARGMIN: _reduction(meaning.place_of_smallest, infer.place),
    # The mean, rounded once; the sum of exp(x - largest), that of squared differences to the mean.
    Op.MEAN: _reduction(meaning.mean_of, infer.moment),
    Op.SUMEXP: _reduction(meaning.sum_of_powers, infer.moment),
    Op.DEVSQ: _reduction(meaning.sum_of_squared_deviations, infer.moment),
    Op.CUMSUM: _scanning(meaning.cumulative_sum),
    Op.CUMPROD: _scanning(meaning.cumulative_product),
    # Once met, NaN stays; of equal extremes the last one, and the last NaN, has the place.
    Op.CUMMAX: _scanning(meaning.largest_so_far, infer.scan_of_some),
    Op.CUMMIN: _scanning(meaning.smallest_so_far, infer.scan_of_some),
    Op.CUMMAX_PLACE: _scanning(meaning.place_of_largest_so_far, infer.scanned_place),
    Op.CUMMIN_PLACE: _scanning(meaning.place_of_smallest_so_far, infer.scanned_place),
    Op.LOGCUMSUMEXP: _scanning(meaning.log_of_cumulative_powers, infer.scan_of_floats),
    Op.PERMUTE: _view(PermuteAttrs, infer.permute, meaning.permute),
    Op.EXPAND: _view(ShapeAttrs, infer.expand, meaning.expand),
    Op.RESHAPE: _view(ShapeAttrs, infer.reshape, meaning.reshape),
    Op.SLICE: _view(SliceAttrs, infer.slice, meaning.slice_axis),
    Op.FLIP: _view(FlipAttrs, lambda types, _: types[0], meaning.flip),
    Op.CAT: _view(CatAttrs, infer.cat, meaning.cat, arity=-1),
    Op.PAD: _view(PadAttrs, infer.pad, meaning.pad),
    Op.WINDOW: _view(WindowAttrs, infer.window, meaning.window),
    # (source, index): they broadcast, but along the axis.
    Op.GATHER: _view(GatherAttrs, infer.pick, meaning.pick, arity=2),
    Op.CALL: OpSpec(Kind.OPAQUE, -1, CallAttrs, infer.source, None),
    Op.ITEM: OpSpec(Kind.OPAQUE, 1, ItemAttrs, infer.item, None),
}
