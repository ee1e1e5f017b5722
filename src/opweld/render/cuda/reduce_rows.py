"""Reductions as functors of one CUDA skeleton (device/reduce/reduce_rows.cuh).

A functor holds what is known of a row, and says what is folded of an element and computed after a
pass, in the user's own expressions; the skeleton does the rest for operands of any layout.
"""

from __future__ import annotations

from ...ir.expr import Size, gathers_of
from ...ir.kernels.kernel import Buffer, Definition, Gather, Index, Kernel, Load, Loop, RowScalar
from ...ir.kernels.reduction import Fold, Folding, Reduction, Step, Value, Walk
from ...ir.ops import Op
from ...ir.types import DType
from ..c import STORAGE, compute_type, constant, gathered_text, load_text, store_text
from ..chunks import has_chunks, own_folds, takes_chunks
from ..element import pieces_called, title
from ..layout import folded, head
from .cooperative_rows import device_instance
from .folds import FOLD, chain_text, fold_types, state_type, told_text
from .kept import KEPT_PIECES, kept_entries
from .pointwise import lets, list_in, told_line, value_text
from .reduction import takes_registers
from .team_launch import instances, single_instances
from .teams import (
    MANY_COLUMNS,
    Instance,
    columns_and_least,
    cut_threads,
    finish_threads,
    most_blocks_each,
)
from .walk import ARG, held_loads

_PIECES_OF_FOLDS = {
    **dict.fromkeys(ARG, "FoldOfPlaces"),
    Op.MEAN: "FoldOfMean",
    Op.SUMEXP: "FoldOfPowers",
    Op.DEVSQ: "FoldOfSpread",
}


# An operand may be called so, too.
_LENGTH = "this->length"


def keeps_results(lowered: object) -> bool:
    """Whether a group's results last from call to call: those of other kernels do not."""
    return isinstance(lowered, Reduction) and lowered.kept and is_row_functor(lowered)


def is_row_functor(reduction: Reduction) -> bool:
    """Whether the skeleton runs a group: operands lie along axes of its space, and rows are
    threads' together."""
    walks = [d for step in reduction.strided.steps for d in step.walk.kernel.definitions]
    definitions = [d for kernel in reduction.strided.kernels for d in kernel.definitions]
    return (
        reduction.axes is not None
        and not reduction.contiguous.alone
        and device_instance(reduction) is None
        and not any(isinstance(each, Gather) for each in walks)
        and _is_listed_by_rows(reduction)
        and all(_is_plain(each, reduction.length) for each in definitions)
    )


def _is_listed_by_rows(reduction: Reduction) -> bool:
    """Whether each row is of one tensor, where an operand is a list of tensors."""
    assert reduction.axes is not None, "axes are known"
    listed = list_in(zip(reduction.buffers, reduction.axes, strict=True))
    rows = {int(loop.var[1:]) for loop in reduction.strided.kept}
    return listed is None or (listed[1] in rows and not reduction.cut)


def _is_plain(definition: Definition, length: Size) -> bool:
    if isinstance(definition, Index):
        more = definition.expr - length
        return isinstance(more, int) and more <= 0
    if isinstance(definition, Load):
        return not definition.guard
    if isinstance(definition, Gather):
        return not definition.guard and definition.extent == length
    return isinstance(definition, RowScalar)


def row_functor_pieces(reduction: Reduction) -> set[str]:
    """Names of the device library's pieces that a functor needs."""
    folding = reduction.contiguous
    needed = {"AcrossRows" if folding.across else "AlongRows", "Values", "NoFolds"}
    types = {STORAGE[buffer.dtype].removeprefix("op::") for buffer in reduction.buffers}
    needed |= {f"type_of_{name}" for name in types}
    listed = any(buffer.listed is not None for buffer in reduction.buffers)
    needed |= {"reduce_list"} if listed else set()
    needed |= {"CutRows"} if reduction.cut else set()
    if reduction.kept:
        needed |= {"KeptCut" if reduction.cut else "KeptWhole", *KEPT_PIECES}
    needed |= {"ChunkWalks", "ChunkFolds"} if has_chunks(folding) else set()
    every = instances(folding, reduction)
    needed |= {"RowOfBlocks"} if any(each.blocks > 1 for each in every) else set()
    needed |= {"SharedWalks"} if any(each.shared for each in every) else set()
    for step in folding.steps:
        for fold in own_folds(step.walk):
            needed |= {FOLD[fold.op], _PIECES_OF_FOLDS.get(fold.op, "Fold")}
            needed |= {"of_chunk"} if takes_chunks(step.walk) else set()
    called = pieces_called(row_functor_text(reduction))
    return needed | called - {*_TEMPLATES}


