"""Gradients of operations in closed form: what PyTorch's own autograd computes, one row each.

A row says what reaches each operand, in terms of {g}, the gradient of the result, of {y}, the
result, and of {a}, {b}, {c}, the operands. A backward computes only what its rows name, and of that
only what is not there yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...ir.expr import Size, product
from ...ir.graph import Node
from ...ir.ops import Op
from ...ir.types import DType
from .composites import Call
from .ops import dtype, number, sizes
from .pools import scattered_by_pool

OPERANDS = "abcd"
_ATEN = "torch.ops.aten"


@dataclass(frozen=True, slots=True)
class Gradient:
    """What reaches each operand: a text each, None where nothing does.

    `first` is a statement that the texts rest on, where {s} begins the names that it gives; it may
    give {y}, where `again` is how that is computed otherwise than in a forward. `values` has what
    else the texts name. A `joint` one is a single text, of a tuple for all operands, in which
    {needed} stands for a tuple that tells which of them are wanted.
    """

    texts: tuple[str | None, ...]
    first: str = ""
    again: Call | None = None
    values: Mapping[str, Node] = field(default_factory=dict)
    joint: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """What a backward has of its forward: `calls` by which nodes are spelled, and the nodes that
    are there without being computed again.
    """

    calls: Mapping[int, Call]
    there: Mapping[int, Node]

    def moments(self, x: Node) -> tuple[Node, Node] | None:
        """Mean and unbiased variance of the channels of `x`, where both are there."""
        shape = tuple(size if axis == 1 else 1 for axis, size in enumerate(x.type.shape))
        means = [node for node in self._of(x, shape) if self._is_mean(node)]
        variances = [node for node in self._of(x, shape) if self._is_variance(node)]
        return (means[0], variances[0]) if means and variances else None

    def _of(self, x: Node, shape: tuple[Size, ...]) -> list[Node]:
        alike = (node for node in self.there.values() if node.type.shape == shape)
        return [node for node in alike if self._operand(node) is x]

    def _operand(self, node: Node) -> Node | None:
        call = self.calls.get(node.serial)
        operands = call.operands if call else node.inputs
        return operands[0] if operands else None

    def _is_mean(self, node: Node) -> bool:
        call = self.calls.get(node.serial)
        return call.name == "mean" if call else node.op is Op.MEAN

    def _is_variance(self, node: Node) -> bool:
        call = self.calls.get(node.serial)
        return call is not None and call.name == "var" and call.arguments["correction"] == "1"


def gradient_of(node: Node, values: Values) -> Gradient | None:
    """What reaches the operands of `node`, or those of the call that it is spelled by; None where
    no row says.
    """
    call = values.calls.get(node.serial)
    if call is not None:
        row = _CALLS.get(call.name)
        return row(node, call, values) if row else None
    if node.op is Op.CALL:
        of_product = _PRODUCTS.get(node.attrs.target)
        return None if of_product is None or node.attrs.summed_in_parts else of_product(node)
    if node.op in _BY_ATTRS:
        return _BY_ATTRS[node.op](node)
    return Gradient(_ROWS[node.op]) if node.op in _ROWS else None


def is_heavy(node: Node, values: Values) -> bool:
    """Whether computing `node` again takes longer than an elementwise operation."""
    call = values.calls.get(node.serial)
    return node.op is Op.CALL or (call is not None and call.name in _CALLS)


_Texts = tuple[str | None, ...]


def _backward(name: str, *arguments: str) -> _Texts:
    return (f"{_ATEN}.{name}_backward.default({', '.join(['{g}', *arguments])})",)


_ROWS: Mapping[Op, _Texts] = {
    Op.NEG: ("-{g}",),
    Op.ABS: ("{g} * {a}.sgn()",),
    Op.SQRT: ("{g} / ({y} * 2)",),
    Op.RSQRT: ("{g} * {y}.pow(3) * -0.5",),
    Op.RECIPROCAL: ("-{g} * ({y} * {y})",),
    Op.EXP: ("{g} * {y}",),
    Op.EXPM1: ("{g} * ({y} + 1)",),
    Op.LOG: ("{g} / {a}",),
    Op.LOG1P: ("{g} / ({a} + 1)",),
    Op.SIN: ("{g} * torch.cos({a})",),
    Op.COS: ("{g} * -torch.sin({a})",),
    Op.TANH: _backward("tanh", "{y}"),
    Op.SIGMOID: _backward("sigmoid", "{y}"),
    Op.RELU: _backward("threshold", "{y}", "0"),
    Op.GELU: _backward("gelu", "{a}"),
    Op.GELU_TANH: _backward("gelu", "{a}", 'approximate="tanh"'),
    Op.SILU: _backward("silu", "{a}"),
    Op.MISH: _backward("mish", "{a}"),
    Op.HARDSIGMOID: _backward("hardsigmoid", "{a}"),
    Op.HARDSWISH: _backward("hardswish", "{a}"),
    Op.ADD: ("{g}", "{g}"),
    Op.SUB: ("{g}", "-{g}"),
    Op.MUL: ("{g} * {b}", "{g} * {a}"),
    Op.DIV: ("{g} / {b}", "-{g} * (({a} / {b}) / {b})"),
    Op.WHERE: (None, "torch.where({a}, {g}, 0)", "torch.where({a}, 0, {g})"),
}


def _like_operand(text: str) -> Callable[[Node], Gradient]:
    """A view of the gradient with the sizes of the operand."""
    return lambda node: Gradient((text.format(g="{g}", shape=sizes(node.inputs[0].type.shape)),))


def _cast(node: Node) -> Gradient:
    return Gradient((f"{{g}}.to({dtype(node.inputs[0].type.dtype)})",))


def _permute(node: Node) -> Gradient:
    dims = node.attrs.dims
    back = tuple(dims.index(axis) for axis in range(len(dims)))
    return Gradient((f"{{g}}.permute({sizes(back)})",))


def _slice(node: Node) -> Gradient:
    a, shape = node.attrs, node.inputs[0].type.shape
    stop = number(a.start + a.length * a.step)
    place = f"{a.dim}, {number(a.start)}, {stop}, {a.step}"
    return Gradient((f"{_ATEN}.slice_backward.default({{g}}, ({sizes(shape)}), {place})",))


def _mean(node: Node) -> Gradient:
    return _mean_of(node, node.inputs[0])


def _mean_of(node: Node, x: Node) -> Gradient:
    shape, kept = x.type.shape, node.type.shape
    count = number(product(size for size, own in zip(shape, kept, strict=True) if size != own))
    count = f"({count})" if " " in count else count
    return Gradient((f"({{g}} / {count}).expand({sizes(shape)})",))


def _hardtanh(node: Node) -> Gradient:
    """Whether an element was inside shows its result, too."""
    a = node.attrs
    return Gradient(_backward("hardtanh", "{y}", number(a.low), number(a.high)))


def _leaky_relu(node: Node) -> Gradient:
    """The result has the sign of the operand, unless the slope is negative."""
    slope = node.attrs.slope
    value = ("{y}", "True") if slope > 0 else ("{a}", "False")
    return Gradient(_backward("leaky_relu", value[0], number(slope), value[1]))


def _elu(node: Node) -> Gradient:
    a = node.attrs
    given = (number(a.alpha), number(a.scale), number(a.input_scale), "False", "{a}")
    return Gradient(_backward("elu", *given))


def _softplus(node: Node) -> Gradient:
    a = node.attrs
    return Gradient(_backward("softplus", "{a}", number(a.beta), number(a.threshold)))


_BY_ATTRS: Mapping[Op, Callable[[Node], Gradient]] = {
    Op.CAST: _cast,
    Op.PERMUTE: _permute,
    Op.RESHAPE: _like_operand("{g}.reshape({shape})"),
    Op.EXPAND: _like_operand("{g}.sum_to_size({shape})"),
    Op.SUM: _like_operand("{g}.expand({shape})"),
    Op.MEAN: _mean,
    Op.SLICE: _slice,
    Op.HARDTANH: _hardtanh,
    Op.LEAKY_RELU: _leaky_relu,
    Op.ELU: _elu,
    Op.SOFTPLUS: _softplus,
}


def _linear(node: Node) -> Gradient:
    rows = ".flatten(0, -2)" if node.inputs[0].type.rank > 2 else ""
    texts = ("{g} @ {b}", f"{{g}}{rows}.t() @ {{a}}{rows}", f"{{g}}{rows}.sum(0)")
    return Gradient(texts[: len(node.inputs)])


def _matmul(node: Node) -> Gradient | None:
    ranks = {each.type.rank for each in node.inputs}
    if len(ranks) != 1 or max(ranks) < 2:
        return None
    batches = {each.type.shape[:-2] for each in node.inputs}
    return Gradient(("{g} @ {b}.mT", "{a}.mT @ {g}")) if len(batches) == 1 else None


_PRODUCTS: Mapping[str, Callable[[Node], Gradient | None]] = {
    "aten.linear.default": _linear,
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.matmul.default": _matmul,
}


def _softmax(node: Node, call: Call, values: Values) -> Gradient:
    given = f"{{g}}, {{y}}, {call.arguments['axis']}, {dtype(node.type.dtype)}"
    return Gradient((f"{_ATEN}._{call.name}_backward_data.default({given})",))


def _layer_norm(node: Node, call: Call, values: Values) -> Gradient:
    shape, eps = call.arguments["shape"], call.arguments["eps"]
    normalised = f"{_ATEN}.native_layer_norm.default({{a}}, {shape}, None, None, {eps})"
    given = f"{{g}}, {{a}}, {shape}, {{s}}_mean, {{s}}_rstd, None, None, (True, False, False)"
    first = f"{{y}}, {{s}}_mean, {{s}}_rstd = {normalised}"
    return Gradient((f"{_ATEN}.native_layer_norm_backward.default({given})[0]",), first)


def _batch_norm(node: Node, call: Call, values: Values) -> Gradient | None:
    """Of 16-bit types the statistics have been rounded."""
    moments = values.moments(call.operands[0])
    if moments is None or node.type.dtype not in (DType.F32, DType.F64):
        return None
    eps, affine = call.arguments["eps"], len(call.operands) > 1
    weight, both = ("{b}", "{w}, {b}") if affine else ("None", "None, None")
    needed = "{needed}" if affine else "(True, False, False)"
    given = f"{{g}}, {{a}}, {weight}, {{mean}}, {{variance}}, {eps}, {needed}"
    text = f"_normalised({{x}}, {both}, {{mean}}, {{variance}}, {eps})"
    again = Call(call.name, text, (*call.operands, *moments))
    named = dict(zip(("mean", "variance"), moments, strict=True))
    called = f"_batch_norm_backward({given})"
    return Gradient((called if affine else f"{called}[0]",), "", again, named, joint=affine)


def _mean_call(node: Node, call: Call, values: Values) -> Gradient:
    return _mean_of(node, call.operands[0])


def _max_pool(node: Node, call: Call, values: Values) -> Gradient | None:
    texts = scattered_by_pool(node)
    return Gradient((texts[1],), texts[0]) if texts else None


_CALLS: Mapping[str, Callable[[Node, Call, Values], Gradient | None]] = {
    "softmax": _softmax,
    "log_softmax": _softmax,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "mean": _mean_call,
    "max_pool2d": _max_pool,
}
