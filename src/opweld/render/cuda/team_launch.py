"""What launches the kernels of a reduction: templates of launchers, and entries that choose the
first instance that reaches the rows at hand.
"""

from __future__ import annotations

from ...ir.kernels.reduction import Folding, Reduction
from ..layout import COLUMNS, broken, call, folded, head
from .cooperative_rows import device_instance, device_lines
from .folds import finish_sizes
from .teams import (
    BLOCKS,
    MANY_COLUMNS,
    SHARED,
    Instance,
    finish_threads,
    for_packets,
    for_rare,
    made_to_measure,
    reaching,
    spread,
    threads_of,
)
from .walk import casts, folds_name, integers, once_function, packet_type, pointers, prefix

_NO_SPREAD = {SHARED: 0, BLOCKS: 1}
# Of branches, which may stand in another one.
_COLUMNS = COLUMNS - 2


def launchers(folding: Folding, operands: tuple[str, ...], reduction: Reduction) -> list[str]:
    """The template that launches, and the entry point that chooses among its instances."""
    parts = [_template(folding, operands, reduction)]
    if reduction.cut:
        parts.append(_finish_template(folding))
    return [*parts, _entry(folding, operands, reduction)]


def _template(folding: Folding, operands: tuple[str, ...], reduction: Reduction) -> str:
    team = "kStrips" if folding.across else "kTeam"
    cut, more = reduction.cut, spread(folding, reduction)
    params = [
        *pointers(folding, operands),
        *(f"int64_t {name}" for name in (*integers(folding, operands), "num_rows", "length")),
        *(["int64_t pieces", "void* partials"] if cut else []),
        "cudaStream_t stream",
    ]
    arguments = [*casts(folding, operands), "Index(num_rows)", "Index(length)"]
    if cut:
        arguments += ["Index(piece)", f"static_cast<{folds_name(folding, 0)}*>(partials)"]
    lanes = 1 if folding.across else "kLanes"
    grid = "dim3(blocks, pieces)" if cut else "dim3(blocks)"
    names = ", ".join((team, "kItems", "kLanes", "Index", *more))
    name = f"{prefix(folding)}_kernel<{names}>"
    shared, held = list[str](), "0"
    if more:
        shared = [f"  const int64_t shared = kShared * kThreads * sizeof({packet_type(folding)});"]
        held = "shared"
    launch = f"op::launch_early<{BLOCKS}>" if BLOCKS in more else "op::launch_early"
    arguments = [*_started(grid, held), *arguments]
    lines = [
        template_line(folding, reduction),
        head(f"static void {prefix(folding)}_launch", params, " {"),
        f"  constexpr int kThreads = op::{threads_of(folding, cut)}Threads<{team}>;",
        f"  constexpr int64_t kRows = kThreads / {team}{' * kLanes' if folding.across else ''};",
        "  const unsigned int blocks = (num_rows + kRows - 1) / kRows;",
        *([f"  const int64_t piece = op::piece_of(length, pieces, {lanes});"] if cut else []),
        *broken("  const auto kernel =", f"{name};"),
        *shared,
        call(launch, arguments, 2),
        "}",
    ]
    return "\n".join(lines)


def _started(blocks: str, shared: str = "0") -> tuple[str, ...]:
    """What launch_early is given before the arguments of the kernel."""
    return "kernel", blocks, "kThreads", shared, "stream"


def template_line(folding: Folding, reduction: Reduction) -> str:
    """The parameters of a kernel and of its launcher. Those that spread rows have defaults."""
    team = "kStrips" if folding.across else "kTeam"
    more = "".join(f", int {name} = {_NO_SPREAD[name]}" for name in spread(folding, reduction))
    return folded(f"template <int {team}, int kItems, int kLanes, typename Index{more}>")


def _finish_template(folding: Folding) -> str:
    once, sizes = once_function(folding, 0), finish_sizes(folding.steps[0].walk)
    assert once is not None, "what is cut is stored at the end"
    params = [
        *pointers(folding, once.operands),
        *(f"int64_t {name}" for name in integers(folding, once.operands)),
        *(f"int64_t {name}" for name in sizes),
        *("const void* partials", "cudaStream_t stream"),
    ]
    arguments = [*casts(folding, once.operands), *(f"Index({name})" for name in sizes)]
    arguments.append(f"static_cast<const {folds_name(folding, 0)}*>(partials)")
    arguments.append("columns")
    name = f"{prefix(folding)}_finish_kernel<kThreads, Index>"
    lines = [
        "template <typename Index>",
        head(f"static void {prefix(folding)}_finish", params, " {"),
        f"  constexpr int kThreads = {finish_threads(folding)};",
        "  const int columns = op::merged_columns<kThreads>(num_rows, pieces);",
        "  const unsigned int blocks = (num_rows + columns - 1) / columns;",
        *broken("  const auto kernel =", f"{name};"),
        call("op::launch_early", [*_started("dim3(blocks)"), *arguments], 2),
        "}",
    ]
    return "\n".join(lines)


