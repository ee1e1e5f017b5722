"""The bytes that kernels move by their form, at the example's sizes, beside those that must move.

Counted from the lowered kernels: the elements that loads and stores reach, each load again where
what it read before is no longer near. A walk over rows that stay on the chip, or in a core's cache,
reads nothing again; elsewhere every walk reads its operands. Left out is what stays below a
hundredth: fingerprints of held weights, and partial sums of products with few rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from ..ir.expr import Size, symbols_of
from ..ir.kernels.convolution import Convolving
from ..ir.kernels.kernel import Attending, Contraction, Factor, Kernel, Load, Loop, RowBlocks, Store
from ..ir.kernels.product import LIVE_SPLIT_READS, PARTS, SPLIT_READS, Form, extent, form_at
from ..ir.kernels.reduction import Folding, Lowered, Reduction, Scan, Step
from ..ir.plan import Group, Plan, Sizes, Traffic, number_at
from ..target import Target
from .cpp.lanes import lanes_of
from .cuda.cooperative_rows import device_instance
from .cuda.teams import stay_on_chip
from .pieces import num_pieces, partial_bytes

# A tile of a product, and the terms of a sum that one of several blocks has at least.
_TILE, _LEAST_TERMS = 128, 256
# Rows of attention that a block makes.
_ATTENTION_ROWS = 128


def with_traffic(
    plan: Plan, kernels: tuple[Lowered, ...], target: Target, sizes: Sizes = ()
) -> Plan:
    """The plan with what the kernels of its groups move."""
    made = {lowered.group: lowered for lowered in kernels}
    groups = tuple(
        replace(group, traffic=_traffic(_Site(group, target, sizes), made[group.name]))
        if group.name in made
        else group
        for group in plan.groups
    )
    return replace(plan, groups=groups)


@dataclass(frozen=True, slots=True)
class _Site:
    """A group, and what turns its sizes into bytes."""

    group: Group
    target: Target
    sizes: Sizes

    def at(self, size: Size) -> int:
        return number_at(size, self.sizes)

    def operand_bytes(self, source: int) -> int:
        return self.at(self.group.inputs[source].type.size_bytes)


def _traffic(site: _Site, lowered: Lowered) -> Traffic:
    if isinstance(lowered, Reduction):
        moved = _of_reduction(site, lowered)
    elif isinstance(lowered, Scan):
        moved = _of_scan(site, lowered)
    elif isinstance(lowered, Attending):
        moved = _of_attention(site, lowered)
    elif isinstance(lowered, Contraction):
        moved = _of_contraction(site, lowered)
    elif isinstance(lowered, Convolving):
        moved = _of_convolution(site, lowered)
    elif isinstance(lowered, RowBlocks):
        moved = _of_row_blocks(site, lowered)
    else:
        moved = _of_kernel(site, lowered.contiguous)
    # The estimate takes a slice that repeats for all of what it is cut from.
    return Traffic(min(site.at(site.group.estimate.bytes), moved), moved)


# --- what loads and stores reach ---


@dataclass(frozen=True, slots=True)
class _Reach:
    """The places of a buffer that an address reaches, `bytes` in all."""

    buffer: str
    address: Size
    bytes: int
    written: bool


def _reaches(site: _Site, kernel: Kernel) -> list[_Reach]:
    """Those of a kernel, each once."""
    places: list[Load | Store] = [d for d in kernel.definitions if isinstance(d, Load)]
    found = (
        _Reach(
            each.buffer,
            each.address,
            _elems(site, each.address, kernel.loops) * each.dtype.itemsize_bytes,
            written=isinstance(each, Store),
        )
        for each in (*places, *kernel.stores)
    )
    return list(dict.fromkeys(found))


def _elems(site: _Site, address: Size, loops: Iterable[Loop]) -> int:
    """The places that an address has while loops turn."""
    used = symbols_of(address)
    return prod(site.at(loop.extent) for loop in loops if loop.var in used)


def _bytes_of(site: _Site, kernel: Kernel, reaches: Iterable[_Reach]) -> int:
    """Of each buffer no more than it has."""
    total: dict[tuple[str, bool], int] = {}
    for reach in reaches:
        key = reach.buffer, reach.written
        total[key] = total.get(key, 0) + reach.bytes
    whole = {b.name: site.operand_bytes(b.source) for b in kernel.buffers if not b.written}
    return sum(
        size if written else min(size, whole.get(buffer, size))
        for (buffer, written), size in total.items()
    )


# --- one kernel over elements ---


def _of_kernel(site: _Site, kernel: Kernel) -> int:
    """Each operand once, and once more for every turn of a loop round too much of everything."""
    reaches = _reaches(site, kernel)
    total = 0
    for turns in sorted({_turns(site, kernel, reach, reaches) for reach in reaches}):
        alike = [reach for reach in reaches if _turns(site, kernel, reach, reaches) == turns]
        total += turns * _bytes_of(site, kernel, alike)
    return total


def _turns(site: _Site, kernel: Kernel, reach: _Reach, reaches: list[_Reach]) -> int:
    """How often what is reached comes from memory: turns of a thread's own read nothing again."""
    turns, used = 1, symbols_of(reach.address)
    for place, loop in enumerate(kernel.loops[kernel.turned :], kernel.turned):
        inner = kernel.loops[place + 1 :]
        if loop.var not in used and any(within.var in used for within in inner):
            between = sum(
                _elems(site, each.address, inner) * _itemsize(kernel, each) for each in reaches
            )
            turns *= site.at(loop.extent) if between > site.target.cache_bytes else 1
    return turns


