"""Attention: out[batch, i, d] = sum over r of p[i, r] * v[r, d], where p is the softmax over r of
scores that are computed, element by element, from the products of rows of q and of k.

Where anything stands is told by coordinates over the variables `i0`, `i1`, ... of the batch, `i`
(the row of q), `r` (the row of k and v) and `k` (along a row). So operands are read in any layout,
and through any views, as long as rows are evenly spaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Size, coefficient
from ..expr import product as product_of
from ..graph import Node
from ..index import Coords
from .product import Product

ROW, KEY, INNER = "i", "r", "k"
MOST_DEPTH = 256
"""The most values of a row of q, k or v of which a tile holds all."""
MOST_DEPTH_SM90 = 128
"""The most of which the registers of a warpgroup hold all, beside the powers of a tile."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A value where it is read."""

    node: Node
    coords: Coords


@dataclass(frozen=True, slots=True)
class Attention:
    """What a call computes, `out` being its coordinates.

    `batch` are the variables of the batch and their sizes. `scores` is what the softmax takes,
    computed from the elements of the call `anchor`, of the matrix product `product`, and from
    `operands` in memory. `causal`: key r counts for rows from r on alone. `zeros`: rows for which
    no key counts are zeros, and not NaN. `inner` has the serials of what is computed on the way.
    """

    batch: tuple[tuple[str, Size], ...]
    queries: Size
    keys: Size
    depth: int
    columns: int
    q: Seen
    k: Seen
    v: Seen
    out: Coords
    scores: Seen
    anchor: Node
    product: Product
    operands: tuple[Node, ...]
    inner: frozenset[int]
    causal: bool = False
    zeros: bool = False

    @property
    def reads(self) -> tuple[Node, ...]:
        """The tensors that it reads."""
        return tuple(dict.fromkeys((self.q.node, self.k.node, self.v.node, *self.operands)))

    @property
    def bounds(self) -> dict[str, Size]:
        """The extent of each variable but INNER, of which there are two."""
        return {**dict(self.batch), ROW: self.queries, KEY: self.keys}

    @property
    def scores_bytes(self) -> Size:
        """What the scores would take in memory."""
        batches = product_of(size for _, size in self.batch)
        return batches * self.queries * self.keys * self.scores.node.type.dtype.itemsize_bytes

    @property
    def flops(self) -> Size:
        """Two operations a term of both products."""
        batches = product_of(size for _, size in self.batch)
        return batches * self.queries * self.keys * (self.depth + self.columns) * 2


def is_even(coords: Coords, variables: tuple[str, ...]) -> bool:
    """Whether elements are evenly spaced along each of the variables."""
    return all(coefficient(each, name) is not None for each in coords for name in variables)
