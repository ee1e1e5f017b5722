"""Where convolutions run with their channels last, and what reads them is computed in that order.

cuDNN's kernels take channels last. Given them first it moves input, weight and result at each call:
of ResNet-18 that is 0.69 of 2.9 ms (batch 64; H100, 2026-11-26). So the axes of whole stretches of
the graph are put in another order: a convolution gives (batch, *space, channels), what is computed
element by element or condensed behind it keeps that order, and the next convolution reads it as it
lies. Tensors are moved where such a stretch begins, before calls that know nothing of it, and where
the graph gives a result: by a kernel that copies them, or by the one that computes what is moved.
A kernel of ours gives what it computes in either order; where that saves copies behind it, what is
element by element behind a convolution is given back at once, and the rest computed as it was.
The library computes convolutions of one and three axes of space in PyTorch's order: of these only
kernels of ours are in the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ...ir.graph import Graph, Node
from ...ir.ops import Kind
from ...ir.plan import Conditions, number_at
from ...ir.types import DType
from ...ir.views import behind_views
from ...target import Target
from ..products.patches import gain_of_patches
from ..products.windows import (
    SPACES,
    gain_of_ours,
    is_convolution,
    is_ours,
    is_ours_in_planes,
    library_takes_channels_last,
    lost_with_channels_last,
)
from ..uses import uses_of
from .copies import ALONE, reductions_over_space, shares_of_copies
from .moved import FOLLOWING, Moved, Order, channels_last, has_groups, sees_one_channel
from .planes import kept_in_planes, with_formats

_DTYPES = (DType.F32, DType.F16, DType.BF16)
# Where many elements are moved for each convolution, estimates of the gain are within their error.
_LEAST_GAIN = 1.2
# What one more kernel takes of the host, where kernels of ours take the place of few calls.
_OF_A_KERNEL_US = 10.0
# What is reduced over space is read once more, for there is no row of it to be kept: of what a copy
# takes.
_READ_AGAIN = 0.25
# A convolution in tiles that gives its result with channels first reads elements beside it slowly.
_READ_ACROSS = 2.0


def in_channels_last(graph: Graph, target: Target, conditions: Conditions) -> Graph:
    """The graph with its convolutions, and what reads them, in the order of channels last: where
    less is moved so, without those nearest before the results if need be, as these keep their
    order. Of one and three axes of space these are the convolutions that are kernels of ours. Those
    of each channel by itself stay where a kernel makes them as they lie and nothing beside them has
    its channels last.
    """
    if target.language != "cuda":
        return graph
    nodes = [node for node in graph.nodes() if _may_be_moved(node)]
    in_step = conditions.library_convolutions
    if in_step and any(map(has_groups, nodes)):
        return graph  # how its gradients do between those of groups, which stay, was not measured
    candidates = [] if in_step else nodes
    followed = _followed(graph)
    gains, lost, planes = dict[int, float](), dict[int, float](), set[int]()
    for node in candidates:
        about = target, conditions, node.serial in followed
        if is_ours(node, *about):
            gains[node.serial] = gain_of_ours(node, *about)
            lost[node.serial] = lost_with_channels_last(node, target, conditions)
            planes |= {node.serial} if is_ours_in_planes(node, *about) else set()
    ours = frozenset(gains)
    of_patches = {node.serial: gain_of_patches(node, target, conditions) for node in candidates}
    patches = frozenset(serial for serial, gain in of_patches.items() if gain > 0.0) - ours
    gains |= {serial: of_patches[serial] for serial in patches}
    chosen = ours | patches | {node.serial for node in nodes if _is_of_library(node, in_step)}
    chosen -= kept_in_planes(graph, chosen, FOLLOWING, followed, target, conditions)
    estimates = _Estimates(graph, gains, lost, target, conditions)
    while chosen:
        found = list(_moved_in_all_ways(graph, chosen, ours, patches, planes & chosen))
        gain, costs = estimates.gain(chosen - patches, chosen), list(map(estimates.cost, found))
        if _is_worth_it(gain, min(costs)):
            graph = found[costs.index(min(costs))].graph
            break
        behind = _convolutions_behind(found[0], graph, chosen)
        if not behind:
            break
        chosen -= behind
    return with_formats(graph, target, conditions)


def _may_be_moved(node: Node) -> bool:
    if not is_convolution(node) or node.attrs.channels_last or node.type.dtype not in _DTYPES:
        return False
    return bool(node.type.rank == SPACES[node.attrs.target] + 2)  # with a batch


def _followed(graph: Graph) -> frozenset[int]:
    """Those with something behind them that the kernel which makes them may compute."""
    readers = uses_of(graph).readers.items()
    return frozenset(s for s, each in readers if any(r.kind is Kind.POINTWISE for r in each))


def _is_of_library(node: Node, in_step: bool) -> bool:
    """Whether the library, too, is to get it with its channels last."""
    return library_takes_channels_last(node, in_step) and not has_groups(node)


def _convolutions_behind(moved: Moved, graph: Graph, chosen: frozenset[int]) -> frozenset[int]:
    """The chosen ones nearest before results of the graph that are moved back."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting = [node for node in map(behind_views, graph.outputs) if moved.is_permuted(node)]
    while waiting:
        node = waiting.pop()
        if node.serial in seen:
            continue
        seen.add(node.serial)
        if node.serial in chosen:
            found.add(node.serial)
        elif node.serial in moved.permuted:
            waiting.extend(node.inputs)
    return frozenset(found)


