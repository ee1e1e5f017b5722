"""A group over named sizes: what groups that differ in numbers only have in common.

Each axis of an operand gets a name of its own; operations then say which of them are equal, and
which are products or sums of others. So the names do not depend on numbers that happen to be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from ..attrs import ConstAttrs, ShapeAttrs
from ..expr import Expr, Size, divides, name_of, product, substitute, symbol, symbols_of
from ..graph import Node
from ..index import result_coords, space_coords
from ..ops import OPS, Kind, Op
from ..plan import Group, GroupKind, Lifting, Rows
from ..types import TensorType
from .convolution import TRANSPOSED
from .lifted_product import NotLifted, axes_of, axis_sizes, with_product
from .product import Product

Shape = tuple[Size, ...]


_KINDS = (
    GroupKind.POINTWISE,
    GroupKind.REDUCTION,
    GroupKind.CONTRACTION,
    GroupKind.CONVOLUTION,
)


def lifted(group: Group, numbered_rows: bool = False) -> Lifting | None:
    """The group over named sizes, or None where an operation allows no other numbers.

    Rows of known length keep it, for their kernels are made to measure; with `numbered_rows` each
    axis does that they go along.
    """
    if group.kind not in _KINDS or group.prologue is not None:
        return None
    if group.convolution is not None and group.convolution.depthwise:
        return None  # its kernel is made to measure
    try:
        return _lifted(group, numbered_rows)
    except NotLifted:
        return None


def _lifted(group: Group, numbered_rows: bool) -> Lifting:
    sizes = _Sizes()
    made = {node.serial: _operand(node, sizes) for node in group.inputs}
    every = _computed(group)
    for node in every:
        inputs = [made[n.serial] for n in node.inputs]
        if group.product is not None and node is group.anchor:
            made[node.serial] = _product(node, inputs, group.product, made, sizes)
        else:
            made[node.serial] = _over(node, inputs, sizes)
    space = _space(group.rows, made, sizes, numbered_rows)
    _results_of(group, space, made, sizes)
    names = _names(sizes, [made[node.serial] for node in (*group.inputs, *every)])
    final = _renamed(group, every, made, sizes, names, space)
    values = tuple((new, sizes.values[old]) for old, new in names.items())
    _require_equal(every, final, dict(values))
    over = replace(
        group,
        nodes=tuple(final[n.serial] for n in group.nodes),
        inputs=tuple(final[n.serial] for n in group.inputs),
        outputs=tuple(final[n.serial] for n in group.outputs),
    )
    return Lifting(with_product(_with_windows(_with_rows(over, final), final), final), values)


def _space(rows: Rows | None, made: dict[int, Node], sizes: _Sizes, numbered_rows: bool) -> Shape:
    """The shape of what is reduced, which is the same for all reductions: without any, none."""
    if rows is None:
        return ()
    reduced = (node.inputs[0] for level in rows.levels for node in level)
    space, *others = (made[node.serial].type.shape for node in reduced)
    for other in others:
        _equal_axes(space, other, sizes)
    numbered = numbered_rows or isinstance(rows.length, int)
    for axis in rows.axes if numbered else ():
        if isinstance(rows.space[axis], int):
            sizes.pin(space[axis])
    return space


def _results_of(group: Group, space: Shape, made: dict[int, Node], sizes: _Sizes) -> None:
    """Each result of a reduction has the shape of its rows, or that of the space."""
    rows = group.rows
    for node in group.outputs if rows else ():
        assert rows is not None
        coords = result_coords(node.type.shape, rows.space, rows.axes)
        if coords is None:
            raise NotLifted
        named = space_coords(rows.space, rows.axes)
        wide = [size for size, c in zip(space, named, strict=True) if c != 0 and c in coords]
        _equal_axes(wide, [s for s in made[node.serial].type.shape if s != 1], sizes)


def _with_rows(over: Group, final: dict[int, Node]) -> Group:
    """The group with its rows over named sizes, too, which its reason tells the length of."""
    rows = over.rows
    if rows is None:
        return over
    levels = tuple(tuple(final[node.serial] for node in level) for level in rows.levels)
    named = replace(rows, space=levels[0][0].inputs[0].type.shape, levels=levels)
    told, new = (f"rows of {each.length} elements" for each in (rows, named))
    return replace(over, rows=named, reason=over.reason.replace(told, new))


def _with_windows(over: Group, final: dict[int, Node]) -> Group:
    """The group with its convolution over named sizes, too."""
    made, anchor = over.convolution, over.anchor
    if made is None or anchor is None:
        return over
    named = final[anchor.serial]
    x, weight = final[made.x.serial], final[made.weight.serial]
    windows = replace(made, x=x, weight=weight, out=named.type.shape[1:-1])
    return replace(over, anchor=named, convolution=windows)


def _computed(group: Group) -> list[Node]:
    """What is computed of the operands, and the group's other nodes, operands first."""
    known = {node.serial for node in group.inputs}
    found: dict[int, Node] = {}
    waiting = [*group.nodes, *group.outputs]
    while waiting:
        node = waiting.pop()
        if node.serial not in known and node.serial not in found:
            found[node.serial] = node
            waiting.extend(node.inputs)
    return [found[serial] for serial in sorted(found)]


