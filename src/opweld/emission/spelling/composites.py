"""Functions of torch that stand for several operations of a graph: softmax, norms, moments, pools.

A reference speaks in these where it can: eager's gradients of them are more exact than those of
their parts (the gradient of a softmax's maximum is zero only up to roundings), one call is faster
than many, and it is what the user wrote. Weights and biases of norms stand outside the calls, which
sum their gradients three times less exactly than eager does where the user wrote the norm out
(layer_norm of torch 2.13 on the CPU, 512 rows). Those of a batch norm stand inside: a gradient of
its own walks over all that was normalised for each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from string import Formatter

from ...ir.expr import Size, product
from ...ir.graph import Arena, Node
from ...ir.ops import Op
from ...ir.rules.pattern import Apply, Const, Match, Pattern, Var, call, matches
from ...ir.rules.rewrite import Condition
from ...ir.rules.softmax import LOG_SOFTMAX, LOGSUMEXP, SAME_AXES, SOFTMAX, axes_of
from .gathers import gather_of
from .ops import number, sizes
from .pools import is_windowed, pool_of
from .selects import select_of


@dataclass(frozen=True, slots=True)
class Composite:
    """What `before` computes is `text` too, with the same values, NaN and infinities included.

    In `text`, {x}, {c}, {w} and {b} are the operands that x, c, w and b stand for; all other fields
    are in ARGUMENTS.
    """

    name: str
    before: Apply
    text: str
    when: Condition


OPERANDS = ("x", "c", "w", "b", "mean", "variance")


@dataclass(frozen=True, slots=True)
class Call:
    """One call in place of a node and of what it needs, down to the operands: {x} and, where there
    are more, {c} or {w} and {b} in `text`. `arguments` are the texts of its others, by name.
    """

    name: str
    text: str
    operands: tuple[Node, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)

    def spelled(self, operands: Iterable[str]) -> str:
        """The expression on the texts of the operands."""
        names = (name for name in OPERANDS if f"{{{name}}}" in self.text)
        return self.text.format(**dict(zip(names, operands, strict=False)))


x, w, b = Var("x"), Var("w"), Var("b")
sqrt, rsqrt = call(Op.SQRT), call(Op.RSQRT)
where, equal = call(Op.WHERE), call(Op.EQ)


def _total(of: Pattern) -> Apply:
    return call(Op.SUM)(of, attrs="axes")


def _divided(total: Pattern, count: str) -> Apply:
    return total / Var(count)


def _multiplied(total: Pattern, count: str) -> Apply:
    """A power of two is divided by as a product."""
    return total * Const(f"1/{count}")


def _rounded_once(total: Apply, count: str) -> Apply:
    """The mean of what is summed, which needs no count."""
    return call(Op.MEAN)(*total.args, attrs=total.attrs)


def _by_root(value: Pattern, square: Pattern) -> tuple[Apply, ...]:
    return value * rsqrt(square), value / sqrt(square)


Mean = Callable[[Apply, str], Apply]
_QUOTIENTS: tuple[Mean, ...] = (_divided, _multiplied)


def _centred(mean: Mean) -> Apply:
    return x - mean(_total(x), "n")


def _variance(mean: Mean, variance_mean: Mean, count: str) -> Apply:
    difference = _centred(mean)
    return variance_mean(_total(difference * difference), count)


def _variance_in_one_walk(mean: Mean, count: str) -> Apply:
    return mean(call(Op.DEVSQ)(x, attrs="axes"), count)


def _rooted(square: Pattern) -> Apply:
    """The root with gradient 0 where it is 0."""
    is_zero = equal(square, 0.0)
    return where(is_zero, 0.0, sqrt(where(is_zero, 1.0, square)))


_variances = tuple(_variance(*means, "m") for means in itertools.product(_QUOTIENTS, _QUOTIENTS))
_variances_of_one_count = tuple(
    variance
    for mean in _QUOTIENTS
    for variance in (_variance(_rounded_once, mean, "m"), _variance_in_one_walk(mean, "m"))
)
_standardised = tuple(
    normal
    for quotient in _QUOTIENTS
    for mean in (quotient, _rounded_once)
    for variance in (_variance(mean, quotient, "n"), _variance_in_one_walk(quotient, "n"))
    for normal in _by_root(_centred(mean), variance + Const("eps"))
)
_of_unit_square = tuple(
    normal for mean in _QUOTIENTS for normal in _by_root(x, mean(_total(x * x), "n") + Const("eps"))
)


def _axes_text(axes: tuple[int, ...]) -> str:
    return number(axes[0]) if len(axes) == 1 else f"({sizes(axes)})"


def _shape(match: Match) -> tuple[Size, ...]:
    return match.node("x").type.shape


def _length(match: Match) -> Size:
    """The elements of a row."""
    return product(_shape(match)[axis] for axis in axes_of(match))


def _is_number(match: Match, name: str, value: Size) -> bool:
    """Whether `name` is a constant of this value, or "1/name" one of exactly its reciprocal."""
    if name in match.bindings:
        node = match.node(name)
        return node.op is Op.CONST and bool(node.attrs.value == value)
    return isinstance(value, int) and match.value(f"1/{name}") * value == 1.0


def _correction(match: Match) -> int | None:
    """What is taken off the count of a variance: 0 or Bessel's 1."""
    length = _length(match)
    return next((c for c in (0, 1) if _is_number(match, "m", length - c)), None)


