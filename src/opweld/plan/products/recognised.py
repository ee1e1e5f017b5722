"""Which PyTorch calls are matrix products, and how their operands' axes make them.

Each call is first written like an einsum, one label an axis; then labels become batches, rows,
columns and sums, and views before the operands become axes of what they show.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...ir.attrs import Operand
from ...ir.expr import Size
from ...ir.graph import Node
from ...ir.kernels.product import Axis, Matrix, Mode, Product, RowsProduct
from ...ir.ops import Op
from ...ir.types import DType
from ...ir.views import behind_views

MODES = {DType.F32: Mode.FAITHFUL, DType.F16: Mode.HALF, DType.BF16: Mode.BFLOAT16}
"""The mode of operands of each type, without leave to be less precise."""

Labels = tuple[str, ...]


class NoProduct(Exception):
    """Why a call is no product that a kernel of ours makes: one sentence without its end."""


@dataclass(frozen=True, slots=True)
class Terms:
    """result[out] = alpha * sum of a[a_labels] * b[b_labels] + beta * added"""

    a: Node
    b: Node
    a_labels: Labels
    b_labels: Labels
    out: Labels
    added: Node | None = None
    alpha: Any = 1
    beta: Any = 1


def is_product(call: Node) -> bool:
    """Whether the call is of an operator that multiplies matrices."""
    return call.op is Op.CALL and call.attrs.target in _FORMS


def terms_of(call: Node) -> Terms:
    """A product as an einsum, an axis that is broadcast being ONE. Raises NoProduct, and ValueError
    where it is called in an unknown way.
    """
    return _without_broadcasts(_FORMS[call.attrs.target](call))


def product_of(call: Node) -> Product:
    """The product that a call computes. Raises NoProduct."""
    try:
        terms = terms_of(call)
        sizes = _sizes(terms)
    except ValueError:
        raise NoProduct("it is called in an unknown way") from None
    _check_types(call, terms)
    if tuple(sizes.get(label) for label in terms.out) != call.type.shape:
        raise NoProduct("its result is of an unknown shape")
    both = (_arranged(terms), _arranged(_swapped(terms)))
    chosen, batch, m, n, k = min(both, key=lambda found: len(found[1]))
    if batch and not m and not n:
        raise NoProduct("it sums row by row, with nothing to be used twice")
    a, a_axes = _operand(chosen.a, chosen.a_labels, (batch, m, k), sizes)
    b, b_axes = _operand(chosen.b, chosen.b_labels, (batch, n, k), sizes)
    return Product(a, b, a_axes, b_axes, chosen.added, chosen.alpha, chosen.beta)


def rows_product_of(call: Node) -> RowsProduct | None:
    """The call as a product of rows, where it is one of floats that BLAS multiplies as they are."""
    try:
        terms = _FORMS[call.attrs.target](call)
    except (NoProduct, ValueError):
        return None
    *rows, column = terms.out or ("",)
    inner = terms.a_labels[-1:]
    turned = terms.b_labels == (column, *inner)
    fits = (
        bool(rows)
        and terms.a_labels == (*rows, *inner)
        and (turned or terms.b_labels == (*inner, column))
        and (terms.added is None or terms.added.type.shape == call.type.shape[-1:])
    )
    factors = (terms.alpha, terms.beta)
    plain = factors == (1, 1) if terms.added is None else all(map(_is_number, factors))
    product = RowsProduct(terms.a, terms.b, turned, terms.added, *factors)
    same = {node.type.dtype for node in (call, *product.operands)} in BLAS_TYPES
    whole = set(call.inputs) == set(product.operands)
    return product if fits and plain and same and whole else None


BLAS_TYPES = ({DType.F32}, {DType.F64})


def _is_number(factor: Any) -> bool:
    return isinstance(factor, int | float)


def _check_types(call: Node, terms: Terms) -> None:
    tensors = [terms.a, terms.b, call, *([terms.added] if terms.added is not None else [])]
    dtypes = {node.type.dtype for node in tensors}
    if len(dtypes) > 1:
        raise NoProduct("its operands are not of the result's type")
    if call.type.dtype not in MODES:
        raise NoProduct(f"no kernel multiplies {call.type.dtype.value}")
    if not all(map(_is_number, (terms.alpha, terms.beta))):
        raise NoProduct("it is scaled by a size")


# --- labels ---


def _sizes(terms: Terms) -> dict[str, Size]:
    """The size of each label; after broadcasts are out, both operands agree."""
    pairs = [
        *zip(terms.a_labels, terms.a.type.shape, strict=True),
        *zip(terms.b_labels, terms.b.type.shape, strict=True),
    ]
    return {label: size for label, size in pairs if label != ONE}


ONE = "1"
"""The label of an axis of size 1 that is broadcast."""


def _without_broadcasts(terms: Terms) -> Terms:
    """With axes of size 1 that meet larger ones out of the sums."""
    for labels in (terms.a_labels, terms.b_labels):
        if len(set(labels)) < len(labels):
            raise NoProduct("it reads a diagonal")
    a = dict(zip(terms.a_labels, terms.a.type.shape, strict=True))
    b = dict(zip(terms.b_labels, terms.b.type.shape, strict=True))
    a_labels = tuple(ONE if a[x] == 1 and b.get(x, 1) != 1 else x for x in terms.a_labels)
    b_labels = tuple(ONE if b[x] == 1 and a.get(x, 1) != 1 else x for x in terms.b_labels)
    return replace(terms, a_labels=a_labels, b_labels=b_labels)


def _swapped(terms: Terms) -> Terms:
    return replace(terms, a=terms.b, b=terms.a, a_labels=terms.b_labels, b_labels=terms.a_labels)


def _arranged(terms: Terms) -> tuple[Terms, Labels, Labels, Labels, Labels]:
    """The labels of batches, rows, columns and sums: of the result's axes, the last ones that `a`
    has not are columns, those before them that `b` has not are rows.
    """
    a, b = set(terms.a_labels), set(terms.b_labels)
    out = list(terms.out)
    n = _taken_from_end(out, lambda label: label not in a)
    m = _taken_from_end(out, lambda label: label not in b)
    both = (label for label in terms.a_labels if label in b and label != ONE)
    k = tuple(label for label in both if label not in terms.out)
    if (a | b) - {ONE, *terms.out, *k}:
        raise NoProduct("it sums an operand by itself")
    if not k:
        raise NoProduct("it sums nothing")
    return terms, tuple(out), m, n, k


def _taken_from_end(labels: list[str], wanted: Callable[[str], bool]) -> Labels:
    taken: list[str] = []
    while labels and wanted(labels[-1]):
        taken.insert(0, labels.pop())
    return tuple(taken)


# --- views ---


def _operand(
    node: Node, labels: Labels, roles: tuple[Labels, ...], sizes: dict[str, Size]
) -> tuple[Node, Matrix]:
    """The tensor in memory, and the axes of it that each label goes along."""
    places: dict[str, int | None] = {label: axis for axis, label in enumerate(labels)}
    while (view := _through(node, places)) is not None:
        node, places = node.inputs[0], view
    if node.op in (Op.CONST, Op.IOTA) or behind_views(node).op in (Op.CONST, Op.IOTA):
        raise NoProduct("an operand is a constant")
    batch, rows, inner = (
        tuple(Axis(sizes[label], places.get(label)) for label in role) for role in roles
    )
    return node, Matrix(batch, rows, inner)


def _through(view: Node, places: dict[str, int | None]) -> dict[str, int | None] | None:
    """The places one view further down; None where the view has to be made."""
    if view.op is Op.PERMUTE:
        moved: list[int | None] = list(view.attrs.dims)
    elif view.op is Op.EXPAND:
        moved = _expanded(view)
    elif view.op is Op.RESHAPE:
        kept = _same_axes(view.inputs[0].type.shape, view.type.shape)
        if kept is None:
            return None
        moved = kept
    else:
        return None
    return {label: None if at is None else moved[at] for label, at in places.items()}


def _expanded(view: Node) -> list[int | None]:
    shape = view.inputs[0].type.shape
    new = view.type.rank - len(shape)
    kept = [
        axis if size == view.type.shape[new + axis] else None for axis, size in enumerate(shape)
    ]
    return [None] * new + kept


def _same_axes(before: tuple[Size, ...], after: tuple[Size, ...]) -> list[int | None] | None:
    """For each axis of a reshape the one it was, if it only adds and drops axes of size 1."""
    wide = [axis for axis, size in enumerate(before) if size != 1]
    if [before[axis] for axis in wide] != [size for size in after if size != 1]:
        return None
    rest = iter(wide)
    return [None if size == 1 else next(rest) for size in after]


# --- the calls ---


def _arguments(call: Node) -> list[Any]:
    return [_given(value, call) for value in call.attrs.arguments]


def _given(value: Any, call: Node) -> Any:
    if isinstance(value, Operand):
        return call.inputs[value.index]
    return tuple(_given(item, call) for item in value) if isinstance(value, tuple) else value


def _of_labels(a_labels: str, b_labels: str, out: str) -> Callable[[Node], Terms]:
    """A call with operands a, b."""

    def form(call: Node) -> Terms:
        a, b = _arguments(call)
        return Terms(a, b, tuple(a_labels), tuple(b_labels), tuple(out))

    return form


def _added(a_labels: str, b_labels: str, out: str) -> Callable[[Node], Terms]:
    """A call with operands added, a, b and the factors beta and alpha."""

    def form(call: Node) -> Terms:
        added, a, b = _arguments(call)
        factors = {"beta": 1, "alpha": 1, **dict(call.attrs.keywords)}
        beta = factors["beta"]
        return Terms(
            a,
            b,
            tuple(a_labels),
            tuple(b_labels),
            tuple(out),
            added if beta != 0 else None,  # torch: NaN and Inf in it do not reach the result then
            factors["alpha"],
            beta,
        )

    return form


def _linear(call: Node) -> Terms:
    a, b, *bias = _arguments(call)
    rows = _numbered("m", a.type.rank - 1)
    columns = ("n",) * (b.type.rank - 1)
    added = bias[0] if bias else None
    return Terms(a, b, (*rows, "k"), (*columns, "k"), (*rows, *columns), added)


def _matmul(call: Node) -> Terms:
    a, b = _arguments(call)
    if not a.type.rank or not b.type.rank:
        raise NoProduct("an operand is a scalar")
    a_batch, b_batch = (_numbered("b", x.type.rank - 2) for x in (a, b))
    rows, columns = ("m",) * (a.type.rank > 1), ("n",) * (b.type.rank > 1)
    batch = max(a_batch, b_batch, key=len)
    return Terms(a, b, (*a_batch, *rows, "k"), (*b_batch, "k", *columns), (*batch, *rows, *columns))


def _numbered(letter: str, count: int) -> Labels:
    """Labels that are counted from the last, as broadcasting aligns them."""
    return tuple(f"{letter}{index}" for index in reversed(range(max(count, 0))))


def _inner(call: Node) -> Terms:
    a, b = _arguments(call)
    if not a.type.rank or not b.type.rank:
        raise NoProduct("an operand is a scalar")
    rows, columns = _numbered("m", a.type.rank - 1), _numbered("n", b.type.rank - 1)
    return Terms(a, b, (*rows, "k"), (*columns, "k"), (*rows, *columns))


def _tensordot(call: Node) -> Terms:
    a, b, a_dims, b_dims = _arguments(call)
    a_labels = list(_numbered("m", a.type.rank))
    b_labels = list(_numbered("n", b.type.rank))
    rows, columns = list(a_labels), list(b_labels)
    for index, (a_dim, b_dim) in enumerate(zip(a_dims, b_dims, strict=True)):
        rows.remove(a_labels[a_dim])
        columns.remove(b_labels[b_dim])
        a_labels[a_dim] = b_labels[b_dim] = f"k{index}"
    return Terms(a, b, tuple(a_labels), tuple(b_labels), (*rows, *columns))


def _einsum(call: Node) -> Terms:
    equation, operands, *_ = _arguments(call)
    if len(operands) != 2:
        raise NoProduct(f"an einsum of {len(operands)} operands")
    a, b = operands
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    widths = [x.type.rank - len(t.replace("...", "")) for x, t in zip(operands, terms, strict=True)]
    a_labels, b_labels = (_spread(t, w) for t, w in zip(terms, widths, strict=True))
    hidden = max(widths, default=0) if "..." in left else 0
    out = _spread(right, hidden) if arrow else _implied((*a_labels, *b_labels), hidden)
    return Terms(a, b, a_labels, b_labels, out)


def _spread(term: str, width: int) -> Labels:
    """One label a letter, `width` of them for an ellipsis."""
    parts = re.findall(r"\.\.\.|[A-Za-z]", term)
    return tuple(x for p in parts for x in (_numbered("...", width) if p == "..." else (p,)))


def _implied(labels: Labels, hidden: int) -> Labels:
    """What an einsum without an arrow gives: letters that stand once, in their order."""
    once = sorted(x for x in labels if labels.count(x) == 1 and not x.startswith("..."))
    return (*_numbered("...", hidden), *once)


_FORMS: dict[str, Callable[[Node], Terms]] = {
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _of_labels("mk", "kn", "mn"),
    "aten.bmm.default": _of_labels("bmk", "bkn", "bmn"),
    "aten.mv.default": _of_labels("mk", "k", "m"),
    "aten.dot.default": _of_labels("k", "k", ""),
    "aten.addmm.default": _added("mk", "kn", "mn"),
    "aten.baddbmm.default": _added("bmk", "bkn", "bmn"),
    "aten.addmv.default": _added("mk", "k", "m"),
    "aten.inner.default": _inner,
    "aten.tensordot.default": _tensordot,
    "aten.einsum.default": _einsum,
}
