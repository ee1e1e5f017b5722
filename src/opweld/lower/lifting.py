"""Kernels for any sizes: one stands for all groups of a file that differ in numbers only.

A group that is alone with its computation keeps its numbers: as constants they are faster, and
easier to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..ir.expr import Size
from ..ir.graph import Graph
from ..ir.kernels.kernel import Contraction, Own, Pointwise
from ..ir.kernels.lifted import lifted
from ..ir.kernels.reduction import Lowered, Reduction
from ..ir.kernels.shared import key_of
from ..ir.ops import Kind, Op
from ..ir.original import Part
from ..ir.plan import Group, ReductionSchedule
from . import lower_lifted
from .pointwise import Origins

# Below so many elements kernels have another form, in which the number is a constant.
SHORT_RUN_ELEMS = 33


def lifting(
    parts: tuple[Part, ...],
    language: str,
    by_skeleton: Callable[[Lowered], bool] = lambda lowered: False,
) -> tuple[Part, ...]:
    """The parts, with kernels for any sizes in place of those that differ in numbers only.

    In CUDA what is read in packets depends on numbers; in C++ the compiler makes vectors, but the
    order in which a row is summed depends on the lengths of its loops, which stay. What runs
    `by_skeleton` may have rows of any length.
    """
    sites = [site for place, part in enumerate(parts) for site in _sites(place, part)]
    cuda = language == "cuda"
    over = [
        each for alike in _differing(sites, _form) for each in _of_a_form(alike, cuda, by_skeleton)
    ]
    taken = {site.place: site for alike in _differing(over, _key) for site in alike}
    return tuple(_with_taken(place, part, taken) for place, part in enumerate(parts))


@dataclass(frozen=True, slots=True)
class _Site:
    """A group with its kernels: those with its numbers, which `numbered` tells from others, or
    those for any sizes, which have the `key`. `place` are the numbers of its part and of its
    kernels there.
    """

    place: tuple[int, int]
    graph: Graph
    origins: Origins
    group: Group
    lowered: Lowered
    numbered: str
    key: str = ""


def _sites(number: int, part: Part) -> list[_Site]:
    graph = part.plan.graph
    origins = dict(graph.origins)
    fused = [group for group in part.plan.groups if group.fused]
    return [
        _Site((number, at), graph, origins, group, lowered, key_of(graph, group, lowered))
        for at, (group, lowered) in enumerate(zip(fused, part.kernels, strict=True))
        if not (_has_windows(group) and part.variant.contract.differentiable)
    ]


def _has_windows(group: Group) -> bool:
    """Whether PyTorch's pool stands in its reference, which is told by numbers: gradients of
    windows that are gathered one by one take many times as long.
    """
    return any(node.op is Op.WINDOW for node in group.nodes)


def _differing(sites: Iterable[_Site], alike: Callable[[_Site], object]) -> list[list[_Site]]:
    """Those that are alike, where some of them differ in numbers."""
    return [each for each in _by(sites, alike) if len({site.numbered for site in each}) > 1]


def _by(sites: Iterable[_Site], alike: Callable[[_Site], object]) -> list[list[_Site]]:
    found: dict[object, list[_Site]] = {}
    for site in sites:
        found.setdefault(alike(site), []).append(site)
    return list(found.values())


def _key(site: _Site) -> str:
    return site.key


def _form(site: _Site) -> object:
    """The same for all that can have one key: the operations, and how many axes there are."""
    own = site.group
    computed = (node for node in own.nodes if node.kind is not Kind.SOURCE)
    nodes = tuple((node.op, node.type.dtype, node.type.rank) for node in computed)
    operands = tuple((node.type.dtype, node.type.rank) for node in own.inputs)
    schedule = own.schedule
    if isinstance(schedule, ReductionSchedule) and _may_be_unpacked(schedule):
        schedule = replace(schedule, lanes=0)  # a skeleton has rows of any
    return own.kind, schedule, own.listed, nodes, operands


def _may_be_unpacked(schedule: ReductionSchedule) -> bool:
    return not (schedule.alone or schedule.cut)


def _of_a_form(
    sites: list[_Site], cuda: bool, by_skeleton: Callable[[Lowered], bool]
) -> list[_Site]:
    """Those that can be, over named sizes. A skeleton runs one kernel for numbers that allow
    vectors and for others; where these have another schedule, it has instances for both.
    """
    apart = _over_names(sites, cuda)
    lanes = {site.place: _lanes_of(site.lowered) for site in sites}
    widest = max(lanes.values())
    wide = [site.group.lifting for site in apart if lanes[site.place] == widest]
    if not wide or wide[0] is None:
        return apart
    some = [site for site in sites if lanes[site.place] in (1, widest)]
    if len({lanes[site.place] for site in some}) > 1:
        some = [_unpacked(site, widest) for site in some]
    keys = {site.place: site.key for site in apart}
    joined = [
        site
        for alike in _by(_over_names(some, cuda, dict(wide[0].values)), _key)
        for site in alike
        if by_skeleton(site.lowered) and len({keys.get(each.place) for each in alike}) > 1
    ]
    taken = {site.place for site in joined}
    return [*joined, *(site for site in apart if site.place not in taken)]


def _lanes_of(lowered: Lowered) -> int:
    """How many elements of a row a thread takes at once, by the numbers."""
    return lowered.contiguous.lanes if isinstance(lowered, Reduction) else 1


def _unpacked(site: _Site, lanes: int) -> _Site:
    """With a schedule for numbers that allow so many lanes, and for others."""
    schedule = site.group.schedule
    assert isinstance(schedule, ReductionSchedule), "other schedules do not depend on numbers"
    schedule = replace(schedule, lanes=lanes, unpacked=True)
    return replace(site, group=replace(site.group, schedule=schedule))


def _over_names(
    sites: list[_Site], cuda: bool, values: Mapping[str, Size] | None = None
) -> list[_Site]:
    """Those that can be, over named sizes; those of a part that are alike with their numbers, too,
    are lowered once. Accesses are chosen for their numbers, or for `values`.
    """
    firsts: dict[tuple[int, str], _Site | None] = {}
    for site in sites:
        alike = site.place[0], site.numbered
        if alike not in firsts:
            firsts[alike] = _over_name(site, cuda, values)
    found = ((site, firsts[site.place[0], site.numbered]) for site in sites)
    return [
        replace(first, place=site.place, group=replace(site.group, lifting=first.group.lifting))
        for site, first in found
        if first is not None
    ]


def _over_name(site: _Site, cuda: bool, values: Mapping[str, Size] | None = None) -> _Site | None:
    named = None if _is_short(site.lowered) else lifted(site.group, numbered_rows=not cuda)
    if named is None:
        return None
    chosen = replace(named, values=tuple(values.items())) if values else named
    lowered = lower_lifted(site.origins, chosen, cuda)
    if lowered is None or not _reads_as_well(lowered, site.lowered):
        return None
    group = replace(site.group, lifting=named)
    return replace(site, group=group, lowered=lowered, key=key_of(site.graph, named.group, lowered))


def _reads_as_well(named: Lowered, numbered: Lowered) -> bool:
    """Whether the epilogue of a product reads in the same packets without the numbers."""
    if not isinstance(named, Contraction) or not isinstance(numbered, Contraction):
        return True
    both = (named.epilogue, numbered.epilogue)
    accesses = ([d.access for d in each.definitions if isinstance(d, Own)] for each in both)
    first, second = accesses
    return first == second and both[0].lanes == both[1].lanes


def _is_short(lowered: Lowered) -> bool:
    if not isinstance(lowered, Pointwise) or len(lowered.contiguous.loops) == 1:
        return False
    if any(buffer.listed is not None for buffer in lowered.buffers):
        return False  # a skeleton runs it, whose sizes are those of each tensor
    run = lowered.contiguous.loops[-1].extent
    return isinstance(run, int) and run < SHORT_RUN_ELEMS


def _with_taken(number: int, part: Part, taken: Mapping[tuple[int, int], _Site]) -> Part:
    sites = [taken.get((number, at)) for at in range(len(part.kernels))]
    pairs = zip(sites, part.kernels, strict=True)
    kernels = tuple(site.lowered if site else lowered for site, lowered in pairs)
    each = iter(sites)
    groups = (
        site.group if group.fused and (site := next(each)) else group for group in part.plan.groups
    )
    return replace(part, plan=replace(part.plan, groups=tuple(groups)), kernels=kernels)