def _itemsize(kernel: Kernel, reach: _Reach) -> int:
    return next(b.dtype.itemsize_bytes for b in kernel.buffers if b.name == reach.buffer)


# --- reductions ---


def _of_reduction(site: _Site, reduction: Reduction) -> int:
    on_cpu = site.target.language == "c++"
    num_rows, length = site.at(reduction.num_rows), site.at(reduction.length)
    lanes = lanes_of(reduction)[0] if on_cpu else None
    folding = lanes.folding if lanes else reduction.contiguous
    if lanes:
        side_by_side = lanes.count if lanes.across else 1
        is_kept = _row_bytes(site, folding, num_rows) * side_by_side <= site.target.cache_bytes
    else:
        by_few = stay_on_chip(reduction, num_rows, length)
        is_kept = by_few or device_instance(reduction) is not None
    pieces = num_pieces(reduction, site.target, num_rows, length)
    partials = num_rows * pieces * partial_bytes(reduction, site.target.language)
    return _of_walks(site, folding, is_kept) + (2 * partials if pieces > 1 else 0)


def _row_bytes(site: _Site, folding: Folding, num_rows: int) -> int:
    """What walks reach of one row."""
    reached = {
        (reach.buffer, reach.address): reach.bytes
        for step in folding.steps
        for reach in _reaches(site, step.walk.kernel)
    }
    return sum(reached.values()) // max(num_rows, 1)


def _of_walks(site: _Site, folding: Folding, is_kept: bool) -> int:
    """Every walk's, or where rows are kept of all walks what differs."""
    kernel = folding.steps[0].walk.kernel
    walks = [_reaches_of(site, folding, step) for step in folding.steps]
    if not is_kept:
        return sum(_bytes_of(site, kernel, walk) for walk in walks)
    every = dict.fromkeys(reach for walk in walks for reach in walk)
    written = {reach.buffer for reach in every if reach.written}
    read = [reach for reach in every if reach.written or reach.buffer not in written]
    return _bytes_of(site, kernel, [reach for reach in read if reach.buffer in _named(kernel)])


def _named(kernel: Kernel) -> frozenset[str]:
    return frozenset(buffer.name for buffer in kernel.buffers)


def _reaches_of(site: _Site, folding: Folding, step: Step) -> list[_Reach]:
    """Those of a walk and of what comes once after it. An array of a row is each row's anew."""
    found = [reach for kernel in step.kernels for reach in _reaches(site, kernel)]
    kernel = step.walk.kernel
    again = prod(site.at(loop.extent) for loop in folding.kept)
    return [
        reach if reach.buffer in _named(kernel) else replace(reach, bytes=reach.bytes * again)
        for reach in found
    ]


# --- scans ---


def _of_scan(site: _Site, scan: Scan) -> int:
    """Both halves of the walk once, and the first one before where columns are cut in pieces."""
    num_rows, length = site.at(scan.num_rows), site.at(scan.length)
    folding = scan.contiguous
    moved = _of_walks(site, folding, is_kept=True)
    in_registers = site.target.language == "cuda" and not folding.across
    if not scan.cut or in_registers or num_pieces(scan, site.target, num_rows, length) == 1:
        return moved
    first = folding.steps[0].walk.kernel
    return moved + _bytes_of(site, first, _reaches(site, first))