@dataclass(slots=True)
class _Sizes:
    """Names of sizes, the number that each is here, and what is known to be equal."""

    values: dict[str, Size] = field(default_factory=dict)
    solved: dict[str, Size] = field(default_factory=dict)

    def fresh(self, value: Size) -> Size:
        """A name for `value`; 1 stays, for it says what is broadcast, and 0."""
        if value in (0, 1):
            return value
        name = f"n{len(self.values)}"
        self.values[name] = value
        return symbol(name)

    def known(self, size: Size) -> Size:
        """The size by the names that are left."""
        while symbols_of(size) & self.solved.keys():
            size = substitute(size, self.solved)
        return size

    def equal(self, left: Size, right: Size) -> None:
        """From now on both are the same."""
        left, right = self.known(left), self.known(right)
        if left == right:
            return
        for one, other in ((right, left), (left, right)):
            name = name_of(one)
            if name is not None and name not in symbols_of(other):
                self.solved[name] = other
                return
        raise NotLifted

    def pin(self, size: Size) -> Size:
        """The size as a number, which all names in it have from now on."""
        for name in sorted(symbols_of(self.known(size))):
            if not isinstance(self.values[name], int):
                raise NotLifted
            self.solved[name] = self.values[name]
        return self.known(size)


def _operand(node: Node, sizes: _Sizes) -> Node:
    shape = tuple(sizes.fresh(size) for size in node.type.shape)
    return replace(node, type=TensorType(node.type.dtype, shape))


def _over(node: Node, inputs: list[Node], sizes: _Sizes) -> Node:
    """The node over operands whose sizes are named."""
    attrs = node.attrs
    if node.op is Op.CONST:
        return node
    if node.op is Op.IOTA:
        attrs = replace(attrs, length=sizes.fresh(attrs.length))
        return replace(node, attrs=attrs, type=TensorType(node.type.dtype, (attrs.length,)))
    shapes = [operand.type.shape for operand in inputs]
    if node.op is Op.CALL:
        return _convolution(node, inputs, sizes)
    if node.kind is Kind.POINTWISE:
        _broadcast(shapes, sizes)
    elif node.kind is Kind.REDUCTION:
        pass  # its attributes name axes, and no sizes
    elif node.op in _VIEWS:
        attrs = _VIEWS[node.op](node, shapes, sizes)
    else:
        raise NotLifted
    if isinstance(attrs, ShapeAttrs):  # by the names that are left, as the operands
        attrs = replace(attrs, shape=tuple(map(sizes.known, attrs.shape)))
    types = tuple(_known(operand.type, sizes) for operand in inputs)
    return replace(node, inputs=tuple(inputs), attrs=attrs, type=OPS[node.op].infer(types, attrs))


def _convolution(node: Node, inputs: list[Node], sizes: _Sizes) -> Node:
    """One with its channels last, which is all that a lifted group calls."""
    x, weight = (_known(operand.type, sizes).shape for operand in inputs)
    filters, channels = weight[:2]
    if node.attrs.target in TRANSPOSED:
        filters, channels = channels, filters
    sizes.equal(x[-1], channels)
    out = (sizes.fresh(size) for size in node.type.shape[1:-1])
    result = TensorType(node.type.dtype, (x[0], *out, filters))
    attrs = replace(node.attrs, results=(result,))
    return replace(node, inputs=tuple(inputs), attrs=attrs, type=result)


