"""Whether the times that a candidate's process reports can be true: pure functions of samples.

Each gives a check. An honest candidate has to pass however busy the machine is, so what counts is
the middle of many blocks, every allowance has a part that is measured on the original under the
same protocol, and the caller measures again before a failure stands.
"""

from __future__ import annotations

from collections.abc import Sequence

from opweld.judge.measure.clock import quantile
from opweld.judge.measure.datasheet import FASTER_THAN_ROUNDED
from opweld.judge.measure.rounds import Block, Record, Touch
from opweld.judge.values import MOST_VARIATION, Check, Samples, Timing

OUTSIDE, DEFERRED = "time from outside", "deferred work"
BASELINE, DATA_SHEET = "baseline undisturbed", "the data sheet"

# What the calls of a block report must be at least this much of what the block took outside.
SHARE = 0.8
# Slow blocks of the original over its fast ones, at most, on a machine to measure on.
UNSTEADY = 2.0
# An answer from another process comes within this time of its end, also on a busy machine.
ANSWER_JITTER_MS = 0.3
# Getting a result the first time may take this share of a call longer than the second time.
DEFERRED_SHARE = 0.25
FETCH_JITTER_MS = 0.05
# How much slower the baseline may be beside the candidate than without it.
DISTURBED_RATIO = 1.25
# Processors that processes which are to stand still may keep busy.
BUSY_SHARE = 0.25


def hidden_ms(block: Block, empty_ms: float) -> float:
    """Ms per call that the block took outside and its calls do not account for."""
    return (block.outside - empty_ms - sum(block.inside)) / max(len(block.inside), 1)


def time_from_outside(candidate: Record, original: Record) -> Check:
    """The calls of a block must add up to at least `SHARE` of what the block took outside.

    Subtracted first: the empty block, and as an allowance what the same subtraction leaves of the
    original's blocks. That is its median a call, and a block three times the distance from the
    median to the 90 percent mark, but at least `ANSWER_JITTER_MS`. The middle one of the blocks
    counts, so work has to be hidden in half of all blocks to change a median, and there it shows.

    Where the original's own blocks, which run while the candidate stands still, differ by more than
    `UNSTEADY`, the machine is too busy for two clocks to be held against each other.
    """
    outside = candidate.call_ms(original)
    inside = [sum(b.inside) / max(len(b.inside), 1) for b in candidate.blocks]
    allowed = _allowance_ms(original, candidate.num_calls)
    margins = [i - SHARE * (o - allowed) for i, o in zip(inside, outside, strict=True)]
    passed = _median(margins) >= 0
    detail = f"{_median(inside):.4g} ms a call inside, {_median(outside):.4g} ms outside"
    if not passed and (factor := unsteadiness(original)) > UNSTEADY:
        detail += (
            f": eager's own blocks differ by a factor of {factor:.1f}, too busy a machine to tell"
        )
        return Check(OUTSIDE, True, detail, skipped=True)
    if not passed:
        detail += ": work is done that its own clock does not see, or that clock is wrong"
    return Check(OUTSIDE, passed, detail)


def unless_unsteady(check: Check, timing: Timing, original: Samples) -> Check:
    """The check; one that failed is skipped where the original's times, too, vary so much that no
    speed is claimed: a block less the same block without calls may leave nothing there.
    """
    if check.passed or timing.is_steady or original.variation <= MOST_VARIATION:
        return check
    varies = f"eager's times vary {original.variation:.0f}-fold"
    detail = f"{check.detail}: {varies}, too busy a machine to tell"
    return Check(check.name, True, detail, skipped=True)


def unsteadiness(record: Record) -> float:
    """How much slower than its fast blocks the slow blocks of a side are, by the clock outside."""
    took = sorted(b.outside / max(len(b.inside), 1) for b in record.blocks)
    least = quantile(took, 0.1) if took else 0.0
    return quantile(took, 0.9) / least if least > 0 else 1.0


