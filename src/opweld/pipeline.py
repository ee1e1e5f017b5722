"""The whole line: compile, judge what was written, deliver it only when it is right and not slower.

Every step that runs the user's code, or code that we wrote, happens in a child process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from opweld.compiled import Compiled, PlanRow
from opweld.delivery import (
    body_of,
    check_result,
    is_package,
    partial_result,
    publish,
    with_figures,
    write_result,
)
from opweld.errors import JudgeFailed, Where
from opweld.give_back import Decision, decide, excluded_for, row_of
from opweld.interface import logs
from opweld.interface.doctor import require_build_tools
from opweld.judge.values import FULL, Event, Judgement, KernelTiming, Settings, StepTiming
from opweld.options import Options
from opweld.process.resources import with_resources

# Beyond it a package is easier to read than one file.
LONG_LINES = 2000
TERMS = "What opweld wrote here may be used and changed under any terms (its LICENSE-EXCEPTION)."


class Compile(Protocol):
    def __call__(
        self, path: Path, options: Options, on_stage: Callable[[str], None], /
    ) -> Compiled: ...


class Build(Protocol):
    def __call__(self, new: Path, model: Path, target: str, options: Options, /) -> float: ...


class Judge(Protocol):
    def __call__(
        self,
        model_path: Path,
        new_path: Path,
        settings: Settings,
        on_progress: Callable[[Event], None],
        /,
    ) -> Judgement: ...


class Follower(Protocol):
    """Whoever is told how the work goes."""

    def step(self, stage: str, message: str = "") -> None: ...

    def say(self, sentence: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was delivered: the file, how it came about, how it was judged, and what to say of it.

    `decisions` has one for each file that was judged, the delivered one last.
    """

    model: Path
    out: Path
    compiled: Compiled
    judgement: Judgement | None
    notes: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()

    @property
    def kernels(self) -> tuple[KernelTiming, ...]:
        """The judge's figures of each kernel, with the plan's account of it."""
        measured = self.judgement.kernels if self.judgement else ()
        return tuple(_with_account(kernel, self.compiled.fused) for kernel in measured)


def optimize(
    model: Path,
    out: Path,
    options: Options,
    follower: Follower,
    compile_file: Compile,
    build: Build,
    judge: Judge,
) -> Delivery:
    """Writes the faster file, or package, at `out`.

    Raises:
        UserError: bad input, or no compiler for the kernels; nothing is written.
        JudgeFailed: the file that was emitted is not equivalent; nothing is written.
    """
    check_result(out, model)
    asked = options.exclude
    decisions: tuple[Decision, ...] = ()
    undone: tuple[str, ...] = ()
    while True:
        compiled = compile_file(model, options, follower.step)
        logs.tell(compiled)
        with partial_result(out, compiled.text) as partial:
            compiled = _built(model, partial, compiled, options, follower, build)
            try:
                judgement = _judged(model, partial, options, follower, judge)
            except NotEquivalent as refusal:
                if not compiled.rewritten:
                    raise
                reason = f"it was refused: {refusal.judgement.verdict.reason}"
                undone = (f"{_UNDONE}: rewritten, {reason}",)
                follower.say(undone[0])
                options = replace(options, algebra="off", exclude=asked)
                continue
            if judgement is not None:
                decisions += (decide(compiled, judgement, len(decisions)),)
            if decisions and decisions[-1].undoes:
                undone = (f"{_UNDONE}: {decisions[-1].reason}",)
                follower.say(undone[0])
                options = replace(options, algebra="off", exclude=asked)
                continue
            back = decisions[-1].given_back if decisions else ()
            if not back:
                delivery = _delivery(model, out, compiled, judgement, decisions)
                delivery = replace(delivery, notes=undone + delivery.notes)
                deliver(partial, delivery)
                return delivery
        follower.say(decisions[-1].reason)
        excluded = excluded_for(back, compiled.fused, options.exclude)
        options = replace(options, exclude=options.exclude | excluded)


_UNDONE = "the mathematics is as it was (--algebra off)"


def _delivery(
    model: Path,
    out: Path,
    compiled: Compiled,
    judgement: Judgement | None,
    decisions: tuple[Decision, ...],
) -> Delivery:
    """With what there is to say: what went back and why, what is in doubt, and what stands."""
    told = tuple(decision.reason for decision in decisions if decision.is_worth_telling)
    notes = told + _standing(compiled, judgement) + _size(out, compiled.text)
    return Delivery(model, out, compiled, judgement, notes, decisions)


def deliver(partial: Path, delivery: Delivery) -> None:
    """Publishes what was judged, with its figures in the head; the rest is as it was judged."""
    figures = figures_of(delivery.judgement) if delivery.judgement else not_verified()
    told = with_figures(delivery.compiled.text, f"{figures}\n{TERMS}")
    assert body_of(told) == body_of(delivery.compiled.text)
    write_result(partial, told)
    publish(partial, delivery.out)


def _built(
    model: Path,
    partial: Path,
    compiled: Compiled,
    options: Options,
    follower: Follower,
    build: Build,
) -> Compiled:
    """With the seconds that building took and what the kernels take on the device.

    Where nothing is judged, nothing need be built here.
    """
    if not (options.check and compiled.fused):
        return compiled
    follower.step("build")
    require_build_tools(compiled.target)
    spent, compiled = with_resources(
        compiled, lambda: build(partial, model, compiled.target, options)
    )
    return replace(compiled, seconds={**compiled.seconds, "build": spent})


