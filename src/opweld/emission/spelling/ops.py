"""How each operation is spelled in PyTorch: for references, and for what stays a PyTorch call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...ir.attrs import CallAttrs, Operand, TorchLiteral
from ...ir.expr import Expr, Size, substitute, symbol, symbols_of
from ...ir.graph import Node, Record
from ...ir.ops import Kind, Op
from ...ir.syntax import bare, infix
from ...ir.types import DType
from .calls import CALLS, NUM_ARGUMENTS, channels_first, channels_last
from .scans import SCANS, scan_text

TORCH_DTYPES = {
    DType.BOOL: "torch.bool",
    DType.U8: "torch.uint8",
    DType.I8: "torch.int8",
    DType.I16: "torch.int16",
    DType.I32: "torch.int32",
    DType.I64: "torch.int64",
    DType.F16: "torch.float16",
    DType.BF16: "torch.bfloat16",
    DType.F32: "torch.float32",
    DType.F64: "torch.float64",
    DType.C64: "torch.complex64",
    DType.C128: "torch.complex128",
}

INFIX = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.DIV: "/",
    Op.REMAINDER: "%",
    Op.POW: "**",
    Op.EQ: "==",
    Op.NE: "!=",
    Op.LT: "<",
    Op.LE: "<=",
    Op.GT: ">",
    Op.GE: ">=",
    Op.BITWISE_AND: "&",
    Op.BITWISE_OR: "|",
    Op.BITWISE_XOR: "^",
    Op.SHIFT_LEFT: "<<",
    Op.SHIFT_RIGHT: ">>",
}

_FUNCTIONAL = "torch.nn.functional"

# Where the name in torch is not the operation's own.
FUNCTIONS = {
    Op.GELU: f"{_FUNCTIONAL}.gelu",
    Op.SILU: f"{_FUNCTIONAL}.silu",
    Op.MISH: f"{_FUNCTIONAL}.mish",
    Op.SOFTSIGN: f"{_FUNCTIONAL}.softsign",
    Op.HARDSIGMOID: f"{_FUNCTIONAL}.hardsigmoid",
    Op.HARDSWISH: f"{_FUNCTIONAL}.hardswish",
    Op.LOGSIGMOID: f"{_FUNCTIONAL}.logsigmoid",
    Op.TANHSHRINK: f"{_FUNCTIONAL}.tanhshrink",
}

# These take tensors only; a constant becomes a tensor of its neighbour's dtype.
TENSORS_ONLY = frozenset(
    (
        Op.MAXIMUM,
        Op.MINIMUM,
        Op.FMAX,
        Op.FMIN,
        Op.ATAN2,
        Op.HYPOT,
        Op.COPYSIGN,
        Op.LOGADDEXP,
        Op.PRELU,
        Op.HEAVISIDE,
        Op.LOGICAL_AND,
        Op.LOGICAL_OR,
        Op.LOGICAL_XOR,
    )
)

# These take a number for their second operand only, and none beside bool tensors.
FIRST_TENSOR = frozenset((Op.FMOD, Op.CLAMP_MIN, Op.CLAMP_MAX))

Names = Callable[[Node], str]


def number(value: Any) -> str:
    """A Python number, or a size expression, as text."""
    if isinstance(value, Expr):
        return str(substitute(value, {n: symbol(size_name(n)) for n in symbols_of(value)}))
    if isinstance(value, complex):
        return f"complex({number(value.real)}, {number(value.imag)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def size_name(name: str) -> str:
    """The Python name of a symbolic size; the underscore keeps it apart from the user's names."""
    return f"_{name}"


def maker_name(record: Record) -> str:
    """What the type of objects that the forward returns is called in the emitted file."""
    return f"new_{record.qualname.replace('.', '_')}"


def dtype(value: DType) -> str:
    return TORCH_DTYPES[value]


def is_infix(node: Node) -> bool:
    return node.op in INFIX or node.op is Op.NEG


def spelled(node: Node, name: Names) -> str:
    """The expression of one operation; `name` gives the text of each operand.

    Operands that are infix expressions come in parentheses already.
    """
    if node.op in _SPECIAL:
        return _SPECIAL[node.op](node, name)
    args = _arguments(node, name)
    if node.op in INFIX:
        return infix(args[0], INFIX[node.op], args[1])
    return f"{FUNCTIONS.get(node.op, f'torch.{node.op.value}')}({', '.join(map(bare, args))})"