def _product(
    node: Node, inputs: list[Node], product: Product, made: dict[int, Node], sizes: _Sizes
) -> Node:
    """The call that is a product: its result has the batches, the rows and the columns."""
    a, b = made[product.a.serial], made[product.b.serial]
    for one, x, two, y in axes_of(product, a, b):
        for left, right in zip(one, two, strict=True):
            if left.place is not None and right.place is not None:
                sizes.equal(x.type.shape[left.place], y.type.shape[right.place])
    rows, columns, _, batch = (axis_sizes(*each) for each in axes_of(product, a, b))
    shape = tuple(map(sizes.known, (*batch, *rows, *columns)))
    if len(shape) != node.type.rank:
        raise NotLifted
    if product.added is not None:
        _broadcast([shape, made[product.added.serial].type.shape], sizes)
    result = _known(TensorType(node.type.dtype, shape), sizes)
    attrs = replace(node.attrs, results=(result,))
    return replace(node, inputs=tuple(inputs), attrs=attrs, type=result)


def _known(type: TensorType, sizes: _Sizes) -> TensorType:
    return replace(type, shape=tuple(map(sizes.known, type.shape)))


def _broadcast(shapes: Iterable[Shape], sizes: _Sizes) -> None:
    """Sizes of one axis are equal, but for those that are 1."""
    wide: dict[int, Size] = {}
    for shape in shapes:
        for place, size in enumerate(reversed(shape)):
            if size != 1:
                sizes.equal(wide.setdefault(place, size), size)


def _equal_axes(left: Iterable[Size], right: Iterable[Size], sizes: _Sizes) -> None:
    for one, other in zip(left, right, strict=True):
        sizes.equal(one, other)


# --- views: equal sizes are told to be so, and the attributes are given with names ---


def _as_it_is(node: Node, shapes: list[Shape], sizes: _Sizes) -> Any:
    return node.attrs


def _expand(node: Node, shapes: list[Shape], sizes: _Sizes) -> Any:
    (shape,) = shapes
    aligned = (1,) * (len(node.attrs.shape) - len(shape)) + shape
    pairs = zip(aligned, node.attrs.shape, strict=True)
    return ShapeAttrs(tuple(sizes.fresh(new) if old == 1 else old for old, new in pairs))


def _reshape(node: Node, shapes: list[Shape], sizes: _Sizes) -> Any:
    """Axes that are merged are a product, those of an axis that is parted have names of their own;
    what is neither keeps its numbers.
    """
    (operand,) = node.inputs
    named = [size for size in shapes[0] if size != 1]
    old = [size for size in operand.type.shape if size != 1]
    new = [size for size in node.attrs.shape if size != 1]
    parts: list[Size] = []
    for num_old, num_new in _blocks(old, new):
        of_block, named = named[:num_old], named[num_old:]
        wide, new = new[:num_new], new[num_new:]
        parts += _of_block(of_block, wide, sizes)
    each = iter(parts)
    return ShapeAttrs(tuple(1 if size == 1 else next(each) for size in node.attrs.shape))


def _of_block(old: list[Size], new: list[Size], sizes: _Sizes) -> list[Size]:
    if len(new) == 1:
        return [product(old)]
    if len(old) == 1:
        fresh = [sizes.fresh(size) for size in new]
        sizes.equal(old[0], product(fresh))
        return fresh
    for size in old:
        sizes.pin(size)
    return new


def _blocks(old: list[Size], new: list[Size]) -> list[tuple[int, int]]:
    """How many axes of each become how many of the other, outermost first: as few as are equal in
    number.
    """
    found: list[tuple[int, int]] = []
    at_old = at_new = 0
    while at_old < len(old) and at_new < len(new):
        start_old, start_new = at_old, at_new
        left, right = old[at_old], new[at_new]
        at_old, at_new = at_old + 1, at_new + 1
        while left != right:
            more_left, more_right = divides(left, right), divides(right, left)
            if at_old == len(old) or at_new == len(new):
                at_old, at_new = len(old), len(new)
                break
            if more_left or not more_right:
                left, at_old = left * old[at_old], at_old + 1
            if more_right or not more_left:
                right, at_new = right * new[at_new], at_new + 1
        found.append((at_old - start_old, at_new - start_new))
    return found


