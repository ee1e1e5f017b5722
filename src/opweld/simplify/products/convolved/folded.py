"""What scales and shifts the features of a layer's result, eval batch norm say, in its weight.

    s (x W^T + b) + t  =  x (s W)^T + (s b + t)          and of convolutions

It saves a pass over the result where nothing else of a kernel is left of it: where what follows is
computed in a kernel anyway, or in that of the layer itself, the steps are free there, and a scaled
weight costs a pass over the weight. A scale that is infinite makes NaN of terms with both signs.
"""

from __future__ import annotations

from ....ir.attrs import ShapeAttrs
from ....ir.expr import product
from ....ir.graph import Arena, Node
from ....ir.ops import Kind, Op
from ....ir.rules.pattern import AnyOf, Computed, Match
from ....ir.rules.rewrite import Condition, Domain, Effect, Numerics, Rule
from ....ir.types import DType
from ....ir.views import behind_views
from ...names import name_of
from ..conditions import IN_CALLS, LEAST_GAIN, Checked, unbounded
from ..feature_steps import FeatureSteps, feature_steps
from ..linear import call_linear
from ..reasons import FOLDED as REASON
from .convolution import with_weight
from .merged import ChannelMap, map_of, name_of_layer


def folded_of(match: Match) -> tuple[ChannelMap, FeatureSteps] | None:
    """The layer whose results the root scales and shifts, whoever else reads them, and the steps;
    None where another step follows.
    """
    root = match.root
    if root.type.dtype not in IN_CALLS or root.op not in _LAST_STEPS or match.readers is None:
        return None
    for axis in dict.fromkeys((-1, 1 - root.type.rank)):
        steps = feature_steps(root, axis) if root.type.rank > 1 else None
        layer = map_of(steps.core, True) if steps is not None and steps.core.op is Op.CALL else None
        if steps is None or layer is None or not steps.nodes:
            continue
        own = -1 if layer.conv is None else 1 - root.type.rank
        if own == axis and steps.vectors:
            return layer, steps
    return None


_LAST_STEPS = (Op.ADD, Op.SUB, Op.MUL, Op.DIV)


def _why_not(match: Match, layer: ChannelMap, steps: FeatureSteps, exact: bool) -> str | None:
    """The part of the condition that does not hold."""
    inside = [*steps.nodes, layer.call]
    if not all(match.is_read_only_by(n, inside) for n in inside if n is not match.root):
        return f"others read {name_of_layer(layer)}, too"
    readers = _readers(match)
    if readers is None:
        return "what reads it is not known"
    fused = [n for n in readers if n.kind in (Kind.POINTWISE, Kind.REDUCTION, Kind.SCAN)]
    if fused:
        return f"they are computed with {fused[0].op.value}, which reads them"
    if match.costs.own_products and match.root.type.dtype is DType.F32:
        return "they are computed in the kernel of the product"
    passes = match.costs.seconds(0, match.root.type.size_bytes * 2)
    # Both the weight and the bias have kernels of their own.
    weight = match.costs.seconds(0, layer.weight.type.size_bytes * 2) + match.costs.call_s
    if passes < LEAST_GAIN * weight:
        return "scaling the weight takes no less time"
    if exact:
        bad = unbounded(steps.vectors)
        if bad:
            return f"{name_of(behind_views(bad[0]))} may be infinite"
    return None


def _made(match: Match) -> Node:
    found = folded_of(match)
    assert found is not None, "the condition holds"
    (layer, steps), arena = found, match.arena
    weight = _scaled(layer, steps.pair(arena)[0], arena)
    bias = steps.of_vector(layer.bias, arena)
    if layer.conv is None:
        return call_linear(arena, layer.x, weight, bias, REASON)
    return with_weight(arena, layer.conv, weight, bias, REASON)


def _scaled(layer: ChannelMap, scale: Node | None, arena: Arena) -> Node:
    """A convolution's weight, or a linear layer's as [features, depth]."""
    weight = layer.weight if layer.conv is not None else layer.plain(arena)
    if scale is None:
        return weight
    if scale.type.rank:
        behind = weight.type.rank - (2 if layer.conv is not None and layer.transposed else 1)
        shape = ShapeAttrs((layer.channels, *(1,) * behind))
        scale = arena.make(Op.RESHAPE, scale, attrs=shape)
    return arena.make(Op.MUL, weight, scale)


def _before(layer: ChannelMap, steps: FeatureSteps) -> str:
    vectors = [behind_views(n) for n in steps.vectors]
    names = ", ".join(dict.fromkeys(name_of(n) for n in vectors if n.op is Op.WEIGHT))
    return f"{name_of_layer(layer)}, scaled and shifted{f' by {names}' if names else ''}"


def _effect(match: Match) -> Effect:
    found = folded_of(match)
    assert found is not None, "the condition holds"
    layer, steps = found
    elems = product(match.root.type.shape) * len(steps.nodes)
    moved = match.root.type.size_bytes * 2
    return Effect(
        _before(layer, steps),
        f"{name_of_layer(layer)}, with weight and bias scaled and shifted",
        layer.flops + elems,
        layer.flops + product(layer.weight.type.shape),
        moved,
    )


def _is_followed(match: Match) -> bool:
    """Whether another step reads the root."""
    return any(n.op in _LAST_STEPS and n.type == match.root.type for n in _readers(match) or ())


def _readers(match: Match) -> tuple[Node, ...] | None:
    """What reads the root beside who gets the graph's results; None where it is not known."""
    assert match.readers is not None, "asked before"
    serial = match.readers.original(match.root)
    if serial in match.readers.returned:
        return match.readers.by.get(serial, ())
    return match.readers.of(match.root)


def _rule(name: str, exact: bool) -> Rule:
    checked = Checked(
        folded_of,
        lambda match, found: _why_not(match, *found, exact),
        lambda found: _before(*found),
    )
    bounded = ", which are never infinite" if exact else ""
    return Rule(
        name,
        AnyOf(Kind.POINTWISE, "x"),
        Computed("y (s W)^T + (s b + t)", _made),
        Numerics.REORDER,
        Condition(
            "x is s (y W^T + b) + t, of a linear layer or a convolution, by numbers of each feature"
            f"{bounded}, and neither is computed in another kernel anyway",
            checked.holds,
        ),
        Domain.FLOAT,
        _effect,
        lambda match: checked.missed(match) if not _is_followed(match) else None,
    )


FOLDED: tuple[Rule, ...] = (_rule("folded-scale", exact=True),)
FOLDED_FINITE: tuple[Rule, ...] = (_rule("folded-scale-finite", exact=False),)
