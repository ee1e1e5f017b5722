"""What PyTorch itself does for every row of the operation table, for comparing with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from opweld.ir.attrs import Operand
from opweld.ir.graph import Graph, Node
from opweld.ir.numpy.interpret import bind_sizes, in_structure, numbered
from opweld.ir.ops import Op
from opweld.ir.types import DType

TORCH_DTYPES = {
    DType.BOOL: torch.bool,
    DType.U8: torch.uint8,
    DType.I8: torch.int8,
    DType.I16: torch.int16,
    DType.I32: torch.int32,
    DType.I64: torch.int64,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.F32: torch.float32,
    DType.F64: torch.float64,
}


def _elu(x, attrs):
    return torch.ops.aten.elu(x, attrs.alpha, attrs.scale, attrs.input_scale)


def _slice(x, attrs):
    stop = attrs.start + max(attrs.length - 1, 0) * attrs.step + (1 if attrs.length else 0)
    index = [slice(None)] * x.dim()
    index[attrs.dim] = slice(attrs.start, stop, attrs.step)
    return x[tuple(index)]


def _pick(x: torch.Tensor, index: torch.Tensor, attrs: Any) -> torch.Tensor:
    index = index.long()
    if attrs.ignored is not None:
        index = torch.where(index == attrs.ignored, 0, index)
    if attrs.wraps:
        index = torch.where(index < 0, index + x.shape[attrs.dim], index)
    return torch.take_along_dim(x, index, attrs.dim)


def _window(x: Any, attrs: Any) -> Any:
    reach = (attrs.width - 1) * attrs.dilation + 1
    seen = x.unfold(attrs.dim, reach, attrs.step)[..., :: attrs.dilation]
    return seen.narrow(attrs.dim, 0, attrs.count).movedim(-1, attrs.dim + 1)


def _scan(function, nothing=0):
    """As users write it: flips for a reversed one, and nothing in front for an exclusive one."""

    def scanned(x, attrs):
        dim = attrs.axis
        x = x.flip(dim) if attrs.reverse else x
        if attrs.exclusive:
            front = torch.full_like(x.narrow(dim, 0, 1), nothing)
            x = torch.cat([front, x], dim).narrow(dim, 0, x.shape[dim])
        found = function(x, dim, dtype=x.dtype)
        return found.flip(dim) if attrs.reverse else found

    return scanned


def _pad(x, attrs):
    widths = [w for pair in zip(attrs.before[::-1], attrs.after[::-1], strict=True) for w in pair]
    return F.pad(x, widths, value=attrs.value)


def _clamp_min(x, low):
    return torch.clamp_min(x, low.item()) if _is_number(low) else torch.clamp(x, min=low)


def _clamp_max(x, high):
    return torch.clamp_max(x, high.item()) if _is_number(high) else torch.clamp(x, max=high)


def _pow(x, exponent):
    return torch.pow(x, exponent.item() if _is_number(exponent) else exponent)


def _is_number(x: torch.Tensor) -> bool:
    return x.dim() == 0 and not x.requires_grad


def _prod(x, attrs):
    for axis in attrs.axes:
        x = torch.prod(x, axis, keepdim=True, dtype=x.dtype)
    return x


def _extreme(shared, selected):
    def extreme(x, attrs):
        if attrs.first:
            return selected(x, attrs.axes[0], keepdim=True)[0]
        return shared(x, attrs.axes, keepdim=True)

    return extreme


def _place(find):
    """Of the row-major elements of the axes."""

    def place(x, attrs):
        kept = [axis for axis in range(x.dim()) if axis not in attrs.axes]
        rows = x.permute(*kept, *attrs.axes).flatten(len(kept))
        shape = [1 if axis in attrs.axes else size for axis, size in enumerate(x.shape)]
        return find(rows, dim=-1).reshape(shape)

    return place


TORCH: Mapping[Op, Callable[..., Any]] = {
    Op.NEG: torch.neg,
    Op.ABS: torch.abs,
    Op.SIGN: torch.sign,
    Op.RECIPROCAL: torch.reciprocal,
    Op.SQRT: torch.sqrt,
    Op.RSQRT: torch.rsqrt,
    Op.EXP: torch.exp,
    Op.EXP2: torch.exp2,
    Op.EXPM1: torch.expm1,
    Op.LOG: torch.log,
    Op.LOG2: torch.log2,
    Op.LOG10: torch.log10,
    Op.LOG1P: torch.log1p,
    Op.SIN: torch.sin,
    Op.COS: torch.cos,
    Op.TAN: torch.tan,
    Op.ASIN: torch.asin,
    Op.ACOS: torch.acos,
    Op.ATAN: torch.atan,
    Op.SINH: torch.sinh,
    Op.COSH: torch.cosh,
    Op.TANH: torch.tanh,
    Op.ASINH: torch.asinh,
    Op.ACOSH: torch.acosh,
    Op.ATANH: torch.atanh,
    Op.ERF: torch.erf,
    Op.ERFC: torch.erfc,
    Op.SIGMOID: torch.sigmoid,
    Op.RELU: torch.relu,
    Op.GELU: F.gelu,
    Op.GELU_TANH: lambda x: F.gelu(x, approximate="tanh"),
    Op.SILU: F.silu,
    Op.MISH: F.mish,
    Op.SOFTSIGN: F.softsign,
    Op.HARDSIGMOID: F.hardsigmoid,
    Op.HARDSWISH: F.hardswish,
    Op.LOGSIGMOID: F.logsigmoid,
    Op.TANHSHRINK: F.tanhshrink,
    Op.FLOOR: torch.floor,
    Op.CEIL: torch.ceil,
    Op.ROUND: torch.round,
    Op.TRUNC: torch.trunc,
    Op.FRAC: torch.frac,
    Op.ISNAN: torch.isnan,
    Op.ISINF: torch.isinf,
    Op.ISFINITE: torch.isfinite,
    Op.SIGNBIT: torch.signbit,
    Op.LOGICAL_NOT: torch.logical_not,
    Op.BITWISE_NOT: torch.bitwise_not,
    Op.NAN_TO_NUM: lambda x, a: torch.nan_to_num(x, a.nan, a.posinf, a.neginf),
    Op.LEAKY_RELU: lambda x, a: F.leaky_relu(x, a.slope),
    Op.ELU: _elu,
    Op.SOFTPLUS: lambda x, a: F.softplus(x, a.beta, a.threshold),
    Op.THRESHOLD: lambda x, a: F.threshold(x, a.threshold, a.value),
    Op.HARDTANH: lambda x, a: F.hardtanh(x, a.low, a.high),
    Op.SOFTSHRINK: lambda x, a: F.softshrink(x, a.lambd),
    Op.HARDSHRINK: lambda x, a: F.hardshrink(x, a.lambd),
    Op.CAST: lambda x, a: x.to(TORCH_DTYPES[a.dtype]),
    Op.ADD: torch.add,
    Op.SUB: torch.sub,
    Op.MUL: torch.mul,
    Op.DIV: torch.div,
    Op.DIV_FLOOR: lambda a, b: torch.div(a, b, rounding_mode="floor"),
    Op.DIV_TRUNC: lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    Op.FMOD: torch.fmod,
    Op.REMAINDER: torch.remainder,
    Op.POW: _pow,
    Op.ATAN2: torch.atan2,
    Op.MAXIMUM: torch.maximum,
    Op.MINIMUM: torch.minimum,
    Op.FMAX: torch.fmax,
    Op.FMIN: torch.fmin,
    Op.CLAMP_MIN: _clamp_min,
    Op.CLAMP_MAX: _clamp_max,
    Op.HYPOT: torch.hypot,
    Op.COPYSIGN: torch.copysign,
    Op.LOGADDEXP: torch.logaddexp,
    Op.XLOGY: torch.xlogy,
    Op.HEAVISIDE: torch.heaviside,
    Op.PRELU: lambda x, w: torch.ops.aten._prelu_kernel(x, w.expand_as(x)),
    Op.EQ: torch.eq,
    Op.NE: torch.ne,
    Op.LT: torch.lt,
    Op.LE: torch.le,
    Op.GT: torch.gt,
    Op.GE: torch.ge,
    Op.LOGICAL_AND: torch.logical_and,
    Op.LOGICAL_OR: torch.logical_or,
    Op.LOGICAL_XOR: torch.logical_xor,
    Op.BITWISE_AND: torch.bitwise_and,
    Op.BITWISE_OR: torch.bitwise_or,
    Op.BITWISE_XOR: torch.bitwise_xor,
    Op.SHIFT_LEFT: torch.bitwise_left_shift,
    Op.SHIFT_RIGHT: torch.bitwise_right_shift,
    Op.WHERE: torch.where,
    Op.LERP: torch.lerp,
    Op.ADDCMUL: torch.addcmul,
    Op.SUM: lambda x, a: torch.sum(x, a.axes, keepdim=True, dtype=x.dtype),
    Op.PROD: _prod,
    Op.AMAX: _extreme(torch.amax, torch.max),
    Op.AMIN: _extreme(torch.amin, torch.min),
    Op.ANY: lambda x, a: torch.any(x, a.axes, keepdim=True),
    Op.ALL: lambda x, a: torch.all(x, a.axes, keepdim=True),
    Op.ARGMAX: _place(torch.argmax),
    Op.ARGMIN: _place(torch.argmin),
    Op.MEAN: lambda x, a: x.mean(a.axes, keepdim=True),
    Op.SUMEXP: lambda x, a: (x - x.amax(a.axes, keepdim=True)).exp().sum(a.axes, keepdim=True),
    Op.DEVSQ: lambda x, a: (x - x.mean(a.axes, keepdim=True)).square().sum(a.axes, keepdim=True),
    Op.CUMSUM: _scan(torch.cumsum, 0),
    Op.CUMPROD: _scan(torch.cumprod, 1),
    Op.CUMMAX: _scan(lambda x, dim, dtype: torch.cummax(x, dim).values),
    Op.CUMMIN: _scan(lambda x, dim, dtype: torch.cummin(x, dim).values),
    Op.CUMMAX_PLACE: _scan(lambda x, dim, dtype: torch.cummax(x, dim).indices),
    Op.CUMMIN_PLACE: _scan(lambda x, dim, dtype: torch.cummin(x, dim).indices),
    Op.LOGCUMSUMEXP: _scan(lambda x, dim, dtype: torch.logcumsumexp(x, dim)),
    Op.PERMUTE: lambda x, a: x.permute(a.dims),
    Op.EXPAND: lambda x, a: x.expand(a.shape),
    Op.RESHAPE: lambda x, a: x.reshape(a.shape),
    Op.SLICE: _slice,
    Op.FLIP: lambda x, a: x.flip(a.dims),
    Op.CAT: lambda *args: torch.cat(args[:-1], dim=args[-1].dim),
    Op.PAD: _pad,
    Op.WINDOW: _window,
    Op.GATHER: _pick,
}


def run_torch(graph: Graph, feeds: Mapping[str, torch.Tensor]) -> Any:
    """The outputs of `graph` as PyTorch computes them, with gradients."""
    arrays = {name: np.empty(tuple(t.shape)) for name, t in feeds.items()}
    sizes = bind_sizes(graph, arrays, {})
    values: dict[int, torch.Tensor] = {}
    for node in graph.nodes():
        values[node.serial] = _value(node, values, feeds, sizes)
    return in_structure(graph.structure, tuple(values[n.serial] for n in graph.outputs))


def _value(node: Node, values, feeds, sizes) -> torch.Tensor:
    attrs = numbered(node.attrs, sizes)
    dtype = TORCH_DTYPES[node.type.dtype]
    if node.op in (Op.INPUT, Op.WEIGHT):
        return feeds[attrs.access]
    if node.op is Op.CONST:
        return torch.tensor(attrs.value, dtype=dtype)
    if node.op is Op.IOTA:
        return (attrs.start + attrs.step * torch.arange(attrs.length)).to(dtype)
    operands = [values[operand.serial] for operand in node.inputs]
    if node.op is Op.CALL:
        namespace, name, overload = node.attrs.target.split(".")
        function = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        given = [_argument(each, operands) for each in attrs.arguments]
        return function(*given, **dict(attrs.keywords))
    return call_torch(node.op, operands, attrs)


def _argument(value: Any, operands: list[torch.Tensor]) -> Any:
    if isinstance(value, tuple):
        return [_argument(each, operands) for each in value]
    return operands[value.index] if isinstance(value, Operand) else value


def call_torch(op: Op, operands: list[torch.Tensor], attrs: Any) -> torch.Tensor:
    """One operation by PyTorch."""
    has_fields = bool(type(attrs).__dataclass_fields__)
    return TORCH[op](*operands, attrs) if has_fields else TORCH[op](*operands)