def _entry(folding: Folding, operands: tuple[str, ...], reduction: Reduction) -> str:
    rows = ["num_rows", "length"]
    pieces = ["pieces", "partials"] if reduction.cut else []
    by_all = device_instance(reduction) is not None
    every = tuple(b.name for b in folding.buffers)
    params = [
        *pointers(folding, every),
        *(f"int64_t {name}" for name in (*(e.name for e in folding.extents), *rows)),
        *(["int64_t pieces", "void* partials"] if pieces or by_all else []),
        *("int64_t max_offset", "int aligned", "void* stream"),
    ]
    stream = "static_cast<cudaStream_t>(stream)"
    lines = [
        head(f"static int {prefix(folding)}", params, " {"),
        "  // 32-bit positions must not wrap round behind the last element.",
        "  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);",
        *(device_lines(folding, operands) if by_all and folding is reduction.contiguous else []),
        *map(folded, _choice(folding, reduction)),
        call("launch", [*operands, *rows, *pieces, stream], 2),
    ]
    if pieces:
        once, sizes = once_function(folding, 0), finish_sizes(folding.steps[0].walk)
        name = f"{prefix(folding)}_finish"
        lines += [
            "  if (pieces > 1) {",
            folded(f"    auto finish = narrow ? {name}<uint32_t> : {name}<uint64_t>;"),
            call("finish", [*(once.operands if once else ()), *sizes, "partials", stream], 4),
            "  }",
        ]
    return "\n".join([*lines, "  return int(cudaGetLastError());", "}"])


def instances(folding: Folding, reduction: Reduction) -> list[Instance]:
    """Those for packets of all lanes, the shortest rows first."""
    length, lanes = reduction.length, folding.lanes
    measured = made_to_measure(folding, length, lanes)
    many = [measured] if measured else for_packets(folding, reduction.cut, lanes)
    if isinstance(length, int) and not folding.across:
        length //= lanes
    return reaching(many, length)


def single_instances(folding: Folding, reduction: Reduction) -> list[Instance]:
    """Those for single elements: of columns, or where no packets fit."""
    return reaching(for_packets(folding, reduction.cut, 1), reduction.length)


def _choice(folding: Folding, reduction: Reduction) -> list[str]:
    """Statements that define `launch`. Of a known length one instance is compiled, not all."""
    length, lanes = reduction.length, folding.lanes
    measured = made_to_measure(folding, length, lanes)
    many = [measured] if measured else for_packets(folding, reduction.cut, lanes)
    few = for_rare(folding)
    single = reaching(few, length)
    start = f"  auto launch = {_instance(folding, single[-1], 1, 'uint64_t')};"
    if lanes == 1:
        narrow = _branches(folding, reaching(many, length), 1, "uint32_t", "length")
        return [start, "  if (narrow) {", *narrow, *_otherwise_wide(folding, single), "  }"]
    packets = "length" if folding.across else f"length / {lanes}"
    count = length // lanes if isinstance(length, int) and not folding.across else length
    whole = f"num_rows % {lanes} == 0" if folding.across else f"length % {lanes} == 0"
    if folding.across and not reduction.cut:
        # Of few columns each thread takes one, so that there are enough blocks.
        whole += f" && num_rows >= {MANY_COLUMNS}"
        scattered = reaching(for_packets(folding, reduction.cut, 1), length)
    else:
        scattered = single
    narrow = _branches(folding, reaching(many, count), lanes, "uint32_t", packets)
    wide = _branches(folding, reaching(few, count), lanes, "uint64_t", packets)
    return [
        start,
        f"  if (aligned && {whole}) {{",
        "    if (narrow) {",
        *(f"  {line}" for line in narrow),
        "    } else {",
        *(f"  {line}" for line in wide),
        "    }",
        "  } else if (narrow) {",
        *_branches(folding, scattered, 1, "uint32_t", "length"),
        *_otherwise_wide(folding, single),
        "  }",
    ]


def _otherwise_wide(folding: Folding, choices: list[Instance]) -> list[str]:
    """What is launched by wide indices and single elements, but for the start's instance."""
    if len(choices) == 1:
        return []
    return ["  } else {", *_branches(folding, choices, 1, "uint64_t", "length")]


def _branches(
    folding: Folding, choices: list[Instance], lanes: int, index: str, packets: str
) -> list[str]:
    """The first instance that reaches."""
    *short, last = choices
    lines = list[str]()
    for choice in short:
        start = f"    {'else ' if lines else ''}if ({packets} <= {choice.most})"
        chosen = f"launch = {_instance(folding, choice, lanes, index)};"
        lines += broken(start, chosen, _COLUMNS)
    start = "    else" if short else "   "
    chosen = f"launch = {_instance(folding, last, lanes, index)};"
    return [*lines, *broken(start, chosen, _COLUMNS)]


def _instance(folding: Folding, choice: Instance, lanes: int, index: str) -> str:
    numbers = [f"{choice.team}", f"{choice.items}", f"{choice.lanes or lanes}", index]
    if choice.shared or choice.blocks > 1:
        numbers.append(f"{choice.shared}")
    if choice.blocks > 1:
        numbers.append(f"{choice.blocks}")
    return f"{prefix(folding)}_launch<{', '.join(numbers)}>"
