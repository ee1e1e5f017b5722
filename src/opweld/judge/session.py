"""What happens in the child process: load both files, verify, measure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from opweld.errors import UnsupportedTarget
from opweld.judge import gradients, kernels
from opweld.judge.environment import choose_device, describe, global_settings
from opweld.judge.grade import worst
from opweld.judge.inputs import LARGEST, OwnInputs
from opweld.judge.load import (
    NEW,
    ORIGINAL,
    Call,
    CandidateError,
    Pair,
    brief,
    build_new,
    build_original,
    import_model_file,
    import_new_file,
)
from opweld.judge.measure import measure
from opweld.judge.processes import strays
from opweld.judge.trial import Phase, is_device_lost
from opweld.judge.values import Check, Event, Judgement, KernelTiming, Settings, Timing, Verdict
from opweld.judge.verify import Verifier

# Checks that pass at grade C, too, and say nothing of the outputs' precision.
UNGRADED = (gradients.NAME, LARGEST)
# What the optional checks may use of the time limit; the rest is for measuring.
VERIFY_SHARE = 0.5


class Channel(Protocol):
    """Where a session tells what it does: to the parent process, or to a test."""

    def phase(self, who: str, what: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def partial(self, judgement: Judgement) -> None: ...


@dataclass(frozen=True, slots=True)
class Request:
    """Two files, how to judge them, the seed that was drawn."""

    model_path: str
    new_path: str
    settings: Settings
    seed: int


def judge(request: Request, channel: Channel) -> Judgement:
    """The whole judgement of one pair, in this process.

    Raises:
        UserError: the model file cannot be judged against.
    """
    settings, started = request.settings, time.monotonic()
    try:
        pair, before = _load(request, channel)
    except CandidateError as error:
        return Judgement(failed(str(error)), None, (), None, request.seed)
    environment = describe(pair.device)
    verifier = Verifier(
        pair, request.seed, VERIFY_SHARE * settings.time_limit_s, _verify_phase(channel)
    )
    checks = (*verifier.verify(), compare_settings(before, global_settings()), _check_strays())
    verdict = conclude(checks)
    judgement = Judgement(verdict, None, (), environment, request.seed)
    if verifier.device_lost or not verdict.passed:
        return judgement
    channel.partial(judgement)
    call = OwnInputs(pair, request.seed)(0)
    launches = kernels.record(pair.new, call)
    timing, rows, why_not = None, tuple(map(kernels.untimed, launches)), None
    if settings.measure:
        remaining_s = settings.time_limit_s - (time.monotonic() - started)
        timing, rows, why_not = _measure(pair, call, launches, settings, channel, remaining_s)
    return Judgement(
        verdict, timing, rows, environment, request.seed, kernels.count(launches), why_not
    )


def failed(reason: str, checks: tuple[Check, ...] = ()) -> Verdict:
    """The verdict of a pair that could not be tried to the end."""
    return Verdict(False, "F", checks, reason)


def conclude(checks: tuple[Check, ...]) -> Verdict:
    """All checks passed, or the first that did not, in one sentence; the grade is the outputs'."""
    lowest = worst(c.grade for c in checks if c.grade and c.name not in UNGRADED)
    bad = [check for check in checks if not check.passed]
    if bad:
        more = f" (and {len(bad) - 1} more checks fail)" if len(bad) > 1 else ""
        return Verdict(False, "F", checks, f"{bad[0].name}: {bad[0].detail}{more}")
    num_skipped = sum(check.skipped for check in checks)
    tried = f"{len(checks) - num_skipped} checks passed, {num_skipped} skipped"
    return Verdict(True, lowest, checks, f"equivalent, grade {lowest}: {tried}")


def compare_settings(before: dict[str, object], after: dict[str, object]) -> Check:
    """Whether torch's global settings are what they were before ModelNew was imported."""
    changed = [f"{k} from {before[k]} to {after[k]}" for k in before if before[k] != after[k]]
    detail = f"ModelNew changes {', '.join(changed)}" if changed else "left alone"
    return Check("global settings of torch", not changed, detail)


def _load(request: Request, channel: Channel) -> tuple[Pair, dict[str, object]]:
    settings, seed = request.settings, request.seed
    model_path, new_path = Path(request.model_path), Path(request.new_path)
    try:
        device = choose_device(settings.device)
    except RuntimeError as error:
        raise UnsupportedTarget(str(error), next_step="use --target cpu") from error
    channel.event(Event("load", f"importing {model_path.name}"))
    channel.phase(ORIGINAL, f"importing {model_path}")
    module = import_model_file(model_path)
    original = build_original(module, model_path, seed, device)
    before = global_settings()
    channel.event(Event("load", f"importing {new_path.name}, which builds its kernels"))
    channel.phase(NEW, f"importing {new_path}")
    new_module = import_new_file(new_path)
    new = build_new(module, new_module, new_path, seed, device)
    return Pair(original, new, module, model_path, new_path, device, settings.batch), before


def _verify_phase(channel: Channel) -> Phase:
    """Tells the parent who runs; tells the user once for each check."""
    last = [""]

    def phase(who: str, what: str) -> None:
        channel.phase(who, what)
        if what != last[0]:
            last[0] = what
            channel.event(Event("verify", what))

    return phase


def _check_strays() -> Check:
    found = strays()
    detail = f"still running: {', '.join(found[:3])}" if found else "none"
    return Check("processes left behind", not found, detail)


def _measure(
    pair: Pair,
    call: Call,
    launches: tuple[kernels.Launch, ...],
    settings: Settings,
    channel: Channel,
    remaining_s: float,
) -> tuple[Timing | None, tuple[KernelTiming, ...], str | None]:
    """Timing and kernel rows, or the reason for having none."""
    channel.event(Event("measure", "timing " + ", ".join((*settings.baselines, "ModelNew"))))
    try:
        timing = measure(pair, call, settings, channel.phase, remaining_s)
        channel.phase(NEW, "timing its kernels")
        rows = tuple(
            kernels.time_launch(launch, pair.device, timing.copy_gbps, settings.num_runs)
            for launch in launches
        )
    except Exception as error:
        if is_device_lost(error):
            raise CandidateError(f"the device was lost while measuring: {brief(error)}") from error
        return None, tuple(map(kernels.untimed, launches)), f"not measured: {brief(error)}"
    return timing, rows, None
