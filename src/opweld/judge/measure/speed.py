"""How fast: ModelNew and its baselines in one run, and whether the figures can be true.

The original and its compiled forms run in this process, ModelNew wherever its `Timed` is. Times
are those of this process's own clock, around interleaved blocks on inputs that were never seen
before (`blocks.py`, `rounds.py`), less the same blocks without calls. The clocks inside
(`clock.py`) are a detail that must not contradict them; all is held against the outputs of timed
calls and against the data sheet, too (`consistency.py`). A check that fails is tried again, on more
new blocks, before it counts.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import nn

from opweld.judge.load import NEW, ORIGINAL, Call, brief
from opweld.judge.measure import consistency, limits
from opweld.judge.measure.baselines import Phase, baselines, chosen, deadline
from opweld.judge.measure.blocks import LocalTimed, Timed, num_rolls, rolled
from opweld.judge.measure.clock import FLUSH_BYTES, clock_of, summarise
from opweld.judge.measure.roofline import (
    Work,
    ceiling_of,
    hold_against,
    main_dtype,
    product_precision,
)
from opweld.judge.measure.rounds import EMPTY_SPREAD, MAX_ROUNDS, MIN_ROUNDS, Draws, Rounds
from opweld.judge.measure.significance import (
    NUM_SETS,
    compare,
    is_to_be_repeated,
    least_against,
)
from opweld.judge.measure.steps import Gradients, can_step
from opweld.judge.process.memory import available_bytes
from opweld.judge.tree import tensors
from opweld.judge.values import Check, Comparison, Samples, Settings, StepTiming, Timing
from opweld.judge.verify.run import Run

# Below this share of the limit a time is not explained by a noisy measurement of the limit.
IMPLAUSIBLE = 0.8
_LEAST_MS = 1e-6  # what is left of a block may be nothing
# Different inputs in the pool, and the bytes that they may take together; without
# floating-point inputs to roll the pool alone makes calls differ.
_POOL_SIZE, _POOL_SIZE_UNROLLED, _POOL_BYTES = 4, 16, 2**28
_LARGE_ELEMS = 2**22
# What the inputs and outputs of one block may take of the free memory, and its most calls.
_BLOCK_SHARE_OF_MEMORY = 0.25
_MAX_CALLS = {"cuda": 200, "cpu": 1000}
# Outputs up to this size are compared in every round, larger ones in some.
_CHEAP_AUDIT_BYTES, _NUM_AUDITS = 2**20, 3
# How often the rounds are run before a check that fails counts, and the least number of rounds
# of the later tries: on a machine with three times as many busy processes as cores one round
# tells nothing, and the middle one of fifteen does.
_NUM_TRIES, _DOUBT_ROUNDS = 3, 15
# Of the time budget: eager on its own, and the least number of its rounds.
_ALONE_SHARE, _ALONE_ROUNDS = 0.25, 3


class Audit(Protocol):
    """Whoever judges the outputs of timed calls."""

    def add(self, make: Callable[[], Call], run: Run) -> None:
        """What ModelNew returned for the inputs that `make` makes."""
        ...

    def check(self) -> Check: ...


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures, and the checks on them; `ended` says that the candidate is no more."""

    timing: Timing
    checks: tuple[Check, ...]
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """Inputs to roll; `num_rolls` 1 where they are taken as they are, and `note` why. Inputs and
    outputs of one call have `call_bytes`.
    """

    calls: tuple[Call, ...]
    num_rolls: int
    call_bytes: int
    note: str | None = None

    def draws(self) -> Draws:
        return Draws(len(self.calls), self.num_rolls)

    def call(self, entry: tuple[int, int]) -> Call:
        """What an entry of an order stands for, in fresh memory."""
        return rolled(self.calls[entry[0]], entry[1])


@dataclass(frozen=True, slots=True)
class Alone:
    """The pool, and times of eager in ms from before ModelNew was imported."""

    pool: Pool
    eager_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Contest:
    """What is timed, and how.

    `audit` judges the outputs of some timed calls, `end_candidate` ends ModelNew's processes.
    `accepted` names the precision of products that the verdict accepts, by default the original's;
    `answer` has a process like ModelNew's answer, which ModelNew cannot make slow.
    """

    original: nn.Module
    candidate: Timed
    alone: Alone
    device: torch.device
    settings: Settings
    phase: Phase
    audit: Audit | None = None
    end_candidate: Callable[[], None] | None = None
    accepted: str | None = None
    answer: Callable[[], None] | None = None

    @property
    def pool(self) -> Pool:
        return self.alone.pool


