"""What a run comes to, in at most 25 lines: kernels, times, accuracy, the verdict, what to do next.

Pure functions of the judgement and the plan; `show.py` prints what they make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opweld.compiled import PlanRow
from opweld.judge import report
from opweld.judge.values import (
    LOSS_CURVES,
    Check,
    Judgement,
    KernelTiming,
    Samples,
    StepTiming,
    Timing,
)
from opweld.pipeline import Delivery

# Of one kind, how many stand in a brief; how many others there are is said.
NOTES, FAILURES, EXPLANATIONS, MODULES, CALLS = 4, 3, 8, 2, 4
GOOD, DOUBTFUL, BAD = "bold green", "bold yellow", "bold red"
# Kinds of kernels whose speed is that of their arithmetic.
COMPUTE_BOUND = ("contraction", "convolution", "attention")
# A ratio of times that is nearer to 1 is called neither faster nor slower than torch.compile.
NEAR = 0.98
REWRITES = 2  # of the mathematics, that are shown


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A kernel with all its calls in one forward: what it fuses, ms, how fast that is."""

    name: str
    fuses: str
    ms: float | None = None
    rate: str = ""
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Fact:
    """A paragraph with a label; `style` is rich's.

    On a terminal it takes at most `lines` lines. One of 0 lines is never cut: what is copied from
    there, such as a path, stays whole.
    """

    label: str
    text: str
    style: str = ""
    lines: int = 3


@dataclass(frozen=True, slots=True)
class Brief:
    title: str
    kernels: tuple[KernelLine, ...]
    facts: tuple[Fact, ...]


def of_delivery(delivery: Delivery) -> Brief:
    """What `opweld optimize` made, and how it was judged."""
    rows, judgement, name = delivery.compiled.main_rows, delivery.judgement, delivery.model.name
    kernels = _fused(rows, delivery.kernels)
    left = (*_left(rows), *_rewritten(delivery.compiled.rewritten))
    written = Fact("Written", str(delivery.out), lines=0)
    if judgement is None:
        title = f"{name} for {delivery.compiled.target}"
        verdict = Fact("Verdict", "not verified (--no-check)", DOUBTFUL)
        judge = f"opweld check {delivery.model} {delivery.out}"
        after = (verdict, written, Fact("Next", f"`{judge}` judges it", lines=0))
        return Brief(title, kernels, (*left, *_notes(delivery.notes), *after))
    notes = _notes((*delivery.notes, *_remarks(judgement)))
    facts = (*left, *_figures(judgement), *notes, _verdict(judgement), written, _next(delivery))
    return Brief(f"{name}{_where(judgement)}", kernels, facts)


def _rewritten(sentences: Sequence[str]) -> tuple[Fact, ...]:
    """What became of the mathematics; the first of many."""
    shown = [Fact("Algebra", each.rstrip(".")) for each in sentences[:REWRITES]]
    more = len(sentences) - REWRITES
    told = (Fact("", f"and {more} more rewrites, which `opweld plan` prints"),) if more > 0 else ()
    return (*shown, *told)


def of_judgement(judgement: Judgement, names: tuple[Path, Path]) -> Brief:
    """What the judge found of a pair of files."""
    title = f"{names[1].name} against {names[0].name}{_where(judgement)}"
    verdict = judgement.verdict
    if verdict.passed:
        scope = Fact("Scope", report.SCOPE_TEXTS[verdict.scope])
        facts = (*_figures(judgement), scope, *_notes(_remarks(judgement)))
    else:
        measured = f"{verdict.precision}, by measurement" if verdict.precision else ""
        precision = (Fact("Precision", measured),) if measured else ()
        facts = (*_failures(verdict.failures), *_explained(judgement), *precision)
    more = Fact("More", _more(judgement))
    return Brief(title, _of_others(judgement.kernels), (*facts, _verdict(judgement), more))


def _where(judgement: Judgement) -> str:
    found = judgement.environment
    return f" on {found.device_name}, torch {found.torch}" if found else ""


def _more(judgement: Judgement) -> str:
    """What else can be asked for."""
    asked = ["-v lists every check"]
    if judgement.verdict.failures:
        asked.append("--all goes on after one that fails")
    return ", ".join([*asked, f"--seed {judgement.seed} draws the same inputs"])


def _next(delivery: Delivery) -> Fact:
    name = delivery.out.stem
    use = f"`from {name} import ModelNew`" if name.isidentifier() else "import its ModelNew"
    return Fact("Next", f"{use} in place of Model; -v lists every check, `opweld plan` the reasons")