_TEMPLATES = (
    "After",
    "Along",
    "At",
    "Of",
    "Pass",
    "Team",
    "Types",
    "Fold",
    "reduce",
    "reduce_list",
)


def row_functor_text(reduction: Reduction) -> str:
    """The functor of a group, and the C functions that run it."""
    group, name = reduction.group, f"{reduction.group}_row"
    folding = reduction.contiguous
    walk = folding.steps[0].walk.kernel
    operands = f"operands, stream, {name}::Operands()"
    lines = [
        title(walk, reduction.buffers),
        f"struct {name} : {_parent(reduction)} {{",
        *map(folded, _facts(reduction)),
    ]
    members = _members(reduction.strided)
    lines += [f"  {type_name} {', '.join(names)};" for type_name, names in members.items()]
    for number, step in enumerate(reduction.strided.steps):
        lines += ["", *_pass(reduction, number, step)]
    passes = ", ".join(f"Pass{number}" for number in range(len(folding.steps)))
    lines += [
        "",
        f"  using Passes = op::Types<{passes}>;",
        "};",
        f'extern "C" int {group}_launch(const TensorView* operands, void* stream) {{',
        folded(f"  return op::{_skeleton(reduction, name)}({operands});"),
        "}",
    ]
    if reduction.cut or reduction.kept:
        lines += [
            f'extern "C" int64_t {group}_scratch(const TensorView* operands) {{',
            folded(f"  return {name}::Cut::bytes<{name}>(operands, {name}::Operands());"),
            "}",
        ]
    return "\n".join([*lines, *(kept_entries(group) if reduction.kept else [])]) + "\n"


def _parent(reduction: Reduction) -> str:
    own = f"op::{'AcrossRows' if reduction.contiguous.across else 'AlongRows'}"
    return f"op::KeptRows<{own}>" if reduction.kept else own


def _skeleton(reduction: Reduction, name: str) -> str:
    assert reduction.axes is not None, "the skeleton runs it"
    listed = list_in(zip(reduction.buffers, reduction.axes, strict=True))
    return f"reduce_list<{name}, {listed[0]}, {listed[1]}>" if listed else f"reduce<{name}>"


# --- what the skeleton is told ---