# --- products ---


def _of_contraction(site: _Site, contraction: Contraction) -> int:
    """The operands, as they are or through copies in 16-bit parts; partial sums; the epilogue."""
    a, b = contraction.a.axes, contraction.b.axes
    batches, m, n, k = (site.at(extent(axes)) for axes in (a.batch, a.rows, b.rows, a.inner))
    moved = _of_kernel(site, contraction.epilogue)
    size = [_factor_bytes(site, factor) for factor in (contraction.a, contraction.b)]
    read = list(size)
    if contraction.prologue is not None:
        read[0] = _of_kernel(site, contraction.prologue.kernel)
    form = form_at(contraction.forms, contraction.mode, m, n, k).form
    if contraction.mode not in PARTS or form not in (Form.TILES, Form.LIVE):
        return moved + sum(read)
    parts = _sum_parts(site.target, batches, m, n, k)
    sums = 2 * parts * batches * m * n * 4 if parts > 1 else 0
    if form is Form.LIVE:
        return moved + sum(read) + sums
    copy = [each * PARTS[contraction.mode] // 2 for each in size]
    moved += (SPLIT_READS * read[0] + copy[0]) + copy[0] + copy[1]
    if not contraction.held:
        moved += LIVE_SPLIT_READS * read[1] + copy[1]
    return moved + sums


def _of_convolution(site: _Site, convolving: Convolving) -> int:
    """The operands, and through copies in 16-bit parts, which the windows then find in the cache;
    the epilogue.
    """
    read = [site.operand_bytes(place) for place in (convolving.x, convolving.weight)]
    if convolving.depthwise:
        return sum(read) + _of_kernel(site, convolving.epilogue)
    if convolving.unpacked:  # filters are rounded to memory
        return sum(read) + 2 * read[1] + _of_kernel(site, convolving.epilogue)
    copies = sum(read) * PARTS[convolving.mode] // 2
    return sum(read) + 2 * copies + _of_kernel(site, convolving.epilogue)


def _factor_bytes(site: _Site, factor: Factor) -> int:
    """Of the operand as float32 in memory, where it is computed as if it were there."""
    if factor.source is not None:
        return site.operand_bytes(factor.source)
    elems = prod(site.at(extent(axes)) for axes in (factor.axes.rows, factor.axes.inner))
    shared = all(axis.place is None for axis in factor.axes.batch)
    return elems * 4 * (1 if shared else site.at(extent(factor.axes.batch)))


def _of_attention(site: _Site, attending: Attending) -> int:
    """q once; k and v once, and their images, of as many bytes, as often as blocks of rows read
    them beyond the cache; what scores and the epilogue read beside.
    """
    sizes = {b.name: site.operand_bytes(b.source) for b in attending.scores.buffers}
    rows, keys, _ = (site.at(loop.extent) for loop in attending.rows)
    shared = prod(site.at(loop.extent) for loop in attending.shared)
    image = keys * (attending.depth + attending.columns) * 4
    apart = prod(site.at(loop.extent) for loop in attending.batch if loop.var in attending.alone)
    blocks = -(-rows // _ATTENTION_ROWS) * apart if image > site.target.cache_bytes else 1
    images = shared * image * (1 + blocks)
    return _of_kernel(site, attending.epilogue) + sum(sizes.values()) + images


def _sum_parts(target: Target, batches: int, m: int, n: int, k: int) -> int:
    """In how many parts sums are made where there are fewer tiles than multiprocessors: an
    estimate, as the launch decides by the time that it expects.
    """
    tiles = batches * -(-m // _TILE) * -(-n // _TILE)
    return max(min(target.multiprocessors // max(tiles, 1), k // _LEAST_TERMS), 1)


def _of_row_blocks(site: _Site, blocks: RowBlocks) -> int:
    """The library packs b for every block; the product's result goes to memory once."""
    rows = prod(site.at(size) for size in blocks.shape[:-1])
    turns = -(-rows // blocks.rows)
    return site.at(site.group.estimate.bytes) + max(turns - 1, 0) * site.operand_bytes(blocks.b)