def _judged(
    model: Path, partial: Path, options: Options, follower: Follower, judge: Judge
) -> Judgement | None:
    if not options.check:
        return None
    judgement = judge(
        model,
        partial,
        settings_of(options),
        lambda event: follower.step(event.stage, event.message),
    )
    if judgement.verdict.passed:
        return judgement
    raise NotEquivalent(judgement, Where(str(model)))


def _size(out: Path, text: str) -> tuple[str, ...]:
    """Of a file that is long what would be easier to read."""
    lines = text.count("\n")
    if is_package(out) or lines <= LONG_LINES:
        return ()
    return (f"{out.name} has {lines} lines: -o NAME, without .py, writes a package of short files",)


class NotEquivalent(JudgeFailed):
    """The verdict said no; carries the judgement, so that it can be shown and written as JSON."""

    def __init__(self, judgement: Judgement, where: Where) -> None:
        super().__init__(
            f"nothing was written, for ModelNew is not equivalent: {judgement.verdict.reason}",
            where=where,
            next_step="please report it; `opweld plan` shows what was made",
        )
        self.judgement = judgement


def settings_of(options: Options) -> Settings:
    """What the judge is asked for under these options."""
    device = {"auto": "auto", "cpu": "cpu"}.get(options.target, "cuda")
    return Settings(
        device=device,
        mode="own" if options.mode == "both" else options.mode,
        autocast=options.autocast,
        dtype=options.dtype,
        seed=options.seed,
        batch=options.batch,
        time_limit_s=options.time_limit_s,
        thorough=options.thorough,
        stop_at_first=options.stop_at_first,
        baselines=options.baseline_names,
        sandbox=options.sandbox,
        pass_env=options.pass_env,
        scope=FULL,
        step=options.training,
    )


def _with_account(kernel: KernelTiming, rows: tuple[PlanRow, ...]) -> KernelTiming:
    row = row_of(kernel.name, rows)
    if row is None:
        return kernel
    return replace(
        kernel,
        name=row.name,
        kind=row.kind,
        ops=row.ops,
        flops=row.flops,
        registers=row.registers,
        spills=row.spills,
    )


def _standing(compiled: Compiled, judgement: Judgement | None) -> tuple[str, ...]:
    own = (row for row in compiled.plan_rows if row.name == "forward" and not row.module)
    kept = next((row.reason for row in own if not row.variant), None)
    if kept is not None and compiled.fused:
        return (f"Only submodules have kernels, the forward around them runs as it is: {kept}",)
    if kept is not None:
        return (f"ModelNew is the original: {kept}",)
    if not compiled.fused and not compiled.rewritten:
        return ("Nothing is gained by fusing this model here: ModelNew is the original",)
    if compiled.fused and judgement and not judgement.kernel_calls:
        return ("ModelNew ran the original on the model's own inputs, none of its kernels",)
    return ()


def not_verified() -> str:
    """What the head of a file says that was not judged."""
    return f"Not verified: written with --no-check, torch {version('torch')}."


def figures_of(judgement: Judgement) -> str:
    """The measured figures as the last paragraph of the emitted file's head."""
    verdict, environment = judgement.verdict, judgement.environment
    where = f" on {environment.device_name}, torch {environment.torch}" if environment else ""
    lines = [f"Verified{where}, {date.today()}, seed {judgement.seed}: grade {verdict.grade} in"]
    lines[0] += f" {len(verdict.checks)} checks."
    lines += [_error_line(judgement), _time_line(judgement)]
    return "\n".join(line for line in lines if line)


def _error_line(judgement: Judgement) -> str:
    checks = judgement.verdict.checks
    first = next((check for check in checks if check.error_vs_f64 is not None), None)
    if first is None or first.error_vs_f64 is None or first.eager_error_vs_f64 is None:
        return ""
    return (
        f"Largest error against float64: {first.error_vs_f64.max:.3g}, "
        f"of the original {first.eager_error_vs_f64.max:.3g}."
    )


def _time_line(judgement: Judgement) -> str:
    timing = judgement.timing
    if timing is None:
        return f"Not measured: {judgement.timing_error}."
    named = (("eager", timing.eager_ms), ("torch.compile", timing.compile_ms))
    beside = [f"{name} {samples.median:.4g} ms" for name, samples in named if samples]
    ours = f"ModelNew {timing.opweld_ms.median:.4g} ms"
    limit = f"the machine's limit is {timing.limit_ms:.4g} ms"
    return f"{', '.join([*beside, ours])}; {limit}.{_step_told(timing.step)}"


def _step_told(step: StepTiming | None) -> str:
    if step is None:
        return ""
    named = (("eager", step.eager_ms), ("torch.compile", step.compile_ms))
    beside = [f"{name} {samples.median:.4g} ms" for name, samples in named if samples]
    ours = f"ModelNew {step.opweld_ms.median:.4g} ms"
    return f" A step of training, forward and backward: {', '.join([*beside, ours])}."