def _argument(node: Node, name: Names) -> str:
    """The text of the only operand where commas or a call's parentheses are around it."""
    return bare(name(node.inputs[0]))


def _arguments(node: Node, name: Names) -> list[str]:
    """Texts of the operands: constants as numbers, or as tensors where only tensors will do."""
    texts = [name(operand) for operand in node.inputs]
    constants = [operand.op is Op.CONST for operand in node.inputs]
    first = node.op in FIRST_TENSOR and (constants[0] or node.type.dtype is DType.BOOL)
    if needs_tensors(node) or not (first or node.op in TENSORS_ONLY):
        return texts
    neighbour = next(text for text, c in zip(texts, constants, strict=True) if not c)
    return [
        f"{neighbour}.new_full((), {text})" if constant else text
        for text, constant in zip(texts, constants, strict=True)
    ]


def needs_tensors(node: Node) -> bool:
    """Whether even constants must be tensors, as nothing else gives a dtype and a device."""
    moves = node.kind in (Kind.VIEW, Kind.OPAQUE) or node.op is Op.CAST
    return moves or all(operand.op is Op.CONST for operand in node.inputs)


def repeats_operands(node: Node) -> bool:
    """Whether the text of an operand stands in the expression more than once."""
    constants = [operand.op is Op.CONST for operand in node.inputs]
    if node.op in FIRST_TENSOR:
        return constants[0]
    named_twice = (Op.PRELU, Op.SUMEXP, Op.DEVSQ)
    shifted = node.kind is Kind.SCAN and node.attrs.exclusive
    if node.op is Op.GATHER:
        return node.attrs.ignored is not None
    return node.op in named_twice or shifted or (any(constants) and node.op in TENSORS_ONLY)


def _neg(node: Node, name: Names) -> str:
    return f"-{name(node.inputs[0])}"


def _gelu_tanh(node: Node, name: Names) -> str:
    return f'{_FUNCTIONAL}.gelu({_argument(node, name)}, approximate="tanh")'


def _nan_to_num(node: Node, name: Names) -> str:
    a = node.attrs
    limits = f"nan={number(a.nan)}, posinf={number(a.posinf)}, neginf={number(a.neginf)}"
    return f"torch.nan_to_num({_argument(node, name)}, {limits})"


def _with_attrs(function: str, *fields: str) -> Callable[[Node, Names], str]:
    def text(node: Node, name: Names) -> str:
        values = [number(getattr(node.attrs, field)) for field in fields]
        return f"{function}({', '.join([_argument(node, name), *values])})"

    return text


def _cast(node: Node, name: Names) -> str:
    return f"{name(node.inputs[0])}.to({dtype(node.attrs.dtype)})"


def _rounded_division(mode: str) -> Callable[[Node, Names], str]:
    def text(node: Node, name: Names) -> str:
        left, right = _arguments(node, name)
        return f'torch.div({left}, {right}, rounding_mode="{mode}")'

    return text


def _clamp(side: str) -> Callable[[Node, Names], str]:
    def text(node: Node, name: Names) -> str:
        value, limit = _arguments(node, name)
        return f"torch.clamp({value}, {side}={limit})"

    return text


def _hardtanh(node: Node, name: Names) -> str:
    if (node.attrs.low, node.attrs.high) == (0.0, 6.0):
        return f"{_FUNCTIONAL}.relu6({_argument(node, name)})"
    return _with_attrs(f"{_FUNCTIONAL}.hardtanh", "low", "high")(node, name)


def _prelu(node: Node, name: Names) -> str:
    """Not by `where`, whose gradient is NaN where the side that is not taken is infinite."""
    value, slope = _arguments(node, name)
    return f"torch.ops.aten._prelu_kernel({value}, {slope}.expand({value}.shape))"


def _where(node: Node, name: Names) -> str:
    condition, yes, no = (name(operand) for operand in node.inputs)
    text = f"torch.where({condition}, {yes}, {no})"
    constant = all(operand.op is Op.CONST for operand in node.inputs[1:])
    return f"{text}.to({dtype(node.type.dtype)})" if constant else text


def _reduction(node: Node, name: Names) -> str:
    function = f"torch.{node.op.value}"
    return f"{function}({_argument(node, name)}, {_rows(node)})"


