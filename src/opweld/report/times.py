"""Times side by side, as bars: what the template draws."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.judge.measure.significance import describe, verdict
from opweld.judge.values import Samples, StepTiming, Timing
from opweld.report.scale import figure, ratio


@dataclass(frozen=True, slots=True)
class Bar:
    """One side: its bar and the marks of its 10th and 90th percentile, in percent of the width."""

    name: str
    ms: str
    width: float
    low: float | None
    high: float | None
    beside: str
    kind: str


@dataclass(frozen=True, slots=True)
class Times:
    bars: tuple[Bar, ...]
    floor: float
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def times_of(timing: Timing) -> Times:
    """Bars of all sides that were timed, and the roofline's, which nothing can be faster than."""
    sides = (
        ("eager", timing.eager_ms, "eager"),
        ("torch.compile", timing.compile_ms, "compile"),
        ("torch.compile, max-autotune", timing.autotune_ms, "compile"),
        ("CUDA graph of eager", timing.graph_ms, "eager"),
        ("ModelNew", timing.opweld_ms, "new"),
    )
    timed = [(name, samples, kind) for name, samples, kind in sides if samples]
    most = max([timing.limit_ms, *(max(s.median, s.p90) for _, s, _ in timed)]) or 1.0
    scale = 100.0 / most
    ours = timing.opweld_ms.median
    bars = [_bar(name, samples, kind, scale, ours) for name, samples, kind in timed]
    floor = round(timing.limit_ms * scale, 2)
    share = f"{100 * timing.limit_ms / ours:.0f} % of ModelNew's time" if ours else ""
    bars.append(Bar("floor", figure(timing.limit_ms, "ms"), floor, None, None, share, "floor"))
    return Times(tuple(bars), floor, tuple(_facts(timing)), _notes(timing))


def _bar(name: str, samples: Samples, kind: str, scale: float, ours: float) -> Bar:
    beside = ""
    if kind != "new" and ours:
        beside = f"{ratio(samples.median / ours)} ModelNew's time"
    return Bar(
        name,
        figure(samples.median, "ms"),
        round(samples.median * scale, 2),
        round(samples.p10 * scale, 2),
        round(samples.p90 * scale, 2),
        beside,
        kind,
    )


def _facts(timing: Timing) -> list[tuple[str, str]]:
    found = [("floor", timing.limit_reason)]
    if timing.data_sheet_ms:
        data_sheet = f"nothing is faster than {figure(timing.data_sheet_ms, 'ms')} by data sheet"
        found.append(("device", data_sheet))
    if timing.step:
        found.append(("a step of training", _step(timing.step)))
    found.append(("protocol", timing.protocol))
    if timing.vs_eager:
        pairs = f"{describe(timing.vs_eager)}: {verdict(timing.vs_eager)}"
        found.append(("in pairs with eager", pairs))
    return found


def _step(step: StepTiming) -> str:
    sides = (("eager", step.eager_ms), ("torch.compile", step.compile_ms))
    others = [f"{name} {figure(samples.median, 'ms')}" for name, samples in sides if samples]
    return ", ".join([f"ModelNew {figure(step.opweld_ms.median, 'ms')}", *others])


def _notes(timing: Timing) -> tuple[str, ...]:
    if timing.is_steady:
        return timing.notes
    unsteady = f"Times vary {timing.variation:.0f}-fold on this busy machine: no speed is claimed"
    return (unsteady, *timing.notes)
