"""Folds that need another fold of the same elements, as folds that one walk over a row completes.

exp(x - largest) is summed in a second walk over a row, after one for the largest; the squared
differences to the mean likewise. Where a row stays on the chip from walk to walk that is as fast
and simpler. Where it does not, one walk takes both (device/reduce/fold.h): memory is read once
less, and rows may be cut in pieces, as nothing waits for the first fold.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.attrs import ReduceAttrs
from ..ir.expr import Size, product
from ..ir.graph import Graph, Node, arena_of
from ..ir.ops import Kind, Op
from ..ir.rules.pattern import Apply, Const, Match, Pattern, Var, call
from ..ir.rules.rewrite import Condition, Domain, Numerics, Rule, rewrite
from .rows import Parallelism

x, n = Var("x"), Var("n")
exp, where, isinf, maximum = call(Op.EXP), call(Op.WHERE), call(Op.ISINF), call(Op.MAXIMUM)


def _sum(of: Pattern) -> Apply:
    return call(Op.SUM)(of, attrs="axes")


_largest = call(Op.AMAX)(x, attrs="largest")
_powers = call(Op.SUMEXP)(x, attrs="axes")
_deviations = call(Op.DEVSQ)(x, attrs="axes")
_mean = call(Op.MEAN)(x, attrs="axes")


def _squared_difference(mean: Apply) -> Apply:
    difference = x - mean
    return difference * difference


def _length(match: Match) -> Size:
    shape = match.node("x").type.shape
    return product(shape[axis] for axis in match.attrs("axes").axes)


def _n_counts(match: Match) -> bool:
    node = match.node("n")
    return node.op is Op.CONST and bool(node.attrs.value == _length(match))


def _r_counts(match: Match) -> bool:
    length = _length(match)
    return isinstance(length, int) and match.value("r") * length == 1.0


_SAME_AXES = Condition(
    "both reduce the same axes",
    lambda match: match.attrs("axes").axes == match.attrs("largest").axes,
)
_BY_N = Condition("n counts the axes' elements", _n_counts)
_BY_R = Condition("1 / r counts the axes' elements", _r_counts)

ONE_WALK: tuple[Rule, ...] = (
    Rule(
        "sum-of-powers",
        _sum(exp(x - _largest)),
        _powers,
        Numerics.REORDER,
        _SAME_AXES,
        Domain.FLOAT,
    ),
    # Infinities would give NaN in the difference, so here 0 stands for them.
    Rule(
        "sum-of-finite-powers",
        _sum(exp(x - where(isinf(_largest), 0.0, _largest))),
        where(isinf(_largest), maximum(_largest, 0.0), _powers),
        Numerics.REORDER,
        _SAME_AXES,
        Domain.FLOAT,
    ),
    Rule(
        "squared-deviations",
        _sum(_squared_difference(_mean)),
        _deviations,
        Numerics.REORDER,
        None,
        Domain.FLOAT,
    ),
    Rule(
        "squared-deviations-by-sum",
        _sum(_squared_difference(_sum(x) / n)),
        _deviations,
        Numerics.REORDER,
        _BY_N,
        Domain.FLOAT,
    ),
    # Division by a power of two has become a product.
    Rule(
        "squared-deviations-of-two",
        _sum(_squared_difference(_sum(x) * Const("r"))),
        _deviations,
        Numerics.REORDER,
        _BY_R,
        Domain.FLOAT,
    ),
)


def in_one_walk(graph: Graph, parallelism: Parallelism) -> Graph:
    """The graph with such folds over rows that no instance holds between its walks."""
    folds = [node for node in graph.nodes() if node.kind is Kind.REDUCTION]
    if not any(_is_read_again(node.inputs[0], node.attrs, parallelism) for node in folds):
        return graph
    condition = Condition(
        "rows are not held",
        lambda match: _is_read_again(match.node("x"), match.attrs("axes"), parallelism),
    )
    rules = tuple(
        replace(rule, when=rule.when & condition if rule.when else condition) for rule in ONE_WALK
    )
    return rewrite(graph, rules, arena_of(graph)).graph


def _is_read_again(operand: Node, attrs: ReduceAttrs, parallelism: Parallelism) -> bool:
    return parallelism.reads_again(operand.type.shape, attrs.axes, bytes_read(operand))


def bytes_read(operand: Node) -> int:
    """Of an element: what is in memory for each, behind all that is computed where it is read."""
    found: dict[Node, None] = {}
    seen = {operand.serial}
    waiting = [operand]
    while waiting:
        node = waiting.pop()
        if node.kind in (Kind.POINTWISE, Kind.VIEW):
            waiting += [each for each in node.inputs if each.serial not in seen]
            seen |= {each.serial for each in node.inputs}
        elif node.type.num_elems == operand.type.num_elems:
            found[node] = None
    return sum(node.type.dtype.itemsize_bytes for node in found) or 4
