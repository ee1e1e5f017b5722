"""Attention that is written out: a softmax between two products.

Coordinates are followed from the result back to the operands, through views and broadcasts,
whatever the order of axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.expr import Size, symbol
from ...ir.graph import Node
from ...ir.index import Coords
from ...ir.kernels.attention import INNER, KEY, ROW, Attention, Seen
from ...ir.kernels.product import Matrix, Product
from ...ir.ops import Op
from ...ir.types import DType
from ...ir.views import behind_views, is_free_view
from ..products.recognised import ONE, Labels, NoProduct, Terms, is_product, terms_of
from .scores import NoAttention, Users, Walk, behind, divided, in_memory, knows, width


@dataclass(frozen=True, slots=True)
class Softmax:
    """exp(x - largest) / total along one axis; `nodes` are its operations, the result first."""

    x: Node
    axis: int
    nodes: tuple[Node, ...]


def softmax_of(node: Node) -> Softmax | None:
    """The softmax that a node is, in two walks over a row or in one."""
    if node.op is not Op.DIV:
        return None
    powers, total = node.inputs
    if powers.op is not Op.EXP or powers.inputs[0].op is not Op.SUB:
        return None
    x, largest = powers.inputs[0].inputs
    summed = {Op.SUM: powers, Op.SUMEXP: x}.get(total.op)
    if largest.op is not Op.AMAX or largest.inputs[0] is not x or total.inputs[:1] != (summed,):
        return None
    if largest.attrs.axes != total.attrs.axes or len(total.attrs.axes) != 1:
        return None
    return Softmax(x, total.attrs.axes[0], (node, powers, total, powers.inputs[0], largest))


@dataclass(frozen=True, slots=True)
class _Second:
    """The second product: a softmax, perhaps behind views, and the values that it weights."""

    call: Node
    softmax: Softmax
    weights: Node
    weight_labels: Labels
    values: Node
    value_labels: Labels
    out: Labels


def written_out(call: Node, users: Users) -> Attention | None:
    """The attention that a product of a softmax computes, None where it is none. Raises
    NoAttention.
    """
    second = _second(call)
    if second is None:
        return None
    names = _variables(second)
    labelled = (
        *zip(second.weight_labels, second.weights.type.shape, strict=True),
        *zip(second.value_labels, second.values.type.shape, strict=True),
    )
    sizes = {names[label]: size for label, size in labelled if label != ONE}
    bounds = {name: size for name, size in sizes.items() if name != INNER}

    def placed(labels: Labels) -> Coords:
        return tuple(_coordinate(names.get(label), sizes) for label in labels)

    weights = behind(Seen(second.weights, placed(second.weight_labels)), bounds)
    if sizes[KEY] != 1 and weights.coords[second.softmax.axis] != symbol(KEY):
        raise NoAttention("its softmax is not over what is summed")
    inside = _only_here(second, users)
    scores = Seen(second.softmax.x, weights.coords)
    walk = Walk(bounds)
    walk.visit(scores)
    inner, operands = divided(walk, scores.node, users, inside)
    anchor = _first(walk, operands)
    views = {node.serial for node in walk.nodes.values() if is_free_view(node)}
    if not users.all_inside(anchor, inside | inner | views):
        raise NoAttention("its first product is needed elsewhere")
    product, q, k = _operands_of_first(anchor, next(iter(walk.coords[anchor.serial])))
    v = Seen(second.values, placed(second.value_labels))
    found = Attention(
        batch=tuple((n, s) for n, s in sorted(sizes.items()) if n not in _FIXED and s != 1),
        queries=sizes[ROW],
        keys=sizes[KEY],
        depth=width(q),
        columns=width(v),
        q=in_memory(q, bounds, ROW),
        k=in_memory(k, bounds, KEY),
        v=in_memory(v, bounds, KEY),
        out=placed(second.out),
        scores=scores,
        anchor=anchor,
        product=product,
        operands=tuple(behind_views(node) for node in operands if node is not anchor),
        inner=frozenset(inner | inside | {anchor.serial}) - {call.serial},
    )
    _check(found)
    return found


_FIXED = (ROW, KEY, INNER)


def _second(call: Node) -> _Second | None:
    if not is_product(call):
        return None
    try:
        terms = terms_of(call)
    except (NoProduct, ValueError):
        return None
    a, b = (terms.a, terms.a_labels), (terms.b, terms.b_labels)
    for weights, values in ((a, b), (b, a)):
        softmax = softmax_of(behind_views(weights[0]))
        if softmax is not None:
            _check_plain(call, terms)
            return _Second(call, softmax, *weights, *values, terms.out)
    return None


def _check_plain(call: Node, terms: Terms) -> None:
    if call.type.dtype is not DType.F32:
        raise NoAttention(f"no kernel makes it of {call.type.dtype.value}")
    if terms.added is not None or terms.alpha != 1:
        raise NoAttention("its result is scaled, or something is added to it")


def _variables(second: _Second) -> dict[str, str]:
    """The variable of each label: the last of the result are rows and columns."""
    weights, values, out = second.weight_labels, second.value_labels, second.out
    rows = [label for label in out[:-1] if label not in values]
    summed = [label for label in weights if label not in (*out, ONE)]
    if not rows or len(summed) != 1 or out[-1] in weights or summed[0] not in values:
        raise NoAttention("its second product has no rows and columns in their order")
    names = {out[-1]: INNER, rows[-1]: ROW, summed[0]: KEY}
    others = [label for label in out if label not in names]
    return names | {label: f"i{place}" for place, label in enumerate(others)}


def _coordinate(name: str | None, sizes: dict[str, Size]) -> Size:
    return 0 if name is None or sizes[name] == 1 else symbol(name)


def _only_here(second: _Second, users: Users) -> set[int]:
    """The serials of what is computed between the scores and the result."""
    views = list(_between(second.weights, second.softmax.nodes[0]))
    nodes = (*second.softmax.nodes, *views)
    inside = {second.call.serial, *(node.serial for node in nodes)}
    if not all(users.all_inside(node, inside) for node in nodes):
        raise NoAttention("its softmax is needed elsewhere")
    return inside


def _between(top: Node, bottom: Node) -> Iterator[Node]:
    while top is not bottom:
        yield top
        top = top.inputs[0]


def _first(walk: Walk, operands: tuple[Node, ...]) -> Node:
    """The product whose elements become scores."""
    for node in operands:
        single = is_product(node) and len(walk.coords[node.serial]) == 1
        if single and all(walk.knows(node, n) or walk.bounds[n] == 1 for n in (ROW, KEY)):
            return node
    raise NoAttention("its scores come from no product")


def _operands_of_first(anchor: Node, coords: Coords) -> tuple[Product, Seen, Seen]:
    """The product, the rows of q, and those of k."""
    try:
        terms = terms_of(anchor)
    except (NoProduct, ValueError):
        raise NoAttention("its first product is of another form") from None
    summed = [x for x in terms.a_labels if x in terms.b_labels and x not in (*terms.out, ONE)]
    alone = {*terms.a_labels, *terms.b_labels} - {ONE, *terms.out, *summed}
    if len(summed) != 1 or alone or terms.added is not None:
        raise NoAttention("its first product is of another form")
    place: dict[str, Size] = {ONE: 0, summed[0]: symbol(INNER)}
    place |= dict(zip(terms.out, coords, strict=True))
    a, b = (
        Seen(node, tuple(place[label] for label in labels))
        for node, labels in ((terms.a, terms.a_labels), (terms.b, terms.b_labels))
    )
    none = Matrix((), (), ())
    product = Product(a.node, b.node, none, none, alpha=terms.alpha)
    turned = knows(a, KEY) or knows(b, ROW)
    return (product, b, a) if turned else (product, a, b)


def _check(found: Attention) -> None:
    strange = ((found.q, KEY), (found.k, ROW), (found.v, ROW))
    if any(knows(seen, name) for seen, name in strange):
        raise NoAttention("its products are of another form")
    if any(x.node.type.dtype is not DType.F32 for x in (found.q, found.k, found.v, found.scores)):
        raise NoAttention("its operands are not of the result's type")
    if any(behind_views(node).op in (Op.CONST, Op.IOTA) for node in found.reads):
        raise NoAttention("an operand is a constant")