def deferred_work(touches: Sequence[Touch], call_ms: float) -> Check:
    """To get elements of a result the first time takes no longer than the second time.

    Otherwise part of the work is done when the result is looked at. Allowed are `DEFERRED_SHARE` of
    a call's time, `FETCH_JITTER_MS`, or three times what the second and the third time differ by,
    whichever is most; the median over all blocks counts.
    """
    if not touches:
        return Check(DEFERRED, True, "no result was looked at", skipped=True)
    extra = _median([t.first - t.second for t in touches])
    again = sorted(abs(t.second - t.third) for t in touches)
    allowed = max(DEFERRED_SHARE * call_ms, FETCH_JITTER_MS, 3 * quantile(again, 0.9))
    passed = extra <= allowed
    detail = "a result is there when the call returns"
    if not passed:
        detail = (
            f"a result takes {extra:.4g} ms longer to get the first time than the second: work is"
            f" put off until after the call of {call_ms:.4g} ms"
        )
    return Check(DEFERRED, passed, detail)


def baseline_undisturbed(
    before: Sequence[float],
    during: Sequence[float],
    after: Sequence[float] = (),
    busy_share: float = 0.0,
    unseen: bool = True,
) -> Check:
    """Eager takes the same beside the candidate as before it was imported (and after it ended).

    It counts as disturbed where the candidate's processes kept `busy_share` processors busy while
    eager ran and they were to stand still, more than `BUSY_SHARE`. Where they can disturb `unseen`
    too (a GPU), the times decide: even the faster quarter of eager's runs beside the candidate is
    more than `DISTURBED_RATIO` above the slower quarter of those without. Chance would have to hit
    three quarters of the one and spare three quarters of the other, and a machine that became
    slower stays so: give `after`.
    """
    if not before or not during:
        return Check(BASELINE, True, "eager was not timed", skipped=True)
    quiet = max(quantile(sorted(times), 0.75) for times in (before, after) if times)
    slower = quantile(sorted(during), 0.25) > DISTURBED_RATIO * quiet
    detail = f"eager {_median(before):.4g} ms before ModelNew, {_median(during):.4g} ms beside it"
    if busy_share > BUSY_SHARE:
        detail += f": processes of ModelNew keep {busy_share:.2g} processors busy meanwhile"
        return Check(BASELINE, False, detail)
    if slower:
        detail += (
            ": ModelNew slows down what it is compared with"
            if unseen
            else ": the machine became slower, and ModelNew stood still"
        )
    return Check(BASELINE, not (slower and unseen), detail)


def data_sheet(
    call_ms: float, num_bytes: float, gbps: float | None, flops: float, tflops: float | None
) -> tuple[Check, float | None]:
    """No call is faster than its bytes and its operations at the peaks of the data sheet.

    `num_bytes` and `flops` are what any computation of the same results must move and do
    (`limits.py`). The result's second part is the least time in ms, None where nothing is known.
    """
    move_ms = num_bytes / gbps / 1e6 / FASTER_THAN_ROUNDED if gbps else 0.0
    compute_ms = flops / tflops / 1e9 if tflops else 0.0
    least_ms = max(move_ms, compute_ms)
    if not least_ms:
        return Check(DATA_SHEET, True, "no peak is known, or nothing is bound by it", True), None
    if move_ms >= compute_ms:
        reason = f"{num_bytes / 1e6:.4g} MB at no more than {gbps:.4g} GB/s"
    else:
        reason = f"{flops / 1e9:.4g} GFLOP at no more than {tflops:.4g} TFLOP/s"
    passed = call_ms >= least_ms
    detail = f"at least {least_ms:.4g} ms: {reason}"
    if not passed:
        detail = f"{call_ms:.4g} ms is faster than the device can be: {detail}"
    return Check(DATA_SHEET, passed, detail), least_ms


def _allowance_ms(original: Record, num_calls: int) -> float:
    """What blocks of the original leave unexplained, for one call of a block of `num_calls`."""
    per_call = _median([hidden_ms(b, b.empty) for b in original.blocks])
    per_block = sorted(hidden_ms(b, b.empty) * len(b.inside) for b in original.blocks)
    spread = quantile(per_block, 0.9) - quantile(per_block, 0.5)
    return max(per_call, 0.0) + max(3 * spread, ANSWER_JITTER_MS) / num_calls


def _median(values: Sequence[float]) -> float:
    return quantile(sorted(values), 0.5)
