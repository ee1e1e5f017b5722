"""Which values the forward keeps for the backward: those of the fewest bytes that the rest can be
computed from.

All that gradients read and that depends on none is a network: each value flows into what is
computed from it, as wide as its bytes. The sources are what is not computed twice (products, folds
and scans), the sinks what the gradients read, and the values to keep are a minimum cut, as in
torch._functorch.partitioners. Operands are there anyway, as a second derivative needs them, and so
are results that a next layer keeps as its operands: neither costs bytes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from ..ir.graph import Node, reached
from ..ir.ops import Kind, Op
from ..ir.plan import Sizes, number_at
from .forward import Forward

_FOLDS = (Kind.REDUCTION, Kind.SCAN)
# Of bytes, so that places in the order of computing decide between values of equal bytes.
_A_BYTE = 1 << 20
# Elements of a row of which there is one statistic.
_LEAST_ROW = 4


def kept_values(
    forward: Forward,
    gradients: Iterable[Node],
    outputs: tuple[Node, ...],
    sizes: Sizes,
    products: bool = True,
    staying: Container[int] = (),
) -> tuple[Node, ...]:
    """The values, in the order of computing.

    Args:
        gradients: those of the results, which come in.
        outputs: the gradients of the operands.
        sizes: examples of symbolic sizes.
        products: whether products, folds and scans are kept; otherwise only results are.
        staying: the places of the results that are kept anyway.
    """
    late = {node.serial for node in gradients}
    given = {*late, *(node.serial for node in forward.operands)}
    early: list[Node] = []
    nodes = reached(outputs, given)
    for node in nodes:
        if any(each.serial in late for each in node.inputs):
            late.add(node.serial)
        elif node.kind is not Kind.SOURCE:
            early.append(node)
    by_gradients = {e.serial for node in nodes if node.serial in late for e in node.inputs}
    read = [node for node in early if node.serial in by_gradients]
    results = [node for node in early if node in forward.results]
    sources = [node for node in early if products and _is_computed_once(node, forward)]
    free = {node.serial for at, node in enumerate(forward.results) if at in staying}
    network = _Network(early, read, free, sizes)
    if not products:
        return network.cut([node for node in results if node.serial in free])

    def cost(kept: tuple[Node, ...]) -> tuple[int, int]:
        """The bytes that are kept for it, and those that the gradients read."""
        begin = given | {node.serial for node in kept}
        inputs = {each for node in reached(outputs, begin) for each in node.inputs}
        dear = [node for node in kept if node.serial not in free]
        return (
            sum(number_at(node.type.size_bytes, sizes) for node in dear),
            sum(number_at(n.type.size_bytes, sizes) for n in inputs if n.serial in begin),
        )

    # A result is read where that is no more to read than what it is computed from.
    return min(network.cut([*sources, *results]), network.cut(sources), key=cost)


def _is_computed_once(node: Node, forward: Forward) -> bool:
    return node.op is Op.CALL or (node.kind in _FOLDS and node in forward.nodes)


class _Network:
    """Of the values `nodes`, some are `read` by the gradients, and some are `free`."""

    def __init__(self, nodes: list[Node], read: list[Node], free: set[int], sizes: Sizes) -> None:
        self._nodes, self._read, self._free, self._sizes = nodes, read, free, sizes
        computed = (node for node in nodes if node.kind is not Kind.VIEW)
        self._widest = max((number_at(n.type.num_elems, sizes) for n in computed), default=0)

    def cut(self, sources: list[Node]) -> tuple[Node, ...]:
        """The values of a minimum cut."""
        if not sources or not self._read:
            return ()
        import networkx  # noqa: PLC0415  only with gradients, and slow to import

        flow = networkx.DiGraph()
        inside = {node.serial for node in self._nodes}
        for place, node in enumerate(self._nodes):
            flow.add_edge((node.serial, 0), (node.serial, 1), **self._width(node, place))
            for operand in node.inputs:
                if operand.serial in inside:
                    flow.add_edge((operand.serial, 1), (node.serial, 0))
        for node in sources:
            flow.add_edge("forward", (node.serial, 0))
        for node in self._read:
            flow.add_edge((node.serial, 1), "gradients")
        _, (before, _) = networkx.minimum_cut(flow, "forward", "gradients")
        return tuple(
            node
            for node in self._nodes
            if (node.serial, 0) in before and (node.serial, 1) not in before
        )

    def _width(self, node: Node, place: int) -> dict[str, int]:
        """Empty where it is not to be cut: a view is kept as what it is of.

        Of elements the first of a chain is kept, which has a name in the model; of what there is
        once a row the last, which would be computed for each element.
        """
        if node.serial in self._free:
            return {"capacity": 1}
        if node.kind is Kind.VIEW:
            return {}
        of_rows = number_at(node.type.num_elems, self._sizes) * _LEAST_ROW <= self._widest
        num_bytes = number_at(node.type.size_bytes, self._sizes)
        return {"capacity": num_bytes * _A_BYTE + (-place if of_rows else place)}
