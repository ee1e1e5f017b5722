"""Kernels for any sizes: one stands for all groups of a file that differ in numbers only.

A group that is alone with its computation keeps its numbers: as constants they are faster, and
easier to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..ir.graph import Graph
from ..ir.kernels.kernel import Pointwise
from ..ir.kernels.lifted import lifted
from ..ir.kernels.reduction import Lowered
from ..ir.kernels.shared import key_of
from ..ir.ops import Kind
from ..ir.original import Part
from ..ir.plan import Group
from . import lower_lifted
from .pointwise import Origins

# Below so many elements kernels have another form, in which the number is a constant.
SHORT_RUN_ELEMS = 33


def lifting(parts: tuple[Part, ...], language: str) -> tuple[Part, ...]:
    """The parts, with kernels for any sizes in place of those that differ in numbers only.

    In CUDA what is read in packets depends on numbers; in C++ the compiler makes vectors, but the
    order in which a row is summed depends on the lengths of its loops, which stay.
    """
    sites = [site for place, part in enumerate(parts) for site in _sites(place, part)]
    cuda = language == "cuda"
    over = [each for alike in _differing(sites, _form) for each in _over_names(alike, cuda)]
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
    ]


def _differing(sites: Iterable[_Site], alike: Callable[[_Site], object]) -> list[list[_Site]]:
    """Those that are alike, where some of them differ in numbers."""
    found: dict[object, list[_Site]] = {}
    for site in sites:
        found.setdefault(alike(site), []).append(site)
    return [each for each in found.values() if len({site.numbered for site in each}) > 1]


def _key(site: _Site) -> str:
    return site.key


def _form(site: _Site) -> object:
    """The same for all that can have one key: the operations, and how many axes there are."""
    own = site.group
    computed = (node for node in own.nodes if node.kind is not Kind.SOURCE)
    nodes = tuple((node.op, node.type.dtype, node.type.rank) for node in computed)
    operands = tuple((node.type.dtype, node.type.rank) for node in own.inputs)
    return own.kind, own.schedule, own.listed, nodes, operands


def _over_names(sites: list[_Site], cuda: bool) -> list[_Site]:
    """Those that can be, over named sizes; those of a part that are alike with their numbers, too,
    are lowered once.
    """
    firsts: dict[tuple[int, str], _Site | None] = {}
    for site in sites:
        alike = site.place[0], site.numbered
        if alike not in firsts:
            firsts[alike] = _over_name(site, cuda)
    found = ((site, firsts[site.place[0], site.numbered]) for site in sites)
    return [
        replace(first, place=site.place, group=replace(site.group, lifting=first.group.lifting))
        for site, first in found
        if first is not None
    ]


def _over_name(site: _Site, cuda: bool) -> _Site | None:
    named = None if _is_short(site.lowered) else lifted(site.group, numbered_rows=not cuda)
    lowered = lower_lifted(site.origins, named, cuda) if named else None
    if named is None or lowered is None:
        return None
    group = replace(site.group, lifting=named)
    return replace(site, group=group, lowered=lowered, key=key_of(site.graph, named.group, lowered))


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
