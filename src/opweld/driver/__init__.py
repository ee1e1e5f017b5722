"""The compiler as a table of contents: capture, simplify, plan, lower, render, emit.

The only module that imports every stage. Runs in a process of its own: capturing runs the user's
code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch._dynamo  # torch.export imports it at its first call, for more than a second

from opweld.capture import Asked, capture, capture_submodules
from opweld.capture.flags import allows_tf32, allows_tf32_convolutions
from opweld.compiled import Compiled
from opweld.driver.backwards import backward_text, backwards_of, head_lines
from opweld.driver.costs import costs_of
from opweld.driver.forward_only import with_forward_only
from opweld.driver.head import AS_IT_IS, head_of, title
from opweld.driver.kept_bytes import kept_text
from opweld.driver.rows import kept_row, left_row, line_texts, rows_of
from opweld.emission.replay import replay
from opweld.emit import emit
from opweld.errors import CaptureError, OriginalKept
from opweld.inputs import cut_batch, on_device
from opweld.ir.check import check
from opweld.ir.contract import Capture, Needs, Variant
from opweld.ir.graph import arena_of
from opweld.ir.kernels.reduction import Lowered
from opweld.ir.kernels.shared import kernels_of, sharing
from opweld.ir.kernels.source import NO_LIBRARIES
from opweld.ir.loop import loop_of
from opweld.ir.measured import Table, Tunable
from opweld.ir.original import BackwardPart, Original, Part, forwards_of
from opweld.ir.plan import Conditions, Plan, PointwiseSchedule, Sizes
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.effects import file_lines, plan_lines, saved_flops
from opweld.ir.rules.rewrite import Simplified
from opweld.ir.text import to_text
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.lower.tensor_lists import with_tensor_lists
from opweld.model_file import NAMES, load, make_inputs, make_model, read_source
from opweld.options import Options
from opweld.plan import make_plan
from opweld.plan.tunable import tunables
from opweld.render import render
from opweld.render.cuda.texts import runs_by_skeleton
from opweld.render.host.texts import Replays, host
from opweld.render.libraries import libraries
from opweld.render.traffic import with_traffic
from opweld.schedules import read_table
from opweld.simplify import simplify
from opweld.target import Target, choose_target
from opweld.trace import Trace

OnStage = Callable[[str], None]
# A model, and the example of a call, where the kernels run.
OnDevice = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


def compile_file(path: Path, options: Options, on_stage: OnStage = lambda stage: None) -> Compiled:
    """Compiles a model file for the target of `options`.

    Raises:
        UserError: the file is bad, or its forward cannot be captured. One that can, but does what a
            graph cannot hold, is no error: its ModelNew is the original, and a plan row says why.
    """
    model, inputs, original = _read(path, options)
    return compile_module(model, inputs, {}, original, options, on_stage)


def _read(path: Path, options: Options) -> tuple[torch.nn.Module, tuple[Any, ...], Original]:
    source = read_source(path)
    module_file = load(path)
    model = make_model(path, module_file, torch.nn.Module)
    inputs = cut_batch(make_inputs(path, module_file), options.batch)
    original = Original(path.name, module_file.__name__, "Model", source, _exports(module_file))
    return model, inputs, original


def compile_module(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    original: Original,
    options: Options,
    on_stage: OnStage = lambda stage: None,
) -> Compiled:
    """Compiles an object; `args` and `kwargs` are an example of a call."""
    trace = Trace(options, check, on_stage)
    table = table_of(options)
    target = target_of(options)
    call = on_device(target, module, args, kwargs)
    try:
        captured = _captured(trace, call, original, options)
    except CaptureError as refusal:

        def fuses(variant: Variant) -> bool:
            quiet = Trace(replace(options, dump=None), check)
            found = _with_bodies(quiet, variant, target, options, table)
            return any(line.part.runs for line in found)

        found = _by_submodules(trace, call, original, options, fuses, refusal)
        kept = isinstance(refusal, OriginalKept) or options.exclude  # all was given back
        if found is None and kept:
            return _as_it_is(trace, original, target, refusal)
        if found is None:
            raise
        captured = found
    return _compile(trace, Ready(captured, original, target, call), options, table)


def _by_submodules(
    trace: Trace,
    call: OnDevice,
    original: Original,
    options: Options,
    fuses: Callable[[Variant], bool],
    refusal: CaptureError,
) -> Capture | None:
    """The submodules of a model that no graph holds; None where none of them has a kernel."""
    name, needs = Path(original.file).stem, replace(needs_of(options), dynamic=())
    asked = Asked(name, original.module, needs, options.exclude, fuses)
    with _no_autocast():
        return trace.run("capture", capture_submodules, *call, asked, refusal)


def target_of(options: Options) -> Target:
    """The target of `options` on this machine."""
    return choose_target(options.target, *_gpu())


def needs_of(options: Options) -> Needs:
    """The states that the file is to have kernels for."""
    return Needs(options.mode, options.autocast, options.dtype, options.dynamic_axes)


def table_of(options: Options) -> Table:
    """The measured schedules.

    Raises:
        BadTable: the table cannot be read.
    """
    return Table(read_table(options.table))


@dataclass(frozen=True, slots=True)
class Ready:
    """A captured model, which can be compiled several times."""

    captured: Capture
    original: Original
    target: Target
    call: OnDevice | None = None


def capture_file(path: Path, options: Options, on_stage: OnStage = lambda stage: None) -> Ready:
    """Captures a model file for the target of `options`.

    Raises:
        UserError: the file is bad, or its forward cannot be captured.
    """
    model, inputs, original = _read(path, options)
    target = target_of(options)
    trace = Trace(options, check, on_stage)
    captured = _captured(trace, on_device(target, model, inputs, {}), original, options)
    return Ready(captured, original, target)


def compile_ready(ready: Ready, options: Options, table: Table) -> Compiled:
    """The file of a captured model with the schedules of a table."""
    return _compile(Trace(options, check), ready, options, table)


def tunables_of(ready: Ready, options: Options, table: Table) -> tuple[Tunable, ...]:
    """What could be otherwise in the example's forward; of schedules that make the same
    text, the first one.
    """
    variant = ready.captured.variants[0]
    arena, algebra = arena_of(variant.graph), Algebra(options.algebra)
    conditions = _conditions(variant, options)
    costs = costs_of(ready.target, conditions)
    graph = simplify(variant.graph, arena, None, algebra, costs).graph
    plan = make_plan(graph, ready.target, options.exclude, "", conditions, table)
    found = tunables(plan.graph, plan, ready.target, conditions, table)
    return tuple(_distinct(each, plan, ready.target.language) for each in found)


def _distinct(tunable: Tunable, plan: Plan, language: str) -> Tunable:
    group = next(group for group in plan.groups if group.name == tunable.groups[0])
    kept: dict[object, Any] = {}
    for schedule in tunable.schedules:
        text: object = schedule
        if isinstance(schedule, PointwiseSchedule):
            kernels = lower(replace(plan, groups=(replace(group, schedule=schedule),)))
            text = render("group", kernels, language).text
        kept.setdefault(text, schedule)
    return replace(tunable, schedules=tuple(kept.values()))


def _captured(trace: Trace, call: OnDevice, original: Original, options: Options) -> Capture:
    named = partial(
        capture,
        name=Path(original.file).stem,
        needs=needs_of(options),
        given_back=options.exclude,
    )
    with _no_autocast():
        return trace.run("capture", named, *call)


@contextlib.contextmanager
def _no_autocast() -> Iterator[None]:
    """What autocast casts is captured where it is asked for, and not of whoever compiles."""
    with contextlib.ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _compile(trace: Trace, ready: Ready, options: Options, table: Table) -> Compiled:
    captured, original, target = ready.captured, ready.original, ready.target
    given = target, options, table
    found = [_with_bodies(trace, variant, *given) for variant in captured.variants]
    lines = [line for own in found if _is_kept(own) for line in own]
    numbered = tuple(line.part for line in lines)
    parts = sharing(trace.run("lower", lifting, numbered, target.language, _by_skeleton(target)))
    lines = [replace(line, part=part) for line, part in zip(lines, parts, strict=True)]
    backwards = _backwards(trace, parts, *given) if options.training else ()
    everything = (*parts, *(part for each in backwards for part in each.parts))
    kernels = trace.run("lower", kernels_of, everything)
    tracks = target.language == "cuda" and bool(kernels) and _tracks(parts)
    source = trace.run("render", render, captured.name, kernels, target.language, tracks)
    replays = _replays(parts, bool(backwards))
    calls = trace.run("host", host, everything, target.language, replays, tracks)
    changed = dict.fromkeys(line for each in lines for line in each.head)
    head = "\n".join([head_of(original, target, parts, captured), *head_lines(backwards), *changed])
    text = trace.run(
        "emit", emit, original, parts, libraries(source, calls), head, needs_of(options), backwards
    )
    _note_texts(trace, captured, lines, backwards, text)
    if backwards and options.counts_kept and ready.call:
        trace.note("kept", kept_text(parts[0], backwards, *ready.call))
    trace.note("kernel", "\n".join(map(to_text, kernels)))
    trace.note("source", source.text, ".cu" if "__global__" in source.text else ".cpp")
    kernel_texts = {kernel.group: kernel.text.strip("\n") for kernel in source.kernels}
    return replace(_account(trace, captured, lines, text, target), kernel_texts=kernel_texts)


def _tracks(parts: tuple[Part, ...]) -> bool:
    """Whether one of them moves running statistics."""
    return any(part.runs and part.plan.graph.tracked for part in parts)


def _replays(parts: tuple[Part, ...], steps: bool) -> Replays:
    if not any(replay(part, steps) for part in forwards_of(parts)):
        return Replays.NONE
    return Replays.STEPS if steps else Replays.FORWARDS


def _backwards(
    trace: Trace, parts: tuple[Part, ...], target: Target, options: Options, table: Table
) -> tuple[BackwardPart, ...]:
    def down(variant: Variant, sizes: Sizes) -> Part:
        return _down(trace, variant, target, options, table, sizes).part

    costs = costs_of(target, Conditions())
    given = target.language, _by_skeleton(target), costs, options.memory_budget
    return backwards_of(trace, parts, down, *given)


@dataclass(frozen=True, slots=True)
class _Line:
    """One variant on its way down; `rewrites` and `head` say what became of its mathematics."""

    simplified: Simplified
    part: Part
    rewrites: tuple[str, ...]
    head: tuple[str, ...]


def _with_bodies(
    trace: Trace, variant: Variant, target: Target, options: Options, table: Table
) -> tuple[_Line, ...]:
    """A forward, and the bodies of its loops, each of which is a graph."""
    whole = _down(trace, variant, target, options, table)
    loops = [loop for node in whole.part.plan.graph.nodes() if (loop := loop_of(node))]
    bodies = [
        _down(trace, replace(variant, graph=loop.body, loop=loop.label), target, options, table)
        for loop in loops
    ]
    if any(not body.part.variant.also for body in bodies):
        part = replace(whole.part, variant=replace(whole.part.variant, also=()))
        whole = replace(whole, part=part)
    return whole, *bodies


def _is_kept(lines: tuple[_Line, ...]) -> bool:
    """Whether a variant has kernels, or is that of the example call."""
    runs = any(line.part.runs for line in lines)
    return runs or not lines[0].part.variant.guard_suffix


def _down(
    trace: Trace,
    variant: Variant,
    target: Target,
    options: Options,
    table: Table,
    sizes: Sizes = (),
) -> _Line:
    """A graph from its capture to its kernels; `sizes` are examples of those that only it has."""
    conditions = _conditions(variant, options)
    conditions = replace(conditions, sizes=(*conditions.sizes, *sizes))
    arena, algebra = arena_of(variant.graph), Algebra(options.algebra)
    costs = costs_of(target, conditions)
    simplified = trace.run("simplify", simplify, variant.graph, arena, None, algebra, costs)
    plan = trace.run(
        "plan",
        make_plan,
        simplified.graph,
        target,
        options.exclude,
        variant.suffix,
        conditions,
        table,
    )
    plan = trace.run("lower", with_tensor_lists, plan, _by_skeleton(target))
    kernels = trace.run("lower", lower, plan)
    plan = with_traffic(plan, kernels, target, conditions.sizes)
    rewrites = plan_lines(simplified.rewritten, algebra, conditions.sizes, simplified.left)
    variant = _of_products(variant, plan)
    variant = with_forward_only(variant, plan, conditions, options.training)
    part = Part(variant, plan, kernels, bool(simplified.rewritten))
    return _Line(
        simplified, part, tuple(rewrites), tuple(file_lines(simplified.rewritten, algebra))
    )


def _by_skeleton(target: Target) -> Callable[[Lowered], bool]:
    """Which groups a skeleton runs: in C++ there is none."""
    return runs_by_skeleton if target.language == "cuda" else lambda lowered: False


def _of_products(variant: Variant, plan: Plan) -> Variant:
    """Autocast casts the operands of a product inside the library's call, which a kernel is not."""
    products = any(group.anchor for group in plan.groups)
    return replace(variant, also=()) if products else variant