def make_pool(original: nn.Module, make: Callable[[int], Call], device: torch.device) -> Pool:
    """Inputs of the draws from 1 on, as many as memory allows; draw 0 is what was judged.

    Rolled inputs that the original refuses (it wants a symmetric matrix, say) are not rolled.
    """
    first = make(1)
    rolls = num_rolls(first)
    note, call_bytes = None, 0
    try:
        for offset in _tried_offsets(first, rolls):
            call_bytes = _call_bytes(original, rolled(first, offset))
    except Exception as error:
        refusal = brief(error, 160)
        rolls, note = 1, f"timed on inputs as they are: the original refuses rolled ones, {refusal}"
    size = sum(map(limits.touched_bytes, first.tensors()))
    room = min(_POOL_BYTES, available_bytes(device) // 8) // max(size, 1)
    count = max(1, min(_POOL_SIZE if rolls > 1 else _POOL_SIZE_UNROLLED, room))
    calls = first, *(make(draw) for draw in range(2, count + 1))
    return Pool(calls, rolls, call_bytes or _call_bytes(original, first), note)


def alone(
    original: nn.Module, make: Callable[[int], Call], device: torch.device, settings: Settings
) -> Alone:
    """Inputs for all timing, and eager timed on them. Call it before ModelNew is imported."""
    pool = make_pool(original, make, device)
    return Alone(pool, time_alone(original, pool, device, settings))


def time_alone(
    original: nn.Module, pool: Pool, device: torch.device, settings: Settings
) -> tuple[float, ...]:
    """Times of eager in ms, without anything beside it."""
    side = LocalTimed(original, clock_of(device))
    side.prepare(pool.calls)
    with torch.no_grad():
        rounds = Rounds({"eager": side}, pool.draws(), _max_calls(pool, device, settings))
        budget_s = _ALONE_SHARE * settings.budget_s
        rounds.run(budget_s, num_runs=settings.num_runs, least=_ALONE_ROUNDS)
    return tuple(rounds.records["eager"].times())


def time_sides(contest: Contest, left_s: float = math.inf) -> Measured:
    """Figures of all sides; a baseline that fails is a note. At most half of `left_s` is used for
    the rounds, where fewer than the usual number of them do."""
    original, device, settings = contest.original, contest.device, contest.settings
    call = contest.pool.call((0, 0))
    clock, names = clock_of(device), chosen(settings, device)
    made, notes = baselines(original, call, clock, names, contest.phase, left_s)
    sides: dict[str, Timed] = {"eager": LocalTimed(original, clock), **made}
    sides["opweld"] = contest.candidate
    for side in sides.values():
        side.prepare(contest.pool.calls)
    contest.phase(NEW, "timing")
    most = _max_calls(contest.pool, device, settings)
    make = functools.partial(
        Rounds,
        draws=contest.pool.draws(),
        max_calls=most,
        audited="opweld",
        answer=contest.answer,
        processors=_processors(device),
    )
    rounds = make(sides)
    checks = _run_again_if_in_doubt(contest, rounds, left_s)
    pair = {name: sides[name] for name in ("eager", "opweld")}
    more = functools.partial(make, pair)
    against = _against_eager(contest, rounds, more, left_s)
    step = None
    if settings.step:
        step, checked = _time_steps(contest, sides, notes, left_s)
        checks += [checked]
    contest.candidate.prepare(())
    contest.phase(ORIGINAL, "measuring the limit")
    if after := _baseline_after(contest, rounds, checks):
        checks = [after if check.name == after.name else check for check in checks]
    with torch.no_grad():
        timing, sheet = _conclude(contest, rounds, against, notes)
    timing = replace(timing, step=step)
    return Measured(timing, (*checks, sheet), ended=after is not None)


def _time_steps(
    contest: Contest, sides: dict[str, Timed], notes: list[str], left_s: float
) -> tuple[StepTiming | None, Check]:
    """Steps of training of eager, torch.compile and ModelNew, and whether gradients are eager's."""
    original, pool, gradients = contest.original, contest.pool, Gradients(contest.original)
    if not can_step(original, pool.call((0, 0))):
        notes.append("no step is timed: nothing of the model has gradients")
        return None, gradients.check()
    names = ("eager", "compile", "opweld")
    chosen_sides: dict[str, Timed] = {name: sides[name] for name in names if name in sides}
    for name, side in [*chosen_sides.items()]:
        contest.phase(NEW if name == "opweld" else ORIGINAL, "timing steps of training")
        side.prepare(pool.calls, True)
        if name == "compile" and (why := _cannot_compile(side, pool, left_s)):
            notes.append(why)
            del chosen_sides[name]
    contest.phase(NEW, "timing steps of training")
    num_bytes = sum(p.numel() * p.element_size() for p in original.parameters())
    bounded = replace(pool, call_bytes=pool.call_bytes + num_bytes)
    most = _max_calls(bounded, contest.device, contest.settings)
    rounds = Rounds(
        chosen_sides,
        pool.draws(),
        most,
        "opweld",
        answer=contest.answer,
        processors=_processors(contest.device),
    )
    settings = contest.settings

    def look(entry: tuple[int, int], run: Run) -> None:
        gradients.add(pool.call(entry), run)

    rounds.run(settings.budget_s, left_s / _NUM_TRIES, settings.num_runs, look, 1, _ALONE_ROUNDS)
    found = {name: _samples(rounds, name) for name in chosen_sides}
    timing = StepTiming(found["eager"], found.get("compile"), found["opweld"])
    return timing, gradients.check()


def _cannot_compile(side: Timed, pool: Pool, left_s: float) -> str:
    """Why torch.compile makes no step; its first one compiles."""
    try:
        with deadline(left_s / 4):
            side.arm([(0, 0)])
            side.block(True)
            side.release()
    except Exception as error:
        return f"torch.compile made no step of training: {brief(error)}"
    return ""


def _run_again_if_in_doubt(contest: Contest, rounds: Rounds, left_s: float) -> list[Check]:
    """The checks of the rounds; what fails counts if it fails in other rounds, too.

    The outputs of all rounds are judged together: a wrong one stays wrong.
    """
    settings, pool, found = contest.settings, contest.pool, list[Check]()

    def look(entry: tuple[int, int], run: Run) -> None:
        assert contest.audit is not None
        contest.audit.add(lambda: pool.call(entry), run)

    cheap = pool.call_bytes <= _CHEAP_AUDIT_BYTES
    audit, count = look if contest.audit else None, MAX_ROUNDS if cheap else _NUM_AUDITS
    for turn in range(_NUM_TRIES):
        num_runs, least = (settings.num_runs, MIN_ROUNDS) if turn == 0 else (None, _DOUBT_ROUNDS)
        share_s = left_s / (2 * _NUM_TRIES)
        rounds.run(settings.budget_s, share_s, num_runs, audit, count, least)
        found = _checks(contest, rounds)
        if all(check.passed for check in found):
            break
    return [*found, contest.audit.check()] if contest.audit else found


def _checks(contest: Contest, rounds: Rounds) -> list[Check]:
    new, eager = rounds.records["opweld"], rounds.records["eager"]
    return [
        consistency.time_from_outside(new, eager),
        consistency.deferred_work(new.touches, summarise(new.times()).median),
        _baseline(contest, rounds),
    ]


def _baseline(contest: Contest, rounds: Rounds, after: tuple[float, ...] = ()) -> Check:
    during = rounds.records["eager"].times()
    on_gpu = contest.device.type != "cpu"  # there kernels that run on disturb
    return consistency.baseline_undisturbed(
        contest.alone.eager_ms, during, after, rounds.busy_share(), on_gpu
    )


def _baseline_after(contest: Contest, rounds: Rounds, found: list[Check]) -> Check | None:
    """Where the baseline looks disturbed, eager is timed again when the candidate has ended."""
    disturbed = any(c.name == consistency.BASELINE and not c.passed for c in found)
    if not disturbed or contest.end_candidate is None or contest.device.type == "cpu":
        return None
    contest.end_candidate()
    after = time_alone(contest.original, contest.pool, contest.device, contest.settings)
    return _baseline(contest, rounds, after)


def _against_eager(
    contest: Contest, rounds: Rounds, more: Callable[[], Rounds], left_s: float
) -> Comparison | None:
    """Whether ModelNew is slower than eager, or faster; None where eager was not asked for.

    Where the rounds say so, and not by far, it counts if further sets of rounds say so, too. `more`
    times these two sides alone.
    """
    settings = contest.settings
    if "eager" not in settings.baselines:
        return None
    sets = [compare(rounds.pairs("opweld", "eager"))]
    while sets[-1] is not None and is_to_be_repeated(sets[-1]) and len(sets) < NUM_SETS:
        again = more()
        again.run(settings.budget_s, left_s / (4 * NUM_SETS), settings.num_runs)
        sets.append(compare(again.pairs("opweld", "eager")))
    return least_against(sets)


def _conclude(
    contest: Contest, rounds: Rounds, vs_eager: Comparison | None, notes: list[str]
) -> tuple[Timing, Check]:
    original, device, call = contest.original, contest.device, contest.pool.call((0, 0))
    samples = {name: _samples(rounds, name) for name in rounds.records}
    outputs, flops = limits.run_counted(original, call)
    num_bytes = limits.moved_bytes(original, call, outputs)
    del outputs
    copy, copied_bytes = limits.copy_samples(device)
    bandwidth = copied_bytes / copy.median / 1e6
    rate = limits.product_tflops(device, main_dtype(original, call)) if flops else None
    limit_ms, reason = limits.limit(num_bytes, flops, bandwidth, rate)
    new = samples["opweld"]
    work = Work(num_bytes, flops, contest.accepted or product_precision(original, call))
    ceiling = ceiling_of(device, copied_bytes / copy.p10 / 1e6)
    make = functools.partial(contest.pool.call, (0, 0))
    sheet, sheet_ms = hold_against(ceiling, new.median, work, original, make)
    if new.median < IMPLAUSIBLE * limit_ms:
        notes.append(
            f"ModelNew is faster than the limit, {limit_ms / new.median:.3g} times as fast as"
            " the original's own work allows: caches hold the data, or it does less"
        )
    notes += _spread_notes(rounds)
    if contest.pool.note:
        notes.append(contest.pool.note)
    timing = Timing(
        eager_ms=samples["eager"] if "eager" in contest.settings.baselines else None,
        compile_ms=samples.get("compile"),
        opweld_ms=new,
        limit_ms=limit_ms,
        limit_reason=reason,
        protocol=protocol(device),
        copy_gbps=bandwidth,
        product_tflops=rate,
        device=str(device),
        notes=tuple(notes),
        graph_ms=samples.get("graph"),
        autotune_ms=samples.get("autotune"),
        inside_ms=summarise(rounds.records["opweld"].times()),
        data_sheet_ms=sheet_ms,
        vs_eager=vs_eager,
    )
    return timing, consistency.unless_unsteady(sheet, timing, samples["eager"])


def _samples(rounds: Rounds, name: str) -> Samples:
    """Median and spread over the blocks, by the clock of this process; `n` counts their calls."""
    found = summarise([max(ms, _LEAST_MS) for ms in rounds.call_ms(name)])
    return replace(found, n=len(rounds.records[name].times()))


def _spread_notes(rounds: Rounds) -> list[str]:
    """Where the empty blocks differ by too much of what is left when they are taken off."""
    spread = max(record.empty_spread() for record in rounds.records.values())
    if spread <= EMPTY_SPREAD:
        return []
    return [f"empty blocks vary by {spread:.1%} of what calls take: the machine is busy"]


def protocol(device: torch.device) -> str:
    """One sentence on how the times of this device are taken."""
    if device.type == "cuda":
        return (
            "medians of interleaved blocks by the judge's wall clock, less the same blocks without"
            " calls, after warm-up, each call on inputs of its own after a write over"
            f" {FLUSH_BYTES // 2**20} MiB that empties the L2 cache"
        )
    return (
        "medians of interleaved blocks by the judge's wall clock, less the same blocks without"
        " calls, after warm-up, each call on inputs of its own,"
        f" caches as the runs leave them, {torch.get_num_threads()} threads"
    )


def _processors(device: torch.device) -> set[int]:
    """Of which one is to call a GPU; what computes on the CPU takes those that it likes."""
    return os.sched_getaffinity(0) if device.type != "cpu" else set()


def _max_calls(pool: Pool, device: torch.device, settings: Settings) -> int:
    """The most calls of one block, by the memory that it holds."""
    room = int(_BLOCK_SHARE_OF_MEMORY * available_bytes(device))
    fitting = room // max(pool.call_bytes, 1)
    return max(1, int(min(_MAX_CALLS[device.type], settings.num_runs or math.inf, fitting)))


def _call_bytes(original: nn.Module, call: Call) -> int:
    """Inputs and outputs of one call."""
    with torch.no_grad():
        outputs = original(*call.args, **call.kwargs)
    return sum(map(limits.touched_bytes, (*call.tensors(), *tensors(outputs))))


def _tried_offsets(call: Call, rolls: int) -> tuple[int, ...]:
    """By how much inputs are rolled to see whether the original takes them; large ones once."""
    offsets = (1, rolls // 2, rolls - 1) if rolls > 1 else ()
    return offsets[:1] if sum(t.numel() for t in call.tensors()) > _LARGE_ELEMS else offsets