def _sum(node: Node, name: Names) -> str:
    """torch adds narrow integers in int64, where it is not told."""
    return f"{_reduction(node, name)[:-1]}{_in_dtype(node)})"


def _in_dtype(node: Node) -> str:
    kept = node.type.dtype
    return "" if kept.is_float or kept is DType.I64 else f", dtype={dtype(kept)}"


def _product(node: Node, name: Names) -> str:
    """One axis at a time: torch takes no more."""
    text = name(node.inputs[0])
    for axis in node.attrs.axes:
        text = f"torch.prod({text}, dim={axis}, keepdim=True{_in_dtype(node)})"
    return text


def _extreme(function: str) -> Callable[[Node, Names], str]:
    """The gradient goes to all of equal extremes, or to the first."""

    def text(node: Node, name: Names) -> str:
        return (
            _along_axes(node, name, function, "[0]") if node.attrs.first else _reduction(node, name)
        )

    return text


def _sum_of_powers(node: Node, name: Names) -> str:
    x, rows = name(node.inputs[0]), _rows(node)
    return f"torch.sum(torch.exp({x} - torch.amax({x}, {rows})), {rows})"


def _sum_of_squared_deviations(node: Node, name: Names) -> str:
    x, rows = name(node.inputs[0]), _rows(node)
    return f"torch.sum(torch.square({x} - torch.mean({x}, {rows})), {rows})"


def _rows(node: Node) -> str:
    return f"dim=({sizes(node.attrs.axes)}), keepdim=True"


def _place(node: Node, name: Names) -> str:
    return _along_axes(node, name, node.op.value, "")


def _along_axes(node: Node, name: Names, function: str, result: str) -> str:
    """Of functions that take one axis: of several, all their elements in order are one."""
    operand, axes = node.inputs[0], node.attrs.axes
    text = name(operand)
    if len(axes) == 1:
        return f"torch.{function}({bare(text)}, dim={axes[0]}, keepdim=True){result}"
    kept = tuple(axis for axis in range(operand.type.rank) if axis not in axes)
    ordered = f"{text}.permute({sizes((*kept, *axes))}).flatten({len(kept)})"
    return f"torch.{function}({ordered}, dim=-1){result}.reshape({sizes(node.type.shape)})"


def _scan(node: Node, name: Names) -> str:
    """torch scans narrow integers in int64, where it is not told."""
    return scan_text(node, name(node.inputs[0]), _in_dtype(node))


def _permute(node: Node, name: Names) -> str:
    return f"{name(node.inputs[0])}.permute({sizes(node.attrs.dims)})"


def _expand(node: Node, name: Names) -> str:
    return f"{name(node.inputs[0])}.expand({sizes(node.attrs.shape)})"


def _reshape(node: Node, name: Names) -> str:
    return f"{name(node.inputs[0])}.reshape({sizes(node.attrs.shape)})"


def _slice(node: Node, name: Names) -> str:
    a = node.attrs
    stop = number(a.start + a.length * a.step)
    step = f":{a.step}" if a.step != 1 else ""
    axes = ":, " * a.dim + f"{number(a.start)}:{stop}{step}"
    return f"{name(node.inputs[0])}[{axes}]"


def _flip(node: Node, name: Names) -> str:
    return f"torch.flip({_argument(node, name)}, ({sizes(node.attrs.dims)}))"


def _window(node: Node, name: Names) -> str:
    """torch's windows are dense, and all that fit."""
    a, size = node.attrs, node.inputs[0].type.shape[node.attrs.dim]
    reach = (a.width - 1) * a.dilation + 1
    text = f"{name(node.inputs[0])}.unfold({a.dim}, {reach}, {a.step})"
    if (a.count - 1) * a.step + reach != size:
        text += f".narrow({a.dim}, 0, {number(a.count)})"
    text += f"[..., ::{a.dilation}]" if a.dilation != 1 else ""
    last = node.inputs[0].type.rank
    return f"{text}.movedim({last}, {a.dim + 1})" if last != a.dim + 1 else text


def _cat(node: Node, name: Names) -> str:
    return f"torch.cat(({', '.join(map(name, node.inputs))}), dim={node.attrs.dim})"