def _normalized_shape(match: Match) -> tuple[Size, ...]:
    return _shape(match)[min(axes_of(match)) :]


def _are_trailing(match: Match) -> bool:
    """Axes of one element are not among those reduced, and make no difference."""
    axes, shape = axes_of(match), _shape(match)
    return all(axis in axes or shape[axis] == 1 for axis in range(min(axes), len(shape)))


def _spares_channels(match: Match) -> bool:
    rank = len(_shape(match))
    return axes_of(match) == tuple(axis for axis in range(rank) if axis != 1) and rank > 1


def _lie_along_channels(match: Match) -> bool:
    """Whether weight and bias have one element a channel."""
    channels = _shape(match)[1]
    places = (channels, *(1,) * (len(_shape(match)) - 2))
    given = [match.node(name) for name in ("w", "b")]
    types = {node.type.dtype for node in (match.node("x"), *given)}
    shapes = {node.type.shape for node in given} | {(1, *places)}
    flat = all(_vector(node).type.shape == (channels,) for node in given)
    return len(types) == 1 and flat and shapes <= {places, (1, *places)}


def _vector(node: Node) -> Node:
    """What lies along the channels, before it was given axes of one element beside them."""
    flat = node.op is Op.RESHAPE and node.inputs[0].type.rank == 1
    return node.inputs[0] if flat else node


_scattered = Condition("x is no window", lambda match: not is_windowed(match.node("x")))
_always = Condition("always", lambda match: True)
_one_axis = Condition("it is one axis", lambda match: len(axes_of(match)) == 1)
_counts = Condition("n counts a row", lambda match: _is_number(match, "n", _length(match)))
_corrected = Condition("m counts a row but one", lambda match: _correction(match) is not None)
_trailing = Condition("the axes are the last", _are_trailing)
_all_but_channels = Condition("the axes are all but the channels", _spares_channels)
_along_channels = Condition("w and b lie along the channels", _lie_along_channels)

ARGUMENTS: Mapping[str, Callable[[Match], str]] = {
    "axis": lambda match: number(axes_of(match)[0]),
    "axes": lambda match: _axes_text(axes_of(match)),
    "shape": lambda match: f"({sizes(_normalized_shape(match))})",
    "eps": lambda match: number(match.value("eps")),
    "correction": lambda match: number(_correction(match)),
}


def _norm(name: str, normal: Apply) -> Composite:
    text = f"torch.nn.functional.{name}({{x}}, {{shape}}, eps={{eps}})"
    return Composite(name, normal, text, _counts & _trailing)


def _moments(variances: tuple[Apply, ...], when: Condition) -> Iterator[Composite]:
    for name, of in (("std", _rooted), ("var", lambda variance: variance)):
        for variance in variances:
            yield Composite(name, of(variance), f"torch.{name}({_MOMENT})", when)


_STATISTICS = "None, None, True, 0.0, {eps}, True"
_KEPT = "{x}, dim={axes}, keepdim=True"
_MOMENT = "{x}, dim={axes}, correction={correction}, keepdim=True"

