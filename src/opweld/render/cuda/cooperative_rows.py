"""Long rows that all multiprocessors keep together (cooperative_rows.cuh): kernel and launcher.

Such rows are folded in one walk and stored in a second, and only one operand of theirs is read by
both. What the second reads of the others for all rows alike, as a weight, stays in shared memory as
far as there is room.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.kernels.kernel import Access, Load
from ...ir.kernels.reduction import Folding, Reduction, Scan
from ..layout import call, folded, head
from .folds import tell
from .streamed import (
    from_function,
    keep_function,
    kept_loads,
    kept_parts,
    kept_type,
    store_function,
)
from .teams import cut_entries
from .walk import (
    Function,
    casts,
    folds_name,
    held_loads,
    integers,
    known_name,
    operand_parameters,
    packet_type,
    pointers,
    prefix,
)

# Names of the device library's pieces that the text uses.
DEVICE_PIECES = {"DeviceRows", "blocks_together", "launch_together", "store_vector_streaming"}
# Threads of a block that walk, and bytes of what a thread copies at once.
_TEAM, _PACKET_BYTES = 256, 16
# Packets of a row in the registers of a thread, and those that it copies ahead of the row that it
# folds; shared memory that is not for packets.
_MOST_ITEMS, _AHEAD, _OTHER_BYTES = 16, 4, 10 * 1024
# A block knows what all others have folded 4 us after it has told its own. Meanwhile so many
# packets of a thread go by, and a row is stored as many rows after it is folded, within bounds.
_MEANWHILE, _LEAST_LAG, _MOST_LAG = 32, 2, 3


@dataclass(frozen=True, slots=True)
class DeviceInstance:
    """Each of `_TEAM` threads has `items` packets of a row in registers and `slots` in shared
    memory; a row is stored `lag` rows after it is folded. What rows have in common of `kept`
    packets stays in shared memory.
    """

    items: int
    slots: int
    lag: int
    kept: int


def device_instance(reduction: Reduction) -> DeviceInstance | None:
    """How row-major rows are kept by all multiprocessors, or None where they are not."""
    folding, length = reduction.contiguous, reduction.length
    if not (folding.device_blocks and isinstance(length, int)) or not _packet(folding):
        return None
    items = -(-length // (folding.device_blocks * _TEAM * folding.lanes))
    room = (folding.shared_bytes - _OTHER_BYTES) // (_TEAM * _PACKET_BYTES)
    lag = min(max(_MEANWHILE // items, _LEAST_LAG), _MOST_LAG)
    least = lag * items + _AHEAD
    if items > _MOST_ITEMS or least > room:
        return None
    kept_bytes = sum(load.dtype.itemsize_bytes * folding.lanes for load in _kept(folding))
    kept = min((room - least) * _PACKET_BYTES // kept_bytes, items) if kept_bytes else 0
    return DeviceInstance(items, room - -(-kept * kept_bytes // _PACKET_BYTES), lag, kept)


def has_partials(reduction: Reduction | Scan) -> bool:
    """Whether its kernels are given memory for what parts of rows come to."""
    whole = isinstance(reduction, Reduction) and device_instance(reduction) is not None
    return whole or reduction.cut


def _kept(folding: Folding) -> list[Load]:
    return list({name: load for load, name in kept_loads(folding).items()}.values())


def _packet(folding: Folding) -> Load | None:
    """What both walks read of a packet, if that is one vector as wide as what is copied at once."""
    held = {name: load for load, name in held_loads(folding).items()}
    if len(held) != 1:
        return None
    (load,) = held.values()
    wide = load.dtype.itemsize_bytes * folding.lanes == _PACKET_BYTES
    return load if wide and load.access in (Access.VECTOR, Access.FLAT) else None


def device_entries(reduction: Reduction) -> str:
    """How many blocks have a row together, and the bytes by which one tells others its folds."""
    told = f"sizeof(op::Told<{folds_name(reduction.contiguous, 0)}>)"
    return cut_entries(reduction.group, "op::blocks_together()", told)


def device_parts(
    reduction: Reduction,
    instance: DeviceInstance,
    walk: Function,
    once: Function | None,
    operands: tuple[str, ...],
) -> list[str]:
    """The shape of the launch, the kernel, and what launches it: true if the device has room."""
    folding = reduction.contiguous
    shares = bool(kept_loads(folding))
    start, store = from_function(folding), store_function(folding)
    keep = keep_function(folding) if shares else None
    own = [start, *([keep] if keep else []), store]
    return [
        *kept_parts(folding),
        *(function.text for function in own),
        _rows_type(folding, instance),
        _kernel(folding, operands, _steps(folding, start, keep, walk, once, store)),
        _launcher(reduction, instance, operands),
    ]


def _rows(folding: Folding) -> str:
    return f"{prefix(folding)}_device_rows"


def _rows_type(folding: Folding, instance: DeviceInstance) -> str:
    lanes = f"<{folding.lanes}>"
    packet, kept = (
        name.replace("<kLanes>", lanes) for name in (packet_type(folding), kept_type(folding))
    )
    numbers = (_TEAM, instance.items, instance.slots, instance.lag, instance.kept)
    given = [*map(str, numbers), packet, kept, folds_name(folding, 0), known_name(folding), "Index"]
    lines = [
        "// A row that all multiprocessors keep.",
        "template <typename Index>",
        folded(f"using {_rows(folding)} = op::DeviceRows<{', '.join(given)}>;"),
    ]
    return "\n".join(lines)


def _steps(
    folding: Folding,
    start: Function,
    keep: Function | None,
    walk: Function,
    once: Function | None,
    store: Function,
) -> list[str]:
    """What a thread is given to call, in the order in which it is called."""
    first = folding.steps[0].walk
    walks = f"op::Walks<1, kLanes, 0, {packet_type(folding)}, Index>"
    given = ["row", "place(item) * kLanes", "packet", "known", "folds"]
    stored = ["row", "at * kLanes", "packet", "known", "folds", "kept"]
    kept = "return op::NoPacket();"
    if keep:
        kept = "return " + keep.call(["at * kLanes"], 4).lstrip()
    return [
        "  const auto from = [&](Index row, Index at) {",
        "    return " + start.call(["row", "at * kLanes"], 4).lstrip(),
        "  };",
        "  const auto keep = [&](Index at) {",
        f"    {kept}",
        "  };",
        "  const auto fold = [&](Index row, Index count, auto load, auto place) {",
        f"    const {walks} walks(0, count);",
        f"    {known_name(folding)} known;",
        f"    {folds_name(folding, 0)} folds0[kLanes];",
        "    walks.walk(folds0, load, [&](const auto& packet, Index item, auto& folds) {",
        walk.call(given, 6),
        "    });",
        "    return op::merged(folds0);",
        "  };",
        "  const auto tell = [&](Index row, bool stores, const auto& folds, auto& known) {",
        f"    {tell('folds', 'known', first)}",
        *([once.call(["row", "stores", "known"], 4)] if once else []),
        "  };",
        "  const auto store = [&](Index row, Index at, const auto& packet, const auto& kept,",
        "                         const auto& known) {",
        "    op::NoFolds folds[kLanes];",
        store.call(stored, 4),
        "  };",
    ]


def _kernel(folding: Folding, operands: tuple[str, ...], steps: list[str]) -> str:
    params = [*operand_parameters(folding, operands), "Index num_rows", "Index length"]
    lines = [
        "template <typename Index>",
        f"__global__ void __launch_bounds__({_rows(folding)}<Index>::kThreads, 1)",
        head(f"{prefix(folding)}_device_kernel", [*params, "void* told"], " {"),
        f"  constexpr int kLanes = {folding.lanes};",
        f"  const {_rows(folding)}<Index> rows(num_rows, length / kLanes, told);",
        *(folded(line) for step in steps for line in step.split("\n")),
        "  rows.walk(from, keep, fold, tell, store);",
        "}",
    ]
    return "\n".join(lines)


def _launcher(reduction: Reduction, instance: DeviceInstance, operands: tuple[str, ...]) -> str:
    folding = reduction.contiguous
    params = [
        *pointers(folding, operands),
        *(f"int64_t {name}" for name in (*integers(folding, operands), "num_rows", "length")),
        *("int64_t blocks", "void* told", "cudaStream_t stream"),
    ]
    arguments = [*casts(folding, operands), "Index(num_rows)", "Index(length)", "told"]
    started = ["kernel", "blocks", "Rows::kThreads", "Rows::shared_bytes()", "stream"]
    launch = call("return op::launch_together", [*started, *arguments], 2)
    lines = [
        "template <typename Index>",
        head(f"static bool {prefix(folding)}_device_launch", params, " {"),
        f"  using Rows = {_rows(folding)}<Index>;",
        f"  if (blocks * {_TEAM * instance.items * folding.lanes} < length) return false;",
        f"  const int64_t bytes = blocks * num_rows * {reduction.group}_partial_bytes();",
        "  cudaMemsetAsync(told, 0, bytes, stream);",
        f"  const auto kernel = {prefix(folding)}_device_kernel<Index>;",
        launch,
        "}",
    ]
    return "\n".join(lines)


def device_lines(folding: Folding, operands: tuple[str, ...]) -> list[str]:
    """Of the entry: rows that all multiprocessors keep, where there are as many as they need."""
    given = [*operands, "num_rows", "length", "pieces", "partials"]
    given.append("static_cast<cudaStream_t>(stream)")
    name = f"{prefix(folding)}_device_launch"
    return [
        "  if (pieces > 1 && aligned) {",
        f"    auto on_device = narrow ? {name}<uint32_t>",
        f"                            : {name}<uint64_t>;",
        call("const bool launched = on_device", given, 4),
        "    const int error = int(cudaGetLastError());",
        "    if (launched) return error;",
        "  }",
    ]