def _facts(reduction: Reduction) -> list[str]:
    folding, strided = reduction.contiguous, reduction.strided
    assert reduction.axes is not None, "the skeleton runs it"
    pairs = zip(reduction.buffers, reduction.axes, strict=True)
    operands = ", ".join(_operand(buffer, along) for buffer, along in pairs)
    every = [int(loop.var[1:]) for loop in (*strided.kept, *strided.reduced) if loop.extent != 1]
    rank = 1 + max([*every, *(a - 1 for along in reduction.axes for a in along), 0])
    of_rows, of_row = (_axes(loops, rank) for loops in (strided.kept, strided.reduced))
    lane = (of_rows if folding.across else of_row)[-1]
    held = ", ".join(str(place) for place in _held(reduction))
    length = reduction.length if isinstance(reduction.length, int) else 0
    lines = [
        f"  using Operands = op::Types<{operands}>;",
        f"  using Held = op::Of<{held}>;",
        f"  using Teams = {_teams(instances(folding, reduction))};",
    ]
    if folding.lanes == 1:
        lines.append("  using Singles = Teams;")
    elif folding.across or reduction.unpacked:
        lines.append(f"  using Singles = {_teams(single_instances(folding, reduction))};")
    if reduction.cut:
        rows, least = columns_and_least(folding)
        numbers = (rows, least, most_blocks_each(reduction))
        text = ", ".join(map(str, (*numbers, cut_threads(folding), finish_threads(folding))))
        lines.append(f"  using Cut = op::{'KeptCut' if reduction.kept else 'CutRows'}<{text}>;")
    elif reduction.kept:
        lines.append("  using Cut = op::KeptWhole;")
    rows_text, row_text = (", ".join(map(str, axes)) for axes in (of_rows, of_row))
    lines += [
        f"  static constexpr int kRank = {rank}, kLane = {lane}, kWidth = {folding.lanes}, "
        f"kAxesOfRows[] = {{{rows_text}}}, kAxesOfRow[] = {{{row_text}}};",
    ]
    if length:
        lines.append(f"  static constexpr int64_t kLength = {length};")
    if folding.across and folding.lanes > 1 and not reduction.cut:
        lines.append(f"  static constexpr int64_t kLeastRows = {MANY_COLUMNS};")
    if resident := _resident_threads(reduction):
        lines.append(f"  static constexpr int kResident = {resident};")
    if has_chunks(folding):
        lines.append("  static constexpr bool kChunks = true;")
    return lines


def _resident_threads(reduction: Reduction) -> int | None:
    """The threads that a multiprocessor must hold, if not those of the skeleton: fewer where each
    takes more registers, but for statistics of columns; more where one pass waits for memory: for
    statistics, or a sum of single elements (4095 floats a row: 1.94 ms, not 2.11; H200, 2026-11).
    """
    folding = reduction.contiguous
    folds = [(f.op, f.dtype) for step in folding.steps for f in own_folds(step.walk)]
    if takes_registers(folding, reduction.cut):
        together = folding.across and reduction.cut and folds == [(Op.DEVSQ, DType.F32)]
        return None if together else 512
    if len(folding.steps) > 1 or folding.across:
        return None
    match folds:
        case [(Op.DEVSQ, DType.F32)]:
            return 1280
        case [(Op.SUM, DType.F32)] if folding.lanes == 1 and _num_read(reduction) == 1:
            return 1536
    return None


def _num_read(reduction: Reduction) -> int:
    return sum(not buffer.written for buffer in reduction.buffers)


def _operand(buffer: Buffer, along: tuple[int, ...]) -> str:
    const = "" if buffer.written else "const "
    return f"op::Along<{', '.join([const + STORAGE[buffer.dtype], *map(str, along)])}>"


def _axes(loops: tuple[Loop, ...], rank: int) -> list[int]:
    """The axes of loops; where there are none, the one that stands for axes of size 1."""
    return [int(loop.var[1:]) for loop in loops if loop.extent != 1] or [rank]


def _held(reduction: Reduction) -> list[int]:
    """The places of the operands that stay at hand, in the order of a packet."""
    places = {buffer.name: place for place, buffer in enumerate(reduction.buffers)}
    loads = {name: load for load, name in held_loads(reduction.contiguous).items()}
    return [places[load.buffer] for load in loads.values()]


def _teams(choices: list[Instance]) -> str:
    return f"op::Types<{', '.join(map(_team, choices))}>"


def _team(choice: Instance) -> str:
    more = choice.shared or choice.blocks > 1
    numbers = [choice.team, choice.items, choice.most or 0, choice.lanes or 0]
    numbers += [choice.shared, choice.blocks] if more else []
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return f"op::Team<{', '.join(map(str, numbers))}>"


# --- what is known of a row ---


def _kept_names(folding: Folding) -> set[str]:
    """What a later pass reads, or what is computed after it."""
    found = set()
    for number, step in enumerate(folding.steps):
        own = {fold.name for fold in step.walk.folds}
        walk = [step.walk.kernel.definitions] if number else []
        once = [step.once.kernel.definitions] if step.once else []
        found |= {d.name for each in walk for d in each if isinstance(d, RowScalar)}
        found |= {d.name for each in once for d in each if isinstance(d, RowScalar)} - own
    return found