COMPOSITES: tuple[Composite, ...] = (
    *(
        Composite("softmax", form, "torch.softmax({x}, dim={axis})", SAME_AXES & _one_axis)
        for form in SOFTMAX
    ),
    *(
        Composite("log_softmax", form, "torch.log_softmax({x}, dim={axis})", SAME_AXES & _one_axis)
        for form in LOG_SOFTMAX
    ),
    *(Composite("logsumexp", form, f"torch.logsumexp({_KEPT})", SAME_AXES) for form in LOGSUMEXP),
    *(_norm("layer_norm", normal) for normal in _standardised),
    *(
        Composite(
            "batch_norm",
            normal * w + b,
            f"torch.batch_norm({{x}}, {{w}}, {{b}}, {_STATISTICS})",
            _counts & _all_but_channels & _along_channels,
        )
        for normal in _standardised
    ),
    *(
        Composite(
            "batch_norm",
            normal,
            f"torch.batch_norm({{x}}, None, None, {_STATISTICS})",
            _counts & _all_but_channels,
        )
        for normal in _standardised
    ),
    *(_norm("rms_norm", normal) for normal in _of_unit_square),
    *_moments(_variances, _counts & _corrected),
    *_moments(_variances_of_one_count, _corrected),
    *(
        Composite("mean", mean(_total(x), "n"), f"torch.mean({_KEPT})", _counts & _scattered)
        for mean in _QUOTIENTS
    ),
    Composite("norm", _rooted(_total(x * x)), f"torch.linalg.vector_norm({_KEPT})", _always),
)


def _by_op() -> dict[Op, tuple[Composite, ...]]:
    found: dict[Op, tuple[Composite, ...]] = {}
    for composite in COMPOSITES:
        op = composite.before.op
        found[op] = (*found.get(op, ()), composite)
    return found


_BY_OP = _by_op()


def calls(nodes: Iterable[Node]) -> dict[int, Call]:
    """By serial, each of `nodes` that one call computes together with others of them."""
    inside = {node.serial: node for node in nodes}
    found = ((serial, _call_of(node, inside)) for serial, node in inside.items())
    return {serial: call for serial, call in found if call is not None}


# The first rows of causal attention have the largest terms, and so the shortest parts. PyTorch's
# kernel has parts of 64 rows: on causal calls these are less exact, and there is more to add up.
_IN_PARTS = """torch.cat(
        [
            torch.matmul({part}, {c})
            for {part} in {x}.tensor_split((16, 64, *range(128, {x}.shape[-2], 128)), dim=-2)
        ],
        dim=-2,
    )"""


def in_parts(nodes: Iterable[Node], fresh: Callable[[str], str]) -> dict[int, Call]:
    """By serial, those of `nodes` that are products made a part of the rows at a time.

    This is for the gradient of the second operand, a sum over all rows. The library's product adds
    them one by one, and rounds each time as the largest, first terms demand; autograd adds up the
    sums of parts from the last to the first. `fresh` gives a name that no operand has.
    """
    chosen = (node for node in nodes if node.op is Op.CALL and node.attrs.summed_in_parts)
    return {
        node.serial: Call("matmul", _IN_PARTS.replace("{part}", fresh("part")), node.inputs)
        for node in chosen
    }


def _call_of(node: Node, inside: Mapping[int, Node]) -> Call | None:
    for view in (gather_of(node), select_of(node)):
        if view is not None and _lies_inside(node, view[2], inside):
            return Call(*view)
    if not node.type.dtype.is_float:
        return None
    pool = pool_of(node)
    if pool is not None and _lies_inside(node, pool[2:], inside):
        return Call(pool[0], pool[1], pool[2:])
    for composite in _BY_OP.get(node.op, ()):
        for bindings in matches(composite.before, node, {}):
            match = Match(node, bindings, Arena())
            if composite.when.holds(match):
                call = _made(composite, match)
                if _lies_inside(node, call.operands, inside):
                    return call
    return None


def _made(composite: Composite, match: Match) -> Call:
    fields = [field for _, field, _, _ in Formatter().parse(composite.text) if field in ARGUMENTS]
    arguments = {field: ARGUMENTS[field](match) for field in fields if field}
    text = composite.text.format(**{name: f"{{{name}}}" for name in OPERANDS}, **arguments)
    named = [match.node(name) for name in OPERANDS if f"{{{name}}}" in text]
    return Call(composite.name, text, (named[0], *map(_vector, named[1:])), arguments)


def _lies_inside(root: Node, operands: tuple[Node, ...], inside: Mapping[int, Node]) -> bool:
    """Whether all that the call computes is, so that its operands are at hand."""
    seen = {operand.serial for operand in operands}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.serial in seen or node.op is Op.CONST:
            continue
        if node.serial not in inside:
            return False
        seen.add(node.serial)
        waiting.extend(node.inputs)
    return True
