"""A chain of matrix products, from the value on its left to the last matrix.

    (((x W1^T + b1) * s + t) W2^T + b2) ...      x (U V)      a @ b @ c      sum_j (x W^T)_j v_j

Products of several matrices each (`bmm`) are chains of their own kind. What is between two
products may scale and shift features.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ....ir.expr import Size, product
from ....ir.graph import Node
from ....ir.ops import Op
from ....ir.rules.pattern import Match
from ..feature_steps import FeatureSteps, feature_steps
from ..linear import linear_of
from .einsum import chain_of_einsum

Tree = int | tuple["Tree", "Tree"]
"""In which order factors are multiplied: a factor by its number, or a product of two trees."""

_BATCHED = ("aten.matmul.default", "aten.bmm.default")
MOST_FACTORS = 64
"""Of a chain; what is before them is the value on its left. The number of orders that are compared
grows by its third power.
"""


@dataclass(frozen=True, slots=True)
class Factor:
    """A matrix, or the value on the left; `transposed`: `node` has it with its axes swapped. To the
    product that ends with it a bias is added, and then it is scaled and shifted.
    """

    node: Node
    transposed: bool = False
    bias: Node | None = None
    steps: FeatureSteps | None = None

    @property
    def columns(self) -> Size:
        if self.node.type.rank == 1:  # a vector that a sum is weighted with
            return 1
        return self.node.type.shape[-2 if self.transposed else -1]

    @property
    def is_plain(self) -> bool:
        return self.bias is None and self.steps is None


@dataclass(frozen=True, slots=True)
class Chain:
    """`rows` of the value on the left; `batch` the axes in front that all have, of products of
    several matrices each. `tree` is the order of the graph.
    """

    factors: tuple[Factor, ...]
    tree: Tree
    rows: Size
    batch: tuple[Size, ...] | None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All values that results are made of."""
        found = []
        for factor in self.factors:
            steps = factor.steps.vectors if factor.steps else ()
            bias = (factor.bias,) if factor.bias is not None else ()
            found += [factor.node, *bias, *steps]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Product:
    left: Node
    right: Node
    transposed: bool
    bias: Node | None
    inside: tuple[Node, ...]
    batched: bool = False


def chain_of(match: Match) -> Chain | None:
    """The chain that ends at the root of a match; None where it is no product, or part of a longer
    chain.
    """
    found = _Collecting(match)
    if match.root.op is Op.CALL and (parts := chain_of_einsum(match.root)) is not None:
        factors = tuple(Factor(part.node, part.transposed) for part in parts.operands)
        tree: Tree = 0
        for idx in range(1, len(factors)):
            tree = (tree, idx)
        return _chain(factors, tree, parts.batched)
    own = _product_of(match.root)
    if own is None or _is_read_by_longer(match):
        return None
    factors, tree = found.product(match.root, own)
    return _chain(factors, tree, own.batched) if factors[0].node.type.rank > 1 else None


def _chain(factors: tuple[Factor, ...], tree: Tree, batched: bool) -> Chain:
    shape = factors[0].node.type.shape
    if batched:
        return Chain(factors, tree, shape[-1 if factors[0].transposed else -2], shape[:-2])
    rows = shape[1] if factors[0].transposed else product(shape[:-1])
    return Chain(factors, tree, rows, None)


def shifted(tree: Tree, by: int) -> Tree:
    return tree + by if isinstance(tree, int) else (shifted(tree[0], by), shifted(tree[1], by))


def _mirrored(tree: Tree, last: int) -> Tree:
    if isinstance(tree, int):
        return last - tree
    return _mirrored(tree[1], last), _mirrored(tree[0], last)


