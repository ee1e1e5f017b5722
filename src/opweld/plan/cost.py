"""How fast: bytes, operations and the roofline that bounds a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.expr import Size
from ..ir.expr import product as product_of
from ..ir.graph import Node
from ..ir.kernels.product import (
    LIVE_SPLIT_READS,
    PARTS,
    SHORTEST_SPLIT,
    SKINNY,
    SPLIT_READS,
    Mode,
    Product,
    RowsProduct,
)
from ..ir.ops import OPS, Kind, Op
from ..ir.plan import (
    AttentionSchedule,
    Conditions,
    ContractionSchedule,
    ConvolutionSchedule,
    Estimate,
    Group,
    Sizes,
    number_at,
)
from ..ir.types import DType
from ..ir.views import behind_views
from ..target import Target
from .places import HERE, Way, places_of
from .products.forms import splits_in_kernel
from .products.squares import squares_us
from .products.windows import estimate_convolution
from .uses import computes

# Arithmetic instructions an element, counted in the machine code of the CUDA math functions
# (float32, sm_90); everything that is not listed is one instruction.
OP_FLOPS: dict[Op, int] = {
    Op.DIV: 10, Op.RECIPROCAL: 8, Op.SQRT: 8, Op.RSQRT: 4, Op.EXP: 8, Op.EXP2: 4, Op.EXPM1: 18,
    Op.LOG: 14, Op.LOG2: 14, Op.LOG10: 14, Op.LOG1P: 20, Op.SIN: 20, Op.COS: 20, Op.TAN: 30,
    Op.ASIN: 16, Op.ACOS: 18, Op.ATAN: 18, Op.SINH: 22, Op.COSH: 18, Op.TANH: 18, Op.ASINH: 24,
    Op.ACOSH: 24, Op.ATANH: 20, Op.ERF: 22, Op.ERFC: 34, Op.SIGMOID: 18, Op.GELU: 26,
    Op.GELU_TANH: 28, Op.SILU: 18, Op.MISH: 50, Op.SOFTPLUS: 34, Op.LOGSIGMOID: 34, Op.ELU: 22,
    Op.TANHSHRINK: 20, Op.POW: 60, Op.ATAN2: 30, Op.FMOD: 20, Op.REMAINDER: 24, Op.HYPOT: 20,
    Op.LOGADDEXP: 34, Op.XLOGY: 16, Op.DIV_FLOOR: 24, Op.DIV_TRUNC: 12, Op.LERP: 6, Op.ADDCMUL: 2,
}  # fmt: skip
# The difference, its square and two sums beside the mean's; exp, the difference, the largest.
FOLD_FLOPS: dict[Op, int] = {Op.SUMEXP: 10, Op.DEVSQ: 5}
# An element is combined within its thread, its team and its row; other scans take four.
_SCAN_FLOPS: dict[Op, int] = {Op.LOGCUMSUMEXP: 140}


def estimate(group: Group, target: Target) -> Estimate:
    """Roofline figures of a fused group: each operand read once, each result written once."""
    places = places_of(group.nodes, group.outputs) or {}
    num_bytes = sum(
        (_bytes_read(node, group, _num_loads(places, node)) for node in group.inputs), start=0
    )
    num_bytes = num_bytes + sum((node.type.size_bytes for node in group.outputs), start=0)
    flops: Size = 0
    for node in group.nodes:
        if node.kind is Kind.POINTWISE:
            flops = flops + node.type.num_elems * OP_FLOPS.get(node.op, 1)
        if node.kind is Kind.REDUCTION:
            flops = flops + node.inputs[0].type.num_elems * FOLD_FLOPS.get(node.op, 1)
        if node.kind is Kind.SCAN:
            flops = flops + node.type.num_elems * _SCAN_FLOPS.get(node.op, 4)
    if group.rows_product is not None and target.row_blocks is not None:
        product_flops = rows_flops(group.rows_product)
        multiply_s = number_at(product_flops, ()) / target.row_blocks.flops_per_s
        limit = _limit(num_bytes, flops, multiply_s, target)
        return Estimate(num_bytes, flops + product_flops, limit)
    if group.attention is not None:
        attended = group.attention.flops
        assert isinstance(group.schedule, AttentionSchedule), "attention has its family"
        rate = ATTENTION_SHARES[group.schedule.family] * target.product_rates[Mode.FAITHFUL].ours
        limit = _limit(num_bytes, flops, number_at(attended, ()) / rate, target)
        return Estimate(num_bytes, flops + attended, limit)
    if group.convolution is not None:
        convolved = group.convolution.windows.flops
        assert isinstance(group.schedule, ConvolutionSchedule), "a convolution has its mode"
        if group.convolution.depthwise:
            return Estimate(
                num_bytes, flops + convolved, _limit(num_bytes, flops + convolved, 0.0, target)
            )
        rate = target.product_rates[group.schedule.mode].ours
        limit = _limit(num_bytes, flops, number_at(convolved, ()) / rate, target)
        return Estimate(num_bytes, flops + convolved, limit)
    if group.product is None:
        return Estimate(num_bytes, flops, _limit(num_bytes, flops, 0.0, target))
    assert isinstance(group.schedule, ContractionSchedule), "a contraction has its mode"
    multiply_s = _multiply_s(group.product, target.product_rates[group.schedule.mode].ours)
    limit = _limit(num_bytes, flops, multiply_s, target)
    return Estimate(num_bytes, flops + group.product.flops, limit)


def estimate_with(prologue: Group, group: Group, target: Target) -> Estimate:
    """Of a contraction whose operand a the prologue computes, and nobody writes or reads."""
    num_bytes = prologue.estimate.bytes + group.estimate.bytes
    num_bytes = num_bytes - prologue.outputs[0].type.size_bytes * 2
    flops = prologue.estimate.flops + group.estimate.flops
    assert group.product and isinstance(group.schedule, ContractionSchedule), "it has its mode"
    multiply_s = _multiply_s(group.product, target.product_rates[group.schedule.mode].ours)
    limit = _limit(num_bytes, flops - group.product.flops, multiply_s, target)
    return Estimate(num_bytes, flops, limit)


def _multiply_s(product: Product, flops_per_s: float) -> float:
    return number_at(product.flops, ()) / flops_per_s


def _num_loads(places: Mapping[int, frozenset[Way]], operand: Node) -> int:
    """At how many different places of an element an operand is read; rows are walked over again at
    the same ones.
    """
    return len({_in_walk(way) for way in places.get(operand.serial, (HERE,))})


def _in_walk(way: Way) -> Way:
    """What follows the last reduction or scan on the way, behind which an element is in place."""
    folds = [i for i, step in enumerate(way) if step and _is_of_rows(step[0])]
    return way[folds[-1] + 1 :] if folds else way


def _is_of_rows(op: object) -> bool:
    return isinstance(op, Op) and OPS[op].kind in (Kind.REDUCTION, Kind.SCAN)


def _bytes_read(operand: Node, group: Group, num_loads: int) -> Size:
    """An operand is read whole, or as much of it as loads of the iteration space reach."""
    space = product_of(group.rows.space if group.rows else group.outputs[0].type.shape)
    whole, part = operand.type.size_bytes, space * operand.type.dtype.itemsize_bytes * num_loads
    if group.product is not None and operand in (group.product.a, group.product.b):
        return whole
    if group.attention is not None and operand in group.attention.reads:
        return whole
    if group.convolution is not None and operand in group.convolution.reads:
        return whole
    return whole if number_at(whole, ()) <= number_at(part, ()) else part


def _limit(num_bytes: Size, flops: Size, multiply_s: float, target: Target) -> str:
    """`multiply_s` are the seconds of a product, beside the other operations."""
    memory_s = number_at(num_bytes, ()) / target.copy_bytes_per_s
    compute_s = number_at(flops, ()) / target.pointwise_flops_per_s + multiply_s
    return "memory" if memory_s >= compute_s else "compute"


# Of the rate of products, at which attention multiplies, by the family of its kernels: on an H200
# 142 to 201 TFLOP/s from 2048 keys on by wgmma, of 240, and 63 to 96 by mma.sync (2026-11-23).
ATTENTION_SHARES = {"sm90": 0.75, "mma": 0.4}
# Of the speed of a copy, at which the library reads the operand of many rows beside few: 0.84 where
# they are one (2048x1048576 times a vector; 0.64 for 8192x8192), 0.42 for up to 16 (H200,
# 2026-11-21, torch 2.11), 0.18 for 64 (2026-11-22), where smaller operands may be better off.
LIBRARY_SHARES = ((1, 0.84), (16, 0.42), (64, 0.25))
# Of the speed of memory, at which an operand b that is not held is split (8192x8192 in two parts:
# 0.32 ms); a held one's splitting is paid when it changes.
LIVE_SPEED = 0.8
# Of the rate of products whose operands are split before, that of a kernel which splits them
# itself, by mma.sync on an H200 (62 of 101 TFLOP/s, 2026-11-22).
LIVE_SHARE = 0.6
# Of the speed of a copy, where sums of float32 are short and storing them is all there is: ours, an
# estimate, and the library's, which stores 16384x12288 sums of 16 terms in 0.36 ms, where a copy of
# as much takes 0.19 (H200, 2026-11-22, torch 2.11). Ours begin late: a warp goes down many rows.
SHORT_SHARE, LIBRARY_SHORT_SHARE, SHORT_OVERHEAD_US = 0.67, 0.53, 12.0
# Of the rate of operations element by element, that of what follows short sums in their kernel: 41
# instructions for each of 16384x12288 sums of 16 terms and a bias make it 0.97 ms in place of 0.42.
# A kernel of their own hides as many behind the memory: 0.39 (H200, 2026-11-23).
SHORT_TAIL_SHARE = 0.45
# Microseconds in which kernels that read the operand of many rows once begin and end, by the rows
# beside it; the library's of few rows or of short sums; and a kernel for what follows a product,
# beside its bytes (benchmarks/results/small-products-nvidia-h200.log).
FEW_US, LIBRARY_LEAST_US, REST_US = ((8, 4.0), (16, 10.0)), 3.5, 1.5


@dataclass(frozen=True, slots=True)
class ProductTimes:
    """Microseconds of a product and its tail: as one kernel of ours, as a kernel of ours for each,
    and as the library's call and a kernel for the tail.
    """

    fused: float
    apart: float
    library: float


def estimate_product(
    anchor: Node,
    product: Product,
    mode: Mode,
    tail: Sequence[Node],
    target: Target,
    sizes: Sizes,
) -> ProductTimes:
    """Where the tail takes sums of 16-bit operands as float32, the library's call is of float32
    operands: one of 16 bits would round them.

    The splitting of a held weight is not counted: in inference one is split once for all calls.
    Where a weight changes between calls, as in training, each call takes longer by
    LIVE_SPLIT_READS.
    """
    rates = target.product_rates[mode]
    operands_us = _copy_us((product.a, product.b), target, sizes)
    written_us = _copy_us((anchor,), target, sizes)
    beside_us = _copy_us(_read_beside(anchor, tail), target, sizes)
    flops = number_at(product.flops, sizes)
    few = min(number_at(product.m, sizes), number_at(product.n, sizes))
    short = mode in PARTS and number_at(product.k, sizes) < SHORTEST_SPLIT
    plain = _ours_us(anchor, product, mode, 0.0, target, sizes)
    fused = _ours_us(anchor, product, mode, beside_us, target, sizes) if tail else plain
    tail_us = _flops(tail, sizes) / target.pointwise_flops_per_s * 1e6
    if short and few > SKINNY[mode]:
        fused += tail_us / SHORT_TAIL_SHARE
    rest_us = REST_US + max(2 * written_us + beside_us, tail_us) if tail else 0.0
    stored_us = written_us / (LIBRARY_SHORT_SHARE if short and mode is Mode.FAITHFUL else 1.0)
    library_rate = rates.library
    if mode in (Mode.HALF, Mode.BFLOAT16) and _stays_wide(anchor, tail):
        library_rate = target.product_rates[Mode.FAITHFUL].library
    library = max(flops / library_rate * 1e6, operands_us + stored_us)
    is_least = short or number_at(product.m, sizes) <= SKINNY[mode]
    library += min(LIBRARY_LEAST_US, rates.library_us) if is_least else rates.library_us
    share = next((share for most, share in LIBRARY_SHARES if few <= most), 1.0)
    library = max(library, operands_us / share + written_us)
    return ProductTimes(fused, plain + rest_us, library + rest_us)


def _ours_us(
    anchor: Node, product: Product, mode: Mode, beside_us: float, target: Target, sizes: Sizes
) -> float:
    """A product as a kernel of ours, which reads for `beside_us` what its tail needs."""
    if square_side(product, mode, target, sizes):
        return max(squares_us(product, target, sizes)[0], beside_us)
    written_us = _copy_us((anchor,), target, sizes)
    return _tiles_us(product, mode, beside_us + written_us, target, sizes)


def square_side(product: Product, mode: Mode, target: Target, sizes: Sizes) -> int:
    """The side of the squares by which multiply-adds make a product faster than the tensor cores
    do, and 0 where they do not.
    """
    if mode is not Mode.FAITHFUL:
        return 0
    squares, side = squares_us(product, target, sizes)
    written_bytes = (
        number_at(product.batches * product.m * product.n, sizes) * DType.F32.itemsize_bytes
    )
    written_us = written_bytes / target.copy_bytes_per_s * 1e6
    return side if squares < _tiles_us(product, mode, written_us, target, sizes) else 0


def _tiles_us(
    product: Product, mode: Mode, others_us: float, target: Target, sizes: Sizes
) -> float:
    """By tiles, or one of the forms beside them; all but the operands moves for `others_us`."""
    rates = target.product_rates[mode]
    rate, flops = rates.ours, number_at(product.flops, sizes)
    few = min(number_at(product.m, sizes), number_at(product.n, sizes))
    short = mode in PARTS and number_at(product.k, sizes) < SHORTEST_SPLIT
    live = splits_itself(product, mode, sizes)
    moved_us = _copy_us((product.a, product.b), target, sizes) + others_us
    if short and few > SKINNY[mode]:
        rate, moved_us = rates.short or rate, moved_us / SHORT_SHARE
    if live:
        rate = rates.live or LIVE_SHARE * rate
    ours = max(flops / rate * 1e6, moved_us)
    if few <= SKINNY[mode]:
        begin_us = next(us for most, us in FEW_US if few <= most)
        return ours + min(begin_us, rates.overhead_us)
    if short:
        return ours + SHORT_OVERHEAD_US
    split_us = 0.0 if live else _split_us(product, mode, target, sizes)
    results = number_at(product.batches * product.m * product.n, sizes)
    return ours + rates.overhead_us + split_us + rates.given_us * results / 1e6


def _flops(nodes: Sequence[Node], sizes: Sizes) -> float:
    """Of operations element by element."""
    computed = (node for node in nodes if node.kind is Kind.POINTWISE)
    return sum(OP_FLOPS.get(n.op, 1) * number_at(n.type.num_elems, sizes) for n in computed)


def replaced_copies(group: Group, target: Target, sizes: Sizes) -> float:
    """How long the PyTorch calls take that a kernel replaces, each alone, in times of a copy of the
    kernel's bytes: a measure that holds on machines of other speeds, too.
    """
    own_us = number_at(group.estimate.bytes, sizes) / target.copy_bytes_per_s * 1e6
    calls = [node for node in group.nodes if computes(node)]
    replaced_us = sum(_copy_us(_touched(call), target, sizes) for call in calls)
    if group.product is not None and group.anchor is not None:
        assert isinstance(group.schedule, ContractionSchedule), "a contraction has its mode"
        mode = group.schedule.mode
        times = estimate_product(group.anchor, group.product, mode, (), target, sizes)
        replaced_us += times.library
    if group.convolution is not None and group.anchor is not None:
        replaced_us += estimate_convolution(
            group.anchor, group.convolution, (), target, Conditions(sizes=sizes)
        ).library
    if group.rows_product is not None and target.row_blocks is not None:
        flops = number_at(rows_flops(group.rows_product), sizes)
        replaced_us += flops / target.row_blocks.flops_per_s * 1e6
    return replaced_us / own_us if own_us else 1.0


def _touched(call: Node) -> tuple[Node, ...]:
    """What one call reads and writes: of views that repeat values, the values."""
    read = dict.fromkeys(operand for operand in call.inputs if operand.op is not Op.CONST)
    read = dict.fromkeys(call if _is_source(call, operand) else operand for operand in read)
    whole = ((view, behind_views(view)) for view in read)
    return (
        call,
        *(min(pair, key=lambda node: number_at(node.type.size_bytes, ())) for pair in whole),
    )


def _is_source(call: Node, operand: Node) -> bool:
    """Whether a GATHER reads as much of the operand as it has elements itself, at most."""
    if call.op is not Op.GATHER or operand is not call.inputs[0]:
        return False
    return number_at(call.type.num_elems, ()) < number_at(operand.type.num_elems, ())


def _stays_wide(anchor: Node, tail: Sequence[Node]) -> bool:
    """Whether all that reads the product takes it as float32."""
    readers = [node for node in tail if anchor in node.inputs]
    return bool(readers) and all(
        node.op is Op.CAST and node.type.dtype is DType.F32 for node in readers
    )


def _read_beside(anchor: Node, tail: Sequence[Node]) -> tuple[Node, ...]:
    """What the tail reads from memory beside the product."""
    inside = {anchor.serial, *(node.serial for node in tail)}
    read = dict.fromkeys(behind_views(operand) for node in tail for operand in node.inputs)
    return tuple(n for n in read if n.serial not in inside and n.op is not Op.CONST)


def _copy_us(nodes: Sequence[Node], target: Target, sizes: Sizes) -> float:
    """The time in which their bytes are read or written once."""
    num_bytes = sum(number_at(node.type.size_bytes, sizes) for node in nodes)
    return num_bytes / target.copy_bytes_per_s * 1e6


def held_bytes(product: Product, mode: Mode) -> int:
    """The memory that the kept form of a weight takes: one or two 16-bit parts for each float32.
    Sizes that are symbols may be any.
    """
    if not product.held or mode not in PARTS or number_at(product.k, ()) < SHORTEST_SPLIT:
        return 0
    if any(isinstance(size, int) and size <= SKINNY[mode] for size in (product.m, product.n)):
        return 0
    return number_at(product.b.type.size_bytes, ()) * PARTS[mode] // 2


def splits_itself(product: Product, mode: Mode, sizes: Sizes) -> bool:
    """Whether the kernel that makes the product splits both operands."""
    return splits_in_kernel(product, mode, sizes)


def splits_a(product: Product, mode: Mode, sizes: Sizes) -> bool:
    """Whether a pass of its own reads operand a, to split it."""
    few = min(number_at(product.m, sizes), number_at(product.n, sizes))
    long = number_at(product.k, sizes) >= SHORTEST_SPLIT
    return mode in PARTS and few > SKINNY[mode] and long and not splits_itself(product, mode, sizes)


def _split_us(product: Product, mode: Mode, target: Target, sizes: Sizes) -> float:
    """The passes that split float32 operands: reads of the operand, writes of its parts."""
    if mode not in PARTS:
        return 0.0
    written = PARTS[mode] / 2
    own = (SPLIT_READS + written) * _copy_us((product.a,), target, sizes)
    live = (LIVE_SPLIT_READS + written) / LIVE_SPEED * _copy_us((product.b,), target, sizes)
    return own if product.held else own + live


def rows_flops(product: RowsProduct) -> Size:
    """Two operations a term."""
    return product_of(product.a.type.shape[:-1]) * product.b.type.num_elems * 2


def block_rows(call: Node, target: Target, sizes: Sizes) -> int:
    """The most rows of a block: a power of two, as many as the cache holds of the results."""
    assert target.row_blocks is not None, "the target has row blocks"
    limits = target.row_blocks
    row_bytes = number_at(call.type.shape[-1] * call.type.dtype.itemsize_bytes, sizes)
    fitting = limits.cache_bytes // max(row_bytes, 1)
    return min(max(1 << max(fitting, 1).bit_length() - 1, limits.least_rows), limits.most_rows)


def saved_and_packed_bytes(
    call: Node, product: RowsProduct, rows: int, target: Target, sizes: Sizes
) -> tuple[int, int]:
    """What row blocks keep out of memory, and what they move more: (bytes, bytes).

    The tail reads and writes the result in the cache; so does the copy of a bias into the result,
    to which the library adds the product. For each block the library packs b again.
    """
    assert target.row_blocks is not None, "the target has row blocks"
    result_bytes = number_at(call.type.size_bytes, sizes)
    if result_bytes < target.row_blocks.least_bytes:
        return 0, 0
    num_rows = number_at(product_of(call.type.shape[:-1]), sizes)
    passes = 2 if product.added is None else 4
    packed_bytes = target.row_blocks.packings * number_at(product.b.type.size_bytes, sizes)
    return passes * result_bytes, packed_bytes * -(-num_rows // rows)
