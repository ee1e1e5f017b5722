"""The order of a chain of products that takes the least time: by dynamic programming."""

from __future__ import annotations

from ....ir.expr import Size, product
from ....ir.rules.costs import Costs
from .chain import Chain, Tree


def cheapest(chain: Chain, costs: Costs) -> Tree:
    """Of orders that take the same time the one that multiplies from the left."""
    count = len(chain.factors)
    best: dict[tuple[int, int], tuple[float, Tree]] = {(i, i): (0.0, i) for i in range(count)}
    for length in range(2, count + 1):
        for first in range(count - length + 1):
            last = first + length - 1
            # The shortest right side first: at a tie min takes the first.
            options = [
                (
                    best[first, cut][0]
                    + best[cut + 1, last][0]
                    + _seconds(chain, first, cut, last, costs),
                    (best[first, cut][1], best[cut + 1, last][1]),
                )
                for cut in reversed(range(first, last))
            ]
            best[first, last] = min(options, key=lambda option: option[0])
    return best[0, count - 1][1]


def seconds(chain: Chain, tree: Tree, costs: Costs) -> float:
    """The time of all products, in an order."""
    if isinstance(tree, int):
        return 0.0
    first, last = ends(tree)
    own = _seconds(chain, first, ends(tree[0])[1], last, costs)
    return seconds(chain, tree[0], costs) + seconds(chain, tree[1], costs) + own


def flops(chain: Chain, tree: Tree) -> Size:
    """The operations of all products, in an order."""
    if isinstance(tree, int):
        return 0
    first, last = ends(tree)
    rows, depth, columns = _sizes(chain, first, ends(tree[0])[1], last)
    own = product(chain.batch or ()) * rows * depth * columns * 2
    return flops(chain, tree[0]) + flops(chain, tree[1]) + own


def num_bytes(chain: Chain, tree: Tree) -> Size:
    """What products write for others to read."""
    if isinstance(tree, int):
        return 0
    first, last = ends(tree)
    rows, _, columns = _sizes(chain, first, last, last)
    size = chain.factors[0].node.type.dtype.itemsize_bytes
    own = product(chain.batch or ()) * rows * columns * size
    return num_bytes(chain, tree[0]) + num_bytes(chain, tree[1]) + own


def ends(tree: Tree) -> tuple[int, int]:
    """The first and the last factor of a tree."""
    if isinstance(tree, int):
        return tree, tree
    return ends(tree[0])[0], ends(tree[1])[1]


def _sizes(chain: Chain, first: int, cut: int, last: int) -> tuple[Size, Size, Size]:
    """Of the product of factors up to a cut and those behind it: rows, depth, columns."""
    rows = chain.rows if first == 0 else chain.factors[first - 1].columns
    return rows, chain.factors[cut].columns, chain.factors[last].columns


def _seconds(chain: Chain, first: int, cut: int, last: int, costs: Costs) -> float:
    rows, depth, columns = _sizes(chain, first, cut, last)
    batch = product(chain.batch or ())
    elems = rows * depth + depth * columns + rows * columns
    size = chain.factors[0].node.type.dtype.itemsize_bytes
    return costs.seconds(batch * rows * depth * columns * 2, batch * elems * size)