@dataclass(slots=True)
class _Collecting:
    """`inside` are the values between the products: nothing else reads them."""

    match: Match
    inside: list[Node] = field(default_factory=list)
    num_products: int = 1

    def product(self, root: Node, own: _Product) -> tuple[tuple[Factor, ...], Tree]:
        self.inside += own.inside
        left, left_tree = self._left(own)
        right, right_tree = self._right(own)
        last = replace(right[-1], bias=own.bias)
        return (*left, *right[:-1], last), (left_tree, shifted(right_tree, len(left)))

    def _left(self, own: _Product) -> tuple[tuple[Factor, ...], Tree]:
        steps = feature_steps(own.left, -1)
        product = self._product_inside(steps.core, own, steps.nodes)
        if product is None:
            return (Factor(own.left),), 0
        factors, tree = self.product(steps.core, product)
        if steps.nodes:
            factors = (*factors[:-1], replace(factors[-1], steps=steps))
        return factors, tree

    def _right(self, own: _Product) -> tuple[tuple[Factor, ...], Tree]:
        node, transposed, views = own.right, own.transposed, list[Node]()
        while _swaps(node):
            views.append(node)
            node, transposed = node.inputs[0], not transposed
        kept, num_products = len(self.inside), self.num_products
        product = self._product_inside(node, own, tuple(views)) if node.type.rank > 1 else None
        if product is None:
            return (Factor(node, transposed),), 0
        factors, tree = self.product(node, product)
        if not all(factor.is_plain for factor in factors):
            del self.inside[kept:]
            self.num_products = num_products
            return (Factor(node, transposed),), 0
        if not transposed:
            return factors, tree
        swapped = tuple(replace(f, transposed=not f.transposed) for f in reversed(factors))
        return swapped, _mirrored(tree, len(factors) - 1)

    def _product_inside(
        self, node: Node, reader: _Product, between: tuple[Node, ...]
    ) -> _Product | None:
        """The product that a value is, of the kind of its reader, which alone reads it."""
        own = _product_of(node)
        if own is None or own.batched is not reader.batched or node.op is not Op.CALL:
            return None
        inside = [*between, node]
        readers = [*reader.inside, *inside]
        if not all(self.match.is_read_only_by(each, readers) for each in inside):
            return None
        if self.num_products == MOST_FACTORS - 1:
            return None
        self.num_products += 1
        self.inside += inside
        return own


def _product_of(node: Node) -> _Product | None:
    own = linear_of(node)
    if own is not None:
        return _Product(own.x, own.weight, own.features == 0, own.bias, (node,))
    if node.op is Op.CALL and node.attrs.target in _BATCHED and _is_batched(node):
        left, right = node.inputs
        return _Product(left, right, False, None, (node,), batched=True)
    return _dot_of(node)


def _is_batched(node: Node) -> bool:
    """Whether each matrix of one operand is multiplied by one of the other."""
    shapes = [each.type.shape for each in node.inputs]
    same = all(len(s) == node.type.rank and s[:-2] == node.type.shape[:-2] for s in shapes)
    floats = all(each.type.dtype is node.type.dtype for each in node.inputs)
    plain = not node.attrs.keywords and len(node.attrs.arguments) == 2
    return len(shapes) == 2 and same and floats and plain and node.type.rank > 2


def _dot_of(node: Node) -> _Product | None:
    """A sum of features that are weighted by a vector: a product with one column."""
    if node.op is not Op.SUM or node.inputs[0].op is not Op.MUL:
        return None
    terms = node.inputs[0]
    rank = terms.type.rank
    if node.attrs.axes != (rank - 1,) or rank < 2:
        return None
    for left, right in (terms.inputs, terms.inputs[::-1]):
        is_vector = right.type.shape == terms.type.shape[-1:] and left.type == terms.type
        if is_vector and right.op is not Op.CONST:
            return _Product(left, right, False, None, (node, terms))
    return None


def _swaps(node: Node) -> bool:
    """Whether it is the transposed of its operand's matrices."""
    if node.op is not Op.PERMUTE:
        return False
    dims = node.attrs.dims
    return len(dims) > 1 and dims == (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)


def _is_read_by_longer(match: Match) -> bool:
    """Whether the one product that reads the root, by way of steps alone, has it in its chain."""
    readers, root = match.readers, match.root
    if readers is None:
        return False
    seen, waiting, products = {root.serial}, [root], list[Node]()
    while waiting:
        for reader in readers.of(waiting.pop()) or ():
            if reader.serial in seen:
                continue
            seen.add(reader.serial)
            if _product_of(reader) is not None:
                products.append(reader)
            else:
                waiting.append(reader)
            if len(seen) > _MOST_BETWEEN:
                return False
    if len(products) != 1:
        return False
    own = _product_of(products[0])
    assert own is not None, "seen above"
    collecting = _Collecting(replace(match, root=products[0]))
    collecting.product(products[0], own)
    return readers.original(root) in {node.serial for node in collecting.inside}


_MOST_BETWEEN = 32  # values that steps between two products may have