def _known_names(folding: Folding) -> set[str]:
    """All names of folds and of what is computed after passes."""
    steps = folding.steps
    folds = {fold.name for step in steps for fold in step.walk.folds}
    return folds | {value.name for step in steps if step.once for value in step.once.values}


def _members(folding: Folding) -> dict[str, list[str]]:
    """The names of each type."""
    found: dict[str, list[str]] = {}
    kept = _kept_names(folding)
    for step in folding.steps:
        known: tuple[Fold | Value, ...] = step.walk.folds
        known += step.once.values if step.once else ()
        for each in known:
            if each.name in kept:
                found.setdefault(compute_type(each.dtype), []).append(each.name)
    return found


# --- passes ---


def _pass(reduction: Reduction, number: int, step: Step) -> list[str]:
    folding = reduction.strided
    kernel, walk = step.walk.kernel, step.walk
    once = step.once.kernel if step.once else None
    places, placed = _used(reduction, kernel), _used(reduction, once) if once else []
    operands = f"op::Of<{', '.join(map(str, places))}>"
    anywhere = _picked(reduction, once) if once else []
    after = f", op::After<{', '.join(map(str, placed))}>" if placed or anywhere else ""
    after += f", op::At<{', '.join(map(str, anywhere))}>" if anywhere else ""
    folds = own_folds(walk)
    types = {fold: fold_types(fold, folding, number) for fold in folds}
    texts = [_fold_text(fold, types[fold]) for fold in folds]
    kind = "ChunkFolds" if takes_chunks(walk) else "ElementFolds"
    folded_text = f"op::{kind}<{number}, {chain_text(walk)}, {', '.join(texts)}>"
    using = f"  using Pass{number} = op::Pass<{folded_text if folds else 'op::NoFolds'}, "
    returns = f"op::Values<{', '.join(of[0] for of in types.values())}>" if folds else "void"
    lines = [
        folded(f"{using}{operands}{after}>;"),
        head(
            f"  __device__ {returns} of",
            [f"Pass{number}", *_parameters(reduction, places)],
            " const {",
        ),
        *_of_element(reduction, walk, folds),
        "  }",
    ]
    return [*lines, *(_after(reduction, number, step, placed) if folds else [])]


def _fold_text(fold: Fold, of: tuple[str, ...]) -> str:
    """The fold as the skeleton knows it, by its operation and the types of an element."""
    kind = "FoldOfPlaces" if fold.op in ARG else "Fold"
    return f"op::{kind}<{', '.join((f'op::{FOLD[fold.op]}', *of))}>"


def _used(reduction: Reduction, kernel: Kernel) -> list[int]:
    """The places of the operands and results that a kernel has."""
    loads = [d for d in kernel.definitions if isinstance(d, Load)]
    read = {load.buffer for load in loads if not gathers_of(load.address)}
    used = read | {store.buffer for store in kernel.stores}
    return [place for place, buffer in enumerate(reduction.buffers) if buffer.name in used]


def _picked(reduction: Reduction, kernel: Kernel) -> list[int]:
    """The places of the operands that a kernel reads where an index tells."""
    loads = [d for d in kernel.definitions if isinstance(d, Load)]
    read = {load.buffer for load in loads if gathers_of(load.address)}
    return [place for place, buffer in enumerate(reduction.buffers) if buffer.name in read]


def _parameters(reduction: Reduction, places: list[int]) -> list[str]:
    buffers = [reduction.buffers[place] for place in places]
    return [f"{STORAGE[b.dtype]}{'&' if b.written else ''} {b.name}" for b in buffers]