def _fused(rows: Sequence[PlanRow], kernels: Sequence[KernelTiming]) -> tuple[KernelLine, ...]:
    """The plan's kernels, those that take longest first; as they run where none was timed."""
    timed, groups = _timed(kernels), dict[str, list[PlanRow]]()
    for row in rows:
        if row.is_kernel:
            groups.setdefault(row.name, []).append(row)
    lines = []
    for name, same in groups.items():
        found = timed.get(name, _Timed())
        rate = _throughput(same, found) if same[0].kind in COMPUTE_BOUND else _of_copy(found)
        lines.append(KernelLine(name, _fuses(same), found.ms, rate, len(same)))
    return tuple(sorted(lines, key=lambda line: -(line.ms or 0.0)))


def _of_others(kernels: Sequence[KernelTiming]) -> tuple[KernelLine, ...]:
    """Kernels without a plan: by their names alone."""
    lines = [
        KernelLine(name, "", found.ms, _of_copy(found), found.calls)
        for name, found in _timed(kernels).items()
    ]
    return tuple(sorted(lines, key=lambda line: -(line.ms or 0.0)))


@dataclass(frozen=True, slots=True)
class _Timed:
    """All calls of a kernel in one forward: ms, and what a copy of their bytes would take."""

    ms: float | None = None
    copy_ms: float | None = None
    calls: int = 0


def _timed(kernels: Sequence[KernelTiming]) -> dict[str, _Timed]:
    """By name; the judge has a row for each shape."""
    found: dict[str, _Timed] = {}
    for kernel in kernels:
        before = found.get(kernel.name, _Timed())
        ms = None if kernel.ms is None else kernel.ms * kernel.calls
        share = kernel.limit_percent
        copy_ms = None if ms is None or share is None else ms * share / 100
        sums = (_sum(before.ms, ms), _sum(before.copy_ms, copy_ms))
        found[kernel.name] = _Timed(*sums, before.calls + kernel.calls)
    return found


def _sum(one: float | None, other: float | None) -> float | None:
    return (one or 0.0) + (other or 0.0) if one is not None or other is not None else None


def _of_copy(found: _Timed) -> str:
    """How near a kernel that moves bytes is to the speed of a copy."""
    return f"{100 * found.copy_ms / found.ms:.0f} % of copy" if found.ms and found.copy_ms else ""


def _throughput(rows: Sequence[PlanRow], found: _Timed) -> str:
    """How fast a kernel that multiplies is."""
    flops = sum(row.flops or 0 for row in rows)
    return f"{flops / found.ms / 1e9:.3g} TFLOP/s" if found.ms and flops else ""


def _fuses(rows: Sequence[PlanRow]) -> str:
    """What kernels of one name compute: submodules, lines of the user's, PyTorch's operations."""
    modules = list(dict.fromkeys(row.module for row in rows if row.module))
    more = f" and {len(modules) - MODULES} more" if len(modules) > MODULES else ""
    within = ", ".join(modules[:MODULES]) + more
    places = dict.fromkeys(place for row in rows for place in row.places)
    return ": ".join(filter(None, (within, line_ranges(tuple(places)), _counted(rows[0].ops))))


def line_ranges(places: Sequence[str]) -> str:
    """Lines of files in short: ("m.py:3", "m.py:4", "m.py:9") is "m.py:3-4,9"."""
    files: dict[str, set[int]] = {}
    for place in places:
        file, _, line = place.rpartition(":")
        files.setdefault(file, set()).add(int(line))
    return " ".join(f"{file}:{','.join(_runs(sorted(lines)))}" for file, lines in files.items())


def _runs(numbers: Sequence[int]) -> Iterable[str]:
    start = 0
    for k, number in enumerate(numbers):
        if k + 1 == len(numbers) or numbers[k + 1] != number + 1:
            yield str(number) if k == start else f"{numbers[start]}-{number}"
            start = k + 1


def _counted(ops: Sequence[str]) -> str:
    counts = Counter(_torch_name(op) for op in ops)
    return ", ".join(f"{count} {op}" if count > 1 else op for op, count in counts.items())


def _torch_name(op: str) -> str:
    """ "aten.max_pool2d.default" is max_pool2d."""
    return op.split(".")[1] if op.startswith("aten.") else op


def _left(rows: Sequence[PlanRow]) -> tuple[Fact, ...]:
    """What PyTorch computes, with the reason where there is one for all."""
    # an item is a result of a call that is counted already
    left = [row for row in rows if row.kind == "library" and row.ops not in ((), ("item",))]
    if not left:
        return ()
    called = Counter(_torch_name(op) for row in left for op in row.ops)
    named = [f"{count} {op}" if count > 1 else op for op, count in called.most_common(CALLS)]
    if len(called) > CALLS:
        named.append(f"{len(called) - CALLS} others")
    reasons = {row.reason for row in left if row.reason}
    why = f": {reasons.pop()}" if len(reasons) == 1 else ""
    return (Fact("PyTorch", f"{', '.join(named)}{why}"),)


def _figures(judgement: Judgement) -> Iterable[Fact]:
    if judgement.timing:
        yield Fact("Time", _times(judgement.timing))
        if judgement.timing.step:
            yield Fact("Step", _step(judgement.timing.step))
    for check in judgement.verdict.checks:
        if check.name == LOSS_CURVES:
            yield Fact("Training", f"{'not compared: ' if check.skipped else ''}{check.detail}")
    yield Fact("Accuracy", _accuracy(judgement))


