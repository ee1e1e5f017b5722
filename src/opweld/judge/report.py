"""A judgement for the terminal: kernels, times side by side, errors against float64, the verdict.

On a terminal these are tables; elsewhere plain lines of the same content, one fact a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opweld.judge.measure.significance import describe, verdict
from opweld.judge.values import (
    CALL,
    FULL,
    Check,
    Comparison,
    Judgement,
    KernelTiming,
    Samples,
    StepTiming,
    Timing,
)

_NONE = "-"
FAILED = "Failed"
SCOPE_TEXTS = {
    CALL: "the example call, with any values and weights, for any batch, in its mode and dtype",
    FULL: "everything that the original does",
}


class PlanRow(Protocol):
    """What a planner says about one group; of kind "library" is what was left to torch."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def ops(self) -> tuple[str, ...]: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as text: a title, column heads (`>` in front aligns right), rows."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def render(
    judgement: Judgement,
    console: Console,
    plan: Sequence[PlanRow] = (),
    new_name: str = "ModelNew",
) -> None:
    """Print everything that was found out; `plan` adds what each kernel fused and why."""
    for grid in grids(judgement, plan, new_name):
        _print_grid(grid, console)
    for line in lines(judgement):
        console.print(Text(line), soft_wrap=not console.is_terminal)
    style = "bold green" if judgement.verdict.passed else "bold red"
    line = verdict_line(judgement)
    soft = not console.is_terminal
    console.print(Text(line, style=style), soft_wrap=soft)


def grids(
    judgement: Judgement, plan: Sequence[PlanRow] = (), new_name: str = "ModelNew"
) -> list[Grid]:
    """The tables that have something to show."""
    timing = judgement.timing
    found = [
        _kernel_grid(judgement.kernels, plan),
        _library_grid(plan),
        _timing_grid(timing, new_name) if timing else None,
        _error_grid(judgement.verdict.checks, new_name),
        _failure_grid(judgement.verdict.failures),
    ]
    return [grid for grid in found if grid and grid.rows]


def lines(judgement: Judgement) -> Iterable[str]:
    """What stands between the tables and the verdict."""
    for check in judgement.verdict.checks:
        if check.unsupported:
            yield f"unsupported: {check.name}: {check.detail.removeprefix('unsupported: ')}"
        elif check.skipped:
            yield f"skipped: {check.name}: {check.detail}"
        elif "weak:" in check.detail:
            yield f"note: {check.name}: {check.detail}"
    yield from _findings(judgement)
    timing = judgement.timing
    if judgement.curves:
        yield f"training: {judgement.curves.describe()}"
    if timing:
        yield f"limit: {timing.limit_reason}"
        if timing.data_sheet_ms:
            yield f"data sheet: nothing is faster than {timing.data_sheet_ms:.4g} ms"
        yield f"times: {timing.protocol}"
        if timing.vs_eager:
            yield f"in pairs: {describe(timing.vs_eager)}: {verdict(timing.vs_eager)}"
        yield from (f"note: {note}" for note in timing.notes)
    if judgement.timing_error:
        yield f"note: {judgement.timing_error}"
    environment = judgement.environment
    if environment:
        yield (
            f"on: {environment.device_name}, torch {environment.torch},"
            f" Python {environment.python}, seed {judgement.seed}, sandbox {environment.sandbox}"
        )
    yield from judgement.verdict.explanation


def _findings(judgement: Judgement) -> Iterable[str]:
    """What was found out about the model and the candidate beyond the verdict."""
    verdict = judgement.verdict
    if verdict.passed:
        yield f"scope: {SCOPE_TEXTS[verdict.scope]}"
    if verdict.precision:
        yield f"precision: {verdict.precision}, by measurement"
    if judgement.degenerate:
        yield f"degenerate: {judgement.degenerate}"
    yield from (f"cannot be judged: {sentence}" for sentence in verdict.unjudged)


def verdict_line(judgement: Judgement) -> str:
    """The one line that counts."""
    verdict, timing = judgement.verdict, judgement.timing
    if not verdict.passed:
        return f"NOT EQUIVALENT: {verdict.reason}"
    speed = ", ".join(_speeds(timing)) if timing else ""
    use = " for inference only" if verdict.inference_only else ""
    return f"EQUIVALENT{use}, grade {verdict.grade}" + (f": {speed}" if speed else "")


def _speeds(timing: Timing) -> Iterable[str]:
    if not timing.is_steady:
        yield f"no speed is claimed, times vary {timing.variation:.0f}-fold on this busy machine"
        return
    if timing.speedup_vs_eager:
        yield f"{_beside_eager(timing.vs_eager)}{timing.speedup_vs_eager:.2f}x the speed of eager"
    if timing.speedup_vs_compile:
        yield f"{timing.speedup_vs_compile:.2f}x that of torch.compile"


def _beside_eager(found: Comparison | None) -> str:
    """Whether it is faster or slower, where the interval of the paired ratios tells."""
    if found is None or not found.low > 0.0:
        return ""
    if found.slower:
        return "slower, "
    return "faster, " if found.high < 1.0 else "neither faster nor slower for sure, "


def _kernel_grid(rows: Sequence[KernelTiming], plan: Sequence[PlanRow]) -> Grid:
    planned = {row.name: row for row in plan}
    return Grid(
        "Kernels",
        ("kernel", "kind", "fused", ">calls", ">MB", ">ms", ">% of limit", ">regs", ">spills"),
        tuple(_kernel_row(row, planned.get(row.name)) for row in rows),
    )


