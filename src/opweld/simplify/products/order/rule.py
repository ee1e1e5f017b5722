"""Chains of products take the order of least time.

    (x W1^T + b1) W2^T + b2  =  x (W2 W1)^T + (W2 b1 + b2)          if W1 has many rows, x too
    x (U V)  =  (x U) V                                             if U has few columns
    (A B) C  =  A (B C)

Infinities decide: an infinite x_k meets each row of W1, and NaN comes out wherever terms
have both signs; in the product of the weights they have been added up before. To tell these apart
takes the product that is to be saved. So the order changes where no value can be infinite, or none
is assumed to be.

Left out: 16-bit types, whose products are rounded between; products whose results others read.
"""

from __future__ import annotations

from collections.abc import Callable

from ....ir.graph import Node
from ....ir.ops import Kind
from ....ir.rules.pattern import AnyOf, Computed, Match, Pattern
from ....ir.rules.rewrite import Condition, Domain, Effect, Missed, Numerics, Rule
from ...names import name_of
from ...terms import total, x, y
from ..conditions import IN_CALLS, LEAST_GAIN, unbounded
from ..reasons import is_made
from .build import in_order
from .chain import Chain, Tree, chain_of
from .cheapest import cheapest, flops, num_bytes, seconds

_MOST_NAMES = 3


def _chain(match: Match) -> Chain | None:
    if match.root.type.dtype not in IN_CALLS or match.readers is None:
        return None
    found = chain_of(match)
    return found if found is not None and len(found.factors) > 2 else None


def _better(match: Match, chain: Chain) -> Tree | None:
    """Another order that takes less time by enough."""
    best = cheapest(chain, match.costs)
    before, after = (seconds(chain, tree, match.costs) for tree in (chain.tree, best))
    # What is added between two products goes through those behind it by itself.
    after += match.costs.call_s * sum(not factor.is_plain for factor in chain.factors[:-1])
    return best if before >= LEAST_GAIN * after else None


def _made(match: Match) -> Node:
    chain = _chain(match)
    assert chain is not None, "the condition holds"
    return in_order(chain, cheapest(chain, match.costs), match.arena)


def _effect(match: Match) -> Effect:
    chain = _chain(match)
    assert chain is not None, "the condition holds"
    best = cheapest(chain, match.costs)
    return Effect(
        _text(chain, chain.tree, True),
        _text(chain, best, True),
        flops(chain, chain.tree),
        flops(chain, best),
        num_bytes(chain, chain.tree) - num_bytes(chain, best),
    )


def _missed(match: Match, exact: bool) -> Missed | None:
    chain = _chain(match)
    if chain is None or is_made(match.root):
        return None
    best, before = _better(match, chain), _text(chain, chain.tree, True)
    if best is None:
        count = match.costs.number
        least = cheapest(chain, match.costs)
        one, other = (count(flops(chain, tree)) / 1e9 for tree in (chain.tree, least))
        return Missed(before, f"no order takes clearly less time: {one:.3g} and {other:.3g} Gflop")
    infinite = unbounded(chain.nodes) if exact else []
    if not infinite:
        return None
    names = list(dict.fromkeys(map(name_of, infinite)))
    told = ", ".join([*names[:_MOST_NAMES], *(["..."] if len(names) > _MOST_NAMES else [])])
    after = _text(chain, best).removeprefix("(").removesuffix(")")
    assumed = "--algebra finite assumes that none is"
    return Missed(before, f"{after} needs values that are not infinite, unlike {told}; {assumed}")


def _text(chain: Chain, tree: Tree, outermost: bool = False) -> str:
    if isinstance(tree, int):
        factor = chain.factors[tree]
        return f"{name_of(factor.node)}{'.T' if factor.transposed else ''}"
    text = f"{_text(chain, tree[0])} @ {_text(chain, tree[1])}"
    if outermost:
        between = any(not factor.is_plain for factor in chain.factors)
        return f"{text}{', with what is added and scaled between' if between else ''}"
    return f"({text})"


def _rule(name: str, before: Pattern, exact: bool) -> Rule:
    def holds(match: Match) -> bool:
        chain = _chain(match)
        if chain is None or (exact and unbounded(chain.nodes)):
            return False
        return _better(match, chain) is not None

    finite = ", and none of its values can be infinite" if exact else ""
    text = (
        f"x is a chain of products that takes {LEAST_GAIN} times less time in another order,"
        f" nothing else reads what is between{finite}"
    )
    made: Callable[[Match], Node] = _made
    return Rule(
        name,
        before,
        Computed("its products in the order of least time", made),
        Numerics.REORDER,
        Condition(text, holds),
        Domain.FLOAT,
        _effect,
        lambda match: _missed(match, exact),
    )


_CALL = AnyOf(Kind.OPAQUE, "x")
ORDER: tuple[Rule, ...] = (
    _rule("product-order", _CALL, exact=True),
    _rule("weighted-sum-order", total(x * y, attrs="p"), exact=True),
)
ORDER_FINITE: tuple[Rule, ...] = (
    _rule("product-order-finite", _CALL, exact=False),
    _rule("weighted-sum-order-finite", total(x * y, attrs="p"), exact=False),
)