def _pad(node: Node, name: Names) -> str:
    pairs = reversed(list(zip(node.attrs.before, node.attrs.after, strict=True)))
    amounts = sizes(tuple(size for pair in pairs for size in pair))
    value = number(node.attrs.value)
    return f"{_FUNCTIONAL}.pad({_argument(node, name)}, ({amounts}), value={value})"


def sizes(values: tuple[Size, ...]) -> str:
    """Comma-separated; a single one keeps its comma, so that parentheses make a tuple."""
    text = ", ".join(number(size) for size in values)
    return f"{text}," if len(values) == 1 else text or "()"


def _item(node: Node, name: Names) -> str:
    return f"{name(node.inputs[0])}[{node.attrs.index}]"


def _call(node: Node, name: Names) -> str:
    attrs: CallAttrs = node.attrs
    arguments = attrs.arguments[: NUM_ARGUMENTS.get(attrs.target)]
    texts = [_call_argument(value, node, name) for value in arguments]
    texts += [f"{key}={_keyword(key, value, node, name)}" for key, value in attrs.keywords]
    if attrs.channels_last:
        texts[0] = f"{texts[0]}{channels_first(node)}"
    return f"{_function(attrs.target)}({', '.join(texts)}){channels_last(node)}"


def _function(target: str) -> str:
    """An operator as it is called: "aten.exp.default" below torch.ops, "torch.tensor" as it is."""
    operator = target if target.startswith("torch.") else f"torch.ops.{target}"
    return CALLS.get(target, operator)


def _keyword(key: str, value: Any, node: Node, name: Names) -> str:
    """The device of the inputs is read from the operands; one that the user named stays."""
    if key == "device" and not str(value).startswith("torch.device("):
        return _device(node, name)
    return _call_argument(value, node, name)


def _device(node: Node, name: Names) -> str:
    """New tensors go where the operands are, not to the device that the graph was captured on."""
    return f"{name(node.inputs[0])}.device" if node.inputs else "_device"


def _call_argument(value: Any, node: Node, name: Names) -> str:
    if isinstance(value, Operand):
        return name(node.inputs[value.index])
    if isinstance(value, TorchLiteral):
        return value.text
    if isinstance(value, tuple):
        return f"[{', '.join(_call_argument(item, node, name) for item in value)}]"
    return number(value)


_SPECIAL: dict[Op, Callable[[Node, Names], str]] = {
    Op.NEG: _neg,
    Op.GELU_TANH: _gelu_tanh,
    Op.NAN_TO_NUM: _nan_to_num,
    Op.LEAKY_RELU: _with_attrs(f"{_FUNCTIONAL}.leaky_relu", "slope"),
    Op.ELU: _with_attrs("torch.ops.aten.elu", "alpha", "scale", "input_scale"),
    Op.SOFTPLUS: _with_attrs(f"{_FUNCTIONAL}.softplus", "beta", "threshold"),
    Op.THRESHOLD: _with_attrs(f"{_FUNCTIONAL}.threshold", "threshold", "value"),
    Op.HARDTANH: _hardtanh,
    Op.SOFTSHRINK: _with_attrs(f"{_FUNCTIONAL}.softshrink", "lambd"),
    Op.HARDSHRINK: _with_attrs(f"{_FUNCTIONAL}.hardshrink", "lambd"),
    Op.CAST: _cast,
    Op.DIV_FLOOR: _rounded_division("floor"),
    Op.DIV_TRUNC: _rounded_division("trunc"),
    Op.CLAMP_MIN: _clamp("min"),
    Op.CLAMP_MAX: _clamp("max"),
    Op.PRELU: _prelu,
    Op.WHERE: _where,
    Op.SUM: _sum,
    Op.PROD: _product,
    Op.AMAX: _extreme("max"),
    Op.AMIN: _extreme("min"),
    Op.ANY: _reduction,
    Op.ALL: _reduction,
    Op.ARGMAX: _place,
    Op.ARGMIN: _place,
    Op.MEAN: _reduction,
    Op.SUMEXP: _sum_of_powers,
    Op.DEVSQ: _sum_of_squared_deviations,
    **dict.fromkeys(SCANS, _scan),
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.RESHAPE: _reshape,
    Op.SLICE: _slice,
    Op.FLIP: _flip,
    Op.CAT: _cat,
    Op.PAD: _pad,
    Op.WINDOW: _window,
    Op.ITEM: _item,
    Op.CALL: _call,
}