def _slice(node: Node, shapes: list[Shape], sizes: _Sizes) -> Any:
    """Where it begins, and how far it goes, stays a number."""
    sizes.pin(shapes[0][node.attrs.dim])
    return node.attrs


def _cat(node: Node, shapes: list[Shape], sizes: _Sizes) -> Any:
    dim = node.attrs.dim
    for shape in shapes[1:]:
        for axis, size in enumerate(shape):
            if axis != dim:
                sizes.equal(shapes[0][axis], size)
    return node.attrs


def _window(node: Node, shapes: list[Shape], sizes: _Sizes) -> Any:
    """How many windows there are is a number of its own, and what they are stays."""
    return replace(node.attrs, count=sizes.fresh(node.attrs.count))


_VIEWS: dict[Op, Callable[[Node, list[Shape], _Sizes], Any]] = {
    Op.PERMUTE: _as_it_is,
    Op.FLIP: _as_it_is,
    Op.PAD: _as_it_is,
    Op.EXPAND: _expand,
    Op.RESHAPE: _reshape,
    Op.SLICE: _slice,
    Op.CAT: _cat,
    Op.WINDOW: _window,
}


# --- the names that are left ---


def _names(sizes: _Sizes, nodes: list[Node]) -> dict[str, str]:
    """`s0`, `s1` ... for the names that are left, in the order in which they are met."""
    met: dict[str, None] = {}
    for node in nodes:
        for size in node.type.shape:
            # Names were given in order.
            left = symbols_of(sizes.known(size))
            met.update(dict.fromkeys(sorted(left, key=lambda name: int(name[1:]))))
    return {old: f"s{number}" for number, old in enumerate(met)}


def _renamed(
    group: Group,
    every: list[Node],
    made: dict[int, Node],
    sizes: _Sizes,
    names: dict[str, str],
    space: Shape,
) -> dict[int, Node]:
    """The nodes with all that is known of their sizes, by their serials."""
    rows = group.rows
    counted = (rows.length, product(space[axis] for axis in rows.axes)) if rows else (0, 0)
    new: dict[str, Size] = {old: symbol(name) for old, name in names.items()}
    # Where an attribute names a size of the forward, that of an axis stands for it.
    for old, name in reversed(names.items()):
        new.setdefault(name_of(sizes.values[old]) or "", symbol(name))

    def last(size: Size) -> Size:
        size = sizes.known(size)
        if not symbols_of(size) <= new.keys():
            raise NotLifted
        return substitute(size, new)

    final: dict[int, Node] = {}
    for node in group.inputs:
        final[node.serial] = _typed(made[node.serial], last)
    for node in every:
        over = _typed(_counting(made[node.serial], *counted), last)
        inputs = tuple(final[operand.serial] for operand in over.inputs)
        final[node.serial] = replace(over, inputs=inputs, attrs=_mapped(over.attrs, last))
    return final


def _counting(node: Node, length: Size, named: Size) -> Node:
    """A constant that is how many elements a row has, or one less, by the names."""
    if node.op is not Op.CONST or not isinstance(node.attrs.value, Expr):
        return node
    beside = node.attrs.value - length
    return replace(node, attrs=ConstAttrs(named + beside)) if isinstance(beside, int) else node


def _typed(node: Node, change: Callable[[Size], Size]) -> Node:
    return replace(node, type=replace(node.type, shape=tuple(map(change, node.type.shape))))


def _mapped(value: Any, change: Callable[[Size], Size]) -> Any:
    """Attributes with each size expression in them changed."""
    if isinstance(value, Expr):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_mapped(item, change) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        new = {f.name: _mapped(getattr(value, f.name), change) for f in fields(value)}
        return replace(value, **new)
    return value


def _require_equal(nodes: list[Node], final: dict[int, Node], values: dict[str, Size]) -> None:
    """With the numbers in place of the names everything is as it was."""
    for node in nodes:
        over = final[node.serial]
        shape = tuple(substitute(size, values) for size in over.type.shape)
        attrs = _mapped(over.attrs, lambda size: substitute(size, values))
        assert shape == node.type.shape, f"{node} is {node.type}, and not {over.type}"
        assert repr(attrs) == repr(node.attrs), f"{node} has {node.attrs}, and not {over.attrs}"