def _times(timing: Timing) -> str:
    # no ratio of times that tell nothing
    ours = timing.opweld_ms.median if timing.is_steady else 0.0
    beside = (
        ("eager", timing.eager_ms),
        ("torch.compile", timing.compile_ms),
        ("max-autotune", timing.autotune_ms),
        ("CUDA graph", timing.graph_ms),
    )
    told = [_beside(name, samples, ours) for name, samples in beside if samples]
    share = f" ({100 * timing.limit_ms / ours:.0f} %)" if ours else ""
    roofline = f"roofline {timing.limit_ms:.4g} ms{share}"
    return ", ".join([f"ModelNew {_ms(timing.opweld_ms)}", *told, roofline])


def _step(step: StepTiming) -> str:
    ours = step.opweld_ms.median
    beside = (("eager", step.eager_ms), ("torch.compile", step.compile_ms))
    told = [_beside(name, samples, ours) for name, samples in beside if samples]
    return f"forward and backward: {', '.join([f'ModelNew {ours:.4g} ms', *told])}"


def _beside(name: str, samples: Samples, ours: float) -> str:
    ratio = f" ({samples.median / ours:.2f}x)" if ours else ""
    return f"{name} {_ms(samples)}{ratio}"


def _ms(samples: Samples) -> str:
    """What is left of a block without its calls' surroundings may be nothing."""
    return f"{samples.median:.4g} ms" if samples.median >= 1e-3 else "less than 0.001 ms"


def _accuracy(judgement: Judgement) -> str:
    checks = judgement.verdict.checks
    skipped = sum(check.skipped for check in checks)
    tried = f"{len(checks) - skipped} checks passed, {skipped} skipped"
    main = next((check for check in checks if check.error_vs_f64), None)
    measured = (f"grade {judgement.verdict.grade}", judgement.verdict.precision)
    grade = ", ".join(filter(None, measured))
    if main is None or main.error_vs_f64 is None or main.eager_error_vs_f64 is None:
        return f"{grade}; {tried}"
    error, eager = main.error_vs_f64.max, main.eager_error_vs_f64.max
    against = f"largest error against float64 {error:.2g}, eager's {eager:.2g}"
    return f"{grade}: {against}; {tried}"


def _remarks(judgement: Judgement) -> Iterable[str]:
    """What a reader of the verdict has to know."""
    verdict, timing = judgement.verdict, judgement.timing
    yield from (f"cannot be judged: {sentence}" for sentence in verdict.unjudged)
    if judgement.degenerate:
        yield f"degenerate: {judgement.degenerate}"
    if verdict.unsupported:
        yield f"refused by an exception, which its scope allows: {', '.join(verdict.unsupported)}"
    if judgement.timing_error:
        yield judgement.timing_error
    yield from timing.notes if timing else ()


def _notes(sentences: Iterable[str]) -> tuple[Fact, ...]:
    told = tuple(dict.fromkeys(sentences))
    more = len(told) - NOTES
    facts = [Fact("Note", sentence, lines=2) for sentence in told[:NOTES]]
    return (*facts, Fact("", f"and {more} more notes (-v)")) if more > 0 else tuple(facts)


def _failures(failures: Sequence[Check]) -> Iterable[Fact]:
    for check in failures[:FAILURES]:
        bad = check.first_bad_index
        place = f", first at {list(bad)}" if bad is not None else ""
        yield Fact("Failed", f"{check.name}: {check.detail}{place}")
    if len(failures) > FAILURES:
        yield Fact("", f"and {len(failures) - FAILURES} more checks (-v)")


def _explained(judgement: Judgement) -> Iterable[Fact]:
    """What a compiler said, or the source line."""
    lines = judgement.verdict.explanation
    yield from (Fact("", line, lines=1) for line in lines[:EXPLANATIONS])
    if len(lines) > EXPLANATIONS:
        yield Fact("", f"and {len(lines) - EXPLANATIONS} more lines (-v)")


def _verdict(judgement: Judgement) -> Fact:
    return Fact("Verdict", report.verdict_line(judgement), _style(judgement))


def _style(judgement: Judgement) -> str:
    """Green is for what is right and not slower than anything that it was timed beside."""
    timing = judgement.timing
    if not judgement.verdict.passed:
        return BAD
    if timing is None:
        return DOUBTFUL if judgement.timing_error else GOOD
    paired, beside_eager = timing.vs_eager, timing.speedup_vs_eager
    compiled = timing.speedup_vs_compile
    unsure = not timing.is_steady or (paired is not None and paired.high >= 1.0)
    slower = any(ratio is not None and ratio < NEAR for ratio in (beside_eager, compiled))
    return DOUBTFUL if unsure or slower else GOOD