def _of_element(reduction: Reduction, walk: Walk, folds: tuple[Fold, ...]) -> list[str]:
    """What is folded of an element, and what is stored of it."""
    texts = _texts(walk.kernel, reduction.length)
    lines = lets(walk.kernel, texts, _known_names(reduction.strided))
    results = _stored(walk.kernel, texts)
    values = [_folded_value(fold, walk, texts) for fold in folds]
    if values:
        text = values[0] if len(values) == 1 else f"{{{', '.join(values)}}}"
        results.append(folded(f"    return {text};"))
    return [*lines, *told_line(walk.kernel, lines), *results]


def _texts(kernel: Kernel, length: Size) -> dict[str, str]:
    """What stands for each name: an operand, or the number of elements of a row."""
    found = dict[str, str]()
    for each in kernel.definitions:
        if isinstance(each, Load):
            places = [f"{each.buffer}({pick.name})" for pick in gathers_of(each.address)]
            found[each.name] = load_text(each.dtype, *(places or [each.buffer]))
        elif isinstance(each, Index):
            more = each.expr - length
            found[each.name] = f"({_LENGTH} - {-more})" if more else _LENGTH
    return found


def _stored(kernel: Kernel, texts: dict[str, str]) -> list[str]:
    results = kernel.element.results
    return [
        folded(f"    {s.buffer} = {store_text(s.dtype, value_text(results[s.result][1], texts))};")
        for s in kernel.stores
    ]


def _folded_value(fold: Fold, walk: Walk, texts: dict[str, str]) -> str:
    dtype, arg = walk.kernel.element.results[fold.result]
    text = value_text(arg, texts)
    truth = fold.op in (Op.ANY, Op.ALL) and compute_type(dtype) != "bool"
    return f"({text}) != {constant(0, dtype)}" if truth else text


def _after(reduction: Reduction, number: int, step: Step, placed: list[int]) -> list[str]:
    """What folds tell, and what is computed of the row then."""
    walk, kept = step.walk, _kept_names(reduction.strided)
    states = [_state(fold, fold_types(fold, reduction.strided, number)) for fold in own_folds(walk)]
    params = [f"Pass{number}", *states, *_parameters(reduction, placed)]
    anywhere = _picked(reduction, step.once.kernel) if step.once else []
    names = [reduction.buffers[place].name for place in anywhere]
    params += [f"Of{i} {name}" for i, name in enumerate(names)]
    lines = [line for fold in walk.folds for line in _told(fold, walk, kept)]
    if step.once:
        kernel = step.once.kernel
        texts = _texts(kernel, reduction.length)
        computed = [*_places(kernel, texts), *lets(kernel, texts, _known_names(reduction.strided))]
        results = kernel.element.results
        values = [
            folded(f"    this->{value.name} = {value_text(results[value.result][1], texts)};")
            for value in step.once.values
        ]
        lines += [*computed, *told_line(kernel, computed), *values, *_stored(kernel, texts)]
    template = ", ".join(f"typename Of{i}" for i in range(len(names)))
    return [
        *([f"  template <{template}>"] if names else []),
        head("  __device__ void after", params, " {"),
        *lines,
        "  }",
    ]


def _places(kernel: Kernel, texts: dict[str, str]) -> list[str]:
    """The statements that tell what indices pick."""
    return [
        folded(f"    const auto {pick.name} = {gathered_text(pick, texts[pick.index], _LENGTH)};")
        for pick in kernel.definitions
        if isinstance(pick, Gather)
    ]


def _state(fold: Fold, of: tuple[str, ...]) -> str:
    """The parameter that has the state of a fold."""
    if state_type(fold, of) == of[0]:
        return f"{of[0]} {fold.name}"
    return f"const {state_type(fold, of)}& of_{fold.name}"


def _told(fold: Fold, walk: Walk, kept: set[str]) -> list[str]:
    """The statement that tells a fold from its state."""
    text = told_text(fold, walk, "of_", _LENGTH)
    if fold.name not in kept:
        typed = f"const {compute_type(fold.dtype)} "
        return [] if text == fold.name else [folded(f"    {typed}{fold.name} = {text};")]
    target = f"this->{fold.name}" if text == fold.name else fold.name
    return [folded(f"    {target} = {text};")]