def _moved_in_all_ways(
    graph: Graph,
    chosen: frozenset[int],
    ours: frozenset[int],
    patches: frozenset[int],
    planes: Collection[int],
) -> Iterator[Moved]:
    """With results that go on in their order, and with those given back at once of the convolutions
    nearest before results of the graph, or of all, that kernels of ours make in tiles; then those
    that could be made in `planes` may stay as they were, too.
    """
    moved = Moved.of(graph, chosen, ours, patches)
    yield moved
    depthwise = frozenset(node.serial for node in graph.nodes() if _is_depthwise(node))
    tiled = (ours & chosen) - depthwise
    behind = _convolutions_behind(moved, graph, chosen) & tiled
    images = frozenset(moved.given)
    for given_back in dict.fromkeys((behind, tiled)):
        if given_back:
            yield Moved.of(graph, chosen, ours, patches, given_back, images)
    if planes and tiled:
        yield Moved.of(graph, chosen - {*planes}, ours, patches, tiled, images)


def _is_depthwise(node: Node) -> bool:
    return is_convolution(node) and sees_one_channel(node)


def _is_worth_it(gain: float, cost: float) -> bool:
    return gain > _LEAST_GAIN * cost


@dataclass(frozen=True, slots=True)
class _Estimates:
    """Microseconds for a graph: by convolution the `gains` of what is faster with channels last,
    and what is `lost` of these where a kernel of ours gives its result so, and not with them first.
    """

    graph: Graph
    gains: Mapping[int, float]
    lost: Mapping[int, float]
    target: Target
    conditions: Conditions

    def gain(self, convolutions: frozenset[int], chosen: frozenset[int]) -> float:
        """Of what kernels of ours are faster, and of what cuDNN would move for `convolutions`."""
        gain = sum((self.gains.get(serial, 0.0) for serial in sorted(chosen)), start=0.0)
        in_step = self.conditions.library_convolutions
        for node in self.graph.nodes():
            if node.serial in convolutions and library_takes_channels_last(node, in_step):
                gain += self.copied(node) + self.copied(node.inputs[0])
        return gain

    def cost(self, moved: Moved) -> float:
        """Of copies, and of what takes longer in the order that it has."""
        ours = moved.ours & moved.chosen
        depthwise = {node.serial for node in self.graph.nodes() if _is_depthwise(node)} & ours
        tiled, others = (
            frozenset(moved.convolutions[serial].serial for serial in serials)
            for serials in (ours - depthwise, depthwise)
        )
        cost = 0.0
        for copy, share in shares_of_copies(moved.graph, tiled, others):
            alone = ours and share == ALONE
            cost += share * self.copied(copy) + (_OF_A_KERNEL_US if alone else 0.0)
        last = frozenset(node.serial for node, order in moved.permuted.values() if _is_last(order))
        for operand in reductions_over_space(moved.graph, last):
            cost += _READ_AGAIN * self.copied(operand) + _OF_A_KERNEL_US
        for serial in sorted((ours - depthwise) - moved.tails.keys()):
            cost += self.lost[serial]
        across = map(self.copied, moved.read_across(self.graph))
        return cost + _READ_ACROSS * sum(across)

    def copied(self, node: Node) -> float:
        """Of reading and writing all of a tensor."""
        num_bytes = number_at(node.type.size_bytes, self.conditions.sizes)
        return 2 * num_bytes / self.target.copy_bytes_per_s * 1e6


def _is_last(order: Order) -> bool:
    return len(order) > 2 and order == channels_last(len(order))
