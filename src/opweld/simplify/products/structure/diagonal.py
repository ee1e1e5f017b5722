"""Products with a diagonal matrix: rows or columns are scaled.

    diag(a) @ B  =  a_i B_ij          A @ diag(a)  =  A_ij a_j          A @ eye  =  A

What is not finite meets the zeros beside the diagonal: B_kj that is infinite or NaN makes each
other result of its column NaN. So results whose column (or row) has such a value, other than their
own, are NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.attrs import CastAttrs, Operand, ReduceAttrs, ShapeAttrs
from ....ir.expr import product
from ....ir.graph import Arena, Node
from ....ir.ops import Kind, Op
from ....ir.rules.pattern import AnyOf, Computed, Match
from ....ir.rules.rewrite import Condition, Domain, Effect, Numerics, Rule
from ...names import name_of
from ...range import range_of
from ..conditions import IN_CALLS
from ..linear import linear_of
from .bands import DIAGONAL, band_of, name_of_band

_DIAGONAL_CALLS = ("aten.diag.default", "aten.diag_embed.default")
_MATMULS = ("aten.matmul.default", "aten.bmm.default")


@dataclass(frozen=True, slots=True)
class Scaled:
    """`matrix` with its rows or columns scaled by a vector, or by 1; `bias` is added to rows."""

    matrix: Node
    by: Node | None
    rows: bool
    bias: Node | None
    diagonal: Node


def scaled_of(node: Node) -> Scaled | None:
    """What a product with a diagonal matrix is; None where it is another."""
    if node.op is not Op.CALL or node.type.dtype not in IN_CALLS:
        return None
    own = linear_of(node)
    if own is not None:
        found = _diagonal(own.weight)
        if found is not None:
            return Scaled(own.x, found[0], False, own.bias, own.weight)
        found = _diagonal(own.x)
        if found is None or own.features == 0 or own.bias is not None:
            return None
        return Scaled(own.weight, found[0], True, None, own.x)
    return _of_matrices(node)


def _of_matrices(node: Node) -> Scaled | None:
    """Products of several matrices each, or of one with several."""
    plain = len(node.inputs) == 2 and not node.attrs.keywords and len(node.attrs.arguments) == 2
    if node.attrs.target not in _MATMULS or not plain:
        return None
    left, right = node.inputs
    if left.type.dtype is not node.type.dtype or right.type.dtype is not node.type.dtype:
        return None
    for diagonal, matrix, rows in ((left, right, True), (right, left, False)):
        found = _diagonal(diagonal)
        if found is not None and matrix.type.rank > 1:
            return Scaled(matrix, found[0], rows, None, diagonal)
    return None


def _diagonal(node: Node) -> tuple[Node | None] | None:
    """The diagonal of a matrix that has nothing beside it: a vector, or None for ones."""
    if node.op is Op.CAST and node.type.rank == 2 and band_of(node) == DIAGONAL:
        rows, columns = node.type.shape
        return (None,) if rows == columns else None
    if node.op is not Op.CALL or node.attrs.target not in _DIAGONAL_CALLS:
        return None
    default = node.attrs.arguments == (Operand(0),) and not node.attrs.keywords
    (vector,) = node.inputs
    makes = vector.type.rank + 1 == node.type.rank and vector.type.dtype is node.type.dtype
    return (vector,) if default and makes else None


def _made(match: Match, exact: bool) -> Node:
    found = scaled_of(match.root)
    assert found is not None, "the condition holds"
    arena, matrix = match.arena, found.matrix
    made = matrix
    if found.by is not None:
        made = arena.make(Op.MUL, matrix, _beside(found.by, found.rows, arena))
    values = range_of(matrix)
    if exact and not values.is_finite:
        made = _with_nan(made, matrix, found.rows, arena)
    return made if found.bias is None else arena.make(Op.ADD, made, found.bias)


def _beside(vector: Node, rows: bool, arena: Arena) -> Node:
    *batch, size = vector.type.shape
    shape = (*batch, size, 1) if rows else (*batch, 1, size) if batch else (size,)
    return arena.make(Op.RESHAPE, vector, attrs=ShapeAttrs(shape))


def _with_nan(made: Node, matrix: Node, rows: bool, arena: Arena) -> Node:
    """`made`, NaN where another element of the column (of the row) of the matrix is not finite."""
    dtype = made.type.dtype
    axis = matrix.type.rank - (2 if rows else 1)
    finite = arena.make(Op.ISFINITE, matrix)
    bad = arena.make(Op.CAST, arena.make(Op.LOGICAL_NOT, finite), attrs=CastAttrs(dtype))
    total = arena.make(Op.SUM, bad, attrs=ReduceAttrs((axis,)))
    others = arena.make(Op.GT, total, bad)
    return arena.make(Op.WHERE, others, arena.const(float("nan"), dtype), made)


def _effect(match: Match) -> Effect:
    found = scaled_of(match.root)
    assert found is not None, "the condition holds"
    root, matrix = match.root, name_of(found.matrix)
    diagonal = "1" if found.by is None else name_of(found.by)
    each = f"{diagonal}[:, None] * {matrix}" if found.rows else f"{matrix} * {diagonal}"
    bias = "" if found.bias is None else f" + {name_of(found.bias)}"
    before = (found.diagonal, found.matrix) if found.rows else (found.matrix, found.diagonal)
    depth = found.diagonal.type.shape[-1]
    elems = product(root.type.shape)
    return Effect(
        f"{' @ '.join(map(name_of_band, before))}{bias}",
        f"{matrix if found.by is None else each}{bias}",
        elems * depth * 2,
        elems,
        found.diagonal.type.size_bytes,
    )


def _rule(name: str, exact: bool) -> Rule:
    infinite = ", NaN where another of its row or column is not finite" if exact else ""
    return Rule(
        name,
        AnyOf(Kind.OPAQUE, "x"),
        Computed(f"rows or columns scaled{infinite}", lambda match: _made(match, exact)),
        Numerics.VALUE,
        Condition(
            "x is a product with a diagonal matrix, of `diag`, `diag_embed` or `eye`",
            lambda match: scaled_of(match.root) is not None,
        ),
        Domain.FLOAT,
        _effect,
    )


DIAGONALS: tuple[Rule, ...] = (_rule("diagonal-product", exact=True),)
DIAGONALS_FINITE: tuple[Rule, ...] = (_rule("diagonal-product-finite", exact=False),)