def _conditions(variant: Variant, options: Options) -> Conditions:
    return Conditions(
        sizes=tuple((fact.name, fact.example) for fact in variant.contract.symbols),
        tf32=allows_tf32(),
        tf32_convolutions=allows_tf32_convolutions(),
        autocast=variant.autocast is not None,
        weight_cache=options.weight_cache,
        library_convolutions=options.training and bool(variant.graph.tracked),
    )


def _as_it_is(trace: Trace, original: Original, target: Target, refusal: CaptureError) -> Compiled:
    """The file of a module that no graph can stand for: ModelNew is the original."""
    head = f"{title(original, target)}\n{AS_IT_IS}: {refusal.sentence}."
    text = trace.run("emit", emit, original, (), NO_LIBRARIES, head)
    trace.note("plan", f"plan for {target.name}\nforward  library\n  reason: {refusal}\n")
    trace.note("emit", text)
    row = left_row("", str(refusal))
    left = ((row.name, row.reason),)
    return Compiled(text, target.name, (row,), trace.texts, left, (), trace.seconds)


def _gpu() -> tuple[tuple[int, int] | None, str]:
    """The compute capability and the name of the GPU; None and "" where there is none."""
    if not torch.cuda.is_available():
        return None, ""
    return torch.cuda.get_device_capability(), torch.cuda.get_device_name()