def _kernel_row(row: KernelTiming, planned: PlanRow | None) -> tuple[str, ...]:
    kind = row.kind or (planned.kind if planned else None)
    ops = row.ops or (planned.ops if planned else ())
    return (
        row.name,
        kind or _NONE,
        " ".join(ops) or _NONE,
        str(row.calls),
        f"{row.bytes / 1e6:.4g}",
        _number(row.ms),
        _NONE if row.limit_percent is None else f"{row.limit_percent:.0f}",
        _NONE if row.registers is None else str(row.registers),
        _NONE if row.spills is None else str(row.spills),
    )


def _library_grid(plan: Sequence[PlanRow]) -> Grid:
    rows = ((row.name, " ".join(row.ops), row.reason) for row in plan if row.kind == "library")
    return Grid("Left to PyTorch", ("group", "ops", "reason"), tuple(rows))


def _timing_grid(timing: Timing, new_name: str) -> Grid:
    eager = timing.eager_ms
    entries = (
        ("eager", eager),
        ("torch.compile", timing.compile_ms),
        ("torch.compile, max-autotune", timing.autotune_ms),
        ("CUDA graph of eager", timing.graph_ms),
        (new_name, timing.opweld_ms),
    )
    rows = [_timing_row(name, samples, eager, timing) for name, samples in entries if samples]
    rows += _step_rows(timing.step, new_name) if timing.step else []
    limit = (
        "limit of the machine",
        _number(timing.limit_ms),
        "",
        "",
        _ratio(eager.median if eager else None, timing.limit_ms),
        "100",
    )
    return Grid(
        f"Time on {timing.device}",
        ("", ">median ms", ">p10", ">p90", ">vs eager", ">% of limit"),
        (*rows, limit),
    )


def _step_rows(step: StepTiming, new_name: str) -> list[tuple[str, ...]]:
    entries = (
        ("eager", step.eager_ms),
        ("torch.compile", step.compile_ms),
        (new_name, step.opweld_ms),
    )
    return [
        (
            f"{name}, step of training",
            *map(_number, (samples.median, samples.p10, samples.p90)),
            _ratio(step.eager_ms.median, samples.median),
            "",
        )
        for name, samples in entries
        if samples
    ]


def _timing_row(
    name: str, samples: Samples, eager: Samples | None, timing: Timing
) -> tuple[str, ...]:
    return (
        name,
        _number(samples.median),
        _number(samples.p10),
        _number(samples.p90),
        _ratio(eager.median if eager else None, samples.median),
        f"{100 * timing.limit_ms / samples.median:.0f}" if samples.median else _NONE,
    )


def _error_grid(checks: Sequence[Check], new_name: str) -> Grid:
    return Grid(
        "Error against float64",
        ("inputs", ">eager rms", f">{new_name} rms", ">eager max", f">{new_name} max")
        + (">max ulp", ">p99 ulp", "grade"),
        tuple(_error_row(check) for check in checks if check.grade and not check.skipped),
    )


def _error_row(check: Check) -> tuple[str, ...]:
    new, eager = check.error_vs_f64, check.eager_error_vs_f64
    if new is None or eager is None:
        note = "bit-equal" if check.grade == "A" and check.passed else _NONE
        return (check.name, _NONE, note, *(_NONE,) * 4, check.grade or _NONE)
    return (
        check.name,
        f"{eager.rms:.2e}",
        f"{new.rms:.2e}",
        f"{eager.max:.2e}",
        f"{new.max:.2e}",
        _number(check.max_ulp),
        _number(check.ulp_p99),
        check.grade or _NONE,
    )


def _failure_grid(failures: Sequence[Check]) -> Grid:
    rows = ((c.name, c.detail, _index(c)) for c in failures)
    return Grid(FAILED, ("check", "what is wrong", "first at"), tuple(rows))


def _index(check: Check) -> str:
    return str(list(check.first_bad_index)) if check.first_bad_index is not None else _NONE


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4g}"


def _ratio(numerator: float | None, denominator: float) -> str:
    return f"{numerator / denominator:.2f}x" if numerator and denominator else _NONE


def _print_grid(grid: Grid, console: Console) -> None:
    if not console.is_terminal:
        _print_plain(grid, console)
        return
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.title, table.title_justify, table.title_style = grid.title, "left", "bold"
    for k, head in enumerate(grid.heads):
        right = head.startswith(">")
        whole = right or max(len(row[k]) for row in grid.rows) <= len(head)
        # a figure stays on one line, and its head takes no more room than it has to
        name = "\n".join(head.lstrip(">").rsplit(" ", 1)) if right else head
        table.add_column(name, justify="right" if right else "left", no_wrap=whole)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_plain(grid: Grid, console: Console) -> None:
    heads = [head.lstrip(">") for head in grid.heads]
    console.print(Text(f"{grid.title}:"))
    for row in grid.rows:
        cells = zip(heads[1:], row[1:], strict=True)
        facts = [f"{head} {cell}" for head, cell in cells if cell not in ("", _NONE)]
        line = f"  {row[0]}: {', '.join(facts)}"
        console.print(Text(line), soft_wrap=True)
