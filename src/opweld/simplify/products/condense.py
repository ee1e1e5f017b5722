"""Sums over the features of a product: the product with the mean of the weight's rows.

    sum over j of f(x . W_j + b_j)  =  n f(x . mean(W) + mean(b))        f(y) = a y + c, j = 1 .. n

of all features, or of groups of them, as an average pooling has. x is read once, and the weight is
added up, where the product would multiply them.

What is not finite is as in the original. NaN in x, W or b is in every term that it was in. An
infinite x_k makes x_k W_jk of each feature, which is NaN in the sum unless all W_jk of the features
have one sign, and not zero: so it is multiplied by that sign, or by 0 where there is none. Of a
mean of finite numbers nothing overflows: what overflows in the original may be finite here.

Left out: scales that differ from feature to feature, whose products with the weight may overflow;
groups of fewer than eight features where infinities have to be told apart, since that takes a
second product.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.attrs import CastAttrs, PermuteAttrs, ReduceAttrs, ShapeAttrs, SliceAttrs
from ...ir.expr import Size, product
from ...ir.graph import Arena, Node
from ...ir.ops import Kind, Op
from ...ir.rules.pattern import Computed, Match
from ...ir.rules.rewrite import Condition, Domain, Effect, Missed, Numerics, Rule
from ..names import name_of
from ..terms import total, x
from .affine import Affine, affine_of
from .conditions import IN_CALLS
from .feature_axes import Axes, Role, axes_of_product, through
from .linear import Linear, call_linear, linear_of
from .reasons import CONDENSED, is_made

LEAST_FEATURES, LEAST_TOLD_APART = 4, 8
"""Of a group: fewer are not worth it."""


@dataclass(frozen=True, slots=True)
class Sum:
    """What a reduction adds up: f of each feature of a product.

    `count` features make one result, `kept` is the role of the axis that tells results of a row
    apart, if any; `groups` the sizes of the two axes that the features are seen as. `over_rows` has
    the axes of the reduction that are rows.
    """

    product: Linear
    steps: tuple[Affine, ...]
    axes: Axes
    count: int
    kept: Role | None
    over_rows: tuple[int, ...]

    @property
    def groups(self) -> tuple[int, int]:
        """The numbers of groups and of members of one."""
        groups, members = self.axes.size(Role.GROUPS), self.axes.size(Role.MEMBERS)
        assert isinstance(groups, int) and isinstance(members, int), "features are counted"
        return groups, members

    @property
    def power(self) -> int:
        """The least power of two that is not less than `count`."""
        return int(2 ** (self.count - 1).bit_length())

    @property
    def num_results(self) -> int:
        """Of a row."""
        if self.kept is None:
            return 1
        return self.groups[0 if self.kept is Role.GROUPS else 1]


def sum_of(match: Match) -> Sum | None:
    """The sum at the root of a match; None where it is of something else, or of what others read
    too.
    """
    root = match.root
    steps, views, product, inside = _behind(root)
    if product is None or not isinstance(product.num_features, int):
        return None
    if any(not match.is_read_only_by(node, inside) for node in inside if node is not root):
        return None
    axes: Axes | None = axes_of_product(product.call.type.shape)
    for view in reversed(views):
        axes = through(view, axes) if axes is not None else None
    if axes is None:
        return None
    return _added_up(product, tuple(steps), axes, root.attrs.axes)


def _behind(root: Node) -> tuple[list[Affine], list[Node], Linear | None, list[Node]]:
    """The steps and views between a reduction and the product, outermost first; the product, and
    all that is computed from it on.
    """
    steps, views, inside = list[Affine](), list[Node](), [root]
    node = root.inputs[0]
    while True:
        if node.kind is Kind.VIEW and len(node.inputs) == 1:
            views.append(node)
            inside.append(node)
            node = node.inputs[0]
            continue
        step = affine_of(node)
        if not step.nodes:
            break
        steps.append(step)
        inside += step.nodes
        node = step.core
    return steps, views, linear_of(node), [*inside, node]


def _added_up(
    product: Linear, steps: tuple[Affine, ...], axes: Axes, reduced: tuple[int, ...]
) -> Sum | None:
    roles = {axes.roles[axis] for axis in reduced} - {Role.NOTHING}
    features = {*axes.wide} - {Role.ROWS}
    gone, kept = roles - {Role.ROWS}, features - roles
    if not gone or len(kept) > 1 or any(not isinstance(axes.size(role), int) for role in features):
        return None
    count = 1
    for role in gone:
        size = axes.size(role)
        assert isinstance(size, int), "seen above"
        count *= size
    order = [role for role in axes.wide if role not in gone]
    if kept and (order[-1] is Role.ROWS or order.count(Role.ROWS) != len(order) - 1):
        return None  # results of a row do not lie side by side
    rows = tuple(axis for axis in reduced if axes.roles[axis] is Role.ROWS)
    return Sum(product, steps, axes, count, kept.pop() if kept else None, rows)


def _is_worth_it(found: Sum, exact: bool) -> bool:
    if found.num_results == 1:
        return found.count >= LEAST_FEATURES
    least = LEAST_TOLD_APART if exact else LEAST_FEATURES
    return found.count >= least and found.product.call.type.dtype in IN_CALLS


def _condensed(match: Match, exact: bool) -> Node:
    found = sum_of(match)
    assert found is not None, "the condition holds"
    arena, root = match.arena, match.root
    made = _wide(_scaled_product(found, arena, exact), arena)
    factor = float(found.power)
    if found.steps:  # f of the mean itself
        made = arena.make(Op.MUL, made, arena.const(factor / found.count, made.type.dtype))
        factor = float(found.count)
    for step in reversed(found.steps):
        made = step.of(made, arena)
    result = arena.make(Op.MUL, made, arena.const(factor, made.type.dtype))
    shape = list(root.inputs[0].type.shape)
    for axis in root.attrs.axes:
        shape[axis] = shape[axis] if axis in found.over_rows else 1
    result = arena.make(Op.RESHAPE, result, attrs=ShapeAttrs(tuple(shape)))
    if not found.over_rows:
        return result
    return arena.make(Op.SUM, result, attrs=ReduceAttrs(found.over_rows))


def _scaled_product(found: Sum, arena: Arena, exact: bool) -> Node:
    """The sum of each group of features of the product by `power`, [rows..., results]."""
    own = found.product
    rows = _rows_of_weight(found, arena)
    mean = _scaled_sum(rows, found, arena)
    signs = _one_sign(rows, found, arena) if exact else None
    bias = None if own.bias is None else _bias(found, own.bias, arena)
    if found.num_results == 1:
        made = _dot(_wide(own.x, arena), mean, signs, arena)
        return made if bias is None else arena.make(Op.ADD, made, bias)
    if signs is None:
        return call_linear(arena, own.x, mean, bias, CONDENSED)
    # An infinity goes into the second product alone, which is 0 without; its sign beside it keeps
    # that of an infinite weight.
    infinite = arena.make(Op.ISINF, own.x)
    zero = arena.const(0.0, own.x.type.dtype)
    finite = arena.make(Op.WHERE, infinite, arena.make(Op.SIGN, own.x), own.x)
    others = arena.make(Op.WHERE, infinite, own.x, zero)
    made = call_linear(arena, finite, mean, bias, CONDENSED)
    return arena.make(Op.ADD, made, call_linear(arena, others, signs, None, CONDENSED))


def _dot(own: Node, mean: Node, signs: Node | None, arena: Arena) -> Node:
    """The sum of x_k mean_k, or of x_k sign_k where x_k is infinite, as one column."""
    flat = ShapeAttrs((own.type.shape[-1],))
    factor = arena.make(Op.RESHAPE, mean, attrs=flat)
    if signs is not None:
        sign = arena.make(Op.RESHAPE, signs, attrs=flat)
        factor = arena.make(Op.WHERE, arena.make(Op.ISINF, own), sign, factor)
    terms = arena.make(Op.MUL, own, factor)
    return arena.make(Op.SUM, terms, attrs=ReduceAttrs((own.type.rank - 1,)))


def _wide(node: Node, arena: Arena) -> Node:
    compute = node.type.dtype.compute
    if compute is node.type.dtype:
        return node
    return arena.make(Op.CAST, node, attrs=CastAttrs(compute))


def _rows_of_weight(found: Sum, arena: Arena) -> Node:
    """The weight as [features, depth], or [groups, members, depth]."""
    weight = _wide(found.product.weight, arena)
    if found.product.features == 1:
        weight = arena.make(Op.PERMUTE, weight, attrs=PermuteAttrs((1, 0)))
    return _in_groups(weight, found, arena)


def _in_groups(node: Node, found: Sum, arena: Arena) -> Node:
    """With its first axis, the features, as that of groups and that of members."""
    if Role.GROUPS not in found.axes.wide and Role.MEMBERS not in found.axes.wide:
        return node
    used = found.groups[0] * found.groups[1]
    if used != node.type.shape[0]:  # windows that leave the last features out
        node = arena.make(Op.SLICE, node, attrs=SliceAttrs(0, 0, 1, used))
    shape = (*found.groups, *node.type.shape[1:])
    return arena.make(Op.RESHAPE, node, attrs=ShapeAttrs(shape))


def _over_members(op: Op, node: Node, found: Sum, arena: Arena) -> Node:
    """A reduction over the features of each result, [results, ...]."""
    grouped = node.type.rank - len(_behind_features(node, found))
    gone = {None: tuple(range(grouped)), Role.GROUPS: (1,), Role.MEMBERS: (0,)}[found.kept]
    made = arena.make(op, node, attrs=ReduceAttrs(gone))
    shape = (found.num_results, *_behind_features(node, found))
    return arena.make(Op.RESHAPE, made, attrs=ShapeAttrs(shape))


def _behind_features(node: Node, found: Sum) -> tuple[Size, ...]:
    in_groups = Role.GROUPS in found.axes.wide or Role.MEMBERS in found.axes.wide
    return node.type.shape[2 if in_groups else 1 :]


def _one_sign(rows: Node, found: Sum, arena: Arena) -> Node:
    """The sign that all features of a result have in a column of the weight, or 0."""
    signs = arena.make(Op.SIGN, rows)
    least, most = (_over_members(op, signs, found, arena) for op in (Op.AMIN, Op.AMAX))
    zero = arena.const(0.0, rows.type.dtype)
    return arena.make(Op.WHERE, arena.make(Op.EQ, least, most), most, zero)


def _bias(found: Sum, bias: Node, arena: Arena) -> Node:
    return _scaled_sum(_in_groups(_wide(bias, arena), found, arena), found, arena)


def _scaled_sum(node: Node, found: Sum, arena: Arena) -> Node:
    """The sum over the features of each result, of which none is larger than the largest element:
    each is scaled by a power of two before.
    """
    scale = arena.const(1.0 / found.power, node.type.dtype)
    return _over_members(Op.SUM, arena.make(Op.MUL, node, scale), found, arena)


# --- what the plan tells ---


def _effect(match: Match, exact: bool) -> Effect:
    found = sum_of(match)
    assert found is not None, "the condition holds"
    own = found.product
    value, weight = name_of(own.x), name_of(own.weight)
    transposed = ".T" if own.features == 0 else ""
    bias = "" if own.bias is None else f" + {name_of(own.bias)}"
    mean_bias = "" if own.bias is None else f" + mean({name_of(own.bias)})"
    each = f"{value} @ {weight}{transposed}{bias}"
    mean = f"{value} @ mean({weight}{transposed}){mean_bias}"
    function = "y"
    for step in reversed(found.steps):
        function = step.text(function)
    if found.steps:
        each = f"f(y) = {function}, y = {each}"
    of = f"groups of {found.count} features" if found.num_results > 1 else "the features"
    rows = " and over rows" if found.over_rows else ""
    # Infinities take a product of their own, where it is not one column.
    products = 2 if exact and found.num_results > 1 else 1
    flops = own.num_rows * found.num_results * own.depth * (2 * products)
    return Effect(
        f"sum over {of}{rows} of {each}",
        f"{found.count} * {'f' if found.steps else ''}({mean})"
        f"{', summed over rows' if rows else ''}",
        own.flops,
        flops + product(own.weight.type.shape),
        _bytes_of(own),
    )


def _bytes_of(own: Linear) -> Size:
    """What the product itself wrote, and the sum read."""
    return own.call.type.size_bytes * 2


def _missed(match: Match, exact: bool) -> Missed | None:
    """Of a sum over the features of a product that does not fulfil the condition."""
    steps, views, own, inside = _behind(match.root)
    if own is None or is_made(own.call):
        return None
    last = own.call.type.rank - 1
    if not views and last not in match.root.attrs.axes:
        return None
    bias = "" if own.bias is None else f" + {name_of(own.bias)}"
    before = f"sum over features of {name_of(own.x)} @ {name_of(own.weight)}{bias}"
    if not all(match.is_read_only_by(node, inside) for node in inside if node is not match.root):
        return Missed(before, "others read the product's features, too")
    found = sum_of(match)
    if found is None:
        return Missed(before, "its views mix features with rows, or are of unknown sizes")
    if _is_worth_it(found, exact):
        return None
    least = LEAST_TOLD_APART if exact and found.num_results > 1 else LEAST_FEATURES
    if found.count < least:
        return Missed(before, f"{found.count} features make one result, and {least} have to")
    return Missed(before, "a product of 16 bits would be rounded")


def _rule(name: str, exact: bool) -> Rule:
    text = "n f(x . mean(W) + mean(b))"
    if exact:
        text += ", infinite x_k times the sign of all W_jk"

    def holds(match: Match) -> bool:
        found = sum_of(match)
        return found is not None and _is_worth_it(found, exact)

    condition = Condition(
        "x is f(y_j), a y_j + c, of a product's features y_j = x . W_j + b_j that nothing else"
        f" reads, {'8' if exact else '4'} or more in a group, or 4 or more in all",
        holds,
    )
    return Rule(
        name,
        total(x, attrs="p"),
        Computed(text, lambda match: _condensed(match, exact)),
        Numerics.REORDER,
        condition,
        Domain.FLOAT,
        lambda match: _effect(match, exact),
        lambda match: _missed(match, exact),
    )


CONDENSE: tuple[Rule, ...] = (_rule("sum-of-product", exact=True),)
CONDENSE_FINITE: tuple[Rule, ...] = (_rule("sum-of-product-finite", exact=False),)