def _exports(module: ModuleType) -> tuple[str, ...]:
    return tuple(name for name in NAMES if hasattr(module, name))


def _note_texts(
    trace: Trace,
    captured: Capture,
    lines: list[_Line],
    backwards: tuple[BackwardPart, ...],
    text: str,
) -> None:
    trace.note("capture", to_text(captured))
    trace.note("graph", "\n".join(to_text(line.simplified.graph) for line in lines))
    trace.note("rules", "\n".join(str(fired) for line in lines for fired in line.simplified.fired))
    left = [f"{paths or 'forward'}: as it is, {why}" for paths, why in captured.left]
    plans = ["\n".join([*line.rewrites, to_text(line.part.plan)]) for line in lines]
    trace.note("plan", "\n".join([*plans, *map(backward_text, backwards), *left]))
    trace.note("emit", text)


def _account(
    trace: Trace, captured: Capture, lines: list[_Line], text: str, target: Target
) -> Compiled:
    parts = [line.part for line in lines]
    rows = rows_of(parts, target)
    rows += [kept_row(state, reason) for state, reason in captured.kept]
    rows += [left_row(paths, reason) for paths, reason in captured.left]
    left = [row for row in rows if row.kind == "library"]
    fired = {name: numerics for line in lines for name, numerics, _ in line.simplified.fired}
    return Compiled(
        text=text,
        target=target.name,
        plan_rows=tuple(rows),
        stages=trace.texts,
        library=tuple(dict.fromkeys((row.name, row.reason) for row in left)),
        rules=tuple(sorted((name, str(numerics)) for name, numerics in fired.items())),
        rewritten=tuple(dict.fromkeys(each for line in lines for each in line.head)),
        seconds=trace.seconds,
        saved_flops=_saved_flops(lines[0]),
        line_texts=line_texts(parts),
    )


def _saved_flops(line: _Line) -> int:
    """Of the example's own variant."""
    sizes = ((fact.name, fact.example) for fact in line.part.variant.contract.symbols)
    return saved_flops(line.simplified.rewritten, tuple(sizes))
