"""What the referee does: load the original, have the candidate loaded, verify, measure."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from opweld.errors import UnsupportedTarget
from opweld.judge.inputs import gradient_cases
from opweld.judge.inputs.kinds import CONSTANT_ROWS, LARGEST, ONE_HUGE, OwnInputs
from opweld.judge.levels import level_of
from opweld.judge.load import (
    NEW,
    ORIGINAL,
    Call,
    CandidateError,
    Pair,
    brief,
    build_original,
    guard_original,
    import_model_file,
    is_device_lost,
    make_inputs,
)
from opweld.judge.measure.baselines import NAMES, chosen
from opweld.judge.measure.busy import busy_note
from opweld.judge.measure.clock import summarise
from opweld.judge.measure.roofline import ACCEPTED_PRODUCTS
from opweld.judge.measure.speed import Alone, Contest, Measured, alone, time_sides
from opweld.judge.numerics.effective import ACCEPTED
from opweld.judge.numerics.grade import worst
from opweld.judge.process.environment import choose_device, describe
from opweld.judge.process.processes import strays
from opweld.judge.process.protocol import Files
from opweld.judge.training.curves import Asked as TrainingAsked
from opweld.judge.training.curves import Training, few_rows
from opweld.judge.values import (
    ESTIMATE,
    Check,
    Environment,
    Event,
    Judgement,
    LossCurves,
    Settings,
    Verdict,
)
from opweld.judge.verify.audit import TimedResults
from opweld.judge.verify.checks import Verifier
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.states import Beside
from opweld.judge.verify.trial import Phase
from opweld.judge.verify.weights import state_restored
from opweld.judge.witness.process_state import own_threads, threads_changed
from opweld.model_file import short_name

# Checks that pass at grade C, too, and say nothing of the outputs' precision.
UNGRADED = (*gradient_cases.NAMES, LARGEST, CONSTANT_ROWS, ONE_HUGE)
_NUM_ESTIMATES = 3
# What the optional checks may use of the time limit; the rest is for measuring.
VERIFY_SHARE = 0.5
# Of what is left then, for training.
TRAINING_SHARE = 0.25


class Channel(Protocol):
    """Where a session tells what it does: to the parent process, or to a test."""

    def phase(self, who: str, what: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def partial(self, judgement: Judgement) -> None: ...


@dataclass(frozen=True, slots=True)
class Request:
    """Two files, how to judge them, the seed that was drawn, where to build ("": torch's)."""

    model_path: str
    new_path: str
    settings: Settings
    seed: int
    builds: str = ""


def judge(request: Request, channel: Channel, side: Any) -> Judgement:
    """The whole judgement of one pair: the original here, ModelNew where `side` holds it.

    Raises:
        UserError: the model file cannot be judged against.
    """
    started, tally = time.monotonic(), Tally()
    try:
        return _judge(request, channel, side, started, tally)
    except CandidateError as error:
        verdict = replace(failed(str(error), tuple(tally.checks)), scope=request.settings.scope)
        return Judgement(verdict, None, (), tally.environment, request.seed)


@dataclass(slots=True)
class Tally:
    """What is known already when the candidate ends everything."""

    checks: list[Check] = field(default_factory=list)
    environment: Environment | None = None


def _judge(
    request: Request, channel: Channel, side: Any, started: float, tally: Tally
) -> Judgement:
    settings, seed = request.settings, request.seed
    pair = _load_original(request, channel, side)
    quiet = _time_alone(pair, seed, settings, channel) if settings.measure else None
    threads = own_threads()
    _load_new(request, channel, pair, side)
    tally.environment = environment = describe(pair.device)
    share_s = VERIFY_SHARE * settings.time_limit_s
    phases = _phases(channel, side)
    verifier = Verifier(
        pair,
        seed,
        share_s,
        phases,
        tally.checks,
        settings.precision,
        level_of(settings.thorough),
        settings.stop_at_first,
        Beside(settings.autocast, settings.dtype),
        settings.scope,
        lambda: _estimate(pair, quiet, channel),
    )
    verifier.verify()
    left_s = settings.time_limit_s - (time.monotonic() - started)
    curves = _train(verifier, settings, phases, tally, left_s)
    if not verifier.device_lost and (
        not settings.stop_at_first or conclude(tuple(tally.checks)).passed
    ):
        tally.checks += _hygiene(pair, channel, threads)
    verdict = _concluded(tally, verifier, settings.scope)
    judgement = Judgement(
        verdict, None, (), environment, seed, degenerate=verifier.degenerate, curves=curves
    )
    if verifier.device_lost or not verdict.passed:
        return judgement
    channel.partial(judgement)
    call = OwnInputs(pair, seed)(0)
    judgement = replace(judgement, kernel_calls=pair.new.launches(call))
    if quiet is None:
        return replace(judgement, kernels=pair.new.time_kernels(0.0, settings.num_runs))
    remaining_s = settings.time_limit_s - (time.monotonic() - started)
    measured, why_not = _measure(verifier, quiet, settings, channel, remaining_s)
    if measured is None:
        rows = pair.new.time_kernels(0.0, settings.num_runs)
        return replace(judgement, kernels=rows, timing_error=why_not)
    tally.checks += measured.checks
    if not measured.ended:
        tally.checks[:] = _with_failures(tally.checks, _hygiene(pair, channel, threads))
    judgement = replace(judgement, verdict=_concluded(tally, verifier, settings.scope))
    if not judgement.verdict.passed:
        return judgement  # times that cannot be true, or of wrong results, are none
    timing = measured.timing
    rows = () if measured.ended else pair.new.time_kernels(timing.copy_gbps, settings.num_runs)
    return replace(judgement, timing=timing, kernels=rows)


def _train(
    verifier: Verifier, settings: Settings, phase: Phase, tally: Tally, left_s: float
) -> LossCurves | None:
    """Both sides in training, where that was asked for and nothing has failed before."""
    failed_before = settings.stop_at_first and not conclude(tuple(tally.checks)).passed
    if not settings.step or verifier.device_lost or failed_before:
        return None
    lowering = ACCEPTED.get(settings.precision)
    pair, level = verifier.pair, level_of(settings.thorough)
    own = few_rows(verifier.few, pair.original, level.training_elems[pair.device.type])
    training = Training(pair, own, verifier.seed, phase, lowering)
    seconds = min(level.training_s, max(left_s, 0.0) * TRAINING_SHARE)
    outcome = training.check(TrainingAsked(settings.training_steps, seconds))
    tally.checks.append(outcome.check)
    return outcome.curves


def _concluded(tally: Tally, verifier: Verifier, scope: str) -> Verdict:
    """The verdict on the checks so far, with what else was found out."""
    verdict = conclude(tuple(tally.checks))
    unjudged = verifier.unjudged
    return replace(verdict, precision=verifier.precision, unjudged=unjudged, scope=scope)


def failed(reason: str, checks: tuple[Check, ...] = ()) -> Verdict:
    """The verdict of a pair that could not be tried to the end.

    The first line of `reason` is the sentence, the others its explanation.
    """
    sentence, *lines = reason.split("\n")
    return Verdict(False, "F", checks, sentence, tuple(lines))


def conclude(checks: tuple[Check, ...]) -> Verdict:
    """All checks passed, or the first that did not, in one sentence; the grade is the outputs'."""
    lowest = worst(c.grade for c in checks if c.grade and c.name not in UNGRADED)
    refused = tuple(check.name for check in checks if check.unsupported)
    have = any(c.name in gradient_cases.NAMES and c.passed and not c.skipped for c in checks)
    without = gradient_cases.NAME in refused and not have
    bad = [check for check in checks if not check.passed]
    if bad:
        others = "1 more check fails" if len(bad) == 2 else f"{len(bad) - 1} more checks fail"
        more = f" (and {others})" if len(bad) > 1 else ""
        return Verdict(False, "F", checks, f"{bad[0].name}: {bad[0].detail}{more}")
    num_skipped = sum(check.skipped for check in checks)
    tried = f"{len(checks) - num_skipped} checks passed, {num_skipped} skipped"
    use = " for inference only" if without else ""
    reason = f"equivalent{use}, grade {lowest}: {tried}"
    return Verdict(True, lowest, checks, reason, unsupported=refused, inference_only=without)


def _hygiene(pair: Pair, channel: Channel, threads: dict[str, str]) -> list[Check]:
    """What the candidate leaves behind in its process and on the machine; `threads` is how the
    judge's own were before.
    """
    channel.phase(NEW, "after the last check")
    side = pair.new
    changed = [f"{k} from {a} to {b}" for k, (a, b) in side.settings_changed().items()]
    patched, busy = side.patched(), side.busy()
    found = strays({os.getpid(), os.getppid(), *getattr(side, "pids", ())})
    ours = threads_changed(threads)
    none = "none" if side.reads_memory else "none, by what its process says itself"
    return [
        _left_alone("global settings of torch", changed, "ModelNew changes "),
        _left_alone("torch and the clock", patched, "ModelNew replaces ", none),
        _left_alone("process state", side.process_changed(), "ModelNew changes "),
        _left_alone(
            "the judge's own process", ours, "other processors or priority than before for "
        ),
        Check("work after the answer", busy is None, busy or "none"),
        _left_alone("processes left behind", found, "still running: "),
    ]


def _with_failures(checks: list[Check], later: list[Check]) -> list[Check]:
    """With those of the later checks that failed in the place of the earlier ones."""
    failed_later = {check.name: check for check in later if not check.passed}
    return [failed_later.get(check.name, check) for check in checks]


def _left_alone(name: str, found: list[str], verb: str, none: str = "none") -> Check:
    return Check(name, not found, verb + ", ".join(found[:3]) if found else none)


def _load_original(request: Request, channel: Channel, side: Any) -> Pair:
    """The original here, beside a side that has not loaded anything yet."""
    settings = request.settings
    model_path, new_path = Path(request.model_path), Path(request.new_path)
    try:
        device = choose_device(settings.device)
    except RuntimeError as error:
        raise UnsupportedTarget(str(error), next_step="use --target cpu") from error
    channel.event(Event("load", f"importing {model_path.name}"))
    channel.phase(ORIGINAL, f"importing {model_path}")
    module = import_model_file(model_path, settings.reference)
    seed = stream(request.seed, "parameters")
    original = build_original(module, model_path, seed, device, settings.mode)
    return Pair(original, side, module, model_path, new_path, device, settings.batch, settings.mode)


def _load_new(request: Request, channel: Channel, pair: Pair, side: Any) -> None:
    device = pair.device
    new_path = Path(request.new_path)
    channel.event(Event("load", f"importing {short_name(new_path)}, which builds its kernels"))
    channel.phase(NEW, f"importing {new_path}")
    side.step(f"importing {new_path}")
    parameters = stream(request.seed, "parameters")
    files = Files(
        request.model_path,
        request.new_path,
        str(device),
        parameters,
        request.builds,
        request.settings.mode,
        pair.module.__name__,
        request.settings.reference,
        request.settings.candidate,
    )
    side.load(files, lambda: _wake(device))


def _wake(device: torch.device) -> None:
    """Have a GPU ready here, too, by the time that ModelNew is imported there."""
    with contextlib.suppress(RuntimeError):  # whatever it is, the first check meets it again
        ones = torch.ones(2, device=device)
        float((ones.double() * ones).sum())


def _time_alone(pair: Pair, seed: int, settings: Settings, channel: Channel) -> Alone:
    """Eager before anything of ModelNew is imported; its state is left as it was."""
    channel.phase(ORIGINAL, "timing it alone")

    def make(draw: int) -> Call:
        return make_inputs(
            pair.module, pair.model_path, stream(seed, "timing", draw), pair.device, pair.batch
        )

    def timed() -> Alone:
        with state_restored(pair.original):
            return alone(pair.original, make, pair.device, settings)

    return guard_original(pair.model_path, "Model.forward", timed)


def _estimate(pair: Pair, quiet: Alone | None, channel: Channel) -> None:
    """Tells the user early how fast ModelNew seems to be; no figure of the judgement."""
    if quiet is None or not quiet.eager_ms:
        return
    side, draws = pair.new.timed, quiet.pool.draws()
    side.prepare(quiet.pool.calls)
    found = []
    for _ in range(_NUM_ESTIMATES):
        side.arm(draws.order(1))
        found += side.block(True)
        side.release()
    side.prepare(())
    eager = summarise(list(quiet.eager_ms)).median
    told = f"a first estimate: ModelNew {min(found):.3g} ms, eager {eager:.3g} ms"
    channel.event(Event(ESTIMATE, told))


def _phases(channel: Channel, side: Any) -> Phase:
    """Tells the parent who runs, the candidate's process what for; the user once for each check."""
    last = [""]

    def phase(who: str, what: str) -> None:
        channel.phase(who, what)
        side.step(what)
        if what != last[0]:
            last[0] = what
            channel.event(Event("verify", what))

    return phase


def _measure(
    verifier: Verifier, quiet: Alone, settings: Settings, channel: Channel, remaining_s: float
) -> tuple[Measured | None, str | None]:
    """Figures and the checks on them, or the reason for having none."""
    pair = verifier.trial.pair
    names = [NAMES[name] for name in chosen(settings, pair.device)]
    channel.event(Event("measure", "timing " + ", ".join((*names, "ModelNew"))))
    contest = Contest(
        pair.original,
        pair.new.timed,
        quiet,
        pair.device,
        settings,
        channel.phase,
        TimedResults(verifier.trial),
        getattr(pair.new, "close", None),
        ACCEPTED_PRODUCTS.get(settings.precision),
        getattr(pair.new, "answer", None),
    )
    busy = busy_note()
    try:
        measured = time_sides(contest, remaining_s)
        notes = (*busy, *measured.timing.notes)
        return replace(measured, timing=replace(measured.timing, notes=notes)), None
    except CandidateError:
        raise
    except Exception as error:
        if is_device_lost(error):
            raise CandidateError(f"the device was lost while measuring: {brief(error)}") from error
        return None, f"not measured: {brief(error)}"
